package governancetest

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

func identityCases() []scenario {
	return []scenario{
		{name: "SameIDInFlight", also: "ReplayI7CallersKey", run: identityInFlight},
		{name: "SameIDTerminal", also: "PrimitiveG9StoredResult", run: identityTerminal},
		{name: "SameIDOtherTermsConflict", also: "PrimitiveG16TermsAreComparedFirst", run: identityConflict},
		{name: "RefusedIDIsNotRemembered", run: identityRefused},
		{name: "OldIDIsPruned", run: identityPruned},
		{name: "FutureID", run: identityFuture},
		{name: "OneIDManyCallers", run: identityRace},
		{name: "OwnerAloneEndsAPermit", run: identityOwner},
		{name: "OneIDTwoHandles", needs: Features{Shared: true}, run: identityRaceShared},
		{name: "IDIsLookedUpBeforeFreshness", run: identityBeforeFreshness},
		{name: "MintedIDsAreUnique", run: identityMinted},
		{name: "PrimitiveG15SameIDTwiceInOneBatch", run: identityOneBatch},
	}
}

// ask is a request with an id.
func ask(c *caller, b governance.Bound, id governance.PermitID) governance.Request {
	r := request(c, b)
	r.ID = id
	return r
}

func identityInFlight(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	id := e.id()
	p, err := e.g.Admit(e.ctx, ask(c, both(10, 10), id))
	e.ok(err)
	e.equal("id", p.ID(), id)
	ids := e.constraintsOf(c)
	before := e.snapshot(ids...)
	for _, g := range []*governance.Governor{e.g, e.governor(e.b, nil)} {
		_, err = g.Admit(e.ctx, ask(c, both(10, 10), id))
		e.is(err, governance.ErrInFlight)
		e.equal("status", governance.StatusOf(err), governance.Status{Code: http.StatusConflict})
	}
	e.unchanged(before, ids...)
	e.settle(p, governance.Used(10, 10))
}

func identityTerminal(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	for state, end := range map[governance.State]func(p *governance.Permit){
		governance.StateSettled:   func(p *governance.Permit) { e.settle(p, governance.Used(1, 1)) },
		governance.StateCancelled: func(p *governance.Permit) { e.ok(p.Cancel(e.ctx)) },
		governance.StateResolved: func(p *governance.Permit) {
			_, err := e.g.Resolve(e.ctx, governance.Evidence{ID: p.ID(), Outcome: governance.NotSent(), Actor: "ops", Reason: "test"})
			e.ok(err)
		},
	} {
		id := e.id()
		p, err := e.g.Admit(e.ctx, ask(c, both(10, 10), id))
		e.ok(err)
		end(p)
		before := e.snapshot()
		_, err = e.g.Admit(e.ctx, ask(c, both(10, 10), id))
		e.is(err, governance.ErrTerminal)
		var terminal *governance.TerminalError
		if !errors.As(err, &terminal) || terminal.State != state || terminal.ID != id {
			e.Fatalf("error is %v, want terminal state %s", err, state)
		}
		e.equal("status", governance.StatusOf(err).Code, http.StatusConflict)
		e.unchanged(before)
	}
}

func identityConflict(e *env) {
	e.team("team-1", everyLimit())
	c, other := e.caller("team-1", everyLimit()), e.caller("team-1", everyLimit())
	id := e.id()
	first := ask(c, both(10, 10), id)
	p, err := e.g.Admit(e.ctx, first)
	e.ok(err)
	try := func() {
		e.Helper()
		before := e.snapshot()
		for _, change := range []func(r *governance.Request){
			func(r *governance.Request) { r.Bound.Tokens++ },
			func(r *governance.Request) { r.Bound.Cost-- },
			func(r *governance.Request) { r.Bound.Cost, r.Bound.Free = 0, true },
			func(r *governance.Request) { r.Bound.Cost, r.Bound.Unpriced = 0, true },
			func(r *governance.Request) { r.Model = "model-2" },
			func(r *governance.Request) { r.Model, r.Region = "model-", "1" },
			func(r *governance.Request) { r.Region = "eu" },
			func(r *governance.Request) { r.Guardrail = "strict" },
			func(r *governance.Request) { r.Principal = other.p },
		} {
			r := first
			change(&r)
			_, err := e.g.Admit(e.ctx, r)
			e.is(err, governance.ErrConflict)
			e.equal("status", governance.StatusOf(err).Code, http.StatusConflict)
		}
		e.unchanged(before)
	}
	try()
	e.ok(p.Cancel(e.ctx))
	try() // whoever has other terms learns nothing of how it ended
}

func identityRefused(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(100)})
	c := e.caller("team-1", keys.Limits{})
	p := e.admit(c, tokens(60))
	id := e.id()
	for range 3 {
		_, err := e.g.Admit(e.ctx, ask(c, tokens(60), id))
		e.refusal(err, governance.ReasonReserved)
		e.equal("state", e.record(id).State, governance.State(0))
	}
	e.ok(p.Cancel(e.ctx))
	_, err := e.g.Admit(e.ctx, ask(c, tokens(70), id)) // other terms too: nothing was remembered
	e.ok(err)
}

func identityPruned(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	old := governance.NewPermitID(time.UnixMicro(e.now()).Add(-31 * 24 * time.Hour))
	_, err := e.g.Admit(e.ctx, ask(c, both(1, 1), old))
	e.is(err, governance.ErrPruned)
	e.equal("status", governance.StatusOf(err).Code, http.StatusConflict)
	fresh := governance.NewPermitID(time.UnixMicro(e.now()).Add(-24 * time.Hour))
	p, err := e.g.Admit(e.ctx, ask(c, both(1, 1), fresh))
	e.ok(err)
	e.settle(p, governance.Used(1, 1))
	// Its id does not come to life again when it is old, whether or not anything was pruned.
	e.advance(40 * 24 * time.Hour)
	_, err = e.g.Admit(e.ctx, ask(c, both(1, 1), fresh))
	e.is(err, governance.ErrTerminal)
}

func identityFuture(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	now := time.UnixMicro(e.now())
	_, err := e.g.Admit(e.ctx, ask(c, both(1, 1), governance.NewPermitID(now.Add(4*time.Minute))))
	e.ok(err)
	before := e.snapshot()
	_, err = e.g.Admit(e.ctx, ask(c, both(1, 1), governance.NewPermitID(now.Add(7*time.Minute))))
	e.is(err, governance.ErrInvalid)
	e.unchanged(before)
}

// oneID has many callers bring the same id through several governors.
func (e *env) oneID(governors ...*governance.Governor) {
	e.Helper()
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	for range 5 {
		id := e.id()
		var mu sync.Mutex
		var permits []*governance.Permit
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				p, err := governors[i%len(governors)].Admit(e.ctx, ask(c, both(10, 10), id))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					permits = append(permits, p)
				} else if !errors.Is(err, governance.ErrInFlight) {
					e.Errorf("error is %v, want ErrInFlight", err)
				}
			})
		}
		wg.Wait()
		if len(permits) != 1 {
			e.Fatalf("%d callers hold one permit", len(permits))
		}
		e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 10)
		e.ok(permits[0].Cancel(e.ctx))
	}
}

func identityRace(e *env) {
	e.oneID(e.g, e.governor(e.b, nil), e.governor(e.b, &governance.Options{Lanes: 4}))
}

func identityRaceShared(e *env) { e.oneID(e.g, e.governor(e.h.Reopen(e, e.b), nil)) }

// identityOwner: a first attempt whose commit never happened, and whose Governor does
// not know that, must not cancel the permit that a second attempt got under the id.
func identityOwner(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	store := &forgetful{Store: e.store, goOn: make(chan struct{})}
	g := e.governor(governance.Stores{Keys: e.keys, Store: store}, nil)
	id := e.id()
	_, err := g.Admit(e.ctx, ask(c, both(10, 10), id))
	e.is(err, governance.ErrUnknownOutcome)
	store.better.Store(true)
	p, err := e.g.Admit(e.ctx, ask(c, both(10, 10), id))
	e.ok(err)
	close(store.goOn)
	e.ok(g.Close(e.ctx))
	e.equal("state", e.record(id).State, governance.StateOpen)
	e.settle(p, governance.Used(1, 1))
}

func identityBeforeFreshness(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	id := e.id()
	p, err := e.g.Admit(e.ctx, ask(c, both(1, 1), id))
	e.ok(err)
	_, err = e.keys.RevokeKey(e.ctx, keys.RevokeKey{ID: c.id})
	e.ok(err)
	_, err = e.g.Admit(e.ctx, ask(c, both(1, 1), id))
	e.is(err, governance.ErrInFlight)
	e.settle(p, governance.Used(1, 1)) // what was admitted is settled all the same
	_, err = e.g.Admit(e.ctx, ask(c, both(1, 1), id))
	e.is(err, governance.ErrTerminal)
}

func identityMinted(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	seen := map[governance.PermitID]bool{}
	for _, p := range e.admits(300, c, both(1, 1)).permits {
		if seen[p.ID()] {
			e.Fatalf("id %s was made twice", p.ID())
		}
		seen[p.ID()] = true
	}
}

// identityOneBatch holds the store, so that what arrives meanwhile shares the next
// transaction.
func identityOneBatch(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	gate := e.gated()
	id := e.id()
	var mu sync.Mutex
	counts := map[string]int{}
	var wg sync.WaitGroup
	wg.Go(func() {
		p, err := gate.g.Admit(e.ctx, request(c, both(1, 1))) // keeps the store busy
		if err == nil {
			err = p.Cancel(e.ctx)
		}
		e.background(err)
	})
	<-gate.entered
	for i := range 9 {
		wg.Go(func() {
			r := ask(c, both(10, 10), id)
			if i%3 == 2 {
				r.Model = "model-2"
			}
			_, err := gate.g.Admit(e.ctx, r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				counts["admitted as "+r.Model]++
			case errors.Is(err, governance.ErrInFlight):
				counts["in flight as "+r.Model]++
			case errors.Is(err, governance.ErrConflict):
				counts["conflict as "+r.Model]++
			default:
				e.Errorf("unexpected: %v", err)
			}
		})
	}
	moment()
	gate.open()
	wg.Wait()
	admitted := counts["admitted as model-1"] + counts["admitted as model-2"]
	if admitted != 1 || (counts["admitted as model-1"] == 1) != (counts["conflict as model-2"] == 3) || (counts["admitted as model-2"] == 1) != (counts["conflict as model-1"] == 6) {
		e.Fatalf("one id with two terms, nine times at once: %v", counts)
	}
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 10)
}
