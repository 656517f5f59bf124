package ratelimit

import (
	"math"
	"math/bits"
)

// wide is an unsigned integer of 128 bits: a rate times a time, in units.
type wide struct{ hi, lo uint64 }

func product(a, b uint64) wide {
	hi, lo := bits.Mul64(a, b)
	return wide{hi, lo}
}

func (a wide) add(b wide) wide {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return wide{hi, lo}
}

func (a wide) sub(b wide) wide {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return wide{hi, lo}
}

func (a wide) less(b wide) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// div returns a / d, rounded down, and the rest. A quotient above 64 bits comes
// back as the largest one.
func (a wide) div(d uint64) (quotient, rest uint64) {
	if a.hi >= d {
		return math.MaxUint64, 0
	}
	return bits.Div64(a.hi, a.lo, d)
}

// divUp is div rounded up.
func (a wide) divUp(d uint64) uint64 {
	quotient, rest := a.div(d)
	if rest > 0 && quotient < math.MaxUint64 {
		quotient++
	}
	return quotient
}
