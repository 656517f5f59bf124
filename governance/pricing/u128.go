package pricing

import (
	"math"
	"math/bits"

	"github.com/tallystick-go/tallystick/governance/amount"
)

// u128 is a sum of price × count products before it is rounded, once.
type u128 struct{ hi, lo uint64 }

// addMul returns u + a×b; ok is false if that needs more than 128 bits.
func (u u128) addMul(a, b uint64) (sum u128, ok bool) {
	hi, lo := bits.Mul64(a, b)
	return u.add(u128{hi, lo})
}

func (u u128) add(v u128) (sum u128, ok bool) {
	lo, carry := bits.Add64(u.lo, v.lo, 0)
	hi, carry := bits.Add64(u.hi, v.hi, carry)
	return u128{hi, lo}, carry == 0
}

// mul returns u × m.
func (u u128) mul(m uint64) (product u128, ok bool) {
	hi, mid := bits.Mul64(u.hi, m)
	carry, lo := bits.Mul64(u.lo, m)
	mid, over := bits.Add64(mid, carry, 0)
	return u128{mid, lo}, hi == 0 && over == 0
}

// divUp returns u / d, rounded up. Dividing in two steps rounds like dividing once.
func (u u128) divUp(d uint64) u128 {
	hi, rest := u.hi/d, u.hi%d
	lo, rest := bits.Div64(rest, u.lo, d)
	q := u128{hi, lo}
	if rest > 0 {
		q, _ = q.add(u128{0, 1}) // no overflow: a remainder means d is above one
	}
	return q
}

func (u u128) microUSD() (amount.MicroUSD, error) {
	if u.hi != 0 || u.lo > math.MaxInt64 {
		return 0, amount.ErrOverflow
	}
	return amount.MicroUSD(u.lo), nil
}

// pow10 holds the powers of ten that a row's unit can need.
var pow10 = func() (p [maxScale - minScale + 1]uint64) {
	p[0] = 1
	for i := range p[1:] {
		p[i+1] = 10 * p[i]
	}
	return p
}()

// charge turns sums in a row's unit into microUSD, rounded up once. The
// multipliers apply to tokens, not to fees; zero means none.
func (t *table) charge(tokens, fees u128, multipliers ...uint64) (amount.MicroUSD, error) {
	div, fits := uint64(1), true
	for _, m := range multipliers {
		if m == 0 || m == one {
			continue
		}
		var ok1, ok2 bool
		tokens, ok1 = tokens.mul(m)
		fees, ok2 = fees.mul(one)
		div, fits = div*one, fits && ok1 && ok2
	}
	sum, ok := tokens.add(fees)
	if !ok || !fits {
		return 0, amount.ErrOverflow
	}
	return sum.divUp(pow10[t.scale-minScale]).divUp(div).microUSD()
}
