package governancetest

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

func freshCases() []scenario {
	return []scenario{
		{name: "LoweredLimitBindsAtOnce", run: freshLowered},
		{name: "RaisedLimitFreesAtOnce", also: "PrimitiveG10RaisedBudgetAtOnce", run: freshRaised},
		{name: "RevokedBetweenResolveAndAdmit", also: "EdgeRevisionIsComparedInTheTransaction ReplayK3NoPrivilegedReturn", run: freshRevoked},
		{name: "TeamDeletedBetweenResolveAndAdmit", run: freshTeamDeleted},
		{name: "ExpiryIsReachedAtItsInstant", run: freshExpiry},
		{name: "ModelTakenAwayBetweenResolveAndAdmit", run: freshModel},
		{name: "RegionTakenAwayIsStale", run: freshRegion},
		{name: "GuardrailChangedIsStale", run: freshGuardrail},
		{name: "RotationKeepsCounters", also: "ReplayK4RotationKeepsTheWindow", run: freshRotation},
		{name: "RetiredTokenIsRefused", also: "ReplayK5GraceIsOneIdentity", run: freshRetired},
		{name: "EvictIsCalled", run: freshEvict},
		{name: "EditsDoNotDisturbOthers", run: freshOthers},
		{name: "NoAdmissionBehindARevocation", run: freshRevocationRace},
		{name: "NoAdmissionAboveALoweredLimit", run: freshLimitRace},
	}
}

func freshLowered(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1000)})
	c := e.caller("team-1", keys.Limits{})
	e.admit(c, tokens(100))
	e.limitTeam("team-1", keys.LimitsChange{TokensPerDay: keys.Set(keys.Limit(150))})
	r := e.refused(c, tokens(60), governance.ReasonReserved) // with the principal of before
	e.equal("limit", r.Verdict.Limit, int64(150))
	e.admit(c, tokens(50))
	e.limitTeam("team-1", keys.LimitsChange{TokensPerDay: keys.Set(keys.Limit(10))}) // below what is held
	e.refused(c, tokens(1), governance.ReasonReserved)
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 150)
}

func freshRaised(e *env) {
	e.team("team-1", keys.Limits{CostPerDay: keys.Cost(100)})
	c := e.caller("team-1", keys.Limits{CostPerDay: keys.Cost(100)})
	e.settle(e.admit(c, dollars(100)), governance.Used(0, 100))
	e.refused(c, dollars(1), governance.ReasonMoney)
	e.limitTeam("team-1", keys.LimitsChange{CostPerDay: keys.Set(keys.Cost(150))})
	e.limitKey(c.id, keys.LimitsChange{CostPerDay: keys.Set(keys.Cost(120))})
	r := e.refused(c, dollars(21), governance.ReasonMoney)
	e.equal("limit", r.Verdict.Limit, int64(120))
	e.admit(c, dollars(20))
}

func freshRevoked(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	_, err := e.keys.RevokeKey(e.ctx, keys.RevokeKey{ID: c.id})
	e.ok(err)
	r := e.refused(c, both(1, 1), governance.ReasonUnauthenticated)
	e.equal("retryable", r.Retryable, false)
	e.equal("status", governance.StatusOf(r), governance.Status{Code: http.StatusUnauthorized})
}

func freshTeamDeleted(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	_, err := e.keys.DeleteTeam(e.ctx, keys.DeleteTeam{ID: "team-1"})
	e.ok(err)
	e.refused(c, both(1, 1), governance.ReasonUnauthenticated)
}

func freshExpiry(e *env) {
	e.team("team-1", everyLimit())
	end := time.UnixMicro(e.now()).Add(time.Hour)
	c := e.create(keys.CreateKey{TeamID: "team-1", ExpiresAt: &end})
	p := e.admit(c, both(1, 1))
	e.advance(time.UnixMicro(end.UnixMicro()-1).Sub(time.UnixMicro(e.now())) - time.Minute)
	e.admit(c, both(1, 1))
	e.advance(time.Minute + time.Microsecond) // exactly the instant, or a little later where the clock runs
	e.refused(c, both(1, 1), governance.ReasonUnauthenticated)
	e.settle(p, governance.Used(1, 1)) // the call of before is settled all the same
}

func freshModel(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", keys.Limits{})
	_, err := e.keys.UpdateKey(e.ctx, keys.UpdateKey{ID: c.id, IfRevision: 1, AllowedModels: keys.Set([]string{"model-2"})})
	e.ok(err)
	e.refused(c, both(1, 1), governance.ReasonModel)
}

func freshRegion(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", keys.Limits{})
	_, err := e.keys.UpdateKey(e.ctx, keys.UpdateKey{ID: c.id, IfRevision: 1, AllowedRegions: keys.Set([]string{"us"})})
	e.ok(err)
	r := request(c, both(1, 1))
	r.Region = "eu" // chosen when it was allowed
	_, err = e.g.Admit(e.ctx, r)
	e.is(err, governance.ErrStale)
	e.equal("status", governance.StatusOf(err), governance.Status{Code: http.StatusServiceUnavailable, RetryAfter: time.Second, Retryable: true})
	r.Region = "us"
	_, err = e.g.Admit(e.ctx, r)
	e.ok(err)
}

func freshGuardrail(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", keys.Limits{})
	_, err := e.keys.UpdateTeam(e.ctx, keys.UpdateTeam{ID: "team-1", IfRevision: 1, Guardrail: keys.Set("strict")})
	e.ok(err)
	before := e.snapshot()
	_, err = e.g.Admit(e.ctx, request(c, both(1, 1)))
	e.is(err, governance.ErrStale)
	e.unchanged(before)
	e.resolve(c)
	e.refused(c, both(1, 1), governance.ReasonGuardrail) // nobody says that it is applied
	r := request(c, both(1, 1))
	r.Guardrail = "strict"
	_, err = e.g.Admit(e.ctx, r)
	e.ok(err)
}

// rotate gives the caller's key a new token and returns a caller with it.
func (e *env) rotate(c *caller, grace time.Duration) *caller {
	e.Helper()
	key, err := e.keys.Key(e.ctx, c.id)
	e.ok(err)
	done, err := e.keys.RotateKey(e.ctx, keys.RotateKey{ID: c.id, RotationID: "rotation-" + string(rune('a'+key.Revision)), IfRevision: key.Revision, Grace: grace})
	e.ok(err)
	next := &caller{id: c.id, team: c.team, token: done.Token}
	e.resolve(next)
	return next
}

func freshRotation(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{CostPerMonth: keys.Cost(100), TokensPerMinute: keys.Limit(100)})
	e.settle(e.admit(c, both(50, 60)), governance.Used(50, 60))
	next := e.rotate(c, time.Hour)
	e.refused(next, dollars(41), governance.ReasonMoney)
	e.refused(next, tokens(90), governance.ReasonRate)
	e.admit(next, dollars(20))
	r := e.refused(c, dollars(21), governance.ReasonReserved) // the old token counts in the same place
	e.equal("consumed", r.Verdict.Consumed, int64(60))
	e.equal("reserved", r.Verdict.Reserved, int64(20))
}

func freshRetired(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	next := e.rotate(c, time.Hour)
	e.admit(c, both(1, 1))
	e.advance(61 * time.Minute)
	e.refused(c, both(1, 1), governance.ReasonUnauthenticated) // though the key lives
	e.admit(next, both(1, 1))
	last := e.rotate(next, 0)
	e.refused(next, both(1, 1), governance.ReasonUnauthenticated)
	e.admit(last, both(1, 1))
}

func freshEvict(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	var mu sync.Mutex
	var evicted []string
	g := e.governor(e.b, &governance.Options{Evict: func(id string) { mu.Lock(); evicted = append(evicted, id); mu.Unlock() }})
	_, err := g.Admit(e.ctx, request(c, both(1, 1)))
	e.ok(err)
	e.equal("evictions", len(evicted), 0)
	e.limitKey(c.id, keys.LimitsChange{TokensPerDay: keys.Set(keys.Limit(7))})
	_, err = g.Admit(e.ctx, request(c, both(1, 1)))
	e.ok(err)
	if len(evicted) != 1 || evicted[0] != c.id {
		e.Fatalf("evicted: %v, want the edited key", evicted)
	}
}

// freshOthers edits one key all the time; another key's requests never notice.
func freshOthers(e *env) {
	e.team("team-1", everyLimit())
	e.team("team-2", everyLimit())
	edited, c := e.caller("team-1", everyLimit()), e.caller("team-2", everyLimit())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait() // also when an admission fails, which ends the case
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	wg.Go(func() {
		for n := int64(1); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			change := keys.LimitsChange{TokensPerDay: keys.Set(keys.Limit(n))}
			if _, err := e.keys.UpdateKey(e.ctx, keys.UpdateKey{ID: edited.id, IfRevision: n, Limits: change}); err != nil {
				e.Errorf("edit %d: %v", n, err)
				return
			}
		}
	})
	out := e.admits(200, c, both(1, 1))
	end()
	wg.Wait()
	e.wantAdmitted(out, 200)
}

// freshRevocationRace revokes while many ask: whatever begins after the
// revocation returned must be refused.
func freshRevocationRace(e *env) {
	e.team("team-1", everyLimit())
	for range 5 {
		c := e.caller("team-1", everyLimit())
		var revoked atomic.Bool
		var late atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 10 {
					after := revoked.Load()
					if _, err := e.g.Admit(e.ctx, request(c, both(1, 1))); err == nil && after {
						late.Add(1)
					}
				}
			})
		}
		_, err := e.keys.RevokeKey(e.ctx, keys.RevokeKey{ID: c.id})
		revoked.Store(true)
		e.ok(err)
		wg.Wait()
		e.equal("admissions after the revocation", late.Load(), int64(0))
	}
}

// freshLimitRace lowers a limit while many ask. When the edit has returned, nothing
// may be added above it any more.
func freshLimitRace(e *env) {
	for i := range 5 {
		team := "team-" + string(rune('a'+i))
		e.team(team, keys.Limits{TokensPerDay: keys.Limit(1_000_000)})
		c := e.caller(team, keys.Limits{})
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 20 {
					_, _ = e.g.Admit(e.ctx, request(c, tokens(1)))
				}
			})
		}
		e.limitTeam(team, keys.LimitsChange{TokensPerDay: keys.Set(keys.Limit(20))})
		held := e.reserved(c)
		wg.Wait()
		if after := e.reserved(c); after > max(held, 20) {
			e.Fatalf("%d were held when the limit of 20 was in force, %d later", held, after)
		}
	}
}

// reserved reads the team's tokens per day without locks.
func (e *env) reserved(c *caller) int64 {
	e.Helper()
	fresh := &caller{token: c.token}
	return e.verdict(fresh, governance.ScopeTeam, "tokens_per_day").Reserved
}
