package report

import (
	"time"

	"github.com/tallystick-go/tallystick/journal"
)

// Journal is what a gateway of the profile node keeps of what it was granted.
type Journal struct {
	Boot       string `json:"boot"`
	BootNumber int64  `json:"boot_number"`
	// Poison is the overrun that an operator has not released yet; null: there is none.
	Poison   *Poison          `json:"poison"`
	Untold   int              `json:"untold"` // grants and meters that the authority has not heard all of
	Accounts []JournalAccount `json:"accounts"`
}

// Poison is an attempt that used more than was reserved for it.
type Poison struct {
	Permit string `json:"permit"`
	Used   int64  `json:"used_microusd"`
	Bound  int64  `json:"bound_microusd"`
}

// JournalAccount is what a node holds of one budget in one window.
type JournalAccount struct {
	Budget
	Meter     bool  `json:"meter"`            // of a soft budget
	Open      int64 `json:"granted_microusd"` // of grants that can be spent from, or could until they ended
	Free      int64 `json:"free_microusd"`
	Asked     int64 `json:"asked_microusd"`
	Reserved  int64 `json:"reserved_microusd"`
	Consumed  int64 `json:"consumed_microusd"`
	Uncertain int64 `json:"uncertain_microusd"`
	Observed  int64 `json:"observed_microusd"`
}

// JournalOf writes how a journal stands.
func JournalOf(s *journal.Status) Journal {
	out := Journal{Boot: s.Boot.String(), BootNumber: s.Number, Untold: s.Untold, Accounts: []JournalAccount{}}
	if p := s.Poison; p != (journal.Poison{}) {
		out.Poison = &Poison{Permit: p.Reservation.String(), Used: int64(p.Used), Bound: int64(p.Bound)}
	}
	for i := range s.Accounts {
		a := &s.Accounts[i]
		out.Accounts = append(out.Accounts, JournalAccount{
			Budget: BudgetOf(a.Account), Meter: a.Meter, Open: int64(a.Open), Free: int64(a.Free), Asked: int64(a.Asked),
			Reserved: int64(a.Reserved), Consumed: int64(a.Consumed), Uncertain: int64(a.Uncertain), Observed: int64(a.Observed),
		})
	}
	return out
}

// JournalRelease says what became of a release.
type JournalRelease struct {
	Released bool `json:"released"` // false: nothing was poisoned
}

// NodeStatus is how a gateway of the profile node stands with its authority.
type NodeStatus struct {
	Name       string     `json:"name"`
	Boot       string     `json:"boot"`
	BootNumber int64      `json:"boot_number"`
	Synced     bool       `json:"synced"`         // this opening was answered, and is not fenced
	LastSync   *time.Time `json:"last_synced_at"` // null: never
	Failures   int        `json:"failures"`       // heartbeats since then that were not answered
	EveryMS    int64      `json:"every_ms"`       // between two heartbeats
	Why        string     `json:"why,omitempty"`  // the last failure
}
