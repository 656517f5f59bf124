package report

// System is what one gateway is among others: who it is, whether it coordinates, what it manages, and what is
// its own and what all share.
type System struct {
	// Instance is minted for each process.
	Instance string `json:"instance"`
	// HoldsAs is this process as leases name it: by it a holder is matched to an instance.
	HoldsAs string `json:"holds_as,omitempty"`
	Profile string `json:"profile"`
	// CoordinatesWithPeers: the configuration says so, and the storage is one that they can share.
	CoordinatesWithPeers bool `json:"coordinates_with_peers"`
	// StorageIsShareable: gateways on other machines can use the same.
	StorageIsShareable bool `json:"storage_is_shareable"`
	// ManagesFleet: it holds the right to, at this moment.
	ManagesFleet bool `json:"manages_fleet"`

	Leases  []LeaseState `json:"leases"`
	Log     *LogState    `json:"log"` // null where there is none
	Limits  Scope        `json:"limits"`
	History History      `json:"history"`
	// Local is what this gateway has for itself, and its peers do not see. Shared is what they have together.
	Local  []string `json:"local"`
	Shared []string `json:"shared"`
}

// LeaseState is how this gateway stands with the right to do something.
type LeaseState struct {
	Name       string `json:"name"`
	State      string `json:"state"` // holding, standby, stopping, closed
	Holder     string `json:"holder,omitempty"`
	Generation int64  `json:"generation"`
	// TenureMS is what this gateway asks for, TenureInForceMS the holder's: how long nobody manages after it
	// has died. Longer says that the second is materially longer: configurations have drifted apart.
	TenureMS        int64  `json:"tenure_ms"`
	TenureInForceMS int64  `json:"tenure_in_force_ms"`
	Longer          bool   `json:"longer"`
	Failures        int    `json:"failures"` // calls in a row that were no answer
	Error           string `json:"error,omitempty"`
}

// LogState is how this gateway follows what the others do.
type LogState struct {
	TailMS int64 `json:"tail_ms"` // how often it looks
	// AgeMS is how long ago it had dealt with all that was there. Above StaleMS nothing is served and the gateway is not ready: what was
	// suspended meanwhile is not known here.
	AgeMS   int64 `json:"age_ms"`
	StaleMS int64 `json:"stale_ms"`
	// HeldBy is the reader that kept events older than coordination.keep, when this gateway last removed old ones, which only who
	// manages does. If it is gone for good, drop its checkpoints: `gateway events drop`.
	HeldBy        string         `json:"held_by,omitempty"`
	Subscriptions []Subscription `json:"subscriptions"`
	Error         string         `json:"error,omitempty"` // why it looks no more
	// CallsLost counts attempts whose event could not be appended, as when the database was away for long.
	CallsLost int64 `json:"calls_lost"`
}

// Subscription is one reader of the log.
type Subscription struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`   // projection or effect
	Behind  int64  `json:"behind"` // positions, an upper bound of the events to come
	Handled int64  `json:"handled"`
	// Aside were set aside: events of newer gateways, and what could not be exported yet.
	Aside   int64  `json:"aside"`
	Adopted int64  `json:"adopted"` // of dead gateways
	Error   string `json:"error,omitempty"`
}

// Scope says what a limit counts.
type Scope struct {
	Rates   string `json:"rates"` // this gateway's calls, or those of all
	Quotas  string `json:"quotas"`
	Budgets string `json:"budgets"`
}

// The scopes.
const (
	OfInstance = "instance" // this gateway alone: replicas multiply it
	OfFleet    = "fleet"    // all gateways of the database, or of the authority, together
)

// History says whether the database was seen to go back in time: what is refused then is not admitted.
type History struct {
	Regressed bool     `json:"regressed"`
	Leases    []string `json:"leases,omitempty"` // that show less
	Log       bool     `json:"log,omitempty"`    // the event log shows less
	Why       string   `json:"why,omitempty"`
}
