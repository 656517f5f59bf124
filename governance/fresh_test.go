package governance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// evictions counts what the Governor tells a cache.
type evictions struct {
	mu   sync.Mutex
	keys map[string]int
}

func (e *evictions) add(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.keys == nil {
		e.keys = map[string]int{}
	}
	e.keys[id]++
}

func TestEditIsFollowed(t *testing.T) {
	var evicted evictions
	r := newRig(t, &Options{Evict: evicted.add})
	p := r.caller("red", "k", plenty(), keys.Limits{TokensPerDay: keys.Limit(100)})
	r.admit(p, Bound{Tokens: 60})
	r.edit(p, func(key *keys.Key, _ *keys.Team) { key.Limits.TokensPerDay = keys.Limit(50) })
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: Bound{Tokens: 10}}) // still with the old principal
	if refusal := r.refused(err, ReasonReserved); refusal.Verdict.Limit != 50 || refusal.Verdict.Reserved != 60 {
		t.Fatalf("refusal %+v", refusal)
	}
	r.edit(p, func(key *keys.Key, _ *keys.Team) { key.Limits.TokensPerDay = keys.Limit(70); key.Revision++ })
	permit := r.admit(p, Bound{Tokens: 10})
	if evicted.keys["k"] != 2 || r.registry.loads != 2 || permit.principal.Key.Revision != 3 {
		t.Fatalf("evicted %v, %d reloads, revision %d", evicted.keys, r.registry.loads, permit.principal.Key.Revision)
	}
	r.verify()
}

func TestRevocationIsFinal(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	permit := r.admit(p, small)
	r.edit(p, func(key *keys.Key, _ *keys.Team) { now := r.shelf.time(); key.RevokedAt = &now })
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	if refusal := r.refused(err, ReasonUnauthenticated); refusal.Retryable || StatusOf(err).Code != 401 {
		t.Fatalf("refusal %+v", refusal)
	}
	if r.registry.loads != 0 {
		t.Fatal("what is revoked needs no second look")
	}
	r.refused(permit.Raise(r.ctx, Bound{Tokens: 99, Cost: 99}), ReasonUnauthenticated)
	if permit.Bound() != small || r.stored(permit.ID()).Tokens != 3 {
		t.Fatal("the bound grew")
	}
	r.ok(permit.Settle(r.ctx, Used(3, 2))) // what was admitted is settled
	e, err := r.g.Explain(r.ctx, Request{Principal: p, Bound: small})
	if err != nil || e.Admitted || e.Refusal.Reason != ReasonUnauthenticated {
		t.Fatalf("%+v, %v", e, err)
	}
	r.shelf.with(func() { delete(r.shelf.definitions, "k") })
	_, err = r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	r.refused(err, ReasonUnauthenticated)
}

func TestExpiryIsJudgedByTheStoresClock(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	p = r.edit(p, func(key *keys.Key, _ *keys.Team) { at := r.shelf.time().Add(time.Second); key.ExpiresAt = &at })
	permit := r.admit(p, small)
	r.shelf.advance(time.Second - time.Microsecond)
	r.admit(p, small)
	r.shelf.advance(time.Microsecond)
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	r.refused(err, ReasonUnauthenticated)
	r.refused(permit.Raise(r.ctx, Bound{Tokens: 99}), ReasonUnauthenticated)
}

// ErrStale is for those alone whose selection an edit touched.
func TestStaleOnlyWhenTheSelectionChanged(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*keys.Key, *keys.Team)
		want   string
	}{
		"a limit":                      {func(k *keys.Key, _ *keys.Team) { k.Limits.TokensPerDay = keys.Limit(1e6) }, "ok"},
		"metadata":                     {func(k *keys.Key, _ *keys.Team) { k.Metadata = map[string]string{"a": "b"} }, "ok"},
		"a model that is still there":  {func(k *keys.Key, _ *keys.Team) { k.AllowedModels = []string{"m", "n"} }, "ok"},
		"a region that is still there": {func(_ *keys.Key, t *keys.Team) { t.AllowedRegions = []string{"eu"} }, "ok"},
		"the model":                    {func(k *keys.Key, _ *keys.Team) { k.AllowedModels = []string{"n"} }, "refused model"},
		"the region":                   {func(_ *keys.Key, t *keys.Team) { t.AllowedRegions = []string{"us"} }, "stale"},
		"the guardrail":                {func(_ *keys.Key, t *keys.Team) { t.Guardrail = "strict" }, "stale"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			p := r.caller("red", "k", plenty(), plenty())
			r.edit(p, test.change)
			_, err := r.g.Admit(r.ctx, Request{Principal: p, Model: "m", Region: "eu", Bound: small})
			if have := nameOf(err); have != test.want {
				t.Fatalf("%s (%v), want %s", have, err, test.want)
			}
			if n := len(r.shelf.permits); (n == 1) != (test.want == "ok") {
				t.Fatalf("%d permits", n)
			}
		})
	}
}

// An edit that takes a limit away widens nothing for a request that is on its way
// with the old one only as long as the new definition says so: the decision is
// made with what is in force.
func TestDecisionIsMadeWithWhatIsInForce(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), keys.Limits{}) // no limit of the key
	tightened := r.edit(p, func(key *keys.Key, _ *keys.Team) { key.Limits.TokensPerDay = keys.Limit(2) })
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	r.refused(err, ReasonNeverFits)
	r.edit(tightened, func(key *keys.Key, _ *keys.Team) { key.Limits.TokensPerDay = nil })
	r.admit(tightened, small)
}

// Edits that come faster than decisions do not go on for ever.
func TestEditsWithoutEnd(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	last := p
	r.shelf.enter = func(*Plan) error { // each decision is overtaken
		next := *last
		next.Key.Revision++
		last = &next
		r.registry.mu.Lock()
		r.registry.current["k"] = next
		r.registry.mu.Unlock()
		r.shelf.definitions["k"] = keys.DefinitionOf(next.Key, next.Team)
		return nil
	}
	_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
	r.is(err, ErrStale)
	if r.registry.loads != reloads-1 {
		t.Fatalf("%d reloads", r.registry.loads)
	}
	r.shelf.enter = nil
	permit := r.admit(p, small)
	if permit.principal.Key.Revision != last.Key.Revision {
		t.Fatal("decided with an older revision")
	}
}

// All callers that an edit overtook share one reload.
func TestReloadIsShared(t *testing.T) {
	var evicted evictions
	r := newRig(t, &Options{Evict: evicted.add})
	p := r.caller("red", "k", plenty(), plenty())
	r.edit(p, func(key *keys.Key, _ *keys.Team) { key.Limits.TokensPerDay = keys.Limit(1e9) })
	open, entered := make(chan struct{}), make(chan struct{}, 64)
	r.registry.load = func() { entered <- struct{}{}; <-open }
	var c results
	for range 20 {
		c.admit(r.ctx, r.g, Request{Principal: p, Bound: small})
	}
	<-entered
	r.until("all wait for it", func() bool { return waitIn("[select", "(*reloader).principal") == 20 })
	ctx, leave := context.WithCancel(r.ctx)
	var left results
	left.admit(ctx, r.g, Request{Principal: p, Bound: small})
	r.until("one more waits", func() bool { return waitIn("[select", "(*reloader).principal") == 21 })
	leave() // who leaves does not end the reload for the others
	if _, errs := left.wait(); len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		t.Fatalf("errors %v", errs)
	}
	close(open)
	permits, errs := c.wait()
	if len(permits) != 20 || len(errs) > 0 {
		t.Fatalf("%d permits, errors %v", len(permits), errs)
	}
	if n := r.registry.loads; n != 1 || evicted.keys["k"] != 21 {
		t.Fatalf("%d reloads for 20 callers, evicted %v", n, evicted.keys)
	}
}

func TestReloadThatFails(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	r.edit(p, func(*keys.Key, *keys.Team) {})
	broken := &brokenKeys{}
	r.g.keys = broken
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("dial tcp: no route"), "unavailable"}, {keys.ErrUnavailable, "unavailable"},
		{keys.ErrUnknown, "refused unauthenticated"}, {keys.ErrRevoked, "refused unauthenticated"}, {keys.ErrExpired, "refused unauthenticated"},
	} {
		broken.err = test.err
		_, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: small})
		if have := nameOf(err); have != test.want {
			t.Errorf("%v: %v", test.err, err)
		}
	}
	if len(r.shelf.permits) != 0 {
		t.Fatal("something was admitted")
	}
}

type brokenKeys struct {
	keys.Store
	err error
}

func (b *brokenKeys) Reload(context.Context, keys.Principal) (keys.Principal, error) {
	return keys.Principal{}, b.err
}

// An edit per second of one key costs other subjects nothing.
func TestEditsOfOthersCostNothing(t *testing.T) {
	r := newRig(t, nil)
	p, q := r.caller("red", "k", plenty(), plenty()), r.caller("blue", "l", plenty(), plenty())
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			q = r.edit(q, func(*keys.Key, *keys.Team) {})
		}
	})
	for range 500 {
		r.admit(p, small)
	}
	stop.Store(true)
	wg.Wait()
	if r.registry.loads != 0 {
		t.Fatalf("%d reloads", r.registry.loads)
	}
}
