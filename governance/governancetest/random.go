package governancetest

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func randomCases() []scenario {
	return []scenario{
		{name: "AgainstANaiveModel", run: randomModel},
		{name: "ManyAtOnce", run: randomConcurrent},
		{name: "ManyAtOnceOnTwoHandles", needs: Features{Shared: true}, run: randomHandles},
	}
}

// source prints its seed, so that a failure can be had again.
func (e *env) source() *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	e.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// simulation is the real thing and the model side by side.
type simulation struct {
	*env
	*rand.Rand
	book    *book
	callers []*caller
	permits []*governance.Permit
}

func randomModel(e *env) {
	s := &simulation{env: e, Rand: e.source(), book: newBook()}
	for i := range 2 {
		team := []string{"team-1", "team-2"}[i]
		e.team(team, s.limits("team "+team, keys.Limits{}))
		for range 2 {
			c := e.caller(team, keys.Limits{})
			l := s.limits("key "+c.id, keys.Limits{})
			e.limitKey(c.id, keys.LimitsChange{TokensPerDay: keys.Set(l.TokensPerDay), CostPerDay: keys.Set(l.CostPerDay), CostPerMonth: keys.Set(l.CostPerMonth), Concurrency: keys.Set(l.Concurrency)})
			s.callers = append(s.callers, c)
		}
	}
	for i := range 500 {
		op := s.operation()
		if i%25 == 0 || e.Failed() {
			s.compare(op)
		}
	}
	s.compare("the end")
	e.wantDifferences(0)
}

// limits makes some limits of a subject, and tells the model.
func (s *simulation) limits(subject string, l keys.Limits) keys.Limits {
	for _, rule := range []string{"tokens_per_day", "cost_per_day", "cost_per_month", "concurrency"} {
		delete(s.book.limits, subject+" "+rule)
		if s.IntN(4) == 0 {
			continue
		}
		n := int64(s.IntN(2000))
		if rule == "concurrency" {
			n = int64(s.IntN(12))
		}
		s.book.limits[subject+" "+rule] = n
		for _, r := range rules {
			if r.rule == rule {
				r.limit(&l, n)
			}
		}
	}
	return l
}

func (s *simulation) bound() governance.Bound {
	b := both(amount.Tokens(s.IntN(150)), amount.MicroUSD(s.IntN(150)))
	if s.IntN(8) == 0 {
		b.Cost, b.Free = 0, true
	} else if s.IntN(16) == 0 {
		b.Cost, b.Unpriced = 0, true
	}
	return b
}

func (s *simulation) outcome() governance.Outcome {
	o := someOutcomes()[s.IntN(len(someOutcomes()))]
	if o.Tokens.Certainty == governance.Impossible {
		o = impossible()
		if s.IntN(4) > 0 {
			o = governance.Used(amount.Tokens(s.IntN(300)), amount.MicroUSD(s.IntN(300)))
		}
	}
	return o
}

// operation does one thing to both and compares the answers.
func (s *simulation) operation() string {
	s.Helper()
	if len(s.permits) > 0 && s.IntN(2) == 0 {
		return s.permitOperation(s.permits[s.IntN(len(s.permits))])
	}
	switch n := s.IntN(40); {
	case n == 0:
		s.advance(24 * time.Hour)
		s.book.night()
		return "a day passes"
	case n < 3:
		c := s.callers[s.IntN(len(s.callers))]
		l := s.limits("key "+c.id, keys.Limits{})
		s.limitKey(c.id, keys.LimitsChange{TokensPerDay: keys.Set(l.TokensPerDay), CostPerDay: keys.Set(l.CostPerDay), CostPerMonth: keys.Set(l.CostPerMonth), Concurrency: keys.Set(l.Concurrency)})
		return "a key is edited"
	case n == 3:
		for _, cell := range s.frozen() {
			s.ok(s.unfreeze(cell.Key))
		}
		for _, a := range s.book.accounts {
			a.Frozen = false
		}
		return "accounts are unfrozen"
	}
	c, b := s.callers[s.IntN(len(s.callers))], s.bound()
	p, err := s.g.Admit(s.ctx, request(c, b))
	id := governance.PermitID{}
	if p != nil {
		id = p.ID()
		s.permits = append(s.permits, p)
	}
	s.same("admit", err, s.book.admit(id, c, b, time.UnixMicro(s.now())))
	return "an admission"
}

func (s *simulation) permitOperation(p *governance.Permit) string {
	s.Helper()
	m := s.book.permits[p.ID()]
	switch s.IntN(5) {
	case 0:
		to := s.bound()
		to.Tokens, to.Free, to.Unpriced = to.Tokens*2, false, false
		if m.bound.Free || m.bound.Unpriced {
			to.Cost = 0
		}
		err := p.Raise(s.ctx, to)
		if m.state != governance.StateOpen {
			s.is(err, governance.ErrTerminal)
			return "a late raise"
		}
		s.same("raise", err, s.book.raise(m, to))
		return "a raise"
	case 1:
		o := governance.Used(amount.Tokens(s.IntN(200)), amount.MicroUSD(s.IntN(200)))
		if s.IntN(3) == 0 {
			o = governance.NotSent()
		}
		_, err := s.g.Resolve(s.ctx, s.finding(p.ID(), o))
		switch {
		case m.state == governance.StateOpen || m.uncertain():
			s.ok(err)
			s.book.resolve(m, o)
		case err == nil: // the same finding by chance
			s.equal("state", m.state, governance.StateResolved)
		case !errors.Is(err, governance.ErrTerminal) && !errors.Is(err, governance.ErrConflict):
			s.Fatalf("resolve: %v", err)
		}
		return "a finding"
	}
	o := s.outcome()
	err := p.Settle(s.ctx, o)
	switch {
	case m.state == governance.StateOpen:
		s.ok(err)
		s.book.settle(m, o)
	case m.state == governance.StateResolved:
		s.is(err, governance.ErrTerminal)
	case cleaned(m.outcome) == cleaned(o):
		s.ok(err)
	default:
		s.is(err, governance.ErrConflict)
	}
	return "a settlement"
}

// cleaned is the outcome as it is compared: an impossible value says nothing.
func cleaned(o governance.Outcome) governance.Outcome {
	if o.Tokens.Certainty == governance.Impossible {
		o.Tokens.Value = 0
	}
	if o.Cost.Certainty == governance.Impossible {
		o.Cost.Value = 0
	}
	return o
}

func (s *simulation) same(what string, err error, reason governance.Reason) {
	s.Helper()
	if reason == 0 {
		s.ok(err)
		return
	}
	var refusal *governance.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != reason {
		s.Fatalf("%s: %v; the model refuses by %s", what, err, reason)
	}
}

// compare looks at every account.
func (s *simulation) compare(after string) {
	s.Helper()
	names := map[governance.AccountKey]string{}
	for _, c := range s.callers {
		s.resolve(c)
		usage, err := s.g.Usage(s.ctx, governance.UsageQuery{Principal: c.p})
		s.ok(err)
		for _, v := range usage.Verdicts {
			subject := v.Constraint.Scope.String() + " " + v.Constraint.Subject
			if v.Constraint.Rule == "concurrency" {
				s.equal(after+": slots of "+subject, v.Reserved, s.book.slots[subject])
				continue
			}
			for _, r := range bookRules {
				if r.rule == v.Constraint.Rule {
					name := subject + " " + r.rule + " " + time.UnixMicro(s.now()).UTC().Format(r.window)
					names[governance.AccountKey{Constraint: v.Constraint.ID, WindowStart: v.Window.Start}] = name
				}
			}
		}
	}
	var total, model quota.Account
	for _, cell := range s.everyAccount() {
		if name := names[cell.Key]; name != "" {
			s.equal(after+": "+name, cell.Account, *s.book.account(name))
		}
		add(&total, &cell.Account)
	}
	for _, a := range s.book.accounts {
		add(&model, a)
	}
	s.equal(after+": sum of all accounts", total, model)
}

func add(sum, a *quota.Account) {
	sum.Consumed += a.Consumed
	sum.Uncertain += a.Uncertain
	sum.Reserved += a.Reserved
	sum.Observed += a.Observed
}

func randomConcurrent(e *env) {
	e.concurrent(e.g, e.governor(e.b, &governance.Options{Lanes: 3}))
}

func randomHandles(e *env) { e.concurrent(e.g, e.governor(e.h.Reopen(e, e.b), nil)) }

// concurrent does random things from many goroutines and checks what must always
// hold: no account of a hard limit above it but by overruns, the books balance,
// and each permit ended as its owner was told.
func (e *env) concurrent(governors ...*governance.Governor) {
	e.Helper()
	seeds := e.source()
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(3000), CostPerDay: keys.Cost(3000), Concurrency: keys.Limit(20)})
	var callers []*caller
	for range 4 {
		callers = append(callers, e.caller("team-1", keys.Limits{TokensPerDay: keys.Limit(1000), CostPerMonth: keys.Cost(900), TokensPerMinute: keys.Limit(100_000)}))
	}
	var mu sync.Mutex
	ended := map[governance.PermitID]governance.Outcome{}
	var wg sync.WaitGroup
	for i := range 12 {
		r := rand.New(rand.NewPCG(seeds.Uint64(), uint64(i)))
		wg.Go(func() {
			for range 40 {
				c, g := callers[r.IntN(4)], governors[r.IntN(len(governors))]
				p, err := g.Admit(e.ctx, request(c, both(amount.Tokens(r.IntN(100)), amount.MicroUSD(r.IntN(100)))))
				var refusal *governance.Refusal
				if errors.As(err, &refusal) || errors.Is(err, governance.ErrUnavailable) {
					continue
				} else if err != nil {
					e.Errorf("admit: %v", err)
					return
				}
				b := p.Bound()
				if r.IntN(3) == 0 {
					if err := p.Raise(e.ctx, both(b.Tokens+10, b.Cost)); err == nil {
						b.Tokens += 10
					}
				}
				o := []governance.Outcome{governance.NotSent(), governance.Unknown(), governance.Used(b.Tokens/2, b.Cost), governance.Used(b.Tokens, b.Cost/3)}[r.IntN(4)]
				if r.IntN(6) == 0 {
					continue // lost: stays open
				}
				if err := p.Settle(e.ctx, o); err != nil {
					e.Errorf("settle: %v", err)
					return
				}
				mu.Lock()
				ended[p.ID()] = o
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if e.Failed() {
		e.FailNow()
	}
	for _, rec := range e.everyPermit(governance.PermitQuery{}) {
		o, told := ended[rec.ID]
		if told != (rec.State != governance.StateOpen) || (told && rec.Outcome != o) {
			e.Fatalf("the owner was told %v (%v), the permit is %s", o, told, describeRecord(&rec))
		}
	}
	for _, c := range callers {
		e.resolve(c)
		usage, err := e.g.Usage(e.ctx, governance.UsageQuery{Principal: c.p})
		e.ok(err)
		for _, v := range usage.Verdicts {
			if !strings.HasSuffix(v.Constraint.Rule, "_minute") && v.Consumed+v.Uncertain+v.Reserved > v.Limit {
				e.Fatalf("above the limit: %+v", v)
			}
		}
	}
}
