package admin

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/governance"
)

// Checkpoints are how far the readers of the event log came.
type Checkpoints struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
	// HeldBy is the reader for which old events stay, as far as this gateway knows; see report.LogState.
	HeldBy string `json:"held_by,omitempty"`
}

// Checkpoint is one reader's, of one gateway's events or of all.
type Checkpoint struct {
	Consumer string    `json:"consumer"`
	Producer string    `json:"producer,omitempty"` // empty: of all
	Owner    string    `json:"owner"`
	Behind   int64     `json:"behind"` // positions, an upper bound of the events to come
	Left     bool      `json:"left"`   // its owner is gone and said so
	Closed   bool      `json:"closed"` // its producer is gone and all was dealt with; it holds nothing back
	SeenAt   time.Time `json:"seen_at"`
	IdleMS   int64     `json:"idle_ms"`
}

func (a *api) listCheckpoints(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	if a.Coordination == nil {
		return nil, uncoordinated
	}
	list, err := a.Coordination.Checkpoints(c.ctx)
	if err != nil {
		return nil, err
	}
	out := Checkpoints{Checkpoints: []Checkpoint{}, HeldBy: a.Coordination.HeldBy()}
	for _, k := range list {
		out.Checkpoints = append(out.Checkpoints, checkpointOf(k))
	}
	return out, nil
}

func checkpointOf(k eventlog.Checkpoint) Checkpoint {
	return Checkpoint{
		Consumer: k.Consumer, Producer: string(k.Producer), Owner: string(k.Owner), Behind: k.Behind, Left: k.Left, Closed: k.Closed,
		SeenAt: k.SeenAt, IdleMS: k.Idle.Milliseconds(),
	}
}

// dropCheckpoints is for a reader that is gone for good. The decision is noted first: what is dropped cannot be told afterwards.
func (a *api) dropCheckpoints(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var q struct{ consumer, actor, reason string }
	if err := fields(data, map[string]any{"consumer": &q.consumer, "actor": &q.actor, "reason": &q.reason}); err != nil {
		return nil, err
	}
	for _, f := range []struct{ name, value string }{{"consumer", q.consumer}, {"actor", q.actor}, {"reason", q.reason}} {
		if strings.TrimSpace(f.value) == "" {
			return nil, invalid(f.name, "is missing")
		}
	}
	if a.Coordination == nil {
		return nil, uncoordinated
	}
	list, err := a.Coordination.Checkpoints(c.ctx)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(list, func(k eventlog.Checkpoint) bool { return k.Consumer == q.consumer }) {
		return nil, coordination.ErrNotFound // nothing was decided
	}
	before, err := json.Marshal(map[string]string{"consumer": q.consumer})
	if err != nil {
		return nil, err
	}
	if err := a.Governor.Note(c.ctx, governance.Note{Actor: q.actor, Action: "drop checkpoints", Reason: q.reason, Before: string(before)}); err != nil {
		return nil, err
	}
	n, err := a.Coordination.Drop(c.ctx, q.consumer)
	if err != nil {
		return nil, err
	}
	return map[string]int{"dropped": n}, nil
}
