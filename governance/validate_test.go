package governance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// field checks that an error names the field and says what is allowed.
func field(t *testing.T, err error, name string) {
	t.Helper()
	var f *FieldError
	if !errors.Is(err, ErrInvalid) || !errors.As(err, &f) || f.Field != name || f.Why == "" {
		t.Errorf("error is %v, want one about %s", err, name)
	}
	if s := StatusOf(err); s.Code != 400 || s.Retryable {
		t.Errorf("status %+v", s)
	}
}

// Bad input is refused before anything is asked of the store.
func TestRequestIsValidated(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	bad := []struct {
		field  string
		change func(*Request)
	}{
		{"principal", func(q *Request) { q.Principal = nil }},
		{"id", func(q *Request) { q.ID = PermitID{1} }},
		{"bound.tokens", func(q *Request) { q.Bound.Tokens = -1 }},
		{"bound.tokens", func(q *Request) { q.Bound.Tokens = MaxTokens + 1 }},
		{"bound.tokens", func(q *Request) { q.Bound.Tokens = math.MaxInt64 }},
		{"bound.tokens", func(q *Request) { q.Bound.Tokens = math.MinInt64 }},
		{"bound.cost", func(q *Request) { q.Bound.Cost = -1 }},
		{"bound.cost", func(q *Request) { q.Bound.Cost = MaxCost + 1 }},
		{"bound.cost", func(q *Request) { q.Bound.Free = true }},
		{"bound.unpriced", func(q *Request) { q.Bound.Unpriced = true }},
		{"price", func(q *Request) { q.Price = make([]byte, MaxPriceBytes+1) }},
		{"model", func(q *Request) { q.Model = strings.Repeat("m", MaxNameBytes+1) }},
		{"model", func(q *Request) { q.Model = "a\nb" }},
		{"model", func(q *Request) { q.Model = "a\x7fb" }},
		{"model", func(q *Request) { q.Model = "a\u0085b" }},
		{"model", func(q *Request) { q.Model = "a\xffb" }},
		{"region", func(q *Request) { q.Region = "a\x00" }},
		{"guardrail", func(q *Request) { q.Guardrail = "\x1b[31m" }},
	}
	for _, b := range bad {
		q := Request{Principal: p, Model: "m", Bound: small}
		b.change(&q)
		_, err := r.g.Admit(r.ctx, q)
		field(t, err, b.field)
		_, err = r.g.Explain(r.ctx, q)
		field(t, err, b.field)
		_, err = Do(r.ctx, r.g, q, func(context.Context, *Permit) (int, Outcome, error) { t.Error("called"); return 0, Outcome{}, nil })
		field(t, err, b.field)
	}
	if r.shelf.steps != 0 {
		t.Fatalf("%d transactions", r.shelf.steps)
	}
	most := Request{Principal: p, Model: strings.Repeat("m", MaxNameBytes), Bound: Bound{Tokens: 1e8, Cost: 1e8}, Price: make([]byte, MaxPriceBytes), ID: NewPermitID(r.shelf.time())}
	if _, err := r.g.Admit(r.ctx, most); err != nil {
		t.Fatal(err)
	}
}

func TestPermitCallsAreValidated(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	permit := r.admit(p, small)
	steps := r.shelf.steps
	for _, b := range []struct {
		field string
		o     Outcome
	}{
		{"outcome.tokens", Used(-1, 0)},
		{"outcome.tokens", Used(MaxTokens+1, 0)},
		{"outcome.tokens", Observed(-1, 0)},
		{"outcome.tokens", Outcome{Tokens: Measure{Certainty: 3}}},
		{"outcome.cost", Used(0, -1)},
		{"outcome.cost", Used(0, MaxCost+1)},
		{"outcome.cost", Observed(0, math.MaxInt64)},
		{"outcome.cost", Outcome{Cost: Measure{Certainty: 9}}},
		{"outcome", Outcome{Unsent: true, Tokens: Measure{Known, 0}}},
		{"outcome", Outcome{Unsent: true, Cost: Measure{Uncertain, 1}}},
	} {
		field(t, permit.Settle(r.ctx, b.o), b.field)
	}
	field(t, permit.Raise(r.ctx, Bound{Tokens: -1}), "bound.tokens")
	field(t, permit.Raise(r.ctx, Bound{Cost: MaxCost + 1}), "bound.cost")
	if r.shelf.steps != steps || r.stored(permit.ID()).State != StateOpen {
		t.Fatal("something was written")
	}
	// What is impossible can be said with any value, and stores none.
	r.ok(permit.Settle(r.ctx, Outcome{Tokens: Measure{Impossible, -5}, Cost: Measure{Impossible, math.MinInt64}}))
	if rec := r.stored(permit.ID()); rec.Outcome != (Outcome{Tokens: Measure{Certainty: Impossible}, Cost: Measure{Certainty: Impossible}}) {
		t.Fatalf("outcome %+v", rec.Outcome)
	}
}

func TestOperatorCallsAreValidated(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), plenty())
	id := r.admit(p, small).ID()
	steps := r.shelf.steps
	good := Evidence{ID: id, Outcome: Used(1, 1), Actor: "op", Reason: "why"}
	for _, b := range []struct {
		field  string
		change func(*Evidence)
	}{
		{"id", func(e *Evidence) { e.ID = PermitID{} }},
		{"id", func(e *Evidence) { e.ID[6] = 0x40 }},
		{"actor", func(e *Evidence) { e.Actor = "" }},
		{"actor", func(e *Evidence) { e.Actor = "a\nb" }},
		{"actor", func(e *Evidence) { e.Actor = strings.Repeat("a", 257) }},
		{"reason", func(e *Evidence) { e.Reason = "" }},
		{"reason", func(e *Evidence) { e.Reason = "\x00" }},
		{"outcome", func(e *Evidence) { e.Outcome = Unknown() }},
		{"outcome", func(e *Evidence) { e.Outcome = Outcome{Tokens: Measure{Known, 1}} }},
		{"outcome", func(e *Evidence) {
			e.Outcome = Outcome{Tokens: Measure{Certainty: Impossible}, Cost: Measure{Known, 1}}
		}},
		{"outcome.tokens", func(e *Evidence) { e.Outcome = Used(-1, 1) }},
	} {
		e := good
		b.change(&e)
		_, err := r.g.Resolve(r.ctx, e)
		field(t, err, b.field)
	}
	field(t, r.g.Unfreeze(r.ctx, Release{Reason: "why"}), "actor")
	field(t, r.g.Unfreeze(r.ctx, Release{Actor: "op"}), "reason")
	for _, limit := range []int{-1, 1001} {
		_, err := r.g.Holds(r.ctx, HoldQuery{Limit: limit})
		field(t, err, "limit")
	}
	for _, limit := range []int{-1, 0, 1001} {
		_, err := r.g.FrozenAccounts(r.ctx, AccountQuery{Limit: limit})
		field(t, err, "limit")
	}
	_, err := r.g.Usage(r.ctx, UsageQuery{})
	field(t, err, "principal")
	if r.shelf.steps != steps {
		t.Fatal("something was written")
	}
	missing := good
	missing.ID = NewPermitID(r.shelf.time())
	_, err = r.g.Resolve(r.ctx, missing)
	r.is(err, ErrNotFound)
	r.is(r.g.Unfreeze(r.ctx, Release{Account: AccountKey{Constraint: ConstraintID{1}}, Actor: "op", Reason: "why"}), ErrNotFound)
}

func TestOptionsAreValidated(t *testing.T) {
	shelf := newShelf(noon)
	backend := Stores{Store: shelf, Keys: newRegistry(shelf)}
	for _, b := range []struct {
		field string
		o     Options
	}{
		{"options.lanes", Options{Lanes: -1}},
		{"options.lanes", Options{Lanes: 17}},
		{"options.batch_limit", Options{BatchLimit: -1}},
		{"options.batch_limit", Options{BatchLimit: 4097}},
		{"options.queue_limit", Options{QueueLimit: -1}},
		{"options.queue_limit", Options{QueueLimit: 1<<20 + 1}},
		{"options.backlog_limit", Options{BacklogLimit: -1}},
		{"options.step_timeout", Options{StepTimeout: -1}},
		{"options.step_timeout", Options{StepTimeout: time.Hour}},
		{"options.renew_every", Options{RenewEvery: -1}},
		{"options.renew_every", Options{RenewEvery: time.Minute}},
	} {
		g, err := New(backend, &b.o)
		field(t, err, b.field)
		if g != nil {
			t.Error("a Governor was made")
		}
	}
	for _, b := range []Backend{nil, Stores{}, Stores{Store: shelf}, Stores{Keys: newRegistry(shelf)}} {
		_, err := New(b, nil)
		field(t, err, "backend")
	}
	g, err := New(backend, nil)
	if err != nil || g.Close(context.Background()) != nil || g.Close(context.Background()) != nil {
		t.Fatal(err)
	}
	_, err = g.Admit(context.Background(), Request{Principal: &keys.Principal{}})
	if !errors.Is(err, ErrClosed) || StatusOf(err).Code != 503 {
		t.Fatal(err)
	}
}

// Who may use only some models or regions has to name one; what is empty widens nothing.
func TestSelectionIsCheckedAgainstThePrincipal(t *testing.T) {
	r := newRig(t, nil)
	p := r.caller("red", "k", plenty(), keys.Limits{})
	p.Key.AllowedModels, p.Team.AllowedRegions = []string{"m"}, []string{"eu"}
	for _, c := range []struct {
		model, region string
		want          Reason
	}{{"m", "eu", 0}, {"x", "eu", ReasonModel}, {"", "eu", ReasonModel}, {"m", "us", ReasonRegion}, {"m", "", ReasonRegion}, {"M", "eu", ReasonModel}} {
		_, err := r.g.Admit(r.ctx, Request{Principal: p, Model: c.model, Region: c.region, Bound: small})
		if c.want == 0 {
			r.ok(err)
			continue
		}
		refusal := r.refused(err, c.want)
		if refusal.Retryable || StatusOf(err).Code != 403 {
			t.Errorf("%+v", refusal)
		}
		e, err := r.g.Explain(r.ctx, Request{Principal: p, Model: c.model, Region: c.region, Bound: small})
		if err != nil || e.Admitted || e.Refusal.Reason != c.want {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

// The table of refusals: when several constraints bind, which is reported, how long
// to wait, and what a gateway answers.
func TestRefusals(t *testing.T) {
	c := &Constraint{Rule: "r", Kind: KindMoney}
	v := func(r Reason, wait time.Duration) Verdict { return Verdict{Constraint: c, Reason: r, RetryAfter: wait} }
	for _, test := range []struct {
		binding []Verdict
		reason  Reason
		wait    time.Duration
		code    int
	}{
		{[]Verdict{v(ReasonReserved, time.Second)}, ReasonReserved, time.Second, 429},
		{[]Verdict{v(ReasonReserved, time.Second), v(ReasonRate, 3*time.Second)}, ReasonRate, 3 * time.Second, 429},
		{[]Verdict{v(ReasonRate, 3*time.Second), v(ReasonReserved, time.Second), v(ReasonQuota, 2*time.Second)}, ReasonQuota, 3 * time.Second, 429},
		{[]Verdict{v(ReasonRate, time.Second), v(ReasonRate, time.Minute)}, ReasonRate, time.Minute, 429},
		{[]Verdict{v(ReasonConcurrency, time.Second), v(ReasonRate, time.Minute)}, ReasonRate, time.Minute, 429},
		{[]Verdict{v(ReasonConcurrency, time.Minute), v(ReasonReserved, time.Second)}, ReasonConcurrency, time.Minute, 429},
		{[]Verdict{v(ReasonQuota, time.Hour), v(ReasonMoney, 0)}, ReasonMoney, 0, 402},
		{[]Verdict{v(ReasonMoney, 0), v(ReasonNeverFits, 0)}, ReasonNeverFits, 0, 429},
		{[]Verdict{v(ReasonNeverFits, 0), v(ReasonRate, time.Second)}, ReasonNeverFits, 0, 429},
		{[]Verdict{v(ReasonNeverFits, 0), v(ReasonFrozen, 0), v(ReasonMoney, 0)}, ReasonFrozen, 0, 423},
	} {
		for range test.binding { // the order in which they were found plays no part
			test.binding = append(test.binding[1:], test.binding[0])
			r := refuse(slices.Clone(test.binding))
			s := StatusOf(fmt.Errorf("wrapped: %w", r))
			if r.Reason != test.reason || r.Verdict.Reason != test.reason || r.RetryAfter != test.wait || len(r.All) != len(test.binding) ||
				r.Retryable != (test.wait > 0) || s != (Status{test.code, test.wait, test.wait > 0}) {
				t.Errorf("%v: %+v, status %+v", test.binding, r, s)
			}
			if text := r.Error(); !strings.Contains(text, test.reason.String()) || strings.ContainsAny(text, "\n\x00") {
				t.Errorf("text %q", text)
			}
		}
	}
}

func TestStatusOf(t *testing.T) {
	for _, test := range []struct {
		err  error
		want Status
	}{
		{nil, Status{Code: 200}},
		{&Refusal{Reason: ReasonUnauthenticated}, Status{Code: 401}},
		{&Refusal{Reason: ReasonModel}, Status{Code: 403}},
		{&Refusal{Reason: ReasonRegion}, Status{Code: 403}},
		{&Refusal{Reason: ReasonGated}, Status{Code: 403}},
		{&Refusal{Reason: ReasonFrozen}, Status{Code: 423}},
		{&Refusal{Reason: ReasonMoney}, Status{Code: 402}},
		{&Refusal{Reason: ReasonNeverFits}, Status{Code: 429}},
		{&Refusal{Reason: ReasonQuota, RetryAfter: time.Hour, Retryable: true}, Status{429, time.Hour, true}},
		{&Refusal{Reason: ReasonQueueFull, RetryAfter: time.Second, Retryable: true}, Status{429, time.Second, true}},
		{invalid("x", "y"), Status{Code: 400}},
		{ErrNotFound, Status{Code: 404}},
		{ErrConflict, Status{Code: 409}},
		{ErrInFlight, Status{Code: 409}},
		{&TerminalError{State: StateSettled}, Status{Code: 409}},
		{ErrPruned, Status{Code: 409}},
		{ErrStale, Status{503, time.Second, true}},
		{ErrUnavailable, Status{503, time.Second, true}},
		{ErrUnknownOutcome, Status{503, time.Second, true}},
		{ErrClosed, Status{503, time.Second, true}},
		{&SettleError{Err: fmt.Errorf("%w: x", ErrUnavailable)}, Status{503, time.Second, true}},
		{ErrCorrupt, Status{Code: 500}},
		{errors.New("other"), Status{Code: 500}},
		{&CallError{Err: &Refusal{Reason: ReasonMoney}}, Status{Code: 500}}, // another call's
	} {
		if have := StatusOf(test.err); have != test.want {
			t.Errorf("%v: %+v, want %+v", test.err, have, test.want)
		}
	}
}

// Identities are for ever: of equal parts equal, of any other part another.
func TestConstraintIdentity(t *testing.T) {
	seen := map[ConstraintID]string{}
	for _, c := range []Constraint{
		{Kind: KindMoney, Scope: ScopeTeam, Subject: "a", Rule: "r"}, {Kind: KindTokenQuota, Scope: ScopeTeam, Subject: "a", Rule: "r"},
		{Kind: KindMoney, Scope: ScopeKey, Subject: "a", Rule: "r"}, {Kind: KindMoney, Scope: ScopeTeam, Subject: "ar", Rule: ""},
		{Kind: KindMoney, Scope: ScopeTeam, Subject: "a", Policy: "r"}, {Kind: KindMoney, Scope: ScopeTeam, Subject: "", Policy: "a", Rule: "r"},
		{Kind: KindMoney, Scope: ScopeTeam, Subject: "a", Rule: "r", Calendar: quota.Calendar{Period: quota.Month}},
	} {
		c.identify()
		text := fmt.Sprintf("%+v", c)
		if other, ok := seen[c.ID]; ok {
			t.Errorf("%s and %s have one identity", text, other)
		}
		seen[c.ID] = text
		again := c
		again.Limit, again.Calendar.Zone, again.Calendar.ResetHour = 7, "Europe/Amsterdam", 4
		again.identify()
		if again.ID != c.ID {
			t.Errorf("an edit of limit and zone changes the identity of %s", text)
		}
	}
	p := &keys.Principal{KeyID: "k", TeamID: "t", Team: keys.Team{Limits: keys.Limits{CostPerMonth: keys.Cost(5)}}}
	if have := constraintsOf(p, nil).ids[0].String(); have != "41103e452bb1d7d499c47e9618c6e524" {
		t.Errorf("the identity of a team's money per month is now %s: every counter starts anew", have)
	}
}
