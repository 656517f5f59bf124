package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/journal"
)

// Memory is a journal.Store that forgets everything with its process: for tests, and to
// read what a store has to do. Handles of one Memory see the same journal.
type Memory struct {
	mu      sync.Mutex
	meta    journal.Meta
	grants  map[escrow.GrantID]journal.Grant
	records map[journal.ID]journal.Record
	notes   []journal.Note
	// Fail, when set, is asked before each transaction begins and before it is committed.
	// An error is returned as it is; nothing is committed.
	Fail func(committing bool) error
}

// NewMemory returns an empty journal.
func NewMemory() *Memory {
	return &Memory{grants: map[escrow.GrantID]journal.Grant{}, records: map[journal.ID]journal.Record{}}
}

var _ journal.Store = (*Memory)(nil)

// Step implements journal.Store.
func (m *Memory) Step(ctx context.Context, plan *journal.Plan, decide func(*journal.Loaded) (*journal.Changes, error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", journal.ErrUnavailable, err)
	}
	if m.Fail != nil {
		if err := m.Fail(false); err != nil {
			return err
		}
	}
	ch, err := decide(m.load(plan))
	if err != nil || ch.Empty() {
		return err
	}
	if m.Fail != nil {
		if err := m.Fail(true); err != nil {
			return err
		}
	}
	for _, r := range ch.Made {
		if _, there := m.records[r.ID]; there {
			return fmt.Errorf("%w: reservation %s is made twice", journal.ErrCorrupt, r.ID)
		}
	}
	m.write(ch)
	return nil
}

// View implements journal.Store.
func (m *Memory) View(_ context.Context, plan *journal.Plan) (*journal.Loaded, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.load(plan), nil
}

// Close implements journal.Store.
func (m *Memory) Close() error { return nil }

// Notes are what operators did.
func (m *Memory) Notes() []journal.Note {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.notes)
}

func (m *Memory) load(plan *journal.Plan) *journal.Loaded {
	l := &journal.Loaded{Meta: m.meta}
	wanted := map[escrow.GrantID]bool{}
	for id, r := range m.records {
		if slices.Contains(plan.Reservations, id) || (plan.OnTheirWay && r.State == journal.Reserved) {
			r.Portions = slices.Clone(r.Portions)
			l.Records = append(l.Records, r)
			for _, p := range r.Portions {
				wanted[p.Grant] = true
			}
		}
	}
	for id, g := range m.grants {
		if plan.Everything || wanted[id] || (g.Ending == escrow.Open && slices.Contains(plan.Accounts, g.Account)) {
			l.Grants = append(l.Grants, g)
		}
	}
	slices.SortFunc(l.Grants, func(a, b journal.Grant) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return l
}

func (m *Memory) write(ch *journal.Changes) {
	if ch.Meta != nil {
		m.meta = *ch.Meta
	}
	for _, g := range ch.Grants {
		m.grants[g.ID] = g
	}
	for _, id := range ch.Dropped {
		delete(m.grants, id)
	}
	for _, r := range slices.Concat(ch.Made, ch.Changed) {
		r.Portions = slices.Clone(r.Portions)
		m.records[r.ID] = r
	}
	for id, r := range m.records {
		if r.Number > 0 && r.Number <= ch.Forget {
			delete(m.records, id)
		}
	}
	m.notes = append(m.notes, ch.Notes...)
}
