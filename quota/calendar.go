package quota

import (
	"errors"
	"fmt"
	"time"
)

// ErrInvalid reports a calendar, a time or an amount that makes no sense. Nothing
// changed.
var ErrInvalid = errors.New("quota: invalid")

// Calendar says where windows end. Fields left zero mean midnight UTC, weeks from
// Monday (ISO 8601) and months from the first.
type Calendar struct {
	Period    Period
	Zone      string // IANA name such as Europe/Amsterdam; empty is UTC
	WeekStart int    // 1 for Monday to 7 for Sunday, as in ISO 8601; zero is Monday
	ResetHour int    // 0 to 23, local time
	MonthDay  int    // 1 to 31, the last day where a month is shorter; zero is 1
}

// Validate refuses a calendar that cannot be computed. Errors: ErrInvalid.
func (c Calendar) Validate() error {
	_, err := c.zone()
	return err
}

// zone checks the calendar and returns its zone, nil for UTC.
func (c *Calendar) zone() (*time.Location, error) {
	switch {
	case !c.Period.valid():
		return nil, fmt.Errorf("%w: the period must be day, week or month", ErrInvalid)
	case c.WeekStart < 0 || c.WeekStart > 7:
		return nil, fmt.Errorf("%w: the week must start on 1 (Monday) to 7 (Sunday), not on %d", ErrInvalid, c.WeekStart)
	case c.ResetHour < 0 || c.ResetHour > 23:
		return nil, fmt.Errorf("%w: the reset hour must be 0 to 23, not %d", ErrInvalid, c.ResetHour)
	case c.MonthDay < 0 || c.MonthDay > 31:
		return nil, fmt.Errorf("%w: the day of the month must be 1 to 31, not %d", ErrInvalid, c.MonthDay)
	}
	return zone(c.Zone)
}

// Window is a half-open stretch of time, [Start, End).
//
// Units: microseconds since the Unix epoch.
type Window struct{ Start, End int64 }

// Contains reports whether the moment lies in the window.
func (w Window) Contains(micros int64) bool { return w.Start <= micros && micros < w.End }

// Moments outside these are refused: no store has such a clock.
const (
	minMoment = -62_135_596_800 * second // year 1
	maxMoment = 253_402_300_800 * second // year 10000
)

// End returns the first boundary after the moment. Errors: ErrInvalid.
func (c Calendar) End(afterMicros int64) (int64, error) {
	w, err := c.Window(afterMicros)
	return w.End, err
}

// Window returns the window that the moment lies in, by the calendar alone. It is for the
// first window of an account; every later one comes from Roll. Errors: ErrInvalid.
func (c Calendar) Window(atMicros int64) (Window, error) {
	loc, err := c.zone()
	if err != nil {
		return Window{}, err
	}
	if atMicros < minMoment || atMicros >= maxMoment {
		return Window{}, fmt.Errorf("%w: the moment %d µs is not between the years 1 and 9999", ErrInvalid, atMicros)
	}
	return c.window(atMicros, loc), nil
}

// Roll returns the window that the moment lies in, given the stored one: that one
// until its end, and then the one that starts where it ended, or a later one
// after more windows have passed unused. The result never starts before prev.End
// unless it is prev.
//
// Errors: ErrInvalid.
func (c Calendar) Roll(prev Window, nowMicros int64) (Window, error) {
	if prev.End <= prev.Start {
		return Window{}, fmt.Errorf("%w: the window from %d to %d µs is empty", ErrInvalid, prev.Start, prev.End)
	}
	if nowMicros < prev.End {
		return prev, nil
	}
	// Where prev.End is one of this calendar's boundaries, the next is the first
	// that is half a period away or more. Otherwise a nearer one would be a stub.
	end, err := c.End(prev.End + c.Period.half() - 1)
	if err != nil {
		return Window{}, err
	}
	if nowMicros < end {
		return Window{Start: prev.End, End: end}, nil
	}
	return c.Window(nowMicros)
}

// window finds the last boundary up to the moment and the first one after it.
func (c *Calendar) window(at int64, loc *time.Location) Window {
	local := at
	if loc != nil {
		_, offset := time.UnixMicro(at).In(loc).Zone()
		local += int64(offset) * second
	}
	n := c.number(local) // right, or one off where the zone changed in between
	w := Window{Start: c.boundary(n, loc)}
	for w.Start > at {
		n--
		w.Start = c.boundary(n, loc)
	}
	for {
		n++
		if w.End = c.boundary(n, loc); w.End > at {
			return w
		}
		w.Start = w.End
	}
}

// number counts the periods up to a local time, as if the zone were UTC.
func (c *Calendar) number(local int64) int64 {
	local -= int64(c.ResetHour) * hour
	switch c.Period {
	case Day:
		return floorDiv(local, day)
	case Week:
		return floorDiv(floorDiv(local, day)+3-c.weekShift(), 7) // 1 January 1970 was a Thursday
	}
	t := time.UnixMicro(local).UTC()
	return int64(t.Year())*12 + int64(t.Month()) - 1
}

func (c *Calendar) weekShift() int64 { return int64(max(c.WeekStart, 1) - 1) }

// date is the day on which period n starts, in days since the epoch.
func (c *Calendar) date(n int64) int64 {
	switch c.Period {
	case Day:
		return n
	case Week:
		return n*7 - 3 + c.weekShift()
	}
	year := floorDiv(n, 12)
	month := time.Month(n - year*12 + 1)
	date := time.Date(int(year), month, max(c.MonthDay, 1), 0, 0, 0, 0, time.UTC)
	if date.Month() != month {
		date = time.Date(int(year), month+1, 0, 0, 0, 0, 0, time.UTC) // the month's last day
	}
	return floorDiv(date.Unix(), 24*3600)
}

// boundary is the start of period n.
func (c *Calendar) boundary(n int64, loc *time.Location) int64 {
	date := c.date(n)
	nominal := date*day + int64(c.ResetHour)*hour
	if loc == nil {
		return nominal
	}
	at, local := reach(nominal, loc)
	if c.Period == Day && local >= (date+1)*day {
		// The date was over at once. If it never was, the next one's boundary is its own.
		if _, local := reach(date*day, loc); local >= (date+1)*day {
			return c.boundary(n+1, loc)
		}
	}
	return at
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && a < 0 {
		q--
	}
	return q
}
