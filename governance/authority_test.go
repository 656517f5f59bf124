package governance_test

import (
	"sync/atomic"
	"testing"
	"time"

	_ "pgregory.net/rapid" // its flags: the mutants' harness gives them

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/governancetest"
)

// remembered is a backend in memory with its clock.
type remembered struct {
	*governancemem.DB
	us atomic.Int64
}

// TestAuthority is the suite's cases about authorities, here for the mistakes that are
// planted in them.
func TestAuthority(t *testing.T) {
	governancetest.Run(t, governancetest.Harness{
		Only:     "Authority",
		Features: governancetest.Features{Policies: true, Nodes: true},
		New: func(t testing.TB) governance.Backend {
			r := &remembered{}
			r.us.Store(time.Now().UnixMicro())
			db, err := governancemem.New(&governancemem.Options{Now: func() time.Time { return time.UnixMicro(r.us.Load()) }})
			if err != nil {
				t.Fatal(err)
			}
			r.DB = db
			return r
		},
		Advance: func(_ testing.TB, b governance.Backend, d time.Duration) { b.(*remembered).us.Add(d.Microseconds()) },
	})
}
