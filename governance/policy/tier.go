package policy

import (
	"math"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/quota"
)

// Reached is the highest of the thresholds that an account has reached, as it stands now,
// and zero where it has reached none. A threshold of 80 is reached by 80 % of the limit, not
// one microUSD before; a limit of zero has reached all.
//
// A hard cap is judged by all that is taken: consumed, uncertain, reserved and granted. A
// budget that is a meter is judged by what was consumed or may have been: what is merely
// pending binds, but switches nothing. An account that makes no sense has reached all.
//
// A threshold that was reached stays so until the window ends: see [Latch].
func (b *Budget) Reached(a quota.Account, thresholds []Percent) Percent {
	taken, err := amount.Sum(a.Consumed, a.Uncertain)
	if b.HardCap && err == nil {
		taken, err = amount.Sum(taken, a.Reserved, a.Granted)
	}
	if err != nil || a.Validate() != nil {
		taken = math.MaxInt64
	}
	var highest Percent
	for _, t := range thresholds {
		if t > highest && reaches(taken, int64(b.Limit()), t) {
			highest = t
		}
	}
	return highest
}

// reaches says whether taken is at least the share of the limit, rounded up: a share that is
// no whole microUSD is not reached before it is full.
func reaches(taken, limit int64, share Percent) bool {
	need, err := amount.MulDivUp(limit, int64(share), 100)
	return err == nil && taken >= need || err != nil && taken == math.MaxInt64
}

// Latch is what to store for an account's window when now is what it has reached, and stored what
// was stored before: the higher of the two. Within a window a tier never falls, whatever is
// refunded, resolved or edited. Merging in any order gives the same.
func Latch(stored, now Percent) Percent { return max(stored, now) }

// Tier is the threshold by which a budget's rules go: what the account has reached, or had
// reached earlier in the window.
func (b *Budget) Tier(a quota.Account, thresholds []Percent, stored Percent) Percent {
	return Latch(stored, b.Reached(a, thresholds))
}
