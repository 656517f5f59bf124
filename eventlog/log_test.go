package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tallystick-go/tallystick/eventlog"
)

// scripted is a store that answers as it is told; what it is not told panics.
type scripted struct {
	eventlog.Store
	read   func(n int, r eventlog.Read) (eventlog.Page, error)
	append func(n int, appends []eventlog.Append) ([]eventlog.Appended, error)
	hint   func()

	reads, appends atomic.Int64
}

func (s *scripted) Read(_ context.Context, r eventlog.Read) (eventlog.Page, error) {
	return s.read(int(s.reads.Add(1)), r)
}

func (s *scripted) Append(_ context.Context, appends []eventlog.Append) ([]eventlog.Appended, error) {
	return s.append(int(s.appends.Add(1)), appends)
}

func (s *scripted) Hint(context.Context) error {
	if s.hint != nil {
		s.hint()
	}
	return nil
}

func (s *scripted) Regressed() *eventlog.ResyncError { return nil }

func event(id string) eventlog.Recorded { return eventlog.Recorded{Event: eventlog.Event{ID: id}} }

func TestTailerGoesOnWhereTheStoreComesBack(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := &scripted{read: func(n int, _ eventlog.Read) (eventlog.Page, error) {
		switch n {
		case 1:
			return eventlog.Page{}, fmt.Errorf("%w: away", eventlog.ErrUnavailable)
		case 2:
			return eventlog.Page{}, eventlog.ErrStandby
		case 3:
			return eventlog.Page{More: true, Head: 9}, nil
		case 4:
			return eventlog.Page{Events: []eventlog.Recorded{event("1")}, More: true, Head: 9, Now: time.Now().UnixMicro()}, nil
		case 5:
			return eventlog.Page{Events: []eventlog.Recorded{event("2")}}, nil
		}
		return eventlog.Page{}, &eventlog.ResyncError{Reason: eventlog.TimelineChanged}
	}}
	closed := make(chan struct{})
	close(closed)
	tail, err := eventlog.NewTailer(s, eventlog.TailOptions{Poll: time.Millisecond, Wake: closed})
	require.NoError(t, err)
	for _, id := range []string{"1", "2"} {
		page, err := tail.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, id, page.Events[0].ID)
	}
	require.Zero(t, tail.Lag().Failures)
	_, err = tail.Next(t.Context())
	require.ErrorIs(t, err, eventlog.ErrResync)
	require.ErrorIs(t, tail.Lag().Err, eventlog.ErrResync)
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err = tail.Next(gone)
	require.ErrorIs(t, err, context.Canceled)
	_, err = eventlog.NewTailer(s, eventlog.TailOptions{Limit: -1})
	require.ErrorIs(t, err, eventlog.ErrInvalid)
}

// TestLookedIsNoYoungerThanWhatIsKnown: the age of a view is counted from the beginning of a look, and only from one whose
// events have all been dealt with.
func TestLookedIsNoYoungerThanWhatIsKnown(t *testing.T) {
	var began [6]time.Time
	var tail *eventlog.Tailer
	s := &scripted{}
	s.read = func(n int, _ eventlog.Read) (eventlog.Page, error) {
		began[n] = time.Now() // the answer is as old as this
		require.False(t, tail.Lag().Looked.After(began[n-1]))
		switch n {
		case 1, 4:
			return eventlog.Page{Events: []eventlog.Recorded{event("1")}, More: n == 1}, nil
		case 2:
			return eventlog.Page{Events: []eventlog.Recorded{event("2")}}, nil
		case 5:
			require.True(t, tail.Lag().Looked.After(began[3]), "the page of the fourth look was dealt with")
			return eventlog.Page{}, eventlog.ErrPruned
		}
		return eventlog.Page{}, nil
	}
	tail, err := eventlog.NewTailer(s, eventlog.TailOptions{Poll: time.Millisecond})
	require.NoError(t, err)
	next := func() error {
		_, err := tail.Next(t.Context())
		return err
	}
	require.NoError(t, next())
	require.Zero(t, tail.Lag().Looked, "more is to come")
	require.NoError(t, next())
	require.Zero(t, tail.Lag().Looked, "and the second page is not dealt with yet")
	require.NoError(t, next()) // the third look finds nothing, the fourth a page
	require.True(t, tail.Lag().Looked.After(began[2]))
	require.False(t, tail.Lag().Looked.After(began[3]))
	require.ErrorIs(t, next(), eventlog.ErrPruned)
}

func TestTailerBeatsAndWakes(t *testing.T) {
	defer goleak.VerifyNone(t)
	var there atomic.Bool
	s := &scripted{read: func(int, eventlog.Read) (eventlog.Page, error) {
		if there.Load() {
			return eventlog.Page{Events: []eventlog.Recorded{event("1")}}, nil
		}
		return eventlog.Page{}, nil
	}}
	wake := make(chan struct{}, 1)
	tail, err := eventlog.NewTailer(s, eventlog.TailOptions{Poll: time.Hour, Wake: wake, Beat: time.Millisecond})
	require.NoError(t, err)
	page, err := tail.Next(t.Context())
	require.NoError(t, err)
	require.Empty(t, page.Events, "nothing came, and that is said")
	there.Store(true)
	tail, err = eventlog.NewTailer(s, eventlog.TailOptions{Poll: time.Hour, Wake: wake})
	require.NoError(t, err)
	wake <- struct{}{}
	page, err = tail.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, page.Events, 1)
}

// crowd has callers append at once behind one that is held in the store, and returns their errors.
func crowd(t *testing.T, l *eventlog.Log, s *scripted, callers int, bad func(i int) bool) []error {
	t.Helper()
	entered, hold := make(chan struct{}), make(chan struct{})
	inner := s.append
	var once sync.Once
	s.append = func(n int, a []eventlog.Append) ([]eventlog.Appended, error) {
		once.Do(func() { close(entered); <-hold })
		return inner(n, a)
	}
	errs := make([]error, callers)
	var wg sync.WaitGroup
	put := func(i int) {
		name := "good"
		if bad(i) {
			name = "bad"
		}
		_, errs[i] = l.Append(t.Context(), eventlog.Append{Stream: name, Events: []eventlog.Event{{Type: "t"}}})
	}
	wg.Go(func() { put(0) })
	<-entered
	for i := 1; i < callers; i++ {
		wg.Go(func() { put(i) })
	}
	require.Eventually(t, func() bool { return l.Waiting() == callers-1 }, 30*time.Second, time.Millisecond)
	close(hold)
	wg.Wait()
	return errs
}

func TestSharedAppends(t *testing.T) {
	defer goleak.VerifyNone(t)
	var largest atomic.Int64
	for name, failure := range map[string]error{
		"conflict": &eventlog.ConflictError{}, "duplicate": eventlog.ErrDuplicate, "unknown": eventlog.ErrUnknownOutcome,
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{append: func(_ int, appends []eventlog.Append) ([]eventlog.Appended, error) {
				for n := largest.Load(); int64(len(appends)) > n && !largest.CompareAndSwap(n, int64(len(appends))); n = largest.Load() {
				}
				for _, a := range appends {
					if a.Stream == "bad" {
						return nil, failure
					}
				}
				return make([]eventlog.Appended, len(appends)), nil
			}}
			l, err := eventlog.New(s, nil)
			require.NoError(t, err)
			bad := func(i int) bool { return i == 3 || i == 11 }
			for i, err := range crowd(t, l, s, 20, bad) {
				if bad(i) {
					require.ErrorIs(t, err, failure, "caller %d", i)
				} else {
					require.NoError(t, err, "caller %d", i)
				}
			}
			require.Equal(t, int64(19), largest.Load(), "those who waited went together")
		})
	}
	s := &scripted{append: func(int, []eventlog.Append) ([]eventlog.Appended, error) { return nil, eventlog.ErrUnavailable }}
	l, err := eventlog.New(s, nil)
	require.NoError(t, err)
	for _, err := range crowd(t, l, s, 10, func(int) bool { return false }) {
		require.ErrorIs(t, err, eventlog.ErrUnavailable)
	}
	require.Equal(t, int64(2), s.appends.Load(), "an outage is not asked about one by one")
}

func TestLeavingASharedAppend(t *testing.T) {
	defer goleak.VerifyNone(t)
	entered, hold := make(chan struct{}, 10), make(chan struct{})
	s := &scripted{append: func(_ int, appends []eventlog.Append) ([]eventlog.Appended, error) {
		entered <- struct{}{}
		<-hold
		return make([]eventlog.Appended, len(appends)), nil
	}}
	l, err := eventlog.New(s, nil)
	require.NoError(t, err)
	put := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := l.Append(ctx, eventlog.Append{Stream: "a", Events: []eventlog.Event{{Type: "t"}}})
			done <- err
		}()
		return done
	}
	first := put(t.Context())
	<-entered
	ctx, leave := context.WithCancel(t.Context())
	waits := put(ctx)
	require.Eventually(t, func() bool { return l.Waiting() == 1 }, 30*time.Second, time.Millisecond)
	leave()
	err = <-waits
	require.ErrorIs(t, err, eventlog.ErrUnavailable, "who leaves the queue has appended nothing")
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, l.Waiting())
	ctx, leave = context.WithCancel(t.Context())
	taken := put(ctx)
	require.Eventually(t, func() bool { return l.Waiting() == 1 }, 30*time.Second, time.Millisecond)
	hold <- struct{}{}
	require.NoError(t, <-first)
	<-entered // the second is on its way
	leave()
	require.ErrorIs(t, <-taken, eventlog.ErrUnknownOutcome, "who leaves a transaction on its way does not know")
	close(hold)
}

// TestHintsAreCoalesced: while one is on its way, all that come are one more.
func TestHintsAreCoalesced(t *testing.T) {
	defer goleak.VerifyNone(t)
	entered, hold := make(chan struct{}, 100), make(chan struct{})
	s := &scripted{
		append: func(_ int, a []eventlog.Append) ([]eventlog.Appended, error) {
			return make([]eventlog.Appended, len(a)), nil
		},
		hint: func() { entered <- struct{}{}; <-hold },
	}
	l, err := eventlog.New(s, nil)
	require.NoError(t, err)
	for range 50 {
		_, err := l.Append(t.Context(), eventlog.Append{Stream: "a", Events: []eventlog.Event{{Type: "t"}}})
		require.NoError(t, err)
	}
	<-entered
	require.Empty(t, entered)
	close(hold)
	<-entered
	require.Never(t, func() bool { return len(entered) > 0 }, 20*time.Millisecond, time.Millisecond)
}

func TestAViewThatCannotGoOnEndsRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, why := range []error{&eventlog.ResyncError{Reason: eventlog.TimelineChanged}, &eventlog.PrunedError{}} {
		s := &scripted{read: func(n int, r eventlog.Read) (eventlog.Page, error) {
			if n == 1 {
				return eventlog.Page{}, why
			}
			return eventlog.Page{Events: []eventlog.Recorded{event("fresh")}}, nil
		}}
		view := func(resync func(context.Context, error) (eventlog.Cursor, error)) (*eventlog.Log, <-chan string) {
			got := make(chan string, 1000)
			l, err := eventlog.New(s, &eventlog.Options{Poll: time.Millisecond, Subscriptions: []eventlog.Subscription{eventlog.Projection("view",
				func(_ context.Context, e eventlog.Recorded) error { got <- e.ID; return nil }, &eventlog.ViewOptions{Resync: resync})}})
			require.NoError(t, err)
			return l, got
		}
		l, _ := view(nil)
		err := l.Run(t.Context())
		var stopped *eventlog.StoppedError
		require.ErrorAs(t, err, &stopped)
		require.Equal(t, "view", stopped.Subscription)
		require.ErrorIs(t, err, why)

		s.reads.Store(0)
		ctx, stop := context.WithCancel(t.Context())
		asked := 0
		l, got := view(func(_ context.Context, cause error) (eventlog.Cursor, error) {
			asked++
			require.ErrorIs(t, cause, why)
			if asked < 3 { // the moment at which a database is another is one at which it comes and goes
				return eventlog.Cursor{}, fmt.Errorf("%w: away", eventlog.ErrUnavailable)
			}
			return eventlog.Cursor{}, nil
		})
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		select {
		case id := <-got:
			require.Equal(t, "fresh", id)
		case err := <-ended:
			t.Fatal("it ended: ", err)
		}
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, 3, asked)
		require.Equal(t, int64(1), l.Status().Subscriptions[0].Resyncs)

		s.reads.Store(0)
		never := errors.New("no state to begin with")
		l, _ = view(func(context.Context, error) (eventlog.Cursor, error) { return eventlog.Cursor{}, never })
		require.ErrorIs(t, l.Run(t.Context()), never)
	}
}
