package governance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
	"github.com/tallystick-go/tallystick/ratelimit"
)

// Store is what an adapter implements: load and lock, let the pure function
// decide, write what it returns, in one transaction (or under one mutex). An
// adapter knows nothing of limits.
//
// Source: internal/docs/architecture.md "The path of one call".
type Store interface {
	// Step runs one transaction. The adapter must, in this order:
	//
	//  1. make sure that every plan.Constraints row exists;
	//  2. lock the row of plan.Node, if there is one, and then the plan.Constraints rows in
	//     the given order (with plan.SkipLocked: those that are free);
	//  3. only then read its clock, the cells, the definitions and the permits, as they are now;
	//  4. call decide exactly once with all that, in the order of the plan;
	//  5. write the Changes and commit, or write nothing when Changes.Empty().
	//
	// Definitions are read, not locked; an edit of a definition must not return before
	// every Step that read the older one has ended.
	//
	// Concurrency: safe for concurrent use, by any number of processes where the
	// storage can be shared. Steps that share a constraint are serial.
	// Retry: never repeats decide within one call; an error other than
	// ErrUnknownOutcome proves that nothing was committed.
	// Errors: ErrRetry, ErrLockTimeout, ErrPoison, ErrUnavailable, ErrUnknownOutcome,
	// ErrCorrupt. After a lost commit answer the adapter must first try, within the
	// context's deadline, to learn the truth by plan.Batch (see Batch).
	Step(ctx context.Context, plan *Plan, decide func(*Loaded) *Changes) error

	// View loads the same values without locks and without creating anything.
	// Errors: ErrUnavailable, ErrCorrupt.
	View(ctx context.Context, plan *Plan) (*Loaded, error)

	// Permits lists permits in the order of their ids.
	// Errors: ErrUnavailable, ErrCorrupt.
	Permits(ctx context.Context, q PermitQuery) ([]Record, error)

	// Accounts lists account cells (not rates, not slots) in the order of
	// (constraint, window start).
	// Errors: ErrUnavailable, ErrCorrupt.
	Accounts(ctx context.Context, q AccountQuery) ([]Cell, error)

	// Notes lists what operators did, in the order of the numbers.
	// Errors: ErrUnavailable, ErrCorrupt.
	Notes(ctx context.Context, q NoteQuery) ([]Note, error)

	// Forget raises the horizon to before, in µs, or to an earlier instant that suits
	// how the store keeps permits; it never lowers it and removes nothing. When it has
	// returned, no Step that read an older horizon is still under way.
	//
	// Retry: safe. Errors: ErrUnavailable (the horizon may have risen), ErrCorrupt.
	Forget(ctx context.Context, before int64) (Memory, error)

	// Prune removes permits whose ids are older than the horizon, and then the batches of
	// which no permit is left, in transactions of bounded size. It must keep open permits,
	// ask judge about each of the others, with its terms, remove it only if judge says so,
	// and add what judge says of it to Memory.Total in the transaction that removes it.
	// What is kept must be found by Step, View and Permits as before, and change as before.
	//
	// Concurrency: beside everything else, another Prune included.
	// Retry: after any error, or a crash between any two statements, nothing is half
	// removed, and a repetition goes on. What is returned with an error was done.
	// Errors: ErrLockTimeout, ErrUnavailable, ErrUnknownOutcome, ErrCorrupt.
	Prune(ctx context.Context, judge Judge) (Swept, error)
}

// Stores is one database as the Governor sees it: its keys and its counters, in
// one place so that they cannot be two databases.
type Stores struct {
	Keys  keys.Store
	Store Store
	// Policies may be nil: then there are none, and no plan asks for their mark.
	Policies policy.Store
	// Nodes may be nil: then the storage keeps none, no plan names one, and there can be no
	// Authority on it.
	Nodes escrow.NodeStore
	// Journal is what the storage keeps of a node's grants, in the rows that Plan.Journal names. It
	// may be nil: then no plan names any, and the profile is not policy.Node.
	Journal journal.Store
	// Profile says how the storage can be shared, and so which rules can be enforced on
	// it. Zero is policy.Local.
	Profile policy.Profile
}

// Backend is what New takes: Stores itself, or the handle that an adapter opens.
type Backend interface{ Backend() Stores }

// Backend lets a plain Stores be given to New.
func (s Stores) Backend() Stores { return s }

// Plan names the rows of one step. All lists are free of repetitions.
type Plan struct {
	Batch       BatchID        // identity of the transaction, new for every attempt; before decide returns its time becomes the store's
	Constraints []ConstraintID // rows to lock, sorted by bytes
	Accounts    []AccountKey   // windows wanted whether current or not; their constraints are in Constraints
	Keys        []string       // key ids whose definitions are wanted, sorted
	Permits     []PermitID     // permits wanted, sorted by bytes
	Entries     *EntryQuery    // permits of one account wanted, for verification
	Policies    bool           // the mark of the policies in force is wanted
	Node        string         // row of this node wanted; empty: none
	Journal     *journal.Plan  // rows of the journal wanted, under the same lock; nil: none
	Checkpoint  *AccountKey    // checkpoint of one account wanted; its constraint is in Constraints when there is one to write
	NoTerms     bool           // Record.Terms of Permits are not needed: a store may leave them out
	SkipLocked  bool           // do not wait for rows that others hold
}

// AccountKey names one window of one constraint. Rates and concurrency have one
// window for all time, which starts at zero.
type AccountKey struct {
	Constraint  ConstraintID
	WindowStart int64 // µs since the Unix epoch
}

// Compare orders by the bytes of the constraint, then by the window.
func (k AccountKey) Compare(other AccountKey) int {
	if c := bytes.Compare(k.Constraint[:], other.Constraint[:]); c != 0 {
		return c
	}
	return cmp.Compare(k.WindowStart, other.WindowStart)
}

// EntryQuery asks for the permits that were admitted into one account, in the
// order in which their batches were committed.
type EntryQuery struct {
	Account AccountKey
	After   int64 // entries up to this one are left out
	Limit   int   // at most so many entries (batches)
}

// Loaded is what a step decides on, aligned with its plan.
type Loaded struct {
	Now         int64             // µs since the Unix epoch, the store's clock, read after the locks were held
	Horizon     int64             // µs; ids older than this are forgotten; zero when nothing was pruned
	Current     []Current         // aligned with Plan.Constraints
	Accounts    []Cell            // aligned with Plan.Accounts
	Definitions []keys.Definition // aligned with Plan.Keys
	Policies    policy.Mark       // answer to Plan.Policies: what Stores.Policies has in force, read like a definition
	Node        escrow.NodeRow    // answer to Plan.Node; Data is empty where there is no such row
	Journal     *journal.Loaded   // answer to Plan.Journal, as journal.Store loads it
	Permits     []Record          // aligned with Plan.Permits; State zero where there is none
	Entries     []Record          // answer to Plan.Entries: every permit of the entries found, in the order of Record.Entry
	EntriesRead int64             // number of the last entry read; reading ends before one that is missing, or misses its batch or a permit
	Checkpoint  []byte            // answer to Plan.Checkpoint: Checkpoint.Data as it was written; empty where there is none
}

// Current is a constraint's row with the window that it names.
type Current struct {
	Locked bool         // false: another transaction holds it (SkipLocked)
	Window quota.Window // zero when the row is new
	Cell   Cell         // the state of that window; zero when nothing was written yet
}

// Cell is the state of one window of one constraint. Which part is used follows
// from the constraint's kind. What a store loads belongs to decide, which may
// change it in place.
type Cell struct {
	Key     AccountKey
	End     int64            // end of the window, µs
	Kind    Kind             // zero when there is no such cell yet
	Account quota.Account    // token quota and money
	Bucket  ratelimit.Bucket // rates
	Slots   Slots            // concurrency
	Latch   policy.Percent   // money: the highest threshold of the budget that was reached in the window
	Entries int64            // number of batches that reserved in this account
	Label   Label            // what it counts; filled by Accounts, elsewhere zero
}

// Changes is what a step writes.
type Changes struct {
	Windows []WindowChange   // constraints that entered a window, each once
	Cells   []Cell           // whole new states; each was loaded in this step, or is the first of its window
	Batch   *Batch           // what was admitted
	Permits []Record         // new states of existing permits, with Version one above the loaded one
	Notes   []Note           // records of what operators did
	Node    *escrow.NodeRow  // new state of Plan.Node
	Journal *journal.Changes // of the rows of Plan.Journal, written as journal.Store does

	Checkpoint *Checkpoint // what is known of the entries of one account

	// Events tell what the above makes true. A store that has an event log must append them in the same
	// transaction, in this order: then nothing is told that did not happen, and nothing happens untold. Whoever
	// appends to one of their streams holds the row that the stream is named after, or has made the name. One whose
	// id is in the log already is left out. A store without a log ignores them.
	Events []Event
}

// Empty reports that there is nothing to write. There are no events of nothing.
func (c *Changes) Empty() bool {
	return c == nil || (len(c.Windows) == 0 && len(c.Cells) == 0 && c.Batch == nil && len(c.Permits) == 0 && len(c.Notes) == 0 && c.Checkpoint == nil && c.Node == nil && c.Journal.Empty())
}

// WindowChange moves a constraint's row to another window. A store keeps the label
// with the row: the id is a hash, and a definition may be gone when somebody asks.
type WindowChange struct {
	Constraint ConstraintID
	Window     quota.Window
	Label      Label
}

// Batch is one transaction's admissions. A store must insert ID under a unique
// constraint. To learn whether a transaction whose commit was not acknowledged
// did commit, it inserts a tombstone under the same id: the insert waits for a
// transaction in doubt, fails when that one committed, and makes a later commit
// impossible when it succeeds.
//
// Source: internal/docs/guarantees.md "Ambiguity".
type Batch struct {
	ID      BatchID
	At      int64    // µs
	Terms   [][]byte // what permits captured, shared between equal permits
	Entries []Entry  // accounts in which this batch reserved
	Permits []Record
}

// Entry says that a batch is the Number-th that reserved in an account. Numbers
// start at 1 and have no gaps.
type Entry struct {
	Account AccountKey
	Number  int64
}

// State is where a permit stands. The numbers are stored and never change.
type State uint8

// The states of a permit.
const (
	StateOpen State = iota + 1
	StateSettled
	StateCancelled
	StateResolved
)

func (s State) String() string {
	switch s {
	case StateOpen:
		return "open"
	case StateSettled:
		return "settled"
	case StateCancelled:
		return "cancelled"
	case StateResolved:
		return "resolved"
	}
	return "none"
}

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Flags tell what an operator should look at. They are stored.
type Flags uint16

// The flags of a permit.
const (
	FlagTokensUncertain Flags = 1 << iota // the tokens used are not known: the bound is held
	FlagCostUncertain                     // the cost is not known: the bound is held
	FlagOverrun                           // more was used than reserved
	FlagInvalid                           // what was reported is impossible: accounts are frozen
	FlagFree                              // explicitly free: money constraints were not applied
	FlagUnpriced                          // no price bounds the cost: there were no money constraints
	FlagGrant                             // a grant or a meter of a node, not an attempt: Tokens is zero, Cost what was granted
	FlagMeter                             // with FlagGrant: a meter of a soft budget
	FlagBurned                            // with FlagGrant: taken by a crash, the rest is uncertain
	FlagJournal                           // it reserved in the node's journal too, under its id
)

// Record is a permit as it is stored.
type Record struct {
	ID          PermitID
	Batch       BatchID
	TermsIndex  int    // into Batch.Terms, when written
	Terms       []byte // the captured terms, when loaded
	Owner       Nonce
	Fingerprint Fingerprint // zero when the id was minted by the Governor
	At          int64       // µs, when admitted
	EndedAt     int64       // µs, when settled, cancelled or resolved
	State       State
	Flags       Flags
	Version     int32   // rises by one with every change
	Tokens      int64   // reserved
	Cost        int64   // reserved, microUSD
	Segments    []byte  // the segments held in buckets; of a grant, what was reported of it
	Outcome     Outcome // as the owner reported it
	Resolution  Outcome // as an operator decided it, when StateResolved
	Entry       int64   // in Loaded.Entries: the entry that it was read with
}

func (rec *Record) bound() Bound {
	return Bound{
		Tokens: amount.Tokens(rec.Tokens), Cost: amount.MicroUSD(rec.Cost),
		Free: rec.Flags&FlagFree != 0, Unpriced: rec.Flags&FlagUnpriced != 0,
	}
}

// Note records what an operator did and why.
type Note struct {
	Number  int64 // given by the store: rising, from 1
	At      int64 // µs since the Unix epoch, the store's clock
	Actor   string
	Action  string // "resolve", "reconcile", "unfreeze", "prune", "pruned", or what Governor.Note was told
	Permit  PermitID
	Account AccountKey
	Reason  string
	Before  string // JSON
	After   string // JSON
}

// PermitQuery selects permits. Zero fields, Limit apart, select all.
type PermitQuery struct {
	After  PermitID // ids up to this one are left out
	Limit  int      // at most so many, one or more
	States []State
	Flags  Flags // any of these; combined with States by "or"
}

// Matches reports whether the query selects a permit, its id apart.
func (q *PermitQuery) Matches(rec *Record) bool {
	if len(q.States) == 0 && q.Flags == 0 {
		return true
	}
	return slices.Contains(q.States, rec.State) || (q.Flags != 0 && rec.Flags&q.Flags != 0)
}

// NoteQuery selects notes behind a number.
type NoteQuery struct {
	After int64
	Limit int
}

// AccountQuery selects account cells.
type AccountQuery struct {
	After  AccountKey // accounts up to this one are left out
	Limit  int        // at most so many, one or more
	Frozen bool       // only frozen ones
}

// Matches reports whether the query selects a cell, its key apart.
func (q *AccountQuery) Matches(c *Cell) bool {
	return c.Kind.isAccount() && (!q.Frozen || c.Account.Frozen)
}

// AppendState encodes the part of the cell that is not the account: the bucket,
// the slots or the latch. Errors: ErrCorrupt.
func (c *Cell) AppendState(dst []byte) ([]byte, error) {
	switch {
	case c.Kind.isRate():
		return c.Bucket.AppendBinary(dst)
	case c.Kind == KindConcurrency:
		return c.Slots.AppendBinary(dst), nil
	case c.Kind == KindMoney && c.Latch > 0:
		return binary.AppendUvarint(append(dst, latchVersion), uint64(c.Latch)), nil
	}
	return dst, nil
}

const latchVersion = 1

// UnmarshalState decodes what AppendState wrote for a cell of c.Kind.
// Errors: ErrCorrupt.
func (c *Cell) UnmarshalState(p []byte) error {
	switch {
	case c.Kind.isRate():
		if err := c.Bucket.UnmarshalBinary(p); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	case c.Kind == KindConcurrency:
		return c.Slots.UnmarshalBinary(p)
	case c.Kind == KindMoney && len(p) > 0:
		r := reader{p: p}
		version, latch := r.byte(), r.uvarint()
		if r.bad || version != latchVersion || len(r.p) > 0 || latch == 0 || latch > uint64(policy.MaxPercent) {
			return ErrCorrupt
		}
		c.Latch = policy.Percent(latch)
	case len(p) > 0:
		return ErrCorrupt
	}
	return nil
}
