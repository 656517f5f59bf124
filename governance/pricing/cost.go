package pricing

import (
	"fmt"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/usage"
)

// Cost returns what a reported usage costs: exact, rounded up once at the end.
//
// Known means that the amount is to be charged. Unknown means that it is not
// certain: tokens are missing, or fall where no price is known, such as cache
// writes of unknown lifetime; the amount is what the certain part costs, to be
// stored as observed and never to be charged. Invalid comes from an invalid
// usage, with amount zero.
//
// A free model costs zero whatever was used. An absent service tier means the
// standard one: a caller who asked for another and got no answer sets it.
//
// Units: microUSD, rounded up.
// Concurrency: safe; no allocation.
// Errors: ErrNoPrice for the zero Row, amount.ErrOverflow.
// Source: internal/docs/architecture.md "Units".
func (r Row) Cost(u usage.Usage) (amount.MicroUSD, usage.State, error) {
	t := r.t
	if t == nil {
		return 0, usage.Unknown, fmt.Errorf("%w: the zero Row", ErrNoPrice)
	}
	state := u.State()
	switch {
	case state == usage.Invalid:
		return 0, usage.Invalid, nil
	case t.flags&flagFree != 0:
		return 0, usage.Known, nil
	}
	in := u.Input.N + u.CacheRead.N + u.CacheWrite5m.N + u.CacheWrite1h.N + u.CacheWriteUnknownTTL.N // checked by State
	tr, ok := t.tierNamed(u.ServiceTier)
	m := meter{t: t, rates: &t.rates[t.at(tr, t.step(in))], sure: ok && state == usage.Known}
	m.input(&u)
	m.output(&u)
	m.tools(&u)
	speed, err := t.speed(u.Speed)
	m.sure = m.sure && err == nil
	geo, ok := t.geoOf(u.Geo)
	m.sure = m.sure && ok
	if m.overflow {
		return 0, usage.Unknown, amount.ErrOverflow
	}
	cost, err := t.charge(m.sum, m.fees, t.region, speed, geo)
	if err != nil {
		return 0, usage.Unknown, err
	}
	if !m.sure {
		return cost, usage.Unknown, nil
	}
	return cost, usage.Known, nil
}

// geoOf returns the multiplier of the region that served.
func (t *table) geoOf(name string) (uint64, bool) {
	if t.pinned != 0 {
		return t.pinned, true
	}
	for _, g := range t.geos {
		if g.name == name {
			return g.multiplier, true
		}
	}
	return 0, len(t.geos) == 0 || name == "" || name == "global" || name == "not_available"
}

// meter adds up what tokens cost.
type meter struct {
	t         *table
	rates     *rates
	sum, fees u128
	sure      bool
	overflow  bool
}

func (m *meter) add(c class, n int64) {
	if n == 0 {
		return
	}
	p, ok := m.rates.get(c)
	if !ok {
		m.sure = false
		return
	}
	if m.sum, ok = m.sum.addMul(p, uint64(n)); !ok {
		m.overflow = true
	}
}

// same reports whether two classes have one price here.
func (m *meter) same(a, b class) bool {
	p, ok1 := m.rates.get(a)
	q, ok2 := m.rates.get(b)
	return ok1 && ok2 && p == q
}

func (m *meter) input(u *usage.Usage) {
	fresh := u.Input.N
	cached := u.CacheRead.N+u.CacheWrite5m.N+u.CacheWrite1h.N+u.CacheWriteUnknownTTL.N > 0
	for _, part := range [...]struct {
		class class
		count usage.Count
	}{{audioInput, u.AudioInput}, {imageInput, u.ImageInput}} {
		n := m.part(part.class, input, part.count)
		if n > 0 && (cached || n > fresh) {
			m.sure = false // which of the parts came out of the cache is not reported
			continue
		}
		m.add(part.class, n)
		fresh -= n
	}
	m.add(input, fresh)
	m.add(cacheRead, u.CacheRead.N)
	m.add(cacheWrite, u.CacheWrite5m.N)
	m.add(cacheWriteLong, u.CacheWrite1h.N)
	if n := u.CacheWriteUnknownTTL.N; n > 0 {
		m.sure = m.sure && (m.t.flags&flagLifetimes == 0 || m.same(cacheWrite, cacheWriteLong))
		m.add(cacheWrite, n)
	}
}

func (m *meter) output(u *usage.Usage) {
	rest := u.Output.N
	for _, part := range [...]struct {
		class class
		count usage.Count
	}{{reasoning, u.Reasoning}, {audioOutput, u.AudioOutput}, {imageOutput, u.ImageOutput}} {
		n := m.part(part.class, output, part.count)
		if n > rest {
			m.sure = false
			continue
		}
		m.add(part.class, n)
		rest -= n
	}
	m.add(output, rest)
}

// part returns how many tokens of a kind are to be priced apart from their
// class: none where the price is the same. A kind that was not broken out does
// not occur in an answer of text; where other answers are made, or where the
// kind is reasoning, it is not known.
func (m *meter) part(kind, whole class, n usage.Count) int64 {
	if m.same(kind, whole) {
		return 0
	}
	if n.State == usage.Known && n.N >= 0 {
		return n.N
	}
	stated := m.t.stated&(1<<kind) != 0
	if n.State != usage.Unknown || n.N != 0 || stated && (kind == reasoning || m.t.flags&flagMedia != 0) {
		m.sure = false
	}
	return 0
}

// tools prices what was done beside generating.
func (m *meter) tools(u *usage.Usage) {
	m.sure = m.sure && u.Other.N == 0 && u.Other.State != usage.Invalid &&
		u.OtherTools.N == 0 && u.OtherTools.State != usage.Invalid && u.WebSearches.State != usage.Invalid
	n := u.WebSearches.N
	if n == 0 {
		return
	}
	fee := m.t.search
	m.sure = m.sure && m.t.searches && fee[0] == fee[1] && fee[1] == fee[2] && u.WebSearches.State == usage.Known && n > 0
	if n > 0 {
		m.fees, _ = m.fees.addMul(min(fee[0], fee[1], fee[2]), uint64(n))
	}
}
