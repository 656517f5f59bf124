package escrow_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// modelAuthority is an authority in memory: it loads, asks Books.Take, and writes.
type modelAuthority struct {
	mu       sync.Mutex
	clock    func() time.Time
	ttl      time.Duration
	mark     policy.Mark
	set      *policy.Set
	nodes    map[string][]byte // encoded
	records  map[escrow.GrantID]escrow.Record
	held     map[escrow.GrantID][]byte // encoded
	accounts map[escrow.Account]escrow.Standing
	last     *escrow.Outcome // of the last heartbeat that was taken
}

func newModelAuthority(set *policy.Set, clock func() time.Time) *modelAuthority {
	m := &modelAuthority{
		clock: clock, ttl: time.Minute, nodes: map[string][]byte{}, records: map[escrow.GrantID]escrow.Record{},
		held: map[escrow.GrantID][]byte{}, accounts: map[escrow.Account]escrow.Standing{},
	}
	m.mark.Namespace = policy.Namespace{1}
	m.edit(set)
	return m
}

// edit puts another set in force.
func (m *modelAuthority) edit(set *policy.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set, m.mark.Generation, m.mark.Revision = set, set.Generation(), m.mark.Revision+1
}

func (m *modelAuthority) Beat(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", escrow.ErrUnavailable, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := escrow.Books{
		Now: m.clock().UnixMicro(), TTL: m.ttl, Mark: m.mark, Documents: m.set,
		Records: map[escrow.GrantID]escrow.Record{}, Accounts: map[escrow.Account]escrow.Standing{},
	}
	var err error
	if b.Definitions, err = escrow.Definitions(m.set, b.Now); err != nil {
		return nil, err
	}
	if known := m.nodes[h.Node]; known != nil {
		if err := b.Node.UnmarshalBinary(known); err != nil {
			return nil, err
		}
	}
	for _, id := range h.IDs() {
		if r, known := m.records[id]; known {
			if err := r.Held.UnmarshalBinary(m.held[id]); err != nil {
				return nil, err
			}
			b.Records[id] = r
		}
	}
	for _, a := range h.Needs(b.Records) {
		b.Accounts[a] = m.accounts[a]
	}
	for i := range b.Definitions {
		b.Accounts[b.Definitions[i].Account] = m.accounts[b.Definitions[i].Account]
	}
	out, err := b.Take(h)
	if err != nil {
		return nil, err
	}
	node, err := out.Node.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	m.nodes[h.Node] = node
	for _, r := range out.Records {
		held, err := r.Held.AppendBinary(nil)
		if err != nil {
			return nil, err
		}
		m.records[r.ID], m.held[r.ID] = r, held
	}
	for _, a := range out.Accounts {
		m.accounts[a] = b.Accounts[a]
	}
	m.last = out
	return out.Answer, nil
}

// operate is what an operator does to a record.
func (m *modelAuthority) operate(id escrow.GrantID, change func(escrow.Held) (escrow.Held, escrow.Delta, error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known := m.records[id]
	if !known {
		return errors.New("there is no such record")
	}
	next, d, err := change(r.Held)
	if err != nil {
		return err
	}
	s := m.accounts[r.Account]
	if s.Account, err = d.Add(s.Account); err != nil {
		return err
	}
	if m.held[id], err = next.AppendBinary(nil); err != nil {
		return err
	}
	r.Held = next
	m.records[id], m.accounts[r.Account] = r, s
	return nil
}

// copy is the authority as a backup of its database would bring it back.
func (m *modelAuthority) copy() *modelAuthority {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &modelAuthority{
		clock: m.clock, ttl: m.ttl, mark: m.mark, set: m.set, nodes: maps.Clone(m.nodes),
		records: maps.Clone(m.records), held: maps.Clone(m.held), accounts: maps.Clone(m.accounts),
	}
}

var _ escrow.Authority = (*modelAuthority)(nil)
