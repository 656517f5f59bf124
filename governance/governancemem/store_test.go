package governancemem_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "pgregory.net/rapid" // its flags: the mutants' harness gives them

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/governancetest"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keystest"
)

// opened is a backend with its clock, which stands still unless moved.
type opened struct {
	*governancemem.DB
	us     *atomic.Int64
	events *eventList
}

// eventList is a log of events in memory.
type eventList struct {
	mu   sync.Mutex
	list []governance.Event
	ids  map[string]bool
}

func (j *eventList) append(list []governance.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range list {
		if !j.ids[e.ID] {
			j.ids[e.ID] = true
			j.list = append(j.list, e)
		}
	}
}

func (j *eventList) all() []governance.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.list)
}

func open(t testing.TB, f keys.Format) *opened {
	t.Helper()
	us := &atomic.Int64{}
	us.Store(time.Now().UnixMicro())
	events := &eventList{ids: map[string]bool{}}
	db, err := governancemem.New(&governancemem.Options{Now: func() time.Time { return time.UnixMicro(us.Load()) }, Format: f, Events: events.append})
	if err != nil {
		t.Fatal(err)
	}
	return &opened{db, us, events}
}

func harness() governancetest.Harness {
	return governancetest.Harness{
		Features: governancetest.Features{Policies: true, Nodes: true, Events: true},
		Events:   func(_ testing.TB, b governance.Backend) []governance.Event { return b.(*opened).events.all() },
		New:      func(t testing.TB) governance.Backend { return open(t, keys.Format{}) },
		Advance: func(_ testing.TB, b governance.Backend, d time.Duration) {
			b.(*opened).us.Add(d.Microseconds())
		},
	}
}

func TestSuite(t *testing.T) { governancetest.Run(t, harness()) }

func BenchmarkSuite(b *testing.B) { governancetest.Bench(b, harness()) }

// allOfKeys is what the keys of a database can do.
type allOfKeys interface {
	keys.Store
	keys.Importer
}

// keyStore is the keys of a database with its clock.
type keyStore struct {
	allOfKeys
	us *atomic.Int64
}

func TestKeys(t *testing.T) {
	newWith := func(t testing.TB, f keys.Format) keys.Store {
		o := open(t, f)
		return &keyStore{o.Keys, o.us}
	}
	keystest.Run(t, keystest.Harness{
		Features: keystest.Features{Clock: true, Formats: true, Rows: true},
		New:      func(t testing.TB) keys.Store { return newWith(t, keys.Format{}) },
		NewWith:  newWith,
		Advance:  func(_ testing.TB, s keys.Store, d time.Duration) { s.(*keyStore).us.Add(d.Microseconds()) },
	})
}
