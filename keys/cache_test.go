package keys_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/keys"
)

// fake answers look-ups with answer and counts them.
type fake struct {
	calls  atomic.Int64
	answer func(ctx context.Context, presented string) (keys.Principal, error)
}

func (f *fake) Resolve(ctx context.Context, presented string) (keys.Principal, error) {
	f.calls.Add(1)
	return f.answer(ctx, presented)
}

func (f *fake) Reload(_ context.Context, p keys.Principal) (keys.Principal, error) {
	f.calls.Add(1)
	return p, nil
}

// keyOf makes the principal of "key:anything".
func keyOf(_ context.Context, presented string) (keys.Principal, error) {
	id, _, _ := strings.Cut(presented, ":")
	return keys.Principal{KeyID: id}, nil
}

func TestCacheKeepsPrincipals(t *testing.T) {
	ctx := t.Context()
	f := &fake{answer: keyOf}
	c := keys.NewCache(f, nil)
	for range 3 {
		p, err := c.Resolve(ctx, "a:1")
		require.NoError(t, err)
		require.Equal(t, "a", p.KeyID)
	}
	require.EqualValues(t, 1, f.calls.Load())
	_, err := c.Resolve(ctx, "a:2") // another token of the same key
	require.NoError(t, err)
	require.EqualValues(t, 2, f.calls.Load())
	_, err = c.Resolve(ctx, "b:1")
	require.NoError(t, err)
	require.Equal(t, 3, c.Len())

	c.Evict("a")
	require.Equal(t, 1, c.Len(), "all tokens of the key are forgotten, and no other's")
	c.Evict("never")
	_, err = c.Resolve(ctx, "a:1")
	require.NoError(t, err)
	require.EqualValues(t, 4, f.calls.Load())
	_, err = c.Reload(ctx, keys.Principal{KeyID: "a"})
	require.NoError(t, err)
	require.EqualValues(t, 5, f.calls.Load(), "a reload always asks")
}

func TestCacheNeverKeepsARefusal(t *testing.T) {
	ctx := t.Context()
	for _, refusal := range []error{keys.ErrUnknown, keys.ErrRevoked, keys.ErrExpired, keys.ErrUnavailable} {
		f := &fake{answer: func(context.Context, string) (keys.Principal, error) { return keys.Principal{}, refusal }}
		c := keys.NewCache(f, nil)
		for range 3 {
			_, err := c.Resolve(ctx, "a:1")
			require.ErrorIs(t, err, refusal)
		}
		require.EqualValues(t, 3, f.calls.Load())
		require.Zero(t, c.Len())
	}
	f := &fake{answer: keyOf}
	_, err := keys.NewCache(f, nil).Resolve(ctx, strings.Repeat("x", 1<<20))
	require.ErrorIs(t, err, keys.ErrUnknown)
	require.Zero(t, f.calls.Load(), "nothing that long is a token")
}

func TestCacheIsBounded(t *testing.T) {
	ctx := t.Context()
	f := &fake{answer: keyOf}
	c := keys.NewCache(f, &keys.CacheOptions{Size: 3})
	resolve := func(s string) {
		_, err := c.Resolve(ctx, s)
		require.NoError(t, err)
	}
	for i := range 10 {
		resolve(fmt.Sprintf("k%d:", i))
	}
	require.Equal(t, 3, c.Len())
	calls := f.calls.Load()
	resolve("k7:") // now the most recently used
	resolve("new:")
	resolve("k7:")
	require.Equal(t, calls+1, f.calls.Load(), "what was used last stays longest")
	resolve("k8:")
	require.Equal(t, calls+2, f.calls.Load())
}

func TestCacheForgetsWithAge(t *testing.T) {
	f := &fake{answer: keyOf}
	c := keys.NewCache(f, &keys.CacheOptions{MaxAge: time.Nanosecond})
	for range 2 {
		_, err := c.Resolve(t.Context(), "a:1")
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, f.calls.Load())
}

func TestCacheSharesALookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{answer: func(ctx context.Context, presented string) (keys.Principal, error) {
			<-release
			return keyOf(ctx, presented)
		}}
		c := keys.NewCache(f, nil)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				p, err := c.Resolve(t.Context(), "a:1")
				assert.NoError(t, err)
				assert.Equal(t, "a", p.KeyID)
			})
		}
		synctest.Wait() // all of them wait
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.Resolve(gone, "a:1")
		require.ErrorIs(t, err, context.Canceled, "whoever waits may leave")
		require.ErrorIs(t, err, keys.ErrUnavailable)
		close(release)
		wg.Wait()
		require.EqualValues(t, 1, f.calls.Load())
	})
}

func TestCacheDoesNotShareACallersDeparture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, cancel := context.WithCancel(t.Context())
		f := &fake{}
		f.answer = func(ctx context.Context, presented string) (keys.Principal, error) {
			if f.calls.Load() > 1 {
				return keyOf(ctx, presented)
			}
			<-ctx.Done()
			return keys.Principal{}, errors.Join(keys.ErrUnavailable, ctx.Err())
		}
		c := keys.NewCache(f, nil)
		left, stayed := make(chan error, 1), make(chan error, 1)
		go func() { _, err := c.Resolve(first, "a:1"); left <- err }()
		synctest.Wait() // the look-up has begun
		go func() { _, err := c.Resolve(t.Context(), "a:1"); stayed <- err }()
		synctest.Wait() // the second caller waits for it
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		require.NoError(t, <-stayed, "one caller's departure is not another's error")
		require.EqualValues(t, 2, f.calls.Load())
	})
}

func TestCacheDoesNotKeepWhatWasEvictedMeanwhile(t *testing.T) {
	f := &fake{}
	c := keys.NewCache(f, nil)
	f.answer = func(ctx context.Context, presented string) (keys.Principal, error) {
		p, err := keyOf(ctx, presented)
		c.Evict("a") // an edit, after the row was read
		return p, err
	}
	_, err := c.Resolve(t.Context(), "a:1")
	require.NoError(t, err)
	require.Zero(t, c.Len())
}

func TestCacheSurvivesAPanic(t *testing.T) {
	f := &fake{answer: func(context.Context, string) (keys.Principal, error) { panic("store") }}
	c := keys.NewCache(f, nil)
	require.Panics(t, func() { _, _ = c.Resolve(t.Context(), "a:1") })
	f.answer = keyOf
	_, err := c.Resolve(t.Context(), "a:1")
	require.NoError(t, err, "nobody waits for a look-up that is gone")
}

func TestCacheConcurrently(t *testing.T) {
	c := keys.NewCache(&fake{answer: keyOf}, &keys.CacheOptions{Size: 8})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 500 {
				id := fmt.Sprint("k", (i*n)%20)
				p, err := c.Resolve(t.Context(), id+":x")
				assert.NoError(t, err)
				assert.Equal(t, id, p.KeyID)
				if n%7 == 0 {
					c.Evict(id)
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, c.Len(), 8)
}
