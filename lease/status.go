package lease

import (
	"errors"
	"time"
)

// State says where a keeper stands with a name.
type State int

// The states.
const (
	Standby  State = iota + 1 // another holds it, or nobody was reached who could say
	Holding                   // this process does
	Stopping                  // this process did, and work of that tenure has not returned yet
	Closed                    // the keeper was closed
)

var stateTexts = [...]string{Standby: "standby", Holding: "holding", Stopping: "stopping", Closed: "closed"}

func (s State) String() string {
	if s < Standby || int(s) >= len(stateTexts) {
		return "no state"
	}
	return stateTexts[s]
}

// Status says how a keeper fares with one name.
type Status struct {
	Name  string
	State State
	// Held is the lease, while State is Holding.
	Held Lease
	// Trust is how long that is believed without another renewal.
	Trust time.Duration
	// TenureOwn is the TTL that this process asks for, TenureInForce the holder's: how long all wait when the
	// holder dies. Zero where none was seen. Longer says that it is materially longer, by more than half.
	TenureOwn, TenureInForce time.Duration
	Longer                   bool
	// Other is another's tenure as the store showed it last, on the store's clock, and OtherAge how long ago.
	// Its Generation is 0 where none was seen.
	Other    Row
	OtherAge time.Duration
	// Working counts cycles of Do that run.
	Working int
	// Failures counts calls in a row that were no answer, and Err is the last one's; or why a tenure ended.
	Failures int
	Err      error
	// Regressed says that the store shows less than this process has seen. See HistoryError.
	Regressed bool
}

// Status tells of every name, in the order in which they were given to NewKeeper.
func (k *Keeper) Status() []Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.options.Clock()
	out := make([]Status, 0, len(k.order))
	for _, s := range k.order {
		st := Status{
			Name: s.name, State: Standby, TenureOwn: s.ttl, TenureInForce: s.inForce(), Longer: s.drifts(),
			Working: s.work, Failures: s.failures, Err: s.err, Regressed: errors.Is(s.err, ErrHistoryRegressed),
		}
		if s.shown.Generation > 0 {
			st.Other, st.OtherAge = s.shown, now-s.shownAt
		}
		switch {
		case k.leaving.Err() != nil:
			st.State = Closed
		case s.holds(now):
			st.State, st.Held, st.Trust = Holding, s.held, s.trust-now
		case s.work > 0:
			st.State = Stopping
		}
		out = append(out, st)
	}
	return out
}
