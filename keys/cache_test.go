package keys_test

import (
	"context"
	"crypto/sha256"
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

// What ends by itself is told by no event. Only the time since the store's snapshot counts, whatever this machine's clock says.
func TestCacheKeepsNothingLongerThanItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
		grace := at.Add(5 * time.Second)
		key, team := keys.Key{ID: "key", TeamID: "team"}, keys.Team{ID: "team"}
		f := &fake{answer: func(_ context.Context, presented string) (keys.Principal, error) {
			time.Sleep(time.Second) // on the way
			hash, key := keys.Hash(sha256.Sum256([]byte(presented))), key
			secret := keys.Secret{Hash: hash, KeyID: "key"}
			if presented == "expires" {
				end := at.Add(10 * time.Second)
				key.ExpiresAt = &end
			} else {
				secret.RetiresAt = &grace
			}
			return keys.Authenticate(hash, secret, key, team, at)
		}}
		c := keys.NewCache(f, nil)
		for presented, lasts := range map[string]time.Duration{"expires": 10 * time.Second, "retires": 5 * time.Second} {
			f.calls.Store(0)
			ask := func() {
				_, err := c.Resolve(t.Context(), presented)
				require.NoError(t, err)
			}
			ask()
			time.Sleep(lasts - 2*time.Second)
			ask()
			require.EqualValues(t, 1, f.calls.Load(), presented)
			time.Sleep(time.Second)
			ask()
			require.EqualValues(t, 2, f.calls.Load(), presented)
		}
	})
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

// evictions are the ways in which the principal of "a:1", of team "red", is forgotten.
var evictions = map[string]func(*keys.Cache){
	"the key's":    func(c *keys.Cache) { c.Evict("a") },
	"the team's":   func(c *keys.Cache) { c.EvictTeam("red") },
	"everything's": func(c *keys.Cache) { c.Clear() },
	"an event's":   func(c *keys.Cache) { c.Follow("key/a") },
}

// TestCacheDoesNotResurrect: a look-up has read the row, the row is edited, the eviction comes, and only then the look-up ends. It
// answers those who came before. Who comes after the eviction has an answer from after it, at once and later.
func TestCacheDoesNotResurrect(t *testing.T) {
	for name, evict := range evictions {
		synctest.Test(t, func(t *testing.T) {
			release, revision := make(chan struct{}), int64(1)
			f := &fake{}
			f.answer = func(context.Context, string) (keys.Principal, error) {
				p := keys.Principal{KeyID: "a", TeamID: "red", Key: keys.Key{Revision: revision}} // read, and then it takes its time
				if f.calls.Load() == 1 {
					<-release
				}
				return p, nil
			}
			c := keys.NewCache(f, nil)
			var before sync.WaitGroup
			for range 3 {
				before.Go(func() {
					p, err := c.Resolve(t.Context(), "a:1")
					assert.NoError(t, err)
					assert.EqualValues(t, 1, p.Key.Revision)
				})
			}
			synctest.Wait() // one asks, two wait for it
			revision = 2
			evict(c)
			after := func(rule string) {
				t.Helper()
				p, err := c.Resolve(t.Context(), "a:1")
				require.NoError(t, err)
				require.EqualValues(t, 2, p.Key.Revision, "%s eviction: %s", name, rule)
			}
			after("nobody joins a look-up from before it")
			close(release)
			before.Wait()
			after("a look-up from before it is not kept")
			require.EqualValues(t, 2, f.calls.Load(), "what came after it is")
			require.Equal(t, 1, c.Len())
		})
	}
}

// TestCacheKeepsNothingOfALookUpThatWasEvicted is the same with nobody in between.
func TestCacheKeepsNothingOfALookUpThatWasEvicted(t *testing.T) {
	for name, evict := range evictions {
		f := &fake{}
		c := keys.NewCache(f, nil)
		f.answer = func(ctx context.Context, presented string) (keys.Principal, error) {
			evict(c) // an edit, after the row was read
			return keyOf(ctx, presented)
		}
		_, err := c.Resolve(t.Context(), "a:1")
		require.NoError(t, err)
		require.Zero(t, c.Len(), name)
	}
}

func TestCacheFollowsStreams(t *testing.T) {
	f := &fake{answer: func(ctx context.Context, presented string) (keys.Principal, error) {
		id, team, _ := strings.Cut(presented, ":")
		return keys.Principal{KeyID: id, TeamID: team}, nil
	}}
	c := keys.NewCache(f, nil)
	fill := func() {
		c.Clear()
		require.Zero(t, c.Len())
		for _, presented := range []string{"a:red", "b:red", "c:blue", "a2:red"} {
			_, err := c.Resolve(t.Context(), presented)
			require.NoError(t, err)
		}
	}
	for stream, left := range map[string]int{"key/a": 3, "team/red": 1, "team/blue": 3, "key/never": 4, "keys": 4, "team/a": 4, "key/red": 4} {
		fill()
		require.True(t, c.Follow(stream), stream)
		require.Equal(t, left, c.Len(), stream)
	}
	fill()
	for _, stream := range []string{"", "policies", "keys/a", "teams", "account/1", "upstream/key/a"} {
		require.False(t, c.Follow(stream), stream)
	}
	require.Equal(t, 4, c.Len())
	c.EvictTeam("red")
	c.EvictTeam("red")
	c.Evict("c")
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
				switch n % 21 {
				case 0:
					c.Evict(id)
				case 7:
					c.EvictTeam("")
				case 14:
					c.Clear()
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, c.Len(), 8)
}
