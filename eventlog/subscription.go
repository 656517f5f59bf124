package eventlog

import "context"

// Kind is what a subscription is. There is no default: an effect that nobody declared would act once per
// replica, and a projection that nobody declared would leave all replicas but one behind, and both without a sound.
type Kind int

// The kinds.
const (
	KindProjection Kind = iota + 1 // keeps a view; every replica, every event; may not append
	KindEffect                     // acts on the outside; where the event was produced; at least once
	KindLocalView                  // follows this process's own events from its own state; may not append
)

func (k Kind) String() string {
	switch k {
	case KindProjection:
		return "projection"
	case KindEffect:
		return "effect"
	case KindLocalView:
		return "local view"
	}
	return "no kind"
}

// Appender appends in the name of this process.
type Appender interface {
	Append(ctx context.Context, appends ...Append) ([]Appended, error)
}

// Subscription is a handler of events that says what it is. Make one by Projection, Effect or LocalView.
type Subscription struct {
	name   string
	kind   Kind
	handle func(ctx context.Context, r Recorded, a Appender) error
	view   ViewOptions
}

// Name is the subscription's name.
func (s Subscription) Name() string { return s.name }

// Kind is what the subscription is.
func (s Subscription) Kind() Kind { return s.kind }

// ViewOptions adjust a projection or a local view. What From or Resync returns of ErrUnavailable, ErrStandby, ErrTooManyOpen or
// ErrUnknownOutcome has it called again, after a pause, until it succeeds or Run's context ends; any other error ends Run.
type ViewOptions struct {
	// From gives the state and the cursor of one moment when the subscription starts: it loads the state, and
	// returns the cursor of the same snapshot. nil begins with an empty state: a projection at the beginning of the
	// log, a local view before this process's first event.
	From func(ctx context.Context) (Cursor, error)
	// Resync gives a fresh state and its cursor where the cursor cannot go on: the database is another than it was (ErrResync), or
	// retention was faster (ErrPruned). Without it Run ends with that error: a view that is wrong must not pass for right.
	Resync func(ctx context.Context, why error) (Cursor, error)
}

// Projection keeps a view of the log in this process. It is called for every event, whoever produced it,
// on every replica, in the order of each stream. It is given nothing to append with, and its context refuses all
// appending: a projection that publishes echoes for ever.
//
// It is called again for the same event only where it returned an error. An event that it cannot deal with because a record is
// missing, as during a rollout, it declines (ErrDeclined) rather than invents.
//
// Source: ADR-020 "Kinds of subscriptions".
func Projection(name string, handle func(ctx context.Context, r Recorded) error, o *ViewOptions) Subscription {
	return viewing(KindProjection, name, handle, o)
}

// LocalView follows what this process produced, and what its own state makes of it. It is called
// for no other's events: a view that read its local state again for a peer's would take its own things for the peer's. It
// may not append.
//
// Source: ADR-020 "Kinds of subscriptions".
func LocalView(name string, handle func(ctx context.Context, r Recorded) error, o *ViewOptions) Subscription {
	return viewing(KindLocalView, name, handle, o)
}

func viewing(kind Kind, name string, handle func(context.Context, Recorded) error, o *ViewOptions) Subscription {
	s := Subscription{name: name, kind: kind}
	if o != nil {
		s.view = *o
	}
	if handle != nil {
		s.handle = func(ctx context.Context, r Recorded, _ Appender) error { return handle(withoutAppending(ctx), r) }
	}
	return s
}

// Effect acts on the outside: it exports, alerts, enforces. It is called for the events that this process
// produced, and for those that dead processes left when Log.Adopt comes to them, so for each event somewhere, at least once. The other side
// must take the event's id as the key by which it knows a repetition.
//
// Source: ADR-020 "Kinds of subscriptions".
func Effect(name string, handle func(ctx context.Context, r Recorded, a Appender) error) Subscription {
	return Subscription{name: name, kind: KindEffect, handle: handle}
}

func (s Subscription) validate() error {
	if err := checkName("subscription", s.name); err != nil {
		return err
	}
	if s.kind < KindProjection || s.kind > KindLocalView || s.handle == nil {
		return refuse("subscription", s.name+" must be made by Projection, Effect or LocalView, with a handler")
	}
	return nil
}
