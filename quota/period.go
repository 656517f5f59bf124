package quota

import "fmt"

// Period is the length of a window. The numbers are part of stored identities.
type Period uint8

// The periods.
const (
	Day Period = iota + 1
	Week
	Month
)

var periodNames = [...]string{Day: "day", Week: "week", Month: "month"}

func (p Period) valid() bool { return p >= Day && p <= Month }

func (p Period) String() string {
	if p.valid() {
		return periodNames[p]
	}
	return fmt.Sprintf("period(%d)", uint8(p))
}

// MarshalText writes "day", "week" or "month". Errors: ErrInvalid.
func (p Period) MarshalText() ([]byte, error) {
	if !p.valid() {
		return nil, fmt.Errorf("%w: period %d is none of day, week and month", ErrInvalid, uint8(p))
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

const (
	second = int64(1_000_000)
	hour   = 3600 * second
	day    = 24 * hour
)

// half is half of the shortest window of the period, in microseconds. All windows of
// one calendar are longer, whatever the zone does.
func (p Period) half() int64 {
	switch p {
	case Week:
		return 7 * day / 2
	case Month:
		return 14 * day
	default:
		return day / 2
	}
}
