package governancetest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// env is one case's store, with a Governor on it.
type env struct {
	testing.TB
	h     Harness
	ctx   context.Context
	b     governance.Backend
	store governance.Store
	keys  keys.Store
	g     *governance.Governor

	tampered bool // the case falsifies the books on purpose
}

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

func newEnv(t testing.TB, h Harness) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	t.Cleanup(cancel)
	e := &env{TB: t, h: h, ctx: ctx, b: h.New(t)}
	e.store, e.keys = e.b.Backend().Store, e.b.Backend().Keys
	// Noon of the tenth: no window ends by itself while a case runs.
	now := time.UnixMicro(e.now()).UTC()
	noon := time.Date(now.Year(), now.Month(), 10, 12, 0, 0, 0, time.UTC)
	if !noon.After(now) {
		noon = noon.AddDate(0, 1, 0)
	}
	e.advance(noon.Sub(now))
	e.g = e.governor(e.b, nil)
	return e
}

// governor makes a Governor that is closed at the end.
func (e *env) governor(b governance.Backend, o *governance.Options) *governance.Governor {
	e.Helper()
	if o == nil {
		o = &governance.Options{}
	}
	if o.StepTimeout == 0 {
		o.StepTimeout = patience
	}
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	g, err := governance.New(b, o)
	e.ok(err)
	e.Cleanup(func() { _ = g.Close(e.ctx) })
	return g
}

// balance recomputes every account: nothing that a case does may upset the books.
func (e *env) balance() {
	if e.tampered || e.Failed() {
		return
	}
	e.wantDifferences(0)
}

// wantDifferences verifies the books.
func (e *env) wantDifferences(n int) governance.VerifyReport {
	e.Helper()
	g, err := governance.New(e.b, &governance.Options{StepTimeout: patience})
	e.ok(err)
	defer g.Close(e.ctx)
	v, err := g.Verify(e.ctx, governance.VerifyQuery{})
	e.ok(err)
	if len(v.Differences) != n {
		e.Fatalf("Verify found %d differences, want %d: %+v", len(v.Differences), n, v.Differences)
	}
	return v
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("unexpected error: %v", err)
	}
}

// background reports an error from another goroutine.
func (e *env) background(err error) {
	e.Helper()
	if err != nil {
		e.Errorf("unexpected error: %v", err)
	}
}

// is checks an error's identity.
func (e *env) is(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("error is %v, want %v", err, want)
	}
}

func (e *env) equal(what string, have, want any) {
	e.Helper()
	if have != want {
		e.Fatalf("%s is %v, want %v", what, have, want)
	}
}

// now reads the store's clock.
func (e *env) now() int64 {
	e.Helper()
	loaded, err := e.store.View(e.ctx, &governance.Plan{})
	e.ok(err)
	return loaded.Now
}

func (e *env) advance(d time.Duration) {
	e.Helper()
	e.h.Advance(e, e.b, d)
}

// id is a permit id of the store's present.
func (e *env) id() governance.PermitID {
	e.Helper()
	return governance.NewPermitID(time.UnixMicro(e.now()))
}

// caller is a key with what was resolved for it.
type caller struct {
	id    string
	team  string
	token keys.Token
	p     *keys.Principal
}

func (e *env) team(id string, l keys.Limits) keys.Team {
	e.Helper()
	team, err := e.keys.CreateTeam(e.ctx, keys.CreateTeam{ID: id, Limits: l})
	e.ok(err)
	return team
}

// caller makes a key of a team and resolves it.
func (e *env) caller(team string, l keys.Limits) *caller {
	e.Helper()
	return e.create(keys.CreateKey{TeamID: team, Limits: l})
}

func (e *env) create(k keys.CreateKey) *caller {
	e.Helper()
	made, err := e.keys.CreateKey(e.ctx, k)
	e.ok(err)
	c := &caller{id: made.Key.ID, team: made.Key.TeamID, token: made.Token}
	e.resolve(c)
	return c
}

// resolve reads the principal again.
func (e *env) resolve(c *caller) {
	e.Helper()
	p, err := e.keys.Resolve(e.ctx, c.token.Reveal())
	e.ok(err)
	c.p = &p
}

// limitTeam edits a team's limits.
func (e *env) limitTeam(id string, change keys.LimitsChange) {
	e.Helper()
	team, err := e.keys.Team(e.ctx, id)
	e.ok(err)
	_, err = e.keys.UpdateTeam(e.ctx, keys.UpdateTeam{ID: id, IfRevision: team.Revision, Limits: change})
	e.ok(err)
}

// limitKey edits a key's limits.
func (e *env) limitKey(id string, change keys.LimitsChange) {
	e.Helper()
	key, err := e.keys.Key(e.ctx, id)
	e.ok(err)
	_, err = e.keys.UpdateKey(e.ctx, keys.UpdateKey{ID: id, IfRevision: key.Revision, Limits: change})
	e.ok(err)
}

func tokens(n amount.Tokens) governance.Bound    { return governance.Bound{Tokens: n} }
func dollars(n amount.MicroUSD) governance.Bound { return governance.Bound{Cost: n} }

func both(t amount.Tokens, c amount.MicroUSD) governance.Bound {
	return governance.Bound{Tokens: t, Cost: c}
}

// request is what a caller asks for.
func request(c *caller, b governance.Bound) governance.Request {
	return governance.Request{Principal: c.p, Model: "model-1", Bound: b, Price: []byte("price row 1")}
}

// admit must succeed.
func (e *env) admit(c *caller, b governance.Bound) *governance.Permit {
	e.Helper()
	p, err := e.g.Admit(e.ctx, request(c, b))
	e.ok(err)
	return p
}

// refused must be refused for the reason, and change nothing.
func (e *env) refused(c *caller, b governance.Bound, reason governance.Reason) *governance.Refusal {
	e.Helper()
	before := e.snapshot()
	_, err := e.g.Admit(e.ctx, request(c, b))
	r := e.refusal(err, reason)
	e.unchanged(before)
	return r
}

// refusal checks that an error is one.
func (e *env) refusal(err error, reason governance.Reason) *governance.Refusal {
	e.Helper()
	var r *governance.Refusal
	if !errors.As(err, &r) {
		e.Fatalf("error is %v, want a refusal (%s)", err, reason)
	}
	if r.Reason != reason {
		e.Fatalf("refused: %v, want reason %s", r, reason)
	}
	return r
}

func (e *env) settle(p *governance.Permit, o governance.Outcome) {
	e.Helper()
	e.ok(p.Settle(e.ctx, o))
}

// verdict is how full one limit of a caller is.
func (e *env) verdict(c *caller, scope governance.Scope, rule string) governance.Verdict {
	e.Helper()
	e.resolve(c)
	usage, err := e.g.Usage(e.ctx, governance.UsageQuery{Principal: c.p})
	e.ok(err)
	for _, v := range usage.Verdicts {
		if v.Constraint.Scope == scope && v.Constraint.Rule == rule {
			return v
		}
	}
	e.Fatalf("no constraint %s of %s in %v", rule, scope, usage.Verdicts)
	return governance.Verdict{}
}

// held checks consumed, uncertain and reserved of one limit.
func (e *env) held(c *caller, scope governance.Scope, rule string, consumed, uncertain, reserved int64) {
	e.Helper()
	v := e.verdict(c, scope, rule)
	if v.Consumed != consumed || v.Uncertain != uncertain || v.Reserved != reserved {
		e.Fatalf("%s of %s: consumed %d, uncertain %d, reserved %d; want %d, %d, %d", rule, scope, v.Consumed, v.Uncertain, v.Reserved, consumed, uncertain, reserved)
	}
}

// account is the key of the window that a limit is in.
func (e *env) account(c *caller, scope governance.Scope, rule string) governance.AccountKey {
	e.Helper()
	v := e.verdict(c, scope, rule)
	return governance.AccountKey{Constraint: v.Constraint.ID, WindowStart: v.Window.Start}
}

// cell reads one account, current or not.
func (e *env) cell(key governance.AccountKey) governance.Cell {
	e.Helper()
	loaded, err := e.store.View(e.ctx, &governance.Plan{Constraints: []governance.ConstraintID{key.Constraint}, Accounts: []governance.AccountKey{key}})
	e.ok(err)
	return loaded.Accounts[0]
}

// record reads one permit.
func (e *env) record(id governance.PermitID) governance.Record {
	e.Helper()
	loaded, err := e.store.View(e.ctx, &governance.Plan{Permits: []governance.PermitID{id}})
	e.ok(err)
	return loaded.Permits[0]
}

// eventually waits for what happens in the background.
func (e *env) eventually(what string, done func() bool) {
	e.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			e.Fatalf("did not happen: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// tally counts the answers to many calls at once.
type tally struct {
	admitted int
	refused  map[governance.Reason]int
	permits  []*governance.Permit
}

// flood makes n calls from 64 goroutines. Anything but a permit or a refusal fails.
func (e *env) flood(n int, call func(i int) (*governance.Permit, error)) tally {
	e.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := tally{refused: map[governance.Reason]int{}}
	work := make(chan int)
	for range min(n, 64) {
		wg.Go(func() {
			for i := range work {
				p, err := call(i)
				var r *governance.Refusal
				mu.Lock()
				switch {
				case err == nil:
					out.admitted++
					out.permits = append(out.permits, p)
				case errors.As(err, &r):
					out.refused[r.Reason]++
				default:
					e.Errorf("call %d: %v", i, err)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	if e.Failed() {
		e.FailNow()
	}
	return out
}

// admits floods with equal requests of one caller.
func (e *env) admits(n int, c *caller, b governance.Bound) tally {
	e.Helper()
	return e.flood(n, func(int) (*governance.Permit, error) { return e.g.Admit(e.ctx, request(c, b)) })
}

func (e *env) wantAdmitted(t tally, n int) {
	e.Helper()
	if t.admitted != n {
		e.Fatalf("%d admitted, want %d; refused: %v", t.admitted, n, t.refused)
	}
}

// oneOf reports whether the text contains any of the words.
func oneOf(text string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}
