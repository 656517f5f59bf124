package eventlog

import (
	"context"
	"time"
)

// Store keeps a log. eventlogpg and eventlogsqlite are two, eventlogtest checks any.
//
// Concurrency: safe for concurrent use; several processes may share what it is on, as far as it says so.
// Time: the store's own clock, never the caller's.
type Store interface {
	// Append appends all or nothing, in one transaction, and returns one answer for each Append.
	// It must call Plan first. Events of one stream follow one another in version and position.
	//
	// Retry: safe with the same ids; what is there already is answered with Replayed. A store that loses
	// the answer to a commit must find out by the ids before it answers ErrUnknownOutcome.
	// Errors: *FieldError, *ConflictError, ErrDuplicate: nothing was appended. ErrUnavailable: nor then. ErrUnknownOutcome.
	Append(ctx context.Context, appends []Append) ([]Appended, error)

	// Read returns what became visible since the cursor, and changes nothing.
	//
	// Errors: *FieldError, *ResyncError, *PrunedError, ErrTooManyOpen, ErrStandby, ErrUnavailable.
	Read(ctx context.Context, r Read) (Page, error)

	// Head is the cursor that has delivered all that is visible now.
	//
	// Errors: ErrHistoryRegressed, ErrTooManyOpen, ErrStandby, ErrUnavailable.
	Head(ctx context.Context) (Cursor, error)

	// At is the cursor that delivers again what lies behind a position: the way on after ErrResync
	// for who can bear repetitions. It accepts nothing: a history that went back stays refused.
	//
	// Errors: those of Head, *FieldError, *PrunedError.
	At(ctx context.Context, position int64) (Cursor, error)

	// Stream returns a stream's events with a version above After, by version, at most Limit; what
	// retention has removed is not among them.
	//
	// Errors: *FieldError, ErrUnavailable.
	Stream(ctx context.Context, s ReadStream) ([]Recorded, error)

	Checkpoints
	Asides

	// Prune removes the oldest events, some thousand in a transaction, until nothing more may go: none that is
	// younger than Before, and none that an open checkpoint has still to deliver. A stream's version goes on where it was. Closed
	// checkpoints that nobody has touched since Before are forgotten, unless their consumer's checkpoint for Unknown, with which
	// late events of theirs are looked for, was not touched since then either.
	//
	// Retry: safe; a repetition goes on.
	// Errors: ErrUnavailable, ErrUnknownOutcome, ErrStandby; what Pruned counts is gone all the same.
	Prune(ctx context.Context, p Prune) (Pruned, error)

	// Regressed says what was lost when the history was seen to go back, or nil.
	Regressed() *ResyncError
	// AcceptHistory lets this process read on in a history that went back. Cursors in memory are still
	// refused, each by what it has delivered.
	AcceptHistory()
}

// Checkpoints are cursors under names, kept in the log's own database.
//
// A checkpoint is a consumer's, or, for an effect, one producer's part of it. Whoever claims it owns it, and a claim by
// another fences the last owner's saves.
type Checkpoints interface {
	// Claim takes a checkpoint over, or makes it with From where there is none, and returns it with a new
	// generation and with a cursor that is fit to go on, whatever became of the database since: where
	// retention has passed it, from there, and Skipped says so. A generation is never given twice for one checkpoint, also where it
	// was dropped and made anew. A closed one is open again when its producer claims it.
	//
	// Retry: each claim raises the generation; claiming again is how to learn the outcome.
	// Errors: *FieldError, ErrTaken where Seen was touched since, *PrunedError and *ResyncError for a From that cannot go on,
	// ErrUnavailable, ErrUnknownOutcome, ErrStandby.
	Claim(ctx context.Context, c Claim) (Checkpoint, error)
	// Save records how far the owner came, that it lives, and what Left, Bound and Closed say.
	//
	// Retry: safe.
	// Errors: *FieldError, ErrTaken, ErrUnavailable, ErrUnknownOutcome.
	Save(ctx context.Context, c Checkpoint) error
	// Drop forgets a checkpoint, of the generation given, or whatever its generation where that is 0. Retention heeds it no more.
	//
	// Retry: safe: what is gone is ErrTaken to an owner and nil to an operator.
	// Errors: ErrTaken, ErrUnavailable, ErrUnknownOutcome.
	Drop(ctx context.Context, c Checkpoint) error
	// Checkpoints lists them by consumer and producer, all of them, or one consumer's. An operator sees who lags and who is gone.
	//
	// Errors: ErrUnavailable.
	Checkpoints(ctx context.Context, consumer string) ([]Checkpoint, error)
}

// Asides are events that a subscription could not deal with. They wait for an operator and stop nobody.
type Asides interface {
	// SetAside keeps the event with the reason; again for the same event raises Attempts, keeps the first Reason and has the new one as Last.
	//
	// Errors: *FieldError, ErrUnavailable, ErrUnknownOutcome.
	SetAside(ctx context.Context, a Aside) error
	// ListAside lists what was set aside, by position and runner, a page at a time.
	//
	// Errors: *FieldError, ErrUnavailable.
	ListAside(ctx context.Context, q AsideQuery) ([]Aside, error)
	// TakeBack forgets what was set aside: it was dealt with, or an operator gave it up.
	//
	// Errors: ErrNotFound, ErrUnavailable, ErrUnknownOutcome.
	TakeBack(ctx context.Context, consumer string, runner Producer, id string) error
}

// Read asks for a page.
type Read struct {
	Cursor     Cursor
	Limit      int  // 0: DefaultPage; at most MaxPage
	Registered bool // the cursor is a checkpoint's: retention keeps what it has to deliver
}

// Prepare fills in what was left out.
//
// Errors: *FieldError.
func (r Read) Prepare() (Read, error) {
	if r.Limit == 0 {
		r.Limit = DefaultPage
	}
	if r.Limit < 1 || r.Limit > MaxPage {
		return r, refuse("limit", "must be 1 to 4096")
	}
	return r, nil
}

// ReadStream asks for a stream's events.
type ReadStream struct {
	Stream string
	After  int64 // a version
	Limit  int   // 0: DefaultPage
}

// Prepare fills in what was left out.
//
// Errors: *FieldError.
func (s ReadStream) Prepare() (ReadStream, error) {
	if err := checkName("stream", s.Stream); err != nil {
		return s, err
	}
	r, err := Read{Limit: s.Limit}.Prepare()
	s.Limit = r.Limit
	return s, err
}

// Claim asks for a checkpoint.
type Claim struct {
	Consumer string
	Producer Producer // whose events; Unknown for a consumer of all
	Owner    Producer // who claims
	From     Cursor   // where to begin if there is no such checkpoint
	// Seen is the checkpoint as it was listed: it is taken only if nobody has claimed or saved it since, and none is
	// made. nil: whatever it is.
	Seen *Checkpoint
}

// Validate reports what is wrong with the claim.
//
// Errors: *FieldError.
func (c Claim) Validate() error {
	if err := checkName("consumer", c.Consumer); err != nil {
		return err
	}
	if c.Producer != Unknown {
		if err := checkName("producer", string(c.Producer)); err != nil {
			return err
		}
	}
	return checkName("owner", string(c.Owner))
}

// Checkpoint is how far a consumer came.
type Checkpoint struct {
	Consumer   string
	Producer   Producer // whose events; Unknown for a consumer of all
	Owner      Producer // who claimed it last
	Generation int64    // rises with every claim
	Cursor     Cursor
	Left       bool   // the owner is gone and said so
	Bound      uint64 // of one that was adopted: what its producer can still bring is in transactions below this; 0: not adopted
	Closed     bool   // its producer is gone and all was dealt with; retention does not heed it. See Log.Adopt
	Skipped    int64  // of a claim: how many positions retention had passed before they were delivered
	SeenAt     time.Time
	Idle       time.Duration // since SeenAt, by the store's clock
	Behind     int64         // positions between it and the head: an upper bound of the events to come
}

// Prune says what may go.
type Prune struct {
	Before time.Time // events from before this instant, by the store's clock; must be given
	Limit  int       // at most so many events; 0: no bound
}

// Pruned is what went.
type Pruned struct {
	Events  int64
	Through int64  // positions up to here may be gone
	HeldBy  string // the consumer that kept more from going, if one did
}

// Aside is an event that was set aside.
type Aside struct {
	Consumer string
	Runner   Producer // of an effect the event's producer, whoever ran it; else the process whose state lacks the event
	Event    Recorded
	Reason   string // why it was set aside first, for people; at most 2000 bytes are kept
	Last     string // what a later attempt failed with; empty: there was none. Given to SetAside it says nothing
	Declined bool   // a record was missing, rather than anything wrong
	Attempts int64
	At       time.Time
}

// AsideQuery asks for a page of what was set aside.
type AsideQuery struct {
	Consumer string
	Limit    int // 0: DefaultPage

	// Behind the event at this position that this runner set aside: the last of the page before.
	After       int64
	AfterRunner Producer
}
