package governance

import (
	"encoding/binary"
	"fmt"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

// grantTerms is what a grant, or a meter, captured when it was made. A grant is a
// permit of one hold, which adds to what an account has granted and not to what it has
// reserved: so everything that serves permits serves grants.
//
// Source: internal/docs/architecture.md "Grants".
type grantTerms struct {
	node    string
	boot    escrow.BootID
	number  int64 // of the boot
	meter   bool
	account escrow.Account
	expires int64 // µs; zero for a meter
}

const grantTermsVersion = 2

func (g *grantTerms) append(dst []byte) []byte {
	a := &g.account
	dst = append(dst, grantTermsVersion)
	for _, s := range [...]string{g.node, a.Policy, a.Rule, a.Subject.Team, a.Subject.User} {
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		dst = append(dst, s...)
	}
	dst = append(dst, g.boot[:]...)
	meter := byte(0)
	if g.meter {
		meter = 1
	}
	dst = append(dst, meter, byte(a.Period))
	dst = binary.AppendVarint(dst, a.Window.Start)
	dst = binary.AppendUvarint(dst, uint64(a.Window.End-a.Window.Start))
	dst = binary.AppendVarint(dst, g.expires)
	return binary.AppendUvarint(dst, uint64(g.number))
}

// grantTerms reads what append wrote, behind the version. Errors: ErrCorrupt.
func (r *reader) grantTerms() (*terms, error) {
	g := &grantTerms{}
	a := &g.account
	for _, s := range [...]*string{&g.node, &a.Policy, &a.Rule, &a.Subject.Team, &a.Subject.User} {
		*s = string(r.bytes(r.uvarint()))
	}
	copy(g.boot[:], r.bytes(16))
	meter := r.byte()
	g.meter = meter == 1
	a.Period = quota.Period(r.byte())
	a.Window.Start = r.varint()
	a.Window.End = a.Window.Start + int64(r.uvarint())
	g.expires = r.varint()
	g.number = r.count()
	if r.bad || len(r.p) > 0 || meter > 1 || a.Subject == (policy.Subject{}) || a.Period < quota.Day || a.Period > quota.Month || a.Window.End <= a.Window.Start {
		return nil, ErrCorrupt
	}
	return g.terms(), nil
}

// terms wraps the grant's terms with the hold that they make.
func (g *grantTerms) terms() *terms {
	c := constraintOf(&g.account)
	return &terms{grant: g, holds: []hold{{constraint: c.ID, kind: KindMoney, window: g.account.Window}}}
}

// constraintOf is the constraint that an account of a node counts for. Its limit and what
// else an edit may change is not known from the account.
func constraintOf(a *escrow.Account) *Constraint {
	c := &Constraint{
		Kind: KindMoney, Scope: Scope(a.Subject.Scope()), Subject: a.Subject.String(), Policy: a.Policy, Rule: a.Rule,
		Calendar: quota.Calendar{Period: a.Period},
	}
	c.identify()
	return c
}

// held is what was granted and reported. Errors: ErrCorrupt.
func (rec *Record) held() (h escrow.Held, err error) {
	if err := h.UnmarshalBinary(rec.Segments); err != nil || int64(h.Amount) != rec.Cost || h.Meter != (rec.Flags&FlagMeter != 0) {
		return h, fmt.Errorf("%w: what is held of grant %s cannot be read", ErrCorrupt, rec.ID)
	}
	return h, nil
}

// entry is the grant as escrow.Books has it. Errors: ErrCorrupt.
func (rec *Record) entry(g *grantTerms) (out escrow.Record, err error) {
	out = escrow.Record{ID: escrow.GrantID(rec.ID), Node: g.node, BootNumber: g.number, Account: g.account, ExpiresAt: g.expires}
	out.Held, err = rec.held()
	return out, err
}

// put takes a new state of the grant into the record.
func (rec *Record) put(h escrow.Held, now int64) {
	data, err := h.AppendBinary(nil)
	if err != nil {
		panic(fmt.Sprintf("governance: grant %s in no valid state: %v", rec.ID, err))
	}
	rec.Segments = data
	rec.Flags &^= FlagCostUncertain | FlagBurned | FlagOverrun
	if h.Overrun() > 0 {
		rec.Flags |= FlagOverrun
	}
	if h.Ending == escrow.Open {
		return
	}
	if rec.State == StateOpen {
		rec.State, rec.EndedAt = StateSettled, now
	}
	if h.Ending == escrow.Burned {
		rec.Flags |= FlagBurned
	}
	if h.Uncertain > h.Resolved {
		rec.Flags |= FlagCostUncertain
	}
}

// grantShare is what a grant holds in its account: see share.
func (rec *Record) grantShare() (one quota.Account, err error) {
	h, err := rec.held()
	if err != nil {
		return one, err
	}
	one = quota.Account{Consumed: int64(h.Consumed), Uncertain: int64(h.Uncertain), Observed: int64(h.Observed)}
	switch {
	case rec.State == StateOpen && h.Meter:
		one.Granted = int64(h.Pending)
	case rec.State == StateOpen:
		one.Granted = max(0, rec.Cost-one.Consumed-one.Uncertain)
	case rec.State == StateSettled:
	case rec.State == StateResolved:
		one.Consumed, one.Uncertain = rec.Resolution.Cost.Value, 0
	default:
		return one, fmt.Errorf("%w: grant %s is in no known state", ErrCorrupt, rec.ID)
	}
	return one, nil
}
