package quota

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrInvalid reports a calendar or an amount that makes no sense. Nothing changed.
var ErrInvalid = errors.New("quota: invalid")

// Period is the length of a window. The numbers are part of stored identities.
type Period uint8

// The periods.
const (
	Day Period = iota + 1
	Week
	Month
)

var periodNames = [...]string{Day: "day", Week: "week", Month: "month"}

func (p Period) String() string {
	if p >= Day && p <= Month {
		return periodNames[p]
	}
	return fmt.Sprintf("period(%d)", uint8(p))
}

// MarshalText writes "day", "week" or "month".
func (p Period) MarshalText() ([]byte, error) {
	if p < Day || p > Month {
		return nil, fmt.Errorf("%w: period %d", ErrInvalid, uint8(p))
	}
	return []byte(periodNames[p]), nil
}

// UnmarshalText reads "day", "week" or "month". Errors: ErrInvalid.
func (p *Period) UnmarshalText(text []byte) error {
	for i := Day; i <= Month; i++ {
		if periodNames[i] == string(text) {
			*p = i
			return nil
		}
	}
	return fmt.Errorf(`%w: the period must be "day", "week" or "month"`, ErrInvalid)
}

// Calendar says where windows end. The zero fields are midnight UTC, weeks from
// Monday (ISO 8601), months from the first.
type Calendar struct {
	Period    Period
	Zone      string // IANA name; empty is UTC
	WeekStart int    // 1 Monday to 7 Sunday; zero is Monday
	ResetHour int    // 0 to 23, local
	MonthDay  int    // 1 to 31, the last day where a month is shorter; zero is 1
}

// Validate refuses a calendar that cannot be computed. Errors: ErrInvalid.
func (c Calendar) Validate() error {
	switch {
	case c.Period < Day || c.Period > Month:
		return fmt.Errorf("%w: the period must be day, week or month", ErrInvalid)
	case c.WeekStart < 0 || c.WeekStart > 7:
		return fmt.Errorf("%w: the week must start on 1 (Monday) to 7 (Sunday)", ErrInvalid)
	case c.ResetHour < 0 || c.ResetHour > 23:
		return fmt.Errorf("%w: the reset hour must be 0 to 23", ErrInvalid)
	case c.MonthDay < 0 || c.MonthDay > 31:
		return fmt.Errorf("%w: the day of the month must be 1 to 31", ErrInvalid)
	}
	_, err := zone(c.Zone)
	return err
}

// Window is a half-open stretch of time, [Start, End).
//
// Units: microseconds since the Unix epoch.
type Window struct{ Start, End int64 }

// Contains reports whether the instant lies in the window.
func (w Window) Contains(micros int64) bool { return w.Start <= micros && micros < w.End }

// Instants outside these are refused: no store has such a clock.
const (
	minInstant = -62_135_596_800_000_000 // year 1
	maxInstant = 253_402_300_800_000_000 // year 10000
)

// End returns the first boundary after the instant. Errors: ErrInvalid.
func (c Calendar) End(afterMicros int64) (int64, error) {
	w, err := c.Window(afterMicros)
	return w.End, err
}

// Window returns the window around the instant. Errors: ErrInvalid.
func (c Calendar) Window(atMicros int64) (Window, error) {
	if atMicros < minInstant || atMicros >= maxInstant {
		return Window{}, fmt.Errorf("%w: the instant is not between the years 1 and 9999", ErrInvalid)
	}
	if c.Zone == "" || c.Zone == "UTC" {
		if err := c.Validate(); err != nil {
			return Window{}, err
		}
		return c.window(atMicros, nil), nil
	}
	if err := c.Validate(); err != nil {
		return Window{}, err
	}
	loc, err := zone(c.Zone)
	if err != nil {
		return Window{}, err
	}
	return c.window(atMicros, loc), nil
}

// chain is how many windows Roll follows one by one.
const chain = 64

// Roll returns the window that the instant lies in, given the last known one. It
// starts where that one ended, or, after many windows without use, where a later
// one did: never before prev.End.
//
// Errors: ErrInvalid.
func (c Calendar) Roll(prev Window, nowMicros int64) (Window, error) {
	if nowMicros < prev.End {
		return prev, nil
	}
	w := Window{Start: prev.End}
	for range chain {
		end, err := c.End(w.Start)
		if err != nil {
			return Window{}, err
		}
		if nowMicros < end {
			w.End = end
			return w, nil
		}
		w.Start = end
	}
	last, err := c.Window(nowMicros)
	if err != nil {
		return Window{}, err
	}
	return Window{Start: max(last.Start, w.Start), End: last.End}, nil
}

const (
	second = int64(time.Second / time.Microsecond)
	day    = 24 * 3600 * second
)

// window finds the last boundary up to the instant and the first one after it.
// loc is nil for UTC, where all is arithmetic.
func (c Calendar) window(at int64, loc *time.Location) Window {
	local := at
	if loc != nil {
		_, offset := time.UnixMicro(at).In(loc).Zone()
		local += int64(offset) * second
	}
	// Local dates jump by at most a day at a change of zone, so the boundary up to
	// the instant is among the two periods before the local one.
	n := c.number(local) - 2
	w := Window{Start: c.boundary(n, loc)}
	for {
		n++
		w.End = c.boundary(n, loc)
		if w.End > at {
			return w
		}
		w.Start = w.End
	}
}

// number counts the periods up to a local time, as if the zone were UTC.
func (c Calendar) number(local int64) int64 {
	local -= int64(c.ResetHour) * 3600 * second
	switch c.Period {
	case Day:
		return floorDiv(local, day)
	case Week:
		return floorDiv(floorDiv(local, day)+3-c.weekShift(), 7) // 1 January 1970 was a Thursday
	}
	t := time.UnixMicro(local).UTC()
	return int64(t.Year())*12 + int64(t.Month()) - 1
}

func (c Calendar) weekShift() int64 { return int64(max(c.WeekStart, 1) - 1) }

// nominal is the local time at which period n starts, as if the zone were UTC.
func (c Calendar) nominal(n int64) int64 {
	reset := int64(c.ResetHour) * 3600 * second
	switch c.Period {
	case Day:
		return n*day + reset
	case Week:
		return (n*7-3+c.weekShift())*day + reset
	}
	year, month := int(floorDiv(n, 12)), time.Month(n-floorDiv(n, 12)*12+1)
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return time.Date(year, month, min(max(c.MonthDay, 1), last), 0, 0, 0, 0, time.UTC).UnixMicro() + reset
}

// boundary is the first instant at which the local clock shows the nominal time or
// a later one: in a gap the moment of the change, in an overlap the first of two.
func (c Calendar) boundary(n int64, loc *time.Location) int64 {
	nominal := c.nominal(n)
	if loc == nil {
		return nominal
	}
	t := time.UnixMicro(nominal - 2*day).In(loc)
	for {
		_, offset := t.Zone()
		_, change := t.ZoneBounds()
		candidate := max(t.UnixMicro(), nominal-int64(offset)*second)
		if change.IsZero() || candidate < change.UnixMicro() {
			return candidate
		}
		t = change
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && a < 0 {
		q--
	}
	return q
}

var zones sync.Map // name -> *time.Location

// zone loads an IANA zone once.
func zone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	if name == "Local" || len(name) > 64 {
		return nil, fmt.Errorf("%w: the zone must be an IANA name such as Europe/Amsterdam", ErrInvalid)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%w: the zone %q is not known here; it must be an IANA name such as Europe/Amsterdam", ErrInvalid, name)
	}
	zones.Store(name, loc)
	return loc, nil
}
