package governance

import (
	"encoding/json"
	"fmt"

	"github.com/tallystick-go/tallystick/governance/policy"
)

// Event is something that a step made true, told in the transaction that made it so: see
// Changes.Events. It holds nothing secret, and no event is larger than MaxEventData. The stores on Postgres and SQLite append it to the event
// log that their Options.Events names, under this ID, Stream, Type, Schema and Data; json.Unmarshal reads Data. A store without a log tells nobody.
//
// Source: ADR-020 "Events of what is governed".
type Event struct {
	ID     string // unique for ever; what happened once has one id, whoever tells of it
	Stream string // "account/" and a ConstraintID, "permit/" and a PermitID, or "note/" and an id of its own
	Type   string // one of the constants below
	Schema int    // version of the data's shape; later ones may add fields
	Data   []byte // JSON: ThresholdEvent, HoldEvent or NoteEvent
}

// The types of events.
const (
	// EventThreshold: a budget reached one of its thresholds for the first time in a window. A ThresholdEvent. Thresholds are those
	// of policies, the budget's own tiers and the routing rules' on it; limits of teams and keys have none. For a hard
	// cap what is reserved or granted counts too, so that a large call may reach one, and leave less behind when it settles.
	EventThreshold = "budget.threshold"
	// EventHoldOpened: a permit or grant ended and holds what is uncertain, until an operator resolves it. A HoldEvent.
	EventHoldOpened = "hold.opened"
	// EventHoldResolved: an operator said what a permit or grant had used, or a node's late report did. A HoldEvent.
	EventHoldResolved = "hold.resolved"
	// EventOverrun: more was used than had been reserved or granted. A HoldEvent.
	EventOverrun = "permit.overrun"
	// EventNote: a Note was written. A NoteEvent.
	EventNote = "operator.note"
)

// MaxEventData bounds the data of one event, in bytes: far below what any log refuses.
const MaxEventData = 64 << 10

const eventSchema = 1

// ThresholdEvent is a threshold that was reached, and the account as that commit left it.
//
// Units: money is microUSD. Time: µs since the Unix epoch, the store's clock.
type ThresholdEvent struct {
	Constraint ConstraintID `json:"constraint"`
	Label
	WindowStart int64          `json:"window_start_us"`
	WindowEnd   int64          `json:"window_end_us"`
	Threshold   policy.Percent `json:"threshold_percent"`
	Limit       int64          `json:"limit_microusd"` // the one in force
	Hard        bool           `json:"hard"`
	Consumed    int64          `json:"consumed_microusd"`
	Uncertain   int64          `json:"uncertain_microusd"`
	Reserved    int64          `json:"reserved_microusd"`
	Granted     int64          `json:"granted_microusd"`
	At          int64          `json:"at_us"`
}

// HoldEvent is a permit or grant as it stands after a change.
//
// Units: tokens, and microUSD. Time: µs since the Unix epoch, the store's clock.
type HoldEvent struct {
	Permit     PermitID   `json:"permit"`
	State      State      `json:"state"`
	Flags      []string   `json:"flags"` // "tokens_uncertain", "cost_uncertain", "overrun", "invalid"
	Key        string     `json:"key,omitempty"`
	Team       string     `json:"team,omitempty"`
	User       string     `json:"user,omitempty"`
	Model      string     `json:"model,omitempty"`
	Node       string     `json:"node,omitempty"` // of a grant
	Tokens     HeldAmount `json:"tokens"`
	Cost       HeldAmount `json:"cost_microusd"`
	AdmittedAt int64      `json:"admitted_at_us"`
	At         int64      `json:"at_us"`
}

// HeldAmount is what a permit does to an account, be there one or not.
type HeldAmount struct {
	Bound     int64 `json:"bound"` // reserved or granted
	Consumed  int64 `json:"consumed"`
	Uncertain int64 `json:"uncertain"` // held until it is resolved
	Observed  int64 `json:"observed"`  // what was seen of it; never charged by itself
}

// NoteEvent is a Note. Permit and Constraint are absent where it is about neither.
type NoteEvent struct {
	At          int64           `json:"at_us"`
	Actor       string          `json:"actor"`
	Action      string          `json:"action"`
	Reason      string          `json:"reason"`
	Permit      PermitID        `json:"permit,omitzero"`
	Constraint  ConstraintID    `json:"constraint,omitzero"`
	WindowStart int64           `json:"window_start_us,omitempty"`
	Before      json.RawMessage `json:"before,omitempty"`
	After       json.RawMessage `json:"after,omitempty"`
}

// tell adds an event to what the step writes.
func (s *sheet) tell(kind, stream, id string, data any) {
	text, err := json.Marshal(data)
	if err != nil || len(text) > MaxEventData {
		panic(fmt.Sprintf("governance: %s of %s cannot be told: %d bytes, %v", kind, stream, len(text), err))
	}
	s.events = append(s.events, Event{ID: kind + "/" + id, Stream: stream, Type: kind, Schema: eventSchema, Data: text})
}

// crossed tells of every threshold between the latch that was loaded and the one that is
// written. Both are of one row, and that is locked: nobody else tells of the same.
func (s *sheet) crossed(c *cell) {
	for _, t := range c.limit.thresholds {
		if t <= c.latched || t > c.Latch {
			continue
		}
		a := &c.Account
		s.tell(EventThreshold, "account/"+c.Key.Constraint.String(), fmt.Sprintf("%s/%d/%d", c.Key.Constraint, c.Key.WindowStart, t), ThresholdEvent{
			Constraint: c.Key.Constraint, Label: c.limit.label(), WindowStart: c.Key.WindowStart, WindowEnd: c.End,
			Threshold: t, Limit: c.limit.Limit, Hard: !c.limit.Soft,
			Consumed: a.Consumed, Uncertain: a.Uncertain, Reserved: a.Reserved, Granted: a.Granted, At: s.now,
		})
	}
}

// holding reports that a permit has ended and an operator has to look at it.
func (rec *Record) holding() bool { return rec.State != 0 && rec.State != StateOpen && !rec.final() }

// turned tells what a permit's change means to an operator. The id has the version that is about
// to be stored: a grant may be overrun more than once.
func (s *sheet) turned(before, after *Record, t *terms) {
	tell := func(kind string) {
		id := after.ID.String()
		s.tell(kind, "permit/"+id, fmt.Sprintf("%s/%d", id, before.Version+1), after.told(t, s.now))
	}
	if after.Flags&^before.Flags&FlagOverrun != 0 {
		tell(EventOverrun)
	}
	switch {
	case after.holding() && !before.holding():
		tell(EventHoldOpened)
	case before.holding() && !after.holding(), after.State == StateResolved && before.State != StateResolved:
		tell(EventHoldResolved)
	}
}

func (rec *Record) told(t *terms, now int64) HoldEvent {
	e := HoldEvent{
		Permit: rec.ID, State: rec.State, Flags: []string{}, Key: t.keyID, Team: t.teamID, User: t.user, Model: t.model,
		Tokens: rec.amounts(KindTokenQuota, rec.Tokens), Cost: rec.amounts(KindMoney, rec.Cost), AdmittedAt: rec.At, At: now,
	}
	if t.grant != nil {
		e.Node = t.grant.node
	}
	for _, f := range [...]struct {
		flag Flags
		name string
	}{{FlagTokensUncertain, "tokens_uncertain"}, {FlagCostUncertain, "cost_uncertain"}, {FlagOverrun, "overrun"}, {FlagInvalid, "invalid"}} {
		if rec.Flags&f.flag != 0 {
			e.Flags = append(e.Flags, f.name)
		}
	}
	return e
}

func (rec *Record) amounts(kind Kind, bound int64) HeldAmount {
	one, err := rec.share(kind)
	if err != nil {
		panic(fmt.Sprintf("governance: permit %s was written and cannot be read: %v", rec.ID, err))
	}
	return HeldAmount{Bound: bound, Consumed: one.Consumed, Uncertain: one.Uncertain, Observed: one.Observed}
}

// noted tells of every note: of one about a permit or an account in the stream that its rows' locks
// keep in order, of any other in one of its own.
func (s *sheet) noted() {
	for i := range s.notes {
		n := &s.notes[i]
		stream := "note/" + s.plan.Batch.String()
		switch {
		case !n.Permit.IsZero():
			stream = "permit/" + n.Permit.String()
		case n.Account != AccountKey{}:
			stream = "account/" + n.Account.Constraint.String()
		}
		s.tell(EventNote, stream, fmt.Sprintf("%s/%d", s.plan.Batch, i+1), NoteEvent{
			At: n.At, Actor: n.Actor, Action: n.Action, Reason: n.Reason, Permit: n.Permit,
			Constraint: n.Account.Constraint, WindowStart: n.Account.WindowStart,
			Before: json.RawMessage(n.Before), After: json.RawMessage(n.After),
		})
	}
}
