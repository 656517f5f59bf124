package governancemem_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/governancetest"
)

// opened is a backend with its clock, which stands still unless moved.
type opened struct {
	*governancemem.DB
	us *atomic.Int64
}

func open(t testing.TB) *opened {
	t.Helper()
	us := &atomic.Int64{}
	us.Store(time.Now().UnixMicro())
	db, err := governancemem.New(&governancemem.Options{Now: func() time.Time { return time.UnixMicro(us.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	return &opened{db, us}
}

func harness() governancetest.Harness {
	return governancetest.Harness{
		New: func(t testing.TB) governance.Backend { return open(t) },
		Advance: func(_ testing.TB, b governance.Backend, d time.Duration) {
			b.(*opened).us.Add(d.Microseconds())
		},
	}
}

func TestSuite(t *testing.T) { governancetest.Run(t, harness()) }
