package journal

import (
	"context"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// Store is what an adapter implements: load and lock, let the pure function decide,
// write what it returns, in one transaction. An adapter knows nothing of budgets.
type Store interface {
	// Step runs one transaction. The adapter must take its write lock first, only then
	// read what the plan names, call decide exactly once, and write and commit the Changes,
	// or write nothing when they are empty or decide returns an error, which Step
	// returns as it is. When Step has returned without an error the changes survive a
	// crash of the process and of the machine.
	//
	// Concurrency: safe for concurrent use; transactions are serial.
	// Errors: decide's own, ErrUnavailable (nothing was committed), ErrUnknownOutcome, ErrCorrupt.
	Step(ctx context.Context, plan *Plan, decide func(*Loaded) (*Changes, error)) error

	// View loads the same values without a lock and decides nothing.
	// Errors: ErrUnavailable, ErrCorrupt.
	View(ctx context.Context, plan *Plan) (*Loaded, error)

	// Close gives up the journal for another to open. What was written stays.
	Close() error
}

// Plan names the rows of one transaction. Lists are free of repetitions.
type Plan struct {
	Accounts     []escrow.Account // whose open grants and meters are wanted
	Reservations []ID             // wanted, those that there are, with every grant and meter of which they hold something
	Everything   bool             // every grant and meter is wanted
	OnTheirWay   bool             // every reservation that has not ended is wanted
}

// Loaded is what a transaction decides on. All of it belongs to decide. What exists
// is there once, in any order.
type Loaded struct {
	Meta    Meta // zero where no journal was opened yet
	Grants  []Grant
	Records []Record
}

// Meta is the journal's one row.
type Meta struct {
	// Boot and Number say who may use the journal: the opening that wrote them, and no
	// other. Every transaction compares them.
	Boot   escrow.BootID
	Number int64
	// Node is whose journal it is, and Namespace whose grants it holds; empty until known.
	Node      string
	Namespace policy.Namespace
	// Ended counts the reservations that ended, Acked how many of them the authority has
	// been told of, and Forgotten up to which number they were removed.
	Ended, Acked, Forgotten int64
	// Poison is zero while reserving is allowed.
	Poison Poison
}

// Poison is the first overrun that no operator has released.
type Poison struct {
	Reservation ID
	Used        amount.MicroUSD
	Bound       amount.MicroUSD
}

// Note records what an operator did. It is kept.
type Note struct {
	Actor  string
	Action string // "release" or "readmit"
	Reason string
	Poison Poison
}

// Changes is what a transaction writes.
type Changes struct {
	Meta    *Meta   // the new state
	Grants  []Grant // new, or new states of loaded ones
	Dropped []escrow.GrantID
	Made    []Record // new
	Changed []Record // new states of loaded ones: all but the id and the fingerprint
	Forget  int64    // ended reservations up to this number are removed; zero: none
	Notes   []Note
}

// Empty reports that there is nothing to write.
func (c *Changes) Empty() bool {
	return c == nil || (c.Meta == nil && len(c.Grants) == 0 && len(c.Dropped) == 0 && len(c.Made) == 0 && len(c.Changed) == 0 && c.Forget == 0 && len(c.Notes) == 0)
}
