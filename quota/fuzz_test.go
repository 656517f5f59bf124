package quota_test

import (
	"errors"
	"testing"

	"github.com/tallystick-go/tallystick/quota"
)

// Whatever a calendar says, it is refused or its windows hold the moment and tile time.
func FuzzCalendar(f *testing.F) {
	f.Add(uint8(1), "Europe/Amsterdam", 0, 2, 1, int64(1774746000000000))
	f.Add(uint8(2), "Pacific/Apia", 5, 12, 0, int64(1325239200000000))
	f.Add(uint8(3), "", 7, 23, 31, int64(-1))
	f.Add(uint8(1), "America/St_Johns", 0, 0, 0, int64(6784862400000000))
	f.Fuzz(func(t *testing.T, period uint8, zone string, weekStart, resetHour, monthDay int, moment int64) {
		c := quota.Calendar{Period: quota.Period(period), Zone: zone, WeekStart: weekStart, ResetHour: resetHour, MonthDay: monthDay}
		w, err := c.Window(moment)
		if err != nil {
			if !errors.Is(err, quota.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if c.Validate() != nil || !w.Contains(moment) {
			t.Fatalf("%+v: %+v does not hold %d", c, w, moment)
		}
		if next, err := c.Window(w.End); err == nil && next.Start != w.End {
			t.Fatalf("%+v: %+v, then %+v", c, w, next)
		}
		if next, err := c.Roll(w, w.End); err == nil && next.Start != w.End {
			t.Fatalf("%+v: %+v, then %+v", c, w, next)
		}
	})
}

// Whatever an account holds, no call takes it above the limit, makes it negative or
// changes it when it fails.
func FuzzAccount(f *testing.F) {
	f.Add(int64(10), int64(20), int64(30), int64(0), int64(5), int64(100), int64(40), int64(7))
	f.Add(int64(1<<62), int64(1<<62), int64(1<<62), int64(1<<62), int64(0), int64(1<<63-1), int64(1), int64(1<<63-1))
	f.Fuzz(func(t *testing.T, consumed, uncertain, reserved, granted, observed, limit, need, used int64) {
		a := quota.Account{Consumed: consumed, Uncertain: uncertain, Reserved: reserved, Granted: granted, Observed: observed}
		check := func(what string, b quota.Account, err error) {
			t.Helper()
			if err != nil && a != b {
				t.Fatalf("%s failed and made %+v of %+v", what, b, a)
			}
			if a.Validate() == nil && b.Validate() != nil {
				t.Fatalf("%s made %+v of %+v", what, b, a)
			}
		}
		b, err := a.Reserve(limit, need)
		check("Reserve", b, err)
		if err == nil {
			if left := limit - consumed - uncertain; left < 0 || left-granted < b.Reserved || granted > left {
				t.Fatalf("%+v under a limit of %d", b, limit)
			}
			c, err := b.Cancel(need)
			if err != nil || c != a {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		for what, call := range map[string]func(int64, int64) (quota.Account, error){"Settle": a.Settle, "Hold": a.Hold, "Resolve": a.Resolve} {
			b, err := call(need, used)
			check(what, b, err)
		}
		b, err = a.Cancel(need)
		check("Cancel", b, err)
	})
}

func FuzzPeriod(f *testing.F) {
	for _, s := range []string{"day", "week", "month", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var p quota.Period
		if p.UnmarshalText(text) != nil {
			return
		}
		if again, err := p.MarshalText(); err != nil || string(again) != string(text) {
			t.Fatal(string(again), err)
		}
	})
}
