package quota

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// zones holds the zones that were used, by name. It is replaced, never changed, so
// that a look-up neither locks nor allocates. There are as many names as the zone
// database has.
var (
	zones    atomic.Pointer[map[string]*time.Location]
	addZones sync.Mutex
)

// zone returns an IANA zone, nil for UTC.
func zone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return nil, nil
	}
	if known := zones.Load(); known != nil {
		if loc, ok := (*known)[name]; ok {
			return loc, nil
		}
	}
	if name == "Local" { // another zone on every machine
		return nil, fmt.Errorf("%w: the zone must be an IANA name such as Europe/Amsterdam, not Local", ErrInvalid)
	}
	if len(name) > 64 {
		return nil, fmt.Errorf("%w: the zone's name of %d bytes is too long for an IANA name", ErrInvalid, len(name))
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%w: the zone %q is not in the zone database here; it must be an IANA name such as Europe/Amsterdam (a machine without a database needs time/tzdata in the program)", ErrInvalid, name)
	}
	addZones.Lock()
	defer addZones.Unlock()
	more := map[string]*time.Location{name: loc}
	if known := zones.Load(); known != nil {
		for n, l := range *known {
			more[n] = l
		}
	}
	zones.Store(&more)
	return loc, nil
}

// reach returns the first moment at which the local clock shows the nominal time or a
// later one, and what it shows then. In an overlap that is the first of two, in a gap
// the moment of the change. No zone is a whole day off, so the search starts there.
func reach(nominal int64, loc *time.Location) (at, local int64) {
	t := time.UnixMicro(nominal - day).In(loc)
	for {
		_, offset := t.Zone()
		ahead := int64(offset) * second
		_, change := t.ZoneBounds()
		if !change.IsZero() && !change.After(t) {
			// On 31 December of leap years beyond the zone's table ZoneBounds
			// states an end that is over. Nothing changes within this hour.
			change = t.Add(time.Hour)
		}
		at = max(t.UnixMicro(), nominal-ahead)
		if change.IsZero() || at < change.UnixMicro() {
			return at, at + ahead
		}
		t = change
	}
}
