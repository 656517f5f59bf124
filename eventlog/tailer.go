package eventlog

import (
	"context"
	"errors"
	"sync"
	"time"
)

// DefaultPoll is how often a tailer looks where nothing wakes it.
const DefaultPoll = 250 * time.Millisecond

// longestPause bounds how long a tailer waits between attempts while the store does not answer.
const longestPause = 5 * time.Second

// TailOptions adjust a Tailer; the zero value follows the whole log.
type TailOptions struct {
	From       Cursor
	Registered bool            // From is a checkpoint's
	Limit      int             // events in a page; 0: DefaultPage
	Poll       time.Duration   // 0: DefaultPoll
	Wake       <-chan struct{} // look now; nil or closed: only poll
	Beat       time.Duration   // return an empty page after so long without events; 0: never
}

// Tailer follows a log. It reads page after page while there is more, and then waits until it is woken
// or has waited long enough. It is for one goroutine; Lag may be asked by any.
type Tailer struct {
	store Store
	o     TailOptions
	more  bool

	mu     sync.Mutex
	cursor Cursor
	lag    Lag
	seen   time.Time // when the look began that ended with the page which the caller is busy with
}

// Lag is how far a tailer is behind.
type Lag struct {
	Through  int64         // all up to here was delivered but what was open
	Behind   int64         // positions from there to the head at the last look: an upper bound of the events to come
	Age      time.Duration // how old, by the store's clock, the oldest event of the last page was when it was read
	Open     int           // transactions that were open at the last look; none of them holds the tailer back
	Looked   time.Time     // by this process's clock: all that was there then has been dealt with; zero: never
	Failures int           // looks in a row that failed
	Err      error         // of the last of them
}

// NewTailer makes a tailer. It does no I/O.
//
// Errors: *FieldError.
func NewTailer(store Store, o TailOptions) (*Tailer, error) {
	r, err := Read{Limit: o.Limit}.Prepare()
	if err != nil {
		return nil, err
	}
	o.Limit = r.Limit
	if o.Poll <= 0 {
		o.Poll = DefaultPoll
	}
	return &Tailer{store: store, o: o, more: true, cursor: o.From, lag: Lag{Through: o.From.Through()}}, nil
}

// Next waits for events and returns a page of them. What is to survive must be done before Page.Next is saved, and
// repeated after a crash. Calling it again says that the last page was dealt with. While the store is unavailable it goes on trying.
//
// Errors: the context's; *ResyncError, *PrunedError and whatever else trying again does not mend.
func (t *Tailer) Next(ctx context.Context) (Page, error) {
	var beat <-chan time.Time
	if t.o.Beat > 0 {
		timer := time.NewTimer(t.o.Beat)
		defer timer.Stop()
		beat = timer.C
	}
	pause := t.o.Poll
	t.dealt()
	for {
		if !t.more {
			beaten, err := t.wait(ctx, pause, beat)
			if err != nil {
				return Page{}, err
			}
			if beaten {
				return Page{Next: t.Cursor()}, nil
			}
		}
		if err := ctx.Err(); err != nil {
			return Page{}, err
		}
		began := time.Now() // an answer may have been on its way for long, as while the process was stopped
		page, err := t.store.Read(ctx, Read{Cursor: t.Cursor(), Limit: t.o.Limit, Registered: t.o.Registered})
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return Page{}, ctx.Err()
		case passing(err):
			t.failed(err)
			t.more, pause = false, min(2*pause, max(longestPause, t.o.Poll))
			continue
		default:
			t.failed(err)
			return Page{}, err
		}
		t.more, pause = page.More, t.o.Poll
		t.moved(page, began)
		if len(page.Events) > 0 {
			return page, nil
		}
	}
}

// passing reports whether trying again can mend it.
func passing(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrStandby) || errors.Is(err, ErrTooManyOpen)
}

func (t *Tailer) wait(ctx context.Context, pause time.Duration, beat <-chan time.Time) (beaten bool, err error) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-beat:
		return true, nil
	case _, open := <-t.o.Wake:
		if !open {
			t.o.Wake = nil
		}
	case <-timer.C:
	}
	return false, nil
}

// dealt notes that the caller has come back, and so dealt with the last page.
func (t *Tailer) dealt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.seen.IsZero() {
		t.lag.Looked, t.seen = t.seen, time.Time{}
	}
}

func (t *Tailer) moved(p Page, began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cursor = p.Next
	open := p.Next.Open()
	looked := t.lag.Looked
	switch {
	case p.More: // of what was there some is still to come
	case len(p.Events) == 0:
		looked = began
	default:
		t.seen = began
	}
	t.lag = Lag{Looked: looked, Through: p.Next.Through(), Behind: max(0, p.Head-p.Next.Through()), Open: len(open.Running) + int(min(open.Next-open.Max, MaxOpen))}
	for _, e := range p.Events {
		t.lag.Age = max(t.lag.Age, time.Duration(p.Now-e.At.UnixMicro())*time.Microsecond)
	}
}

func (t *Tailer) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lag.Failures++
	t.lag.Err = err
}

// Cursor is where the tailer will read from next.
func (t *Tailer) Cursor() Cursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cursor
}

// Seek goes on from another cursor, after ErrResync for one.
func (t *Tailer) Seek(c Cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cursor, t.more, t.seen = c, true, time.Time{}
	t.lag = Lag{Through: c.Through(), Looked: t.lag.Looked}
}

// Lag is how far the tailer was behind when it last looked.
func (t *Tailer) Lag() Lag {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lag
}
