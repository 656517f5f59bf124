// Package amount holds the two units that Tallystick counts in, and the only
// arithmetic that is allowed near a counter: integers, checked, with the
// rounding of every division stated.
//
// Source: internal/docs/architecture.md "Units".
package amount

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// MicroUSD is an amount of money in millionths of a US dollar.
type MicroUSD int64

// Tokens is a number of provider tokens.
type Tokens int64

// ErrOverflow reports that a result does not fit into 63 bits. Nothing was
// computed: the amount that caused it must be refused, never clamped.
var ErrOverflow = errors.New("amount: overflow")

// ErrNegative reports a negative amount where only zero or more makes sense.
var ErrNegative = errors.New("amount: negative")

// ErrDivideByZero reports a division whose divisor is zero or negative.
var ErrDivideByZero = errors.New("amount: division by zero or less")

// Integer is any unit whose underlying type is int64.
type Integer interface{ ~int64 }

// Add returns a + b. Errors: ErrOverflow.
func Add[T Integer](a, b T) (T, error) {
	sum := a + b
	if (a > 0 && b > 0 && sum < 0) || (a < 0 && b < 0 && sum >= 0) {
		return 0, fmt.Errorf("%w: %d + %d", ErrOverflow, a, b)
	}
	return sum, nil
}

// Sub returns a - b. Errors: ErrOverflow.
func Sub[T Integer](a, b T) (T, error) {
	diff := a - b
	if (b > 0 && diff > a) || (b < 0 && diff < a) {
		return 0, fmt.Errorf("%w: %d - %d", ErrOverflow, a, b)
	}
	return diff, nil
}

// Sum adds all values from left to right. Errors: ErrOverflow.
func Sum[T Integer](values ...T) (T, error) {
	var total T
	for _, v := range values {
		var err error
		if total, err = Add(total, v); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// Mul returns a * b for amounts of zero or more. Errors: ErrNegative, ErrOverflow.
func Mul[T Integer](a T, b int64) (T, error) {
	if a < 0 || b < 0 {
		return 0, fmt.Errorf("%w: %d * %d", ErrNegative, a, b)
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, fmt.Errorf("%w: %d * %d", ErrOverflow, a, b)
	}
	return T(lo), nil
}

// MulDivUp returns a * b / div, rounded up: the direction for every charge and
// bound, so that a fraction is never given away. The product is 128 bits wide.
// Errors: ErrNegative, ErrDivideByZero, ErrOverflow.
func MulDivUp[T Integer](a T, b, div int64) (T, error) {
	return mulDiv(a, b, div, true)
}

// MulDivDown returns a * b / div, rounded down: the direction for every return
// and every remaining amount. The product is 128 bits wide.
// Errors: ErrNegative, ErrDivideByZero, ErrOverflow.
func MulDivDown[T Integer](a T, b, div int64) (T, error) {
	return mulDiv(a, b, div, false)
}

func mulDiv[T Integer](a T, b, div int64, up bool) (T, error) {
	if div <= 0 {
		return 0, fmt.Errorf("%w: %d * %d / %d", ErrDivideByZero, a, b, div)
	}
	if a < 0 || b < 0 {
		return 0, fmt.Errorf("%w: %d * %d / %d", ErrNegative, a, b, div)
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(div) {
		return 0, fmt.Errorf("%w: %d * %d / %d", ErrOverflow, a, b, div)
	}
	quotient, remainder := bits.Div64(hi, lo, uint64(div))
	if up && remainder > 0 && quotient <= math.MaxInt64 { // never past 64 bits, back to zero
		quotient++
	}
	if quotient > math.MaxInt64 {
		return 0, fmt.Errorf("%w: %d * %d / %d", ErrOverflow, a, b, div)
	}
	return T(quotient), nil
}

// String writes the amount in dollars with six decimals, such as "$1.250000".
func (m MicroUSD) String() string {
	sign, u := "", uint64(m)
	if m < 0 {
		sign, u = "-", -u
	}
	return fmt.Sprintf("%s$%d.%06d", sign, u/1_000_000, u%1_000_000)
}
