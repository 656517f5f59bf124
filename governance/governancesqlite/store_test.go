package governancesqlite_test

import (
	"database/sql"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/governance/governancetest"
)

const pragmas = "?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)"

// clock is the clock of one file, for all its handles: it stands still unless moved.
type clock struct{ us atomic.Int64 }

func (c *clock) now() time.Time { return time.UnixMicro(c.us.Load()) }

// opened is a backend with what the suite needs to handle it.
type opened struct {
	*governancesqlite.DB
	path  string
	clock *clock
}

func open(t testing.TB, path string, c *clock) *opened {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+pragmas)
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{governancesqlite.Open(db, &governancesqlite.Options{Now: c.now}), path, c}
	t.Cleanup(func() {
		_ = o.Close()
		_ = db.Close()
	})
	if err := o.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

func harness() governancetest.Harness {
	return governancetest.Harness{
		Features: governancetest.Features{Durable: true, Shared: true, Snapshots: true},
		New: func(t testing.TB) governance.Backend {
			c := &clock{}
			c.us.Store(time.Now().UnixMicro())
			return open(t, filepath.Join(t.TempDir(), "governance.db"), c)
		},
		Reopen: func(t testing.TB, b governance.Backend) governance.Backend {
			o := b.(*opened)
			return open(t, o.path, o.clock)
		},
		Advance: func(_ testing.TB, b governance.Backend, d time.Duration) {
			b.(*opened).clock.us.Add(d.Microseconds())
		},
	}
}

func TestSuite(t *testing.T) { governancetest.Run(t, harness()) }
