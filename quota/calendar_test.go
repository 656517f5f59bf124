package quota_test

import (
	"errors"
	"math"
	"testing"
	"time"
	_ "time/tzdata" // the tests need zones on every machine

	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/quota"
)

// at reads a time in RFC 3339 as microseconds.
func at(t testing.TB, s string) int64 {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v.UnixMicro()
}

func show(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339) }

func window(t rapid.TB, c quota.Calendar, micros int64) quota.Window {
	t.Helper()
	w, err := c.Window(micros)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWindow(t *testing.T) {
	amsterdam, tokyo, lordHowe, apia := "Europe/Amsterdam", "Asia/Tokyo", "Australia/Lord_Howe", "Pacific/Apia"
	for _, c := range []struct {
		name            string
		cal             quota.Calendar
		at, start, ends string
	}{
		{"UTC day", quota.Calendar{Period: quota.Day}, "2026-03-29T23:59:59Z", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"},
		{"UTC day at its start", quota.Calendar{Period: quota.Day, Zone: "UTC"}, "2026-03-29T00:00:00Z", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"},
		{"before the epoch", quota.Calendar{Period: quota.Day, ResetHour: 5}, "1969-12-31T04:00:00Z", "1969-12-30T05:00:00Z", "1969-12-31T05:00:00Z"},
		{"ISO week", quota.Calendar{Period: quota.Week}, "2026-01-01T12:00:00Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z"},
		{"week from Sunday", quota.Calendar{Period: quota.Week, WeekStart: 7}, "2026-01-04T00:00:00Z", "2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"},
		{"week from Saturday, reset at 6", quota.Calendar{Period: quota.Week, WeekStart: 6, ResetHour: 6}, "2026-01-03T05:59:59Z", "2025-12-27T06:00:00Z", "2026-01-03T06:00:00Z"},
		{"month", quota.Calendar{Period: quota.Month}, "2024-02-29T23:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"year's end", quota.Calendar{Period: quota.Month}, "2026-12-31T23:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},

		// Q1, Q4: the anchor on the 31st gives windows that hold the moment and tile.
		{"31st: January to February", quota.Calendar{Period: quota.Month, MonthDay: 31}, "2026-02-27T12:00:00Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"},
		{"31st: February to March", quota.Calendar{Period: quota.Month, MonthDay: 31}, "2026-03-02T12:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"31st: leap year", quota.Calendar{Period: quota.Month, MonthDay: 31}, "2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2024-03-31T00:00:00Z"},
		{"30th: not a leap year", quota.Calendar{Period: quota.Month, MonthDay: 30, ResetHour: 23}, "2100-02-28T22:59:59Z", "2100-01-30T23:00:00Z", "2100-02-28T23:00:00Z"},

		// W1: instants are compared, not local dates.
		{"Tokyo", quota.Calendar{Period: quota.Month, Zone: tokyo}, "2026-07-31T15:00:00Z", "2026-07-31T15:00:00Z", "2026-08-31T15:00:00Z"},
		// W8: days of 23 and 25 hours.
		{"23 hours", quota.Calendar{Period: quota.Day, Zone: amsterdam}, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"25 hours", quota.Calendar{Period: quota.Day, Zone: amsterdam}, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		// Q10: a reset hour that does not exist is at the change, never before it.
		{"no 02:00 that day", quota.Calendar{Period: quota.Day, Zone: amsterdam, ResetHour: 2}, "2026-03-29T00:59:59Z", "2026-03-28T01:00:00Z", "2026-03-29T01:00:00Z"},
		{"the day from 03:00", quota.Calendar{Period: quota.Day, Zone: amsterdam, ResetHour: 2}, "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		// A reset hour that exists twice is the first of the two.
		{"02:00 twice", quota.Calendar{Period: quota.Day, Zone: amsterdam, ResetHour: 2}, "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"},
		{"midnight twice", quota.Calendar{Period: quota.Day, Zone: "America/Havana"}, "2026-11-01T05:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"no midnight", quota.Calendar{Period: quota.Day, Zone: "America/Sao_Paulo"}, "2018-11-04T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"half an hour of summer time", quota.Calendar{Period: quota.Day, Zone: lordHowe}, "2026-10-03T20:00:00Z", "2026-10-03T13:30:00Z", "2026-10-04T13:00:00Z"},
		{"and back", quota.Calendar{Period: quota.Day, Zone: lordHowe, ResetHour: 2}, "2026-04-04T15:15:00Z", "2026-04-03T15:00:00Z", "2026-04-04T15:30:00Z"},
		// A zone that skips a date.
		{"Apia's last day before", quota.Calendar{Period: quota.Day, Zone: apia}, "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"Apia skips 30 December", quota.Calendar{Period: quota.Day, Zone: apia}, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"no window for the skipped date", quota.Calendar{Period: quota.Day, Zone: apia, ResetHour: 12}, "2011-12-30T10:00:00Z", "2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z"},
		{"a week that starts on the skipped date", quota.Calendar{Period: quota.Week, Zone: apia, WeekStart: 5}, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-05T10:00:00Z"},
		{"Kiritimati skips New Year's Eve", quota.Calendar{Period: quota.Month, Zone: "Pacific/Kiritimati", MonthDay: 31}, "1995-01-01T00:00:00Z", "1994-12-31T10:00:00Z", "1995-01-30T10:00:00Z"},
		{"seconds in the offset", quota.Calendar{Period: quota.Day, Zone: "Africa/Monrovia"}, "1971-06-01T00:44:29Z", "1971-05-31T00:44:30Z", "1971-06-01T00:44:30Z"},
		{"the end of a leap year beyond the zone's table", quota.Calendar{Period: quota.Day, Zone: "America/St_Johns"}, "2184-12-31T12:00:00Z", "2184-12-31T03:30:00Z", "2185-01-01T03:30:00Z"},
		{"far future", quota.Calendar{Period: quota.Day, Zone: amsterdam}, "2200-07-01T12:00:00Z", "2200-06-30T22:00:00Z", "2200-07-01T22:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := window(t, c.cal, at(t, c.at))
			if show(w.Start) != c.start || show(w.End) != c.ends {
				t.Fatalf("%s lies in [%s, %s), want [%s, %s)", c.at, show(w.Start), show(w.End), c.start, c.ends)
			}
		})
	}
}

func TestCalendarRefuses(t *testing.T) {
	for _, c := range []quota.Calendar{
		{}, {Period: 4}, {Period: quota.Day, ResetHour: 24}, {Period: quota.Day, ResetHour: -1},
		{Period: quota.Week, WeekStart: 8}, {Period: quota.Week, WeekStart: -1},
		{Period: quota.Month, MonthDay: 32}, {Period: quota.Month, MonthDay: -1},
		{Period: quota.Day, Zone: "Local"}, {Period: quota.Day, Zone: "Mars/Olympus"},
		{Period: quota.Day, Zone: "../etc/passwd"}, {Period: quota.Day, Zone: "/etc/localtime"},
		{Period: quota.Day, Zone: "Europe/Amsterdam\x00"}, {Period: quota.Day, Zone: string(make([]byte, 5000))},
	} {
		if err := c.Validate(); !errors.Is(err, quota.ErrInvalid) || len(err.Error()) > 400 {
			t.Errorf("%+.80v: %v", c, err)
		}
		if _, err := c.Window(0); !errors.Is(err, quota.ErrInvalid) {
			t.Errorf("%+.80v: %v", c, err)
		}
		if _, err := c.Roll(quota.Window{Start: 0, End: 1}, 1); !errors.Is(err, quota.ErrInvalid) {
			t.Errorf("%+.80v: %v", c, err)
		}
	}
	c := quota.Calendar{Period: quota.Day, Zone: "Europe/Amsterdam"}
	for _, moment := range []int64{math.MinInt64, math.MaxInt64, at(t, "0001-01-01T00:00:00Z") - 1} {
		if _, err := c.Window(moment); !errors.Is(err, quota.ErrInvalid) {
			t.Errorf("%d: %v", moment, err)
		}
		if _, err := c.End(moment); !errors.Is(err, quota.ErrInvalid) {
			t.Errorf("%d: %v", moment, err)
		}
	}
	window(t, c, at(t, "0001-01-01T00:00:00Z"))
	window(t, c, at(t, "9999-12-31T23:59:59Z"))
	for _, w := range []quota.Window{{}, {Start: 5, End: 5}, {Start: 5, End: 4}} {
		if _, err := c.Roll(w, 10); !errors.Is(err, quota.ErrInvalid) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	if _, err := c.Roll(quota.Window{Start: 0, End: math.MaxInt64}, math.MaxInt64); !errors.Is(err, quota.ErrInvalid) {
		t.Error(err)
	}
}

func TestPeriodText(t *testing.T) {
	for _, p := range []quota.Period{quota.Day, quota.Week, quota.Month} {
		text, err := p.MarshalText()
		if err != nil || string(text) != p.String() {
			t.Fatal(string(text), err)
		}
		var again quota.Period
		if err := again.UnmarshalText(text); err != nil || again != p {
			t.Fatal(again, err)
		}
	}
	for _, s := range []string{"", "Day", "year", "0s", "month "} {
		p := quota.Week
		if err := p.UnmarshalText([]byte(s)); !errors.Is(err, quota.ErrInvalid) || p != quota.Week {
			t.Errorf("%q: %v, %v", s, p, err)
		}
	}
	for _, p := range []quota.Period{0, 4} {
		if _, err := p.MarshalText(); !errors.Is(err, quota.ErrInvalid) {
			t.Error(err)
		}
	}
}

func roll(t rapid.TB, c quota.Calendar, prev quota.Window, now int64) quota.Window {
	t.Helper()
	w, err := c.Roll(prev, now)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestRoll(t *testing.T) {
	utc := quota.Calendar{Period: quota.Day}
	first := window(t, utc, at(t, "2026-05-01T12:00:00Z"))
	for _, now := range []int64{math.MinInt64, 0, first.Start - 1, first.Start, first.End - 1} {
		if w := roll(t, utc, first, now); w != first {
			t.Errorf("at %d: %+v", now, w)
		}
	}
	for _, now := range []string{"2026-05-02T00:00:00Z", "2026-05-03T12:00:00Z", "2126-05-03T12:00:00Z"} {
		if w := roll(t, utc, first, at(t, now)); w != window(t, utc, at(t, now)) {
			t.Errorf("at %s: [%s, %s)", now, show(w.Start), show(w.End))
		}
	}
}

// An edit of the zone acts at the next boundary, and no window is shorter than half a
// period.
func TestRollAfterAnEdit(t *testing.T) {
	may1 := window(t, quota.Calendar{Period: quota.Day}, at(t, "2026-05-01T12:00:00Z"))
	for _, c := range []struct{ zone, now, start, end string }{
		{"Asia/Tokyo", "2026-05-01T23:00:00Z", "2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z"},
		{"Asia/Tokyo", "2026-05-02T00:00:00Z", "2026-05-02T00:00:00Z", "2026-05-02T15:00:00Z"},
		{"Asia/Tokyo", "2026-05-02T15:00:00Z", "2026-05-02T15:00:00Z", "2026-05-03T15:00:00Z"},
		{"America/New_York", "2026-05-02T03:00:00Z", "2026-05-02T00:00:00Z", "2026-05-03T04:00:00Z"},
		{"America/New_York", "2026-05-02T04:30:00Z", "2026-05-02T00:00:00Z", "2026-05-03T04:00:00Z"},
		{"America/New_York", "2026-05-03T05:00:00Z", "2026-05-03T04:00:00Z", "2026-05-04T04:00:00Z"},
		{"Pacific/Kiritimati", "2126-05-03T00:00:00Z", "2126-05-02T10:00:00Z", "2126-05-03T10:00:00Z"},
	} {
		w := roll(t, quota.Calendar{Period: quota.Day, Zone: c.zone}, may1, at(t, c.now))
		if show(w.Start) != c.start || show(w.End) != c.end {
			t.Errorf("%s at %s: [%s, %s)", c.zone, c.now, show(w.Start), show(w.End))
		}
	}
	// The reset day of a month moves from the 1st to the 3rd: no window of two days.
	april := window(t, quota.Calendar{Period: quota.Month}, at(t, "2026-04-10T00:00:00Z"))
	w := roll(t, quota.Calendar{Period: quota.Month, MonthDay: 3}, april, at(t, "2026-05-02T00:00:00Z"))
	if show(w.Start) != "2026-05-01T00:00:00Z" || show(w.End) != "2026-06-03T00:00:00Z" {
		t.Errorf("[%s, %s)", show(w.Start), show(w.End))
	}
}

// Two processes whose zone databases disagree by an hour, in turn, neither overlap nor
// mint windows. (Two zones stand for the two databases.)
func TestRollWithTwoZoneDatabases(t *testing.T) {
	older := quota.Calendar{Period: quota.Day, Zone: "Africa/Lagos"}  // UTC+1
	newer := quota.Calendar{Period: quota.Day, Zone: "Africa/Harare"} // UTC+2
	w := window(t, older, at(t, "2026-01-01T12:00:00Z"))
	windows := 1
	const minutes = 100 * 24 * 60
	for i := range int64(minutes) {
		now := w.Start + i%7 // the clocks of the two are not the same
		now = at(t, "2026-01-01T12:00:00Z") + i*60_000_000 + now%7
		c := older
		if i%2 == 1 {
			c = newer
		}
		next := roll(t, c, w, now)
		if next == w {
			continue
		}
		if next.Start != w.End || !next.Contains(now) || next.End-next.Start < 12*3600e6 {
			t.Fatalf("[%s, %s) after [%s, %s)", show(next.Start), show(next.End), show(w.Start), show(w.End))
		}
		w = next
		windows++
	}
	if windows > 101 {
		t.Fatalf("%d windows in a hundred days", windows)
	}
}

// Q2, W2: who rolls twice, or late, gets the same window.
func TestRollIsIdempotent(t *testing.T) {
	c := quota.Calendar{Period: quota.Day, Zone: "Europe/Amsterdam"}
	w := window(t, c, at(t, "2026-03-28T12:00:00Z"))
	now := at(t, "2026-03-29T00:30:00Z")
	a := roll(t, c, w, now)
	for _, late := range []int64{now, now - 3600e6, now + 3600e6} {
		if b := roll(t, c, a, late); b != a {
			t.Fatalf("%+v, then %+v", a, b)
		}
	}
}

// No garbage on the hot path, in UTC or elsewhere.
func TestWindowsDoNotAllocate(t *testing.T) {
	now := at(t, "2026-03-29T12:00:00Z")
	for _, c := range []quota.Calendar{
		{Period: quota.Day}, {Period: quota.Week, Zone: "UTC"}, {Period: quota.Month, MonthDay: 31},
		{Period: quota.Day, Zone: "Europe/Amsterdam"}, {Period: quota.Month, Zone: "Pacific/Apia"},
	} {
		w := window(t, c, now)
		if n := testing.AllocsPerRun(100, func() {
			_, _ = c.Window(now)
			_, _ = c.Roll(w, w.End)
		}); n != 0 {
			t.Errorf("%+v: %v allocations", c, n)
		}
	}
}
