package quota_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/quota"
)

var zoneNames = []string{
	"", "UTC", "Europe/Amsterdam", "Europe/Dublin", "Europe/London", "Europe/Moscow", "Europe/Istanbul",
	"America/New_York", "America/St_Johns", "America/Sao_Paulo", "America/Havana", "America/Asuncion", "America/Caracas", "America/Nuuk",
	"Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "Africa/Juba", "Asia/Tokyo", "Asia/Kathmandu", "Asia/Kolkata",
	"Asia/Beirut", "Asia/Gaza", "Asia/Tehran", "Asia/Pyongyang", "Asia/Manila", "Australia/Lord_Howe", "Australia/Eucla",
	"Pacific/Apia", "Pacific/Kiritimati", "Pacific/Kanton", "Pacific/Kwajalein", "Pacific/Fakaofo", "Pacific/Chatham", "Pacific/Marquesas",
	"Antarctica/Casey", "Antarctica/Troll", "Asia/Srednekolymsk", "America/Juneau", "Asia/Anadyr",
}

func genCalendar(t *rapid.T) quota.Calendar {
	return quota.Calendar{
		Period:    rapid.SampledFrom([]quota.Period{quota.Day, quota.Week, quota.Month}).Draw(t, "period"),
		Zone:      rapid.SampledFrom(zoneNames).Draw(t, "zone"),
		WeekStart: rapid.IntRange(0, 7).Draw(t, "week start"),
		ResetHour: rapid.SampledFrom([]int{0, 0, 1, 2, 3, 12, 22, 23}).Draw(t, "reset hour"),
		MonthDay:  rapid.SampledFrom([]int{0, 1, 15, 28, 29, 30, 31}).Draw(t, "month day"),
	}
}

var (
	firstMoment = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	lastMoment  = time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
)

// genMoment prefers moments near a change of the zone.
func genMoment(t *rapid.T, c quota.Calendar) int64 {
	moment := rapid.Int64Range(firstMoment, lastMoment).Draw(t, "moment")
	if c.Zone != "" && rapid.Bool().Draw(t, "near a change") {
		loc, err := time.LoadLocation(c.Zone)
		if err != nil {
			t.Fatal(err)
		}
		if _, change := time.UnixMicro(moment).In(loc).ZoneBounds(); !change.IsZero() {
			moment = change.UnixMicro() + rapid.Int64Range(-2*24*3600e6, 2*24*3600e6).Draw(t, "from the change")
		}
	}
	return moment
}

// shortest and longest windows: a month's 28 and 31 days, and what zones do to a day.
func lengthFits(p quota.Period, w quota.Window) bool {
	const hour = int64(3600e6)
	least, most := map[quota.Period]int64{quota.Day: 20, quota.Week: 6*24 - 3, quota.Month: 27*24 - 3}[p], map[quota.Period]int64{quota.Day: 28, quota.Week: 7*24 + 4, quota.Month: 31*24 + 4}[p]
	n := w.End - w.Start
	return least*hour <= n && n <= most*hour
}

// Windows hold their moment and tile time, in every zone.
func TestPropertyWindowsTile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genCalendar(t)
		moment := genMoment(t, c)
		w := window(t, c, moment)
		if !w.Contains(moment) {
			t.Fatalf("%s is not in [%s, %s)", show(moment), show(w.Start), show(w.End))
		}
		if !lengthFits(c.Period, w) {
			t.Fatalf("[%s, %s) is %v long", show(w.Start), show(w.End), time.Duration(w.End-w.Start)*time.Microsecond)
		}
		if inside := rapid.Int64Range(w.Start, w.End-1).Draw(t, "inside"); window(t, c, inside) != w {
			t.Fatalf("%s is in another window", show(inside))
		}
		if next := window(t, c, w.End); next.Start != w.End {
			t.Fatalf("after [.., %s) comes [%s, ..)", show(w.End), show(next.Start))
		}
		if before := window(t, c, w.Start-1); before.End != w.Start {
			t.Fatalf("before [%s, ..) comes [.., %s)", show(w.Start), show(before.End))
		}
		if end, err := c.End(w.End - 1); err != nil || end != w.End {
			t.Fatal(end, err)
		}
	})
}

// Rolling an unchanged calendar is computing the window, however long it was idle.
func TestPropertyRollIsWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genCalendar(t)
		prev := window(t, c, genMoment(t, c))
		now := max(genMoment(t, c), prev.End)
		if got, want := roll(t, c, prev, now), window(t, c, now); got != want {
			t.Fatalf("rolled to [%s, %s), computed [%s, %s)", show(got.Start), show(got.End), show(want.Start), show(want.End))
		}
	})
}

// Whatever is edited between rolls, windows never overlap, hold the moment, and are
// longer than half a period: no edit mints an allowance.
func TestPropertyEditsMintNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genCalendar(t)
		now := genMoment(t, c)
		w := window(t, c, now)
		for range rapid.IntRange(1, 12).Draw(t, "edits") {
			edited := genCalendar(t)
			edited.Period = c.Period
			now += rapid.Int64Range(-3600e6, 40*24*3600e6).Draw(t, "later")
			next := roll(t, edited, w, now)
			if now < w.End {
				if next != w {
					t.Fatal("an edit ended a window early")
				}
				continue
			}
			if next.Start < w.End || !next.Contains(now) {
				t.Fatalf("[%s, %s) at %s after [.., %s)", show(next.Start), show(next.End), show(now), show(w.End))
			}
			half := map[quota.Period]int64{quota.Day: 12, quota.Week: 84, quota.Month: 14 * 24}[c.Period] * 3600e6
			if n := next.End - next.Start; n < half || n > 4*half {
				t.Fatalf("a window of %v", time.Duration(n)*time.Microsecond)
			}
			w = next
		}
	})
}

// The naive model reads the local clock every three quarters of an hour and notes
// when the date that the window belongs to changes for good. It computes no boundaries.
func TestWindowsAreTheModel(t *testing.T) {
	spans := [][2]int{{1970, 1973}, {1985, 1996}, {2010, 2013}, {2024, 2028}, {2198, 2200}}
	if testing.Short() {
		spans = spans[1:2]
	}
	for _, name := range []string{"Europe/Amsterdam", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kiritimati", "Pacific/Kwajalein", "America/Havana", "Asia/Kathmandu", "Africa/Monrovia"} {
		for _, reset := range []int{0, 2, 12} {
			for _, span := range spans {
				compareWithClock(t, quota.Calendar{Period: quota.Day, Zone: name, ResetHour: reset}, span[0], span[1])
			}
		}
	}
}

func compareWithClock(t *testing.T, c quota.Calendar, from, to int) {
	t.Helper()
	loc, err := time.LoadLocation(c.Zone)
	if err != nil {
		t.Fatal(err)
	}
	var (
		start, end   = time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(to, 1, 1, 0, 0, 0, 0, time.UTC)
		today, older int // dates as yyyymmdd
		label        int // the date that the window belongs to
		w            quota.Window
	)
	for now := start.Add(-72 * time.Hour); now.Before(end); now = now.Add(44*time.Minute + 59*time.Second) {
		local := now.In(loc)
		y, m, d := local.Date()
		if date := y*10000 + int(m)*100 + d; date > today {
			older, today = today, date
		} else if date < today {
			continue // the clock went back across midnight: the date has begun already
		}
		belongs := today
		if local.Hour() < c.ResetHour {
			belongs = older
		}
		changed := belongs > label
		label = max(label, belongs)
		got := window(t, c, now.UnixMicro())
		if now.After(start) && changed != (got != w) {
			t.Fatalf("%+v: at %s the window is [%s, %s) after [%s, %s), and that the date changed is %v", c, local, show(got.Start), show(got.End), show(w.Start), show(w.End), changed)
		}
		w = got
	}
}
