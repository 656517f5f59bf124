package quota_test

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/quota"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name        string
		a           quota.Account
		limit, need int64
		want        quota.Verdict
	}{
		{"empty", quota.Account{}, 100, 100, quota.Verdict{OK: true, Remaining: 100}},
		{"one too many", quota.Account{}, 100, 101, quota.Verdict{Never: true, Remaining: 100}},
		{"zero is a limit of zero", quota.Account{}, 0, 1, quota.Verdict{Never: true}},
		{"nothing fits zero", quota.Account{}, 0, 0, quota.Verdict{OK: true}},
		{"all four count", quota.Account{Consumed: 1, Uncertain: 2, Reserved: 3, Granted: 4, Observed: 1000}, 15, 5, quota.Verdict{OK: true, Remaining: 5}},
		{"consumed", quota.Account{Consumed: 60, Reserved: 10}, 100, 41, quota.Verdict{Remaining: 30}},
		{"uncertain", quota.Account{Uncertain: 60}, 100, 41, quota.Verdict{Remaining: 40}},
		{"granted", quota.Account{Granted: 60}, 100, 41, quota.Verdict{Remaining: 40}},
		{"pending", quota.Account{Consumed: 50, Reserved: 50}, 100, 50, quota.Verdict{Pending: true}},
		{"pending is not never", quota.Account{Reserved: 100}, 100, 101, quota.Verdict{Never: true}},
		{"frozen", quota.Account{Frozen: true}, 100, 1, quota.Verdict{Frozen: true, Remaining: 100}},
		{"frozen and pending", quota.Account{Frozen: true, Reserved: 100}, 100, 1, quota.Verdict{Frozen: true}},
		{"above a lowered limit", quota.Account{Consumed: 60}, 50, 0, quota.Verdict{}},
		{"reserved above a lowered limit", quota.Account{Reserved: 60}, 50, 10, quota.Verdict{Pending: true}},
		{"negative amount", quota.Account{}, 100, -1, quota.Verdict{Never: true}},
		{"negative limit", quota.Account{}, -1, 0, quota.Verdict{Never: true}},
		{"the largest numbers", quota.Account{Consumed: math.MaxInt64, Uncertain: math.MaxInt64, Reserved: math.MaxInt64, Granted: math.MaxInt64}, math.MaxInt64, 1, quota.Verdict{}},
		{"overflow by what is reserved", quota.Account{Consumed: math.MaxInt64 - 1, Reserved: 2}, math.MaxInt64, 1, quota.Verdict{Pending: true}},
		{"damaged", quota.Account{Consumed: -50}, 100, 1, quota.Verdict{}},
		{"damaged and covered up", quota.Account{Consumed: 50, Granted: -50}, 100, 60, quota.Verdict{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.a.Check(c.limit, c.need); got != c.want {
				t.Fatalf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// must returns the account or fails.
func must(t testing.TB) func(quota.Account, error) quota.Account {
	return func(a quota.Account, err error) quota.Account {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

func TestAccountLife(t *testing.T) {
	ok := must(t)
	var a quota.Account
	a = ok(a.Reserve(100, 30))
	a = ok(a.Reserve(100, 30))
	a = ok(a.Reserve(100, 40))
	if _, err := a.Reserve(100, 1); !errors.Is(err, quota.ErrOverLimit) {
		t.Fatal(err)
	}
	a = ok(a.Settle(30, 10))
	a = ok(a.Hold(30, 25))
	a = ok(a.Cancel(40))
	if want := (quota.Account{Consumed: 10, Uncertain: 30, Observed: 25}); a != want {
		t.Fatalf("%+v, want %+v", a, want)
	}
	a = ok(a.Resolve(30, 25)).Freeze()
	if _, err := a.Reserve(100, 1); !errors.Is(err, quota.ErrFrozen) {
		t.Fatal(err)
	}
	a = ok(a.Unfreeze().Reserve(100, 65))
	if want := (quota.Account{Consumed: 35, Reserved: 65, Observed: 25}); a != want {
		t.Fatalf("%+v, want %+v", a, want)
	}
}

// O10, X1: an overrun is recorded in full, and then nothing is added.
func TestOverrun(t *testing.T) {
	ok := must(t)
	a := ok(quota.Account{}.Reserve(1000, 1000))
	a = ok(a.Settle(1000, 1200))
	if v := a.Check(1000, 1); v.OK || v.Never || v.Pending || v.Remaining != 0 || a.Consumed != 1200 {
		t.Fatalf("%+v after %+v", v, a)
	}
}

// O1, O2, O3, O4, O6, O8, L13: what is admitted together never exceeds the limit, refused
// amounts count for nothing, and the poorer of two accounts decides.
func TestSumOfReservations(t *testing.T) {
	for _, c := range []struct{ limit, need, tries, fit int64 }{
		{1000, 100, 50, 10}, {101, 1, 200, 101}, {10, 3, 10, 3}, {1_000_000, 500_000, 1000, 2}, {100, 175, 5, 0},
	} {
		var a quota.Account
		fit := int64(0)
		for range c.tries {
			if next, err := a.Reserve(c.limit, c.need); err == nil {
				a = next
				fit++
			}
		}
		if fit != c.fit || a.Reserved != fit*c.need {
			t.Fatalf("%+v: %d fit, %+v", c, fit, a)
		}
	}
	a := must(t)(quota.Account{}.Reserve(100, 60))
	for range 9 {
		if b, err := a.Reserve(100, 60); err == nil || b != a {
			t.Fatal("a refused reservation counts")
		}
	}
	must(t)(a.Reserve(100, 40))
}

// L10, I1, I3: giving back twice is an error, never a clamp, and nothing changes.
func TestGivingBackTwice(t *testing.T) {
	a := must(t)(quota.Account{Uncertain: 5}.Reserve(100, 10))
	for name, call := range map[string]func() (quota.Account, error){
		"Settle":  func() (quota.Account, error) { return a.Settle(11, 0) },
		"Hold":    func() (quota.Account, error) { return a.Hold(11, 0) },
		"Cancel":  func() (quota.Account, error) { return a.Cancel(11) },
		"Resolve": func() (quota.Account, error) { return a.Resolve(6, 0) },
	} {
		if b, err := call(); !errors.Is(err, quota.ErrUnderflow) || b != a {
			t.Errorf("%s: %v, %+v", name, err, b)
		}
	}
}

func TestBadAmounts(t *testing.T) {
	a := quota.Account{Consumed: 1, Uncertain: 2, Reserved: 3, Granted: 4, Observed: 5}
	full := quota.Account{Consumed: math.MaxInt64, Uncertain: math.MaxInt64, Reserved: 9, Observed: math.MaxInt64}
	for name, c := range map[string]struct {
		call func() (quota.Account, error)
		of   quota.Account
		want error
	}{
		"reserve negative":          {func() (quota.Account, error) { return a.Reserve(10, -1) }, a, quota.ErrInvalid},
		"reserve under negative":    {func() (quota.Account, error) { return a.Reserve(-10, 1) }, a, quota.ErrInvalid},
		"settle negative":           {func() (quota.Account, error) { return a.Settle(-1, 0) }, a, quota.ErrInvalid},
		"settle negative use":       {func() (quota.Account, error) { return a.Settle(1, -1) }, a, quota.ErrInvalid},
		"hold negative":             {func() (quota.Account, error) { return a.Hold(-1, 0) }, a, quota.ErrInvalid},
		"hold negative observation": {func() (quota.Account, error) { return a.Hold(1, -1) }, a, quota.ErrInvalid},
		"cancel negative":           {func() (quota.Account, error) { return a.Cancel(-1) }, a, quota.ErrInvalid},
		"resolve negative":          {func() (quota.Account, error) { return a.Resolve(-1, 1) }, a, quota.ErrInvalid},
		"resolve negative use":      {func() (quota.Account, error) { return a.Resolve(1, -1) }, a, quota.ErrInvalid},
		"consumed overflows":        {func() (quota.Account, error) { return full.Settle(9, 1) }, full, amount.ErrOverflow},
		"uncertain overflows":       {func() (quota.Account, error) { return full.Hold(9, 0) }, full, amount.ErrOverflow},
		"observed overflows":        {func() (quota.Account, error) { return full.Hold(0, 1) }, full, amount.ErrOverflow},
		"resolve overflows":         {func() (quota.Account, error) { return full.Resolve(9, 1) }, full, amount.ErrOverflow},
		"reserve on damage": {func() (quota.Account, error) { return quota.Account{Granted: -9}.Reserve(5, 6) },
			quota.Account{Granted: -9}, quota.ErrInvalid},
	} {
		if b, err := c.call(); !errors.Is(err, c.want) || b != c.of {
			t.Errorf("%s: %v, %+v", name, err, b)
		}
	}
}

// ledger is the naive account: a list of what every attempt holds, summed in big
// integers.
type ledger struct {
	entries []entry
	granted int64
}

type entry struct {
	state         string // reserved, consumed, uncertain
	sum, observed int64
}

func (l *ledger) total(states ...string) *big.Int {
	sum := new(big.Int)
	for _, e := range l.entries {
		for _, s := range states {
			if e.state == s {
				sum.Add(sum, big.NewInt(e.sum))
			}
		}
	}
	return sum
}

// L3: after every step the account is the sum of what its attempts hold, and no
// reservation takes it above the limit then in force.
func TestPropertyAccountIsTheLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.OneOf(rapid.Int64Range(0, 50), rapid.Just(int64(math.MaxInt64)), rapid.Int64Range(1<<61, 1<<62))
		l := &ledger{granted: rapid.Int64Range(0, 20).Draw(t, "granted")}
		a := quota.Account{Granted: l.granted}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := a
			var err error
			what := rapid.SampledFrom([]string{"reserve", "settle", "hold", "cancel", "resolve", "freeze"}).Draw(t, "what")
			if what == "reserve" {
				limit, need := sizes.Draw(t, "limit"), sizes.Draw(t, "need")
				v := a.Check(limit, need)
				held := new(big.Int).Add(l.total("reserved", "consumed", "uncertain"), big.NewInt(l.granted))
				settled := new(big.Int).Sub(held, l.total("reserved"))
				room := func(held *big.Int) bool {
					return new(big.Int).Add(held, big.NewInt(need)).Cmp(big.NewInt(limit)) <= 0
				}
				if v.OK != (room(held) && !a.Frozen) || v.Never != (need > limit) || v.Pending != (!room(held) && room(settled) && !a.Frozen) {
					t.Fatalf("%+v of %+v, limit %d, need %d", v, a, limit, need)
				}
				if a, err = a.Reserve(limit, need); (err == nil) != v.OK {
					t.Fatalf("%+v, then %v", v, err)
				}
				if err == nil {
					l.entries = append(l.entries, entry{"reserved", need, 0})
				}
			} else if what == "freeze" {
				if a = a.Freeze(); rapid.Bool().Draw(t, "thaw") {
					a = a.Unfreeze()
				}
			} else if len(l.entries) > 0 {
				e := &l.entries[rapid.IntRange(0, len(l.entries)-1).Draw(t, "whose")]
				used := sizes.Draw(t, "used")
				next := *e
				switch {
				case what == "resolve" && e.state == "uncertain":
					a, err = a.Resolve(e.sum, used)
					next = entry{"consumed", used, e.observed}
				case e.state != "reserved":
				case what == "settle":
					a, err = a.Settle(e.sum, used)
					next = entry{"consumed", used, 0}
				case what == "hold":
					a, err = a.Hold(e.sum, used)
					next = entry{"uncertain", e.sum, used}
				case what == "cancel":
					a, err = a.Cancel(e.sum)
					next = entry{"cancelled", 0, 0}
				}
				if err == nil {
					*e = next
				} else if !errors.Is(err, amount.ErrOverflow) {
					t.Fatal(err)
				}
			}
			if err != nil && a != before {
				t.Fatalf("%s failed and changed the account", what)
			}
			observed := new(big.Int)
			for _, e := range l.entries {
				observed.Add(observed, big.NewInt(e.observed))
			}
			for _, c := range []struct {
				got  int64
				want *big.Int
			}{{a.Consumed, l.total("consumed")}, {a.Uncertain, l.total("uncertain")}, {a.Reserved, l.total("reserved")}, {a.Observed, observed}} {
				if big.NewInt(c.got).Cmp(c.want) != 0 {
					t.Fatalf("%+v after %s, but the attempts hold %v", a, what, c.want)
				}
			}
		}
	})
}
