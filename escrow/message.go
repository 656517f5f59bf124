package escrow

import (
	"context"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

// Protocol is the only version that is spoken. Nothing falls back to another one.
const Protocol = "escrow-v1"

// GrantID names one grant, or one meter, for ever: a version 7 UUID that the node
// mints when it asks. An authority answers a repeated id with what it answered first.
type GrantID [16]byte

// BootID names one opening of a journal. It is random, made by each opening and never
// used again.
type BootID [16]byte

// Account is one budget in one window, with all that its identity follows from: a report
// finds its account whatever was edited or deleted since. Accounts of one budget never
// overlap; compare with ==.
type Account struct {
	Policy  string
	Rule    string
	Subject policy.Subject
	Period  quota.Period
	Window  quota.Window
}

// Definition is one budget of a policy as it is in force, in the window that is current.
// Both sides compute the list from the same documents (see Definitions), and a node
// refuses a list that differs from its own. The window is the authority's: it differs from
// the calendar's where a window that began before an edit of the calendar goes on.
type Definition struct {
	Account Account
	Limit   amount.MicroUSD
	Hard    bool // false: a meter, which refuses nothing
	// Grant is the size of one grant of a hard budget, and Renew how often a node asks.
	Grant amount.MicroUSD
	Renew time.Duration
}

// Heartbeat is all that a node says at once: reports of what it spent, meters, and
// requests for more. The authority takes all of it or none.
type Heartbeat struct {
	Node       string // stable name of the node, see ValidNode
	Boot       BootID
	BootNumber int64 // number of this opening of the journal; rises with each
	Sequence   int64 // number of this heartbeat of this boot: rising, from 1
	// Answered is the highest Sequence of this boot that was answered; zero before the first
	// answer. An authority that has not heard so many has lost some of its history.
	Answered int64
	// Mark is the policies' mark that the node goes by; zero before the first answer.
	// A namespace that is not the authority's is refused.
	Mark     policy.Mark
	Reports  []Report
	Meters   []Meter
	Requests []Request
	// Bye says that this is the last heartbeat of the boot, or the last again: it asks for
	// nothing, and its reports close what was still open.
	Bye bool
}

// Ending says how a grant ended. The numbers are part of the protocol.
type Ending uint8

const (
	Open   Ending = iota // it goes on
	Closed               // closed in good order: what is neither consumed nor uncertain is proved unused
	Burned               // taken by a crash: all that is not known to be consumed is uncertain
)

// Report says what became of one grant. The sums are of the grant's whole life and never fall.
//
// A request whose answer was never had is asked again, or is given up by a report of its id:
// closed and empty by the boot that asked, burned by a later one.
type Report struct {
	Grant     GrantID
	Consumed  amount.MicroUSD // used, known
	Uncertain amount.MicroUSD // perhaps used
	Observed  amount.MicroUSD // seen of what is uncertain; never charged by itself
	Ending    Ending
}

// Meter says what was used of a soft budget by one boot in one window. ID is the meter's
// name, minted once per boot and account; the sums never fall.
type Meter struct {
	ID        GrantID
	Account   Account
	Consumed  amount.MicroUSD
	Uncertain amount.MicroUSD
	Observed  amount.MicroUSD
	Pending   amount.MicroUSD // on its way just now: a liability, never counted as use
}

// Request asks for a grant of at most Amount and at least Least.
type Request struct {
	ID      GrantID
	Account Account
	Amount  amount.MicroUSD
	Least   amount.MicroUSD
}

// Answer is all that an authority says. It is complete even when there is nothing in
// it: a list that is missing in the encoded form is an error, not an empty list.
type Answer struct {
	Mark        policy.Mark
	Documents   *policy.Set // the whole set of the mark's generation
	Now         int64       // µs, the authority's clock, read when everything was locked
	Definitions []Definition
	Budgets     []Budget  // aligned with Definitions
	Grants      []Grant   // one for each request that was granted, now or the first time it was asked
	Denials     []Denial  // one for each other request
	Receipts    []Receipt // one for each report and meter, in that order
}

// Budget is how an account of the authority stands.
type Budget struct {
	Consumed, Uncertain, Reserved, Granted amount.MicroUSD
	Latch                                  policy.Percent // the highest threshold that was reached in the window
	Frozen                                 bool
}

// Grant is authority to spend. Its amount is reserved in the account whatever becomes of the node.
type Grant struct {
	ID      GrantID
	Account Account
	Amount  amount.MicroUSD
	// ExpiresAt is when the node must stop to spend from it, µs on the authority's clock;
	// never beyond the account's window. Expiry gives nothing back: only a report does.
	ExpiresAt int64
}

// DenialReason says why a request was not granted. The numbers are part of the protocol.
type DenialReason uint8

const (
	NoRoom  DenialReason = iota + 1 // too little is left now; what others hold may come back
	Spent                           // too little is left for the rest of the window
	Unknown                         // there is no such budget, or its window is another one now
	Frozen                          // the account is frozen until an operator has looked at it
	Over                            // it was granted before and has ended, or an earlier boot asked: never use this id again
)

// Denial answers a request that was not granted. It is decided anew whenever it is asked.
type Denial struct {
	ID     GrantID
	Reason DenialReason
	// Left is what could be granted just now.
	Left amount.MicroUSD
}

// Receipt answers a report or a meter: the authority has it, durably. A grant that is
// no longer open there needs no more reports.
type Receipt struct {
	Grant  GrantID // or the meter
	Ending Ending  // how it stands there
	// Late says that the grant had ended otherwise before, by an earlier report or by an
	// operator, or that there is none of that id: the report changed nothing.
	Late bool
}

// Authority grants. Implementations: governance.Authority over a database, and
// escrowhttp.Client over HTTP.
//
// Concurrency: safe for concurrent use, by any number of replicas over one database.
// Retry: a heartbeat may be repeated as it was until it is answered; a repetition
// changes nothing more and is granted the same grants.
// Errors: *Error for a heartbeat that is malformed or contradicts an earlier one, *Fenced
// when another boot has taken the node's place or the journal is older than the authority
// knows, ErrStale when a later heartbeat of the boot was taken already, ErrRegressed when
// the authority knows less than it did, ErrIncompatible, ErrUnavailable. After any error nothing of the heartbeat has happened, but for
// ErrUnavailable, after which all of it may have.
//
// Source: ADR-045 "Accounts, windows and reports".
type Authority interface {
	Beat(ctx context.Context, h *Heartbeat) (*Answer, error)
}
