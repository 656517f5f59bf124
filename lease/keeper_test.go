package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasetest"
)

var quiet = slog.New(slog.DiscardHandler)

const name = "sweep"

// In these tests time is the bubble's: it moves when everybody waits, and instants are exact.

// start makes a keeper of the default paces, which is closed at the end.
func start(t *testing.T, l lease.Leaser, o lease.KeeperOptions) *lease.Keeper {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	if o.Clock == nil {
		began := time.Now()
		o.Clock = func() time.Duration { return time.Since(began) }
	}
	k, err := lease.NewKeeper(l, []string{name}, &o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = k.Close(ctx)
	})
	synctest.Wait()
	return k
}

func holds(k *lease.Keeper) lease.Generation {
	if l, is := k.Held(name); is {
		return l.Generation
	}
	return 0
}

// after lets time pass, and everybody do what is due then.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestKeeperHoldsRenewsAndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		a := start(t, store, lease.KeeperOptions{})
		b := start(t, store.Handle(), lease.KeeperOptions{})
		require.EqualValues(t, 1, holds(a))
		for range 600 {
			after(time.Second)
			require.EqualValues(t, 1, holds(a), "it is renewed, in one generation")
			require.Zero(t, holds(b))
		}
		st := b.Status()[0]
		require.Equal(t, lease.Standby, st.State)
		require.Equal(t, a.Holder(), st.Other.Holder)
		require.Equal(t, lease.DefaultTTL, st.TenureInForce)
		require.NoError(t, st.Err)
		require.Equal(t, lease.Holding, a.Status()[0].State)
		require.NoError(t, a.Close(t.Context()))
		require.Equal(t, lease.Closed, a.Status()[0].State)
		require.Zero(t, holds(a))
		after(lease.DefaultRenew)
		require.EqualValues(t, 2, holds(b), "within one round")
	})
}

func TestDeadHolderIsFollowedWithinOneTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		_, err := store.Acquire(t.Context(), lease.Claim{Name: name, Holder: "dead", TTL: lease.DefaultTTL})
		require.NoError(t, err)
		b := start(t, store.Handle(), lease.KeeperOptions{})
		after(lease.DefaultTTL - 1)
		require.Zero(t, holds(b))
		after(1)
		require.EqualValues(t, 2, holds(b))
	})
}

// hang makes the calls of one kind never return, whatever becomes of their context, until the test is over.
func hang(t *testing.T, m *leasetest.Memory, kind string) {
	t.Helper()
	free := make(chan struct{})
	t.Cleanup(func() { close(free) })
	m.Intercept(func(_ context.Context, call, _ string, do func() error) error {
		if call == kind {
			<-free
			return lease.ErrUnavailable
		}
		return do()
	})
}

func TestHungRenewalEndsTheBeliefAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		k := start(t, store, lease.KeeperOptions{})
		hang(t, store, "renew")
		ended := make(chan error, 1)
		go func() {
			_ = k.Do(t.Context(), name, func(ctx context.Context, _ lease.Lease) error {
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return nil
			})
		}()
		after(lease.DefaultDeadline - 1)
		require.EqualValues(t, 1, holds(k))
		require.Empty(t, ended)
		after(1)
		require.Zero(t, holds(k), "counted from when the acquisition was sent")
		require.Len(t, ended, 1, "work is told")
		require.ErrorIs(t, <-ended, lease.ErrGivenUp)
		row, err := store.Look(t.Context(), name)
		require.NoError(t, err)
		require.True(t, row.Held(), "before the store lets another in")
		require.Equal(t, lease.DefaultTTL-lease.DefaultDeadline, row.Remaining())
		require.ErrorIs(t, k.Do(t.Context(), name, nil), lease.ErrNotHeld)
	})
}

func TestTrustCountsFromTheAttemptsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		store.Intercept(func(_ context.Context, _, _ string, do func() error) error {
			err := do() // the store grants at once, and the answer takes its time
			time.Sleep(4 * time.Second)
			return err
		})
		k := start(t, store, lease.KeeperOptions{})
		require.Zero(t, holds(k))
		after(4 * time.Second)
		require.EqualValues(t, 1, holds(k))
		require.Equal(t, lease.DefaultDeadline-4*time.Second, k.Status()[0].Trust)
	})
}

func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		var down atomic.Bool
		store.Intercept(func(_ context.Context, _, _ string, do func() error) error {
			if down.Load() {
				return lease.ErrUnavailable
			}
			return do()
		})
		k := start(t, store, lease.KeeperOptions{})
		down.Store(true)
		after(9 * time.Second)
		require.EqualValues(t, 1, holds(k), "no answer is no loss")
		require.ErrorIs(t, k.Status()[0].Err, lease.ErrUnavailable)
		down.Store(false)
		after(2 * time.Second)
		require.EqualValues(t, 1, holds(k))
		require.NoError(t, k.Status()[0].Err)
		down.Store(true)
		after(lease.DefaultDeadline)
		require.Zero(t, holds(k))
		down.Store(false)
		after(lease.DefaultRenew)
		require.EqualValues(t, 2, holds(k), "what was given up has a generation of its own when it comes back")
	})
}

func TestLostAnswers(t *testing.T) {
	for _, kind := range []string{"acquire", "renew", "release"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := leasetest.NewMemory()
				var lost atomic.Int32
				lost.Store(1)
				store.Intercept(func(_ context.Context, call, _ string, do func() error) error {
					err := do()
					if call == kind && lost.Add(-1) == 0 {
						return lease.ErrUnknownOutcome
					}
					return err
				})
				k := start(t, store, lease.KeeperOptions{})
				after(lease.DefaultRenew + time.Second)
				want := lease.Generation(1)
				if kind == "acquire" {
					want = 2
				}
				require.Equal(t, want, holds(k))
				require.NoError(t, k.Close(t.Context()))
				row, err := store.Look(t.Context(), name)
				require.NoError(t, err)
				require.False(t, row.Held())
				require.Equal(t, want, row.Generation)
			})
		})
	}
}

// Who leaves while its acquisition is on its way may have been granted the lease, and gives it back.
func TestClosedWhileAcquiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		store.Intercept(func(ctx context.Context, call, _ string, do func() error) error {
			err := do()
			if call == "acquire" {
				<-ctx.Done()
				return lease.ErrUnknownOutcome
			}
			return err
		})
		k := start(t, store, lease.KeeperOptions{})
		require.NoError(t, k.Close(t.Context()))
		row, err := store.Handle().Look(t.Context(), name)
		require.NoError(t, err)
		require.EqualValues(t, 1, row.Generation)
		require.False(t, row.Held())
	})
}

func TestTakenByAnotherEndsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		k := start(t, store, lease.KeeperOptions{})
		var stopped atomic.Bool
		go func() {
			_ = k.Do(t.Context(), name, func(ctx context.Context, held lease.Lease) error {
				defer stopped.Store(true)
				<-ctx.Done()
				assert.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
				assert.ErrorIs(t, store.Fence(held), lease.ErrLost)
				return nil
			})
		}()
		synctest.Wait()
		store.Advance(lease.DefaultTTL) // as if this process had stood still
		_, err := store.Handle().Acquire(t.Context(), lease.Claim{Name: name, Holder: "b", TTL: time.Minute})
		require.NoError(t, err)
		after(lease.DefaultRenew)
		require.True(t, stopped.Load(), "work is told")
		require.Zero(t, holds(k))
	})
}

func TestReleasedOnlyWhenTheWorkHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		a := start(t, store, lease.KeeperOptions{})
		b := start(t, store.Handle(), lease.KeeperOptions{})
		var stopped atomic.Bool
		go func() {
			_ = a.Do(t.Context(), name, func(ctx context.Context, held lease.Lease) error {
				<-ctx.Done()
				assert.ErrorIs(t, context.Cause(ctx), lease.ErrClosed)
				time.Sleep(10 * time.Minute) // far longer than a tenure
				assert.NoError(t, store.Fence(held), "the last write of the work is good")
				stopped.Store(true)
				return nil
			})
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- a.Close(t.Context()) }()
		for !stopped.Load() {
			after(time.Second)
			require.Zero(t, holds(a), "no cycle begins")
			require.True(t, holds(b) == 0 || stopped.Load())
			require.ErrorIs(t, a.Do(t.Context(), name, nil), lease.ErrClosed)
		}
		require.NoError(t, <-closed)
		after(lease.DefaultRenew)
		require.EqualValues(t, 2, holds(b))
	})
}

func TestWorkThatDoesNotStopKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		k := start(t, store, lease.KeeperOptions{})
		free := make(chan struct{})
		go func() {
			_ = k.Do(t.Context(), name, func(context.Context, lease.Lease) error { <-free; return nil })
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := k.Close(ctx)
		require.ErrorIs(t, err, lease.ErrBusy)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		row, lerr := store.Look(t.Context(), name)
		require.NoError(t, lerr)
		require.True(t, row.Held(), "it was renewed and not released")
		after(lease.DefaultTTL)
		row, lerr = store.Look(t.Context(), name)
		require.NoError(t, lerr)
		require.False(t, row.Held(), "it lapses")
		close(free)
	})
}

func TestNothingIsAcquiredWhileEarlierWorkRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		k := start(t, store, lease.KeeperOptions{})
		free := make(chan struct{})
		go func() {
			_ = k.Do(t.Context(), name, func(context.Context, lease.Lease) error { <-free; return nil })
		}()
		synctest.Wait()
		store.Advance(lease.DefaultTTL)
		after(time.Hour)
		require.Zero(t, holds(k))
		require.Equal(t, lease.Stopping, k.Status()[0].State)
		close(free)
		synctest.Wait()
		require.EqualValues(t, 2, holds(k))
	})
}

// The tenure of 60 s is set by whoever has the lease; the process with 10 s waits for it, and says so.
func TestTenuresConfiguredApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		log := &said{}
		long := store.Handle()
		a := start(t, long, lease.KeeperOptions{TTL: 60 * time.Second})
		b := start(t, store, lease.KeeperOptions{TTL: 10 * time.Second, Logger: slog.New(log)})
		after(10 * time.Minute)
		st := b.Status()[0]
		require.Equal(t, 60*time.Second, st.TenureInForce)
		require.Equal(t, 10*time.Second, st.TenureOwn)
		require.True(t, st.Longer)
		require.False(t, a.Status()[0].Longer)
		require.Equal(t, 1, log.count("longer than this process's own"), "once")
		require.Equal(t, 1, log.count("standing by"), "who waits is not silent, and says it once")
		row, err := store.Look(t.Context(), name)
		require.NoError(t, err)
		hang(t, long, "renew") // it dies
		after(row.Remaining() - 1)
		require.Zero(t, holds(b))
		after(1)
		require.EqualValues(t, 2, holds(b))
		require.Equal(t, 10*time.Second, b.Status()[0].TenureInForce)
		require.False(t, b.Status()[0].Longer)
	})
}

func TestSuspensionEndsTheBelief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		began := time.Now()
		var asleep atomic.Int64
		k := start(t, store, lease.KeeperOptions{Clock: func() time.Duration { return time.Since(began) + time.Duration(asleep.Load()) }})
		hang(t, store, "renew")
		var ended atomic.Bool
		go func() {
			_ = k.Do(t.Context(), name, func(ctx context.Context, _ lease.Lease) error {
				defer ended.Store(true)
				<-ctx.Done()
				return nil
			})
		}()
		after(time.Second)
		asleep.Store(int64(10 * time.Minute)) // timers stood still
		require.Zero(t, holds(k), "at once, for whoever asks")
		after(lease.DefaultDeadline / 20)
		require.True(t, ended.Load(), "soon, for whoever works")
	})
}

func TestHistoryThatWentBackIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		for range 3 {
			_, err := store.Acquire(t.Context(), lease.Claim{Name: name, Holder: "before", TTL: time.Minute})
			require.NoError(t, err)
		}
		store.Advance(time.Hour)
		k := start(t, store, lease.KeeperOptions{})
		require.EqualValues(t, 4, holds(k))
		store.Rewind(name, 2)
		after(lease.DefaultRenew)
		require.Zero(t, holds(k))
		st := k.Status()[0]
		require.True(t, st.Regressed)
		require.ErrorIs(t, st.Err, lease.ErrHistoryRegressed)
		after(time.Hour)
		require.Zero(t, holds(k))
		row, err := store.Handle().Look(t.Context(), name)
		require.NoError(t, err)
		require.EqualValues(t, 2, row.Generation, "nothing was changed")
	})
}

func TestManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		names := []string{"sweep", "discover", "publish", "expire"}
		began := time.Now()
		var keepers []*lease.Keeper
		for range 3 {
			k, err := lease.NewKeeper(store.Handle(), names, &lease.KeeperOptions{Logger: quiet, Clock: func() time.Duration { return time.Since(began) }})
			require.NoError(t, err)
			keepers = append(keepers, k)
		}
		for range 100 {
			after(time.Second)
			for _, n := range names {
				held := 0
				for _, k := range keepers {
					if _, is := k.Held(n); is {
						held++
					}
				}
				require.Equal(t, 1, held, n)
			}
		}
		for i, k := range keepers {
			require.Len(t, k.Status(), len(names))
			require.NoError(t, k.Close(t.Context()))
			require.NoError(t, k.Close(t.Context()), "again")
			if i < 2 {
				after(lease.DefaultRenew)
			}
		}
		for _, n := range names {
			row, err := store.Look(t.Context(), n)
			require.NoError(t, err)
			require.False(t, row.Held())
		}
	})
}

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		k := start(t, store, lease.KeeperOptions{})
		own := errors.New("own")
		require.ErrorIs(t, k.Do(t.Context(), name, func(_ context.Context, held lease.Lease) error {
			require.Equal(t, k.Holder(), held.Holder)
			require.Equal(t, 1, k.Status()[0].Working)
			return own
		}), own)
		require.ErrorIs(t, k.Do(t.Context(), "another", nil), lease.ErrInvalid)
		_, err := k.Await(t.Context(), "another")
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, is := k.Held("another")
		require.False(t, is)
		require.Panics(t, func() {
			_ = k.Do(t.Context(), name, func(context.Context, lease.Lease) error { panic("work") })
		})
		require.Zero(t, k.Status()[0].Working)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, k.Do(ctx, name, func(ctx context.Context, _ lease.Lease) error { return ctx.Err() }), context.Canceled)
		other := start(t, store.Handle(), lease.KeeperOptions{})
		_, err = other.Await(ctx, name)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, k.Close(t.Context()))
		held, err := other.Await(t.Context(), name)
		require.NoError(t, err)
		require.EqualValues(t, 2, held.Generation)
		require.NoError(t, other.Close(t.Context()))
		_, err = other.Await(t.Context(), name)
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

func TestFailuresAreSaidAndDoNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewMemory()
		store.Intercept(func(context.Context, string, string, func() error) error { return lease.ErrUnavailable })
		log := &said{}
		k := start(t, store, lease.KeeperOptions{Logger: slog.New(log)})
		require.Equal(t, 1, log.count("a call failed"), "the first at once")
		after(time.Hour)
		require.Greater(t, k.Status()[0].Failures, 500)
		require.LessOrEqual(t, log.count("a call failed"), 12)
		store.Intercept(nil)
		after(lease.DefaultRenew)
		require.Equal(t, 1, log.count("succeed again"))
		require.Equal(t, 1, log.count("acquired"))
	})
}

func TestOptionsThatAreUnsafeAreRefused(t *testing.T) {
	m := leasetest.NewMemory()
	for _, o := range []lease.KeeperOptions{
		{TTL: 15 * time.Second, Deadline: 15 * time.Second}, {TTL: 15 * time.Second, Deadline: 20 * time.Second}, {TTL: 15 * time.Second, Renew: 6 * time.Second},
		{TTL: time.Millisecond}, {TTL: 48 * time.Hour}, {TTL: -time.Second}, {Renew: -time.Second}, {Deadline: -time.Second},
	} {
		_, err := lease.NewKeeper(m, []string{name}, &o)
		require.ErrorIs(t, err, lease.ErrInvalid, "%+v", o)
	}
	for _, names := range [][]string{nil, {""}, {name, name}, {"a\nb"}} {
		_, err := lease.NewKeeper(m, names, nil)
		require.ErrorIs(t, err, lease.ErrInvalid, "%q", names)
	}
	_, err := lease.NewKeeper(nil, []string{name}, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = lease.NewKeeper(unshared{m}, []string{name}, nil)
	require.ErrorIs(t, err, lease.ErrNotShared)
}

type unshared struct{ *leasetest.Memory }

func (unshared) Shared() bool { return false }

// said keeps what was logged.
type said struct {
	mu    sync.Mutex
	lines []string
}

func (s *said) Enabled(context.Context, slog.Level) bool { return true }
func (s *said) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *said) WithGroup(string) slog.Handler            { return s }
func (s *said) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, r.Message)
	return nil
}

func (s *said) count(part string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		if strings.Contains(l, part) {
			n++
		}
	}
	return n
}
