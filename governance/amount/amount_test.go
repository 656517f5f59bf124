package amount_test

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/governance/amount"
)

func TestAddSub(t *testing.T) {
	const most, least = math.MaxInt64, math.MinInt64
	for _, c := range []struct {
		a, b      int64
		sum, diff error
	}{
		{1, 2, nil, nil}, {-1, -2, nil, nil}, {most, 0, nil, nil}, {least, 0, nil, nil},
		{most, 1, amount.ErrOverflow, nil}, {1, most, amount.ErrOverflow, nil}, {most, most, amount.ErrOverflow, nil},
		{least, -1, amount.ErrOverflow, nil}, {least, least, amount.ErrOverflow, nil},
		{least, 1, nil, amount.ErrOverflow}, {0, least, nil, amount.ErrOverflow}, {most, -1, nil, amount.ErrOverflow},
		{most, least, nil, amount.ErrOverflow}, {-1, least, amount.ErrOverflow, nil},
	} {
		if n, err := amount.Add(c.a, c.b); !errors.Is(err, c.sum) || err == nil && n != c.a+c.b || err != nil && n != 0 {
			t.Errorf("%d + %d = %d, %v", c.a, c.b, n, err)
		}
		if n, err := amount.Sub(c.a, c.b); !errors.Is(err, c.diff) || err == nil && n != c.a-c.b || err != nil && n != 0 {
			t.Errorf("%d - %d = %d, %v", c.a, c.b, n, err)
		}
	}
}

func TestSum(t *testing.T) {
	if n, err := amount.Sum[amount.Tokens](); n != 0 || err != nil {
		t.Error(n, err)
	}
	if n, err := amount.Sum[amount.Tokens](1, 2, 3); n != 6 || err != nil {
		t.Error(n, err)
	}
	if n, err := amount.Sum[amount.MicroUSD](math.MaxInt64, 1, -5); n != 0 || !errors.Is(err, amount.ErrOverflow) {
		t.Error(n, err) // no sum on the way may overflow either
	}
}

// P8: an n times a maximum that overflows is refused.
func TestMul(t *testing.T) {
	for _, c := range []struct {
		a, b, want int64
		err        error
	}{
		{6, 7, 42, nil}, {0, math.MaxInt64, 0, nil}, {math.MaxInt64, 1, math.MaxInt64, nil},
		{3_542_971_632, 1, 3_542_971_632, nil}, {1 << 31, 1 << 31, 1 << 62, nil},
		{1 << 32, 1 << 31, 0, amount.ErrOverflow}, {math.MaxInt64, 2, 0, amount.ErrOverflow}, {math.MaxInt64, math.MaxInt64, 0, amount.ErrOverflow},
		{-1, 2, 0, amount.ErrNegative}, {2, -1, 0, amount.ErrNegative}, {math.MinInt64, math.MinInt64, 0, amount.ErrNegative},
	} {
		if n, err := amount.Mul(c.a, c.b); n != c.want || !errors.Is(err, c.err) {
			t.Errorf("%d * %d = %d, %v", c.a, c.b, n, err)
		}
	}
}

func TestMulDiv(t *testing.T) {
	for _, c := range []struct {
		a, b, div, up, down int64
		err                 error
	}{
		{7, 1, 2, 4, 3, nil}, {8, 1, 2, 4, 4, nil}, {1, 1, 1_000_000, 1, 0, nil}, {0, 9, 7, 0, 0, nil},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, nil},
		{math.MaxInt64, 3, 4, 6917529027641081856, 6917529027641081855, nil},
		{math.MaxInt64, 2, 1, 0, 0, amount.ErrOverflow},
		{math.MaxInt64, math.MaxInt64, 1, 0, 0, amount.ErrOverflow},
		{1<<62 + 1, 1<<63 - 2, 1 << 61, 0, 0, amount.ErrOverflow}, // the quotient is all ones: rounding it up must not give zero
		{1, 1, 0, 0, 0, amount.ErrDivideByZero}, {1, 1, -1, 0, 0, amount.ErrDivideByZero},
		{-1, 1, 1, 0, 0, amount.ErrNegative}, {1, -1, 1, 0, 0, amount.ErrNegative},
	} {
		if n, err := amount.MulDivUp(c.a, c.b, c.div); n != c.up || !errors.Is(err, c.err) {
			t.Errorf("up %d * %d / %d = %d, %v", c.a, c.b, c.div, n, err)
		}
		if n, err := amount.MulDivDown(c.a, c.b, c.div); n != c.down || !errors.Is(err, c.err) {
			t.Errorf("down %d * %d / %d = %d, %v", c.a, c.b, c.div, n, err)
		}
	}
	// The largest quotient and a rest: down it fits, up it does not.
	a, b, div := int64(3<<61), int64((1<<63+7)/3), int64(1<<61+2)
	if n, err := amount.MulDivDown(a, b, div); n != math.MaxInt64 || err != nil {
		t.Error(n, err)
	}
	if n, err := amount.MulDivUp(a, b, div); n != 0 || !errors.Is(err, amount.ErrOverflow) {
		t.Error(n, err)
	}
}

// All arithmetic is that of big integers, or refused when the result does not fit.
func TestPropertyArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3), rapid.Int64Range(math.MaxInt64-3, math.MaxInt64), rapid.Int64Range(1<<60, 1<<62))
		checkArithmetic(t, number.Draw(t, "a"), number.Draw(t, "b"), number.Draw(t, "div"))
	})
}

func FuzzArithmetic(f *testing.F) {
	f.Add(int64(1<<62+1), int64(math.MaxInt64-1), int64(1<<61))
	f.Add(int64(math.MinInt64), int64(-1), int64(0))
	f.Fuzz(func(t *testing.T, a, b, div int64) { checkArithmetic(t, a, b, div) })
}

func checkArithmetic(t rapid.TB, a, b, div int64) {
	t.Helper()
	x, y, d := big.NewInt(a), big.NewInt(b), big.NewInt(div)
	check := func(what string, got amount.Tokens, err error, want *big.Int) {
		t.Helper()
		switch {
		case want.IsInt64() && (err != nil || int64(got) != want.Int64()):
			t.Fatalf("%s of %d, %d, %d is %d, %v; want %v", what, a, b, div, got, err, want)
		case !want.IsInt64() && (!errors.Is(err, amount.ErrOverflow) || got != 0):
			t.Fatalf("%s of %d, %d, %d is %d, %v; want an overflow", what, a, b, div, got, err)
		}
	}
	sum, err := amount.Add(amount.Tokens(a), amount.Tokens(b))
	check("sum", sum, err, new(big.Int).Add(x, y))
	diff, err := amount.Sub(amount.Tokens(a), amount.Tokens(b))
	check("difference", diff, err, new(big.Int).Sub(x, y))

	up, errUp := amount.MulDivUp(amount.Tokens(a), b, div)
	down, errDown := amount.MulDivDown(amount.Tokens(a), b, div)
	product, errMul := amount.Mul(amount.Tokens(a), b)
	switch {
	case div <= 0:
		if !errors.Is(errUp, amount.ErrDivideByZero) || !errors.Is(errDown, amount.ErrDivideByZero) {
			t.Fatal(errUp, errDown)
		}
	case a < 0 || b < 0:
		if !errors.Is(errUp, amount.ErrNegative) || !errors.Is(errDown, amount.ErrNegative) || !errors.Is(errMul, amount.ErrNegative) {
			t.Fatal(errUp, errDown, errMul)
		}
	default:
		want := new(big.Int).Mul(x, y)
		check("product", product, errMul, want)
		quotient, rest := new(big.Int).QuoRem(want, d, new(big.Int))
		check("quotient, down", down, errDown, quotient)
		if rest.Sign() > 0 {
			quotient = new(big.Int).Add(quotient, big.NewInt(1))
		}
		check("quotient, up", up, errUp, quotient)
	}
}

func TestMicroUSDString(t *testing.T) {
	for m, want := range map[amount.MicroUSD]string{
		0: "$0.000000", 1: "$0.000001", 1_250_000: "$1.250000", -1: "-$0.000001", -1_000_001: "-$1.000001",
		math.MaxInt64: "$9223372036854.775807", math.MinInt64: "-$9223372036854.775808",
	} {
		if got := m.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(m), got, want)
		}
	}
}
