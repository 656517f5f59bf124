package governance_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	_ "pgregory.net/rapid" // its flags: the mutants' harness gives them

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/governancetest"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journaltest"
)

// inMemory is a backend in memory with its clock; node is not nil for one of the profile node.
type inMemory struct {
	*governancemem.DB
	us   *atomic.Int64
	node *nodeInMemory
}

func newInMemory(t testing.TB) *inMemory {
	us := &atomic.Int64{}
	us.Store(time.Now().UnixMicro())
	db, err := governancemem.New(&governancemem.Options{Now: func() time.Time { return time.UnixMicro(us.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	return &inMemory{DB: db, us: us}
}

func (m *inMemory) Backend() governance.Stores {
	s := m.DB.Backend()
	if m.node != nil {
		s.Store, s.Policies, s.Journal, s.Nodes, s.Profile = m.node, m.node.policies, m.node.journal, nil, policy.Node
	}
	return s
}

// nodeInMemory puts a journal beside a store, in one transaction.
type nodeInMemory struct {
	*governancemem.Store
	journal  *journaltest.Memory
	policies *policy.Memory
}

func (s *nodeInMemory) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	step := func(l *journal.Loaded) (ch *journal.Changes, err error) {
		err = s.Store.Step(ctx, plan, func(loaded *governance.Loaded) *governance.Changes {
			loaded.Journal = l
			if plan.Policies {
				now, release := s.policies.Hold()
				defer release()
				loaded.Policies = now.Mark
			}
			changes := decide(loaded)
			if changes != nil {
				ch = changes.Journal
			}
			return changes
		})
		return ch, err
	}
	if plan.Journal == nil {
		_, err := step(nil)
		return err
	}
	return s.journal.Step(ctx, plan.Journal, step)
}

func (s *nodeInMemory) View(ctx context.Context, plan *governance.Plan) (*governance.Loaded, error) {
	l, err := s.Store.View(ctx, plan)
	if err == nil && plan.Journal != nil {
		l.Journal, err = s.journal.View(ctx, plan.Journal)
	}
	if err == nil && plan.Policies {
		now, release := s.policies.Hold()
		release()
		l.Policies = now.Mark
	}
	return l, err
}

// TestNode is the suite's cases about nodes, here for the mistakes that are planted in them.
func TestNode(t *testing.T) {
	governancetest.Run(t, governancetest.Harness{
		Only:     "Node",
		Features: governancetest.Features{Policies: true, Nodes: true, Journal: true, Durable: true},
		New:      func(t testing.TB) governance.Backend { return newInMemory(t) },
		Node: func(t testing.TB) governance.Backend {
			m := newInMemory(t)
			m.node = &nodeInMemory{m.Store, journaltest.NewMemory(), policy.NewFollower()}
			return m
		},
		Reopen: func(_ testing.TB, b governance.Backend) governance.Backend {
			old := b.(*inMemory)
			if old.node == nil {
				return old
			}
			return &inMemory{old.DB, old.us, &nodeInMemory{old.Store, old.node.journal, policy.NewFollower()}}
		},
		Advance: func(_ testing.TB, b governance.Backend, d time.Duration) { b.(*inMemory).us.Add(d.Microseconds()) },
	})
}
