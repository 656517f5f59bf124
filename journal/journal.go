package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// Options tune a Journal. Nil and zero fields are the defaults.
type Options struct {
	// Node is the node's name, the same after every restart and another one on every node.
	// The journal keeps it and is opened under no other. Needed to talk to an authority.
	Node string
	// Receipts is how many reservations that ended, and of which the authority was told,
	// are remembered, so that a repeated Settle is known for one. Default 4096.
	Receipts int
	// BatchLimit is how many calls share one commit at most. Default 256.
	BatchLimit int
	// StepTimeout bounds the wait for one commit's turn. Default 5 s.
	StepTimeout time.Duration
	// Logger receives what no caller is told. Default slog.Default().
	Logger *slog.Logger
	// Now is this process's clock. Its values must have a monotonic reading, as
	// those of time.Now have: deadlines follow that. Default time.Now.
	Now func() time.Time
}

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Receipts == 0 {
		out.Receipts = 4096
	}
	if out.BatchLimit == 0 {
		out.BatchLimit = 256
	}
	if out.StepTimeout == 0 {
		out.StepTimeout = 5 * time.Second
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	if out.Now == nil {
		out.Now = time.Now
	}
	if out.Node != "" {
		if err := escrow.ValidNode(out.Node); err != nil {
			return out, invalid("options.node", "is no node's name: "+err.Error())
		}
	}
	switch {
	case out.Receipts < 1 || out.Receipts > 1<<20:
		return out, invalid("options.receipts", "must be between 1 and 1048576, or 0 for the default")
	case out.BatchLimit < 1 || out.BatchLimit > 4096:
		return out, invalid("options.batch_limit", "must be between 1 and 4096, or 0 for the default")
	case out.StepTimeout < time.Millisecond || out.StepTimeout > time.Minute:
		return out, invalid("options.step_timeout", "must be between 1 ms and 1 minute")
	}
	return out, nil
}

// Journal is one opening of a node's journal.
//
// Concurrency: safe for concurrent use; callers who come together share a commit.
type Journal struct {
	store   Store
	options Options
	boot    escrow.BootID
	burnt   Burnt
	wants   chan struct{}
	lane    lane

	mu        sync.RWMutex
	refuse    error // why nothing is reserved any more
	closed    bool
	deadlines map[escrow.GrantID]time.Time
	demands   map[escrow.Account]*demand
	denied    map[escrow.Account]denial
	beat      beat
}

var _ escrow.Ledger = (*Journal)(nil)

// Open takes a journal over: whoever had it open before is fenced, and all that was open
// is burned. Nothing of it can be spent again; the authority is told.
//
// Retry: each success is a new opening. After ErrUnknownOutcome open again.
// Errors: *FieldError, ErrUnavailable, ErrUnknownOutcome, ErrCorrupt.
//
// Source: ADR-045 "Local journal".
func Open(ctx context.Context, s Store, o *Options) (*Journal, error) {
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, invalid("store", "must not be nil")
	}
	j := &Journal{
		store: s, options: options, boot: escrow.NewBootID(), wants: make(chan struct{}, 1),
		deadlines: map[escrow.GrantID]time.Time{}, demands: map[escrow.Account]*demand{}, denied: map[escrow.Account]denial{},
	}
	err = s.Step(ctx, &Plan{Everything: true, OnTheirWay: true}, func(l *Loaded) (*Changes, error) {
		ch, err := takeOver(l, j.boot, options.Node)
		if err == nil {
			j.burnt = Burnt{Number: ch.Meta.Number, Grants: len(ch.Grants), Reservations: len(ch.Changed)}
		}
		return ch, err
	})
	if err != nil {
		return nil, err
	}
	return j, nil
}

// Boot is this opening's identity, and Burnt what it found.
func (j *Journal) Boot() escrow.BootID { return j.boot }

// Burnt says what this opening burned.
func (j *Journal) Burnt() Burnt { return j.burnt }

// Reserve takes every need of r, or nothing, and returns when that is on the disk.
//
// Units: microUSD, rounded up.
// Time: what is past its deadline by this process's monotonic clock covers nothing.
// Concurrency: linearizable; callers who come together share a commit.
// Retry: safe with the same r: it is reserved once.
// Errors: *Shortage (the syncer knows; come back), *FieldError, ErrConflict (r.ID was
// used with other needs), ErrEnded, *PoisonedError, ErrFenced, ErrClosed, ErrUnavailable,
// ErrCorrupt, the context's error: nothing is reserved, or it was given back.
// ErrUnknownOutcome: perhaps reserved; the journal goes on to give it back.
//
// Source: ADR-045 "Local journal".
func (j *Journal) Reserve(ctx context.Context, r Reservation) error {
	if err := r.validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &call{reserve: &r, wake: make(chan turn, 1)}
	err := j.lane.run(ctx, j, c)
	var short *Shortage
	if errors.As(err, &short) {
		j.Explain(short)
	}
	return err
}

// Settle ends a reservation by what became of its attempt, and returns when that is on
// the disk. Whoever has left meanwhile is not waited for, and nothing is given back on
// that account: a settlement goes through or changes nothing.
//
// Retry: safe; an exact repetition changes nothing.
// Errors: *FieldError, ErrNotFound, ErrConflict (it was settled otherwise), ErrEnded (its
// process was taken for dead and the bound is charged), ErrFenced, ErrClosed,
// ErrUnavailable, ErrUnknownOutcome, ErrCorrupt. What could not be settled stays reserved.
func (j *Journal) Settle(ctx context.Context, id ID, o Outcome) error {
	o, err := o.clean()
	if err != nil {
		return err
	}
	c := &call{id: id, outcome: o, wake: make(chan turn, 1)}
	return j.lane.run(context.WithoutCancel(ctx), j, c)
}

// Release lets the journal reserve again after an overrun, on an operator's word, which
// is kept. It does nothing where nothing is poisoned.
//
// Errors: *FieldError, ErrFenced, ErrUnavailable, ErrUnknownOutcome, ErrCorrupt.
func (j *Journal) Release(ctx context.Context, actor, reason string) error {
	if err := signed(actor, reason); err != nil {
		return err
	}
	return j.step(ctx, &Plan{}, func(b *Book) error {
		b.Release(actor, reason)
		return nil
	})
}

func signed(actor, reason string) error {
	const most = 1024
	switch {
	case actor == "" || len(actor) > most:
		return invalid("actor", fmt.Sprintf("must have between 1 and %d bytes", most))
	case reason == "" || len(reason) > most:
		return invalid("reason", fmt.Sprintf("must have between 1 and %d bytes", most))
	}
	return nil
}

// Book opens a book in a transaction of the caller's, on what its store has loaded by a
// plan: the rates and quotas of a node and its budgets are then decided as one. What
// the book decided is written by the same transaction; after it was committed, or had
// nothing to write, the caller calls Done.
//
// Errors: *FencedError, ErrCorrupt.
func (j *Journal) Book(l *Loaded) (*Book, error) {
	j.mu.RLock()
	terms := Terms{Boot: j.boot, Refuse: j.refuse, Left: j.left, Now: j.theirs}
	j.mu.RUnlock()
	b, err := NewBook(l, terms)
	if errors.Is(err, ErrFenced) {
		j.end(err)
	}
	return b, err
}

// Done takes note of what a book decided: it wakes the syncer where credit is missing.
func (j *Journal) Done(b *Book) {
	if len(b.drawn) == 0 {
		return
	}
	lacking := false
	now := j.options.Now()
	j.mu.Lock()
	for a, x := range b.drawn {
		d := j.demands[a]
		if d == nil {
			d = &demand{since: now}
			j.demands[a] = d
		}
		d.add(x)
		lacking = lacking || x.lacking
	}
	j.mu.Unlock()
	if lacking {
		j.wake()
	}
}

// left is for how long a grant may still be used.
func (j *Journal) left(id escrow.GrantID) time.Duration {
	j.mu.RLock()
	deadline, ok := j.deadlines[id]
	j.mu.RUnlock()
	if !ok {
		return 0
	}
	return deadline.Sub(j.options.Now())
}

// Explain adds to a shortage what the authority last said about the accounts that lack
// credit. Reserve has done so already; this is for those who use a Book.
func (j *Journal) Explain(s *Shortage) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	for i := range s.Lacks {
		l := &s.Lacks[i]
		if said, ok := j.denied[l.Account]; ok {
			l.Denied, l.Left = said.of(l.Need), said.Left
		}
	}
}

func (j *Journal) wake() {
	select {
	case j.wants <- struct{}{}:
	default:
	}
}

// end stops all reserving of this opening.
func (j *Journal) end(why error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refuse == nil || errors.Is(j.refuse, ErrClosed) {
		j.refuse = why
	}
}

// step runs one transaction of the journal's own.
func (j *Journal) step(ctx context.Context, plan *Plan, decide func(*Book) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.options.StepTimeout)
	defer cancel()
	var book *Book
	err := j.store.Step(ctx, plan, func(l *Loaded) (ch *Changes, err error) {
		defer func() {
			if r := recover(); r != nil { // nothing is written
				j.options.Logger.Error("journal: a decision panicked", "panic", fmt.Sprint(r))
				ch, err = nil, corrupt("a decision failed")
			}
		}()
		if book, err = j.Book(l); err != nil {
			return nil, err
		}
		if err := decide(book); err != nil {
			return nil, err
		}
		return book.Changes(), nil
	})
	if err == nil {
		j.Done(book)
	}
	return err
}

// Mark is the policies' mark of the last answer; zero before the first.
func (j *Journal) Mark() policy.Mark {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.beat.mark
}

// Close ends this opening: no call succeeds after it. What is open stays open, for the
// next opening to burn; a node that leaves in good order lets its syncer say goodbye first.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	if j.refuse == nil {
		j.refuse = ErrClosed
	}
	j.mu.Unlock()
	return j.store.Close()
}

func (j *Journal) isClosed() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.closed
}
