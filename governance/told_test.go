package governance_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "pgregory.net/rapid" // its flags: the mutants' harness gives them

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/governancetest"
)

// telling is a backend in memory with its clock and what it was told.
type telling struct {
	*governancemem.DB
	us   atomic.Int64
	mu   sync.Mutex
	list []governance.Event
}

// append has an id once, as a log does.
func (l *telling) append(list []governance.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for _, e := range list {
		for i := range l.list {
			if l.list[i].ID == e.ID {
				continue next
			}
		}
		l.list = append(l.list, e)
	}
}

// TestTold is the suite's cases about events, here for the mistakes that are planted in them.
func TestTold(t *testing.T) {
	governancetest.Run(t, governancetest.Harness{
		Only:     "Events",
		Features: governancetest.Features{Policies: true, Nodes: true, Events: true},
		New: func(t testing.TB) governance.Backend {
			l := &telling{}
			l.us.Store(time.Now().UnixMicro())
			db, err := governancemem.New(&governancemem.Options{Now: func() time.Time { return time.UnixMicro(l.us.Load()) }, Events: l.append})
			if err != nil {
				t.Fatal(err)
			}
			l.DB = db
			return l
		},
		Events: func(_ testing.TB, b governance.Backend) []governance.Event {
			l := b.(*telling)
			l.mu.Lock()
			defer l.mu.Unlock()
			return append([]governance.Event{}, l.list...)
		},
		Advance: func(_ testing.TB, b governance.Backend, d time.Duration) { b.(*telling).us.Add(d.Microseconds()) },
	})
}
