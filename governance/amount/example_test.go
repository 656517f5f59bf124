package amount_test

import (
	"errors"
	"fmt"
	"math"

	"github.com/tallystick-go/tallystick/governance/amount"
)

// 1 234 tokens at 2.50 dollars per million: a charge is rounded up, what remains is
// rounded down, and what does not fit is refused.
func Example() {
	const perMillion = amount.MicroUSD(2_500_000)
	charge, _ := amount.MulDivUp(perMillion, 1_234, 1_000_000)
	fmt.Println(charge)

	affordable, _ := amount.MulDivDown(amount.Tokens(1_000_000), 10_000, int64(perMillion)) // for a cent
	fmt.Println(affordable)

	_, err := amount.Add(charge, math.MaxInt64)
	fmt.Println(errors.Is(err, amount.ErrOverflow))
	// Output:
	// $0.003085
	// 4000
	// true
}
