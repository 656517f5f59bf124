package ratelimit_test

// The naive model: a list of single tokens, each with its owner and what is left of
// it, and no idea of segments. It imports nothing of the package under test.

import (
	"math/big"
	"slices"
)

var tokenUnits = big.NewInt(60_000_000)

type token struct {
	owner int
	born  int64    // the moment it joined
	left  *big.Int // units
}

type model struct {
	started bool
	since   int64 // time before this is used up
	rate    int64 // as last seen; -1 if never
	tokens  []token
}

type answer struct {
	ok, never bool
	debt      int64
}

func (m *model) clone() *model {
	c := *m
	c.tokens = slices.Clone(m.tokens)
	return &c
}

// pass lets the time up to now go by. It is cut at every birth. In each stretch the
// tokens that are there are served, oldest first; what is not used is lost.
func (m *model) pass(now, rate int64) {
	if now <= m.since {
		return
	}
	cuts := []int64{m.since, now}
	for _, t := range m.tokens {
		if t.born > m.since && t.born < now {
			cuts = append(cuts, t.born)
		}
	}
	slices.Sort(cuts)
	for i := 1; i < len(cuts); i++ {
		from, to := cuts[i-1], cuts[i]
		capacity := new(big.Int).Mul(big.NewInt(rate), new(big.Int).Sub(big.NewInt(to), big.NewInt(from)))
		for len(m.tokens) > 0 && m.tokens[0].born <= from && capacity.Sign() > 0 {
			t := &m.tokens[0]
			take := t.left
			if capacity.Cmp(take) < 0 {
				take = new(big.Int).Set(capacity)
			}
			capacity.Sub(capacity, take)
			t.left = new(big.Int).Sub(t.left, take)
			if t.left.Sign() == 0 {
				m.tokens = m.tokens[1:]
			}
		}
	}
	m.since = now
}

func (m *model) slower(perMinute int64) int64 {
	if m.rate < 0 {
		return perMinute
	}
	return min(m.rate, perMinute)
}

func (m *model) begin(now int64) {
	if !m.started {
		m.started, m.since, m.rate = true, now, -1
	}
}

func (m *model) peek(now, perMinute, burst, cost int64) answer {
	then := m.clone()
	if then.started {
		then.pass(now, then.slower(perMinute))
	}
	a := answer{debt: int64(len(then.tokens))}
	a.ok = a.debt+cost <= burst
	a.never = cost > burst || !a.ok && then.slower(perMinute) == 0
	return a
}

// see is what an admission does to time.
func (m *model) see(now, perMinute int64) {
	m.begin(now)
	m.pass(now, m.slower(perMinute))
	m.rate = perMinute
}

func (m *model) add(owner int, now, n int64) {
	for range n {
		m.tokens = append(m.tokens, token{owner, max(now, m.since), new(big.Int).Set(tokenUnits)})
	}
}

func (m *model) admit(owner int, now, perMinute, cost int64) {
	if cost > 0 {
		m.see(now, perMinute)
		m.add(owner, now, cost)
	}
}

func (m *model) join(owner int, now, n int64) {
	if n > 0 {
		m.begin(now)
		m.add(owner, now, n)
	}
}

// remove takes up to n of the owner's tokens, the youngest first, and returns the
// units that they still had.
func (m *model) remove(owner int, n int64) *big.Int {
	units := new(big.Int)
	for i := len(m.tokens) - 1; i >= 0 && n > 0; i-- {
		if m.tokens[i].owner == owner {
			units.Add(units, m.tokens[i].left)
			m.tokens = slices.Delete(slices.Clone(m.tokens), i, i+1)
			n--
		}
	}
	return units
}

// close makes the owner's tokens nobody's.
func (m *model) close(owner int) {
	m.tokens = slices.Clone(m.tokens)
	for i := range m.tokens {
		if m.tokens[i].owner == owner {
			m.tokens[i].owner = 0
		}
	}
}

func (m *model) reanchor(now int64) {
	if !m.started {
		return
	}
	m.since = now
	m.tokens = slices.Clone(m.tokens)
	for i := range m.tokens {
		m.tokens[i].born = now
	}
}
