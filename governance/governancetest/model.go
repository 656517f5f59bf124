package governancetest

import (
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/quota"
)

// book is a naive model of what a Governor keeps: accounts by name and day, and
// what each permit holds. It shares no code with the library.
type book struct {
	limits   map[string]int64 // "team team-1 cost_per_day" to the limit in force
	accounts map[string]*quota.Account
	slots    map[string]int64
	permits  map[governance.PermitID]*bookPermit
}

type bookPermit struct {
	owner    *caller
	bound    governance.Bound
	state    governance.State
	outcome  governance.Outcome
	accounts []string // windows in which it reserved
	slots    []string // of a time in which they have not expired
}

// bookRules are the limits that the model knows, and their windows.
var bookRules = []struct {
	rule   string
	money  bool
	window string // layout of a time that names the window
}{
	{"tokens_per_day", false, "2006-01-02"}, {"cost_per_day", true, "2006-01-02"}, {"cost_per_month", true, "2006-01"},
}

func newBook() *book {
	return &book{limits: map[string]int64{}, accounts: map[string]*quota.Account{}, slots: map[string]int64{}, permits: map[governance.PermitID]*bookPermit{}}
}

func subjects(c *caller) []string { return []string{"key " + c.id, "team " + c.team} }

// account returns the account of a name, empty when nothing happened in it.
func (b *book) account(name string) *quota.Account {
	if b.accounts[name] == nil {
		b.accounts[name] = &quota.Account{}
	}
	return b.accounts[name]
}

func held(a *quota.Account) int64 { return a.Consumed + a.Uncertain + a.Reserved + a.Granted }

// admit says why a request must be refused, or zero; then it reserves.
func (b *book) admit(id governance.PermitID, c *caller, bound governance.Bound, now time.Time) governance.Reason {
	worst := governance.Reason(0)
	binds := func(r governance.Reason) {
		if worst == 0 || r < worst {
			worst = r
		}
	}
	p := &bookPermit{owner: c, bound: bound, state: governance.StateOpen}
	for _, s := range subjects(c) {
		for _, r := range bookRules {
			limit, limited := b.limits[s+" "+r.rule]
			if !limited || (r.money && bound.Free) {
				continue
			}
			need := int64(bound.Tokens)
			if r.money {
				need = int64(bound.Cost)
			}
			name := s + " " + r.rule + " " + now.UTC().Format(r.window)
			a := b.account(name)
			p.accounts = append(p.accounts, name)
			switch {
			case r.money && bound.Unpriced:
				binds(governance.ReasonUnpriced)
			case a.Frozen:
				binds(governance.ReasonFrozen)
			case need > limit:
				binds(governance.ReasonNeverFits)
			case held(a)+need <= limit:
			case held(a)-a.Reserved+need <= limit:
				binds(governance.ReasonReserved)
			case r.money:
				binds(governance.ReasonMoney)
			default:
				binds(governance.ReasonQuota)
			}
		}
		if limit, limited := b.limits[s+" concurrency"]; limited {
			p.slots = append(p.slots, s)
			if limit < 1 {
				binds(governance.ReasonNeverFits)
			} else if b.slots[s] >= limit {
				binds(governance.ReasonConcurrency)
			}
		}
	}
	if worst != 0 {
		return worst
	}
	for _, name := range p.accounts {
		b.account(name).Reserved += p.need(name)
	}
	for _, s := range p.slots {
		b.slots[s]++
	}
	b.permits[id] = p
	return 0
}

// money reports whether an account's name is one of money.
func money(name string) bool { return oneOf(name, "cost_per_") }

func (p *bookPermit) need(name string) int64 {
	if money(name) {
		return int64(p.bound.Cost)
	}
	return int64(p.bound.Tokens)
}

func measureOf(o governance.Outcome, name string) governance.Measure {
	if money(name) {
		return o.Cost
	}
	return o.Tokens
}

// settle ends an open permit.
func (b *book) settle(p *bookPermit, o governance.Outcome) {
	for _, name := range p.accounts {
		a, m := b.account(name), measureOf(o, name)
		a.Reserved -= p.need(name)
		switch {
		case o.Unsent:
		case m.Certainty == governance.Known:
			a.Consumed += m.Value
		case m.Certainty == governance.Impossible:
			a.Uncertain += p.need(name)
			a.Frozen = true
		default:
			a.Uncertain += p.need(name)
			a.Observed += m.Value
		}
	}
	b.free(p)
	p.outcome, p.state = o, governance.StateSettled
	if o.Unsent {
		p.state = governance.StateCancelled
	}
}

func (b *book) free(p *bookPermit) {
	for _, s := range p.slots {
		b.slots[s]--
	}
	p.slots = nil
}

// uncertain reports whether an account holds something of a settled permit that is
// not known.
func (p *bookPermit) uncertain() bool {
	return p.state == governance.StateSettled && slices.ContainsFunc(p.accounts, func(name string) bool {
		return measureOf(p.outcome, name).Certainty != governance.Known
	})
}

// resolve is an operator's finding.
func (b *book) resolve(p *bookPermit, o governance.Outcome) {
	for _, name := range p.accounts {
		a := b.account(name)
		switch {
		case p.state == governance.StateOpen:
			a.Reserved -= p.need(name)
		case measureOf(p.outcome, name).Certainty == governance.Known:
			continue
		default:
			a.Uncertain -= p.need(name)
		}
		a.Consumed += measureOf(o, name).Value
	}
	b.free(p)
	p.state = governance.StateResolved
}

// raise says why a larger bound must be refused, or zero; then it reserves.
func (b *book) raise(p *bookPermit, to governance.Bound) governance.Reason {
	next := *p
	next.bound.Tokens, next.bound.Cost = max(p.bound.Tokens, to.Tokens), max(p.bound.Cost, to.Cost)
	worst := governance.Reason(0)
	for _, name := range p.accounts {
		more := next.need(name) - p.need(name)
		limit, limited := b.limits[limitName(name)]
		if more == 0 || !limited {
			continue
		}
		reason := governance.Reason(0)
		switch a := b.account(name); {
		case a.Frozen:
			reason = governance.ReasonFrozen
		case more > limit:
			reason = governance.ReasonNeverFits
		case held(a)+more <= limit:
		case held(a)-a.Reserved+more <= limit:
			reason = governance.ReasonReserved
		case money(name):
			reason = governance.ReasonMoney
		default:
			reason = governance.ReasonQuota
		}
		if reason != 0 && (worst == 0 || reason < worst) {
			worst = reason
		}
	}
	if worst != 0 {
		return worst
	}
	for _, name := range p.accounts {
		b.account(name).Reserved += next.need(name) - p.need(name)
	}
	p.bound = next.bound
	return 0
}

// limitName takes the window off an account's name.
func limitName(name string) string {
	for i := len(name) - 1; ; i-- {
		if name[i] == ' ' {
			return name[:i]
		}
	}
}

// night lets every slot expire.
func (b *book) night() {
	clear(b.slots)
	for _, p := range b.permits {
		p.slots = nil
	}
}
