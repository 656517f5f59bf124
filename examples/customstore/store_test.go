package customstore_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tallystick-go/tallystick/examples/customstore"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancetest"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keystest"
)

// file is a bbolt file with the clock of all its handles.
type file struct {
	*customstore.DB
	db   *bbolt.DB
	path string
	us   *atomic.Int64
}

func open(t testing.TB, path string, us *atomic.Int64) *file {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true, Timeout: 5 * time.Second}) // a test's data may be lost with the machine
	if err != nil {
		t.Fatal(err)
	}
	store, err := customstore.Open(db, &customstore.Options{Now: func() time.Time { return time.UnixMicro(us.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &file{store, db, path, us}
}

func fresh(t testing.TB) *file {
	us := &atomic.Int64{}
	us.Store(time.Now().UnixMicro())
	return open(t, filepath.Join(t.TempDir(), "custom.db"), us)
}

// again closes the file and opens it anew, as after a restart: bbolt lets one
// process at a time in.
func (f *file) again(t testing.TB) *file {
	t.Helper()
	if err := f.db.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, f.path, f.us)
}

// TestGovernance is all that a third party has to write to run the suite.
func TestGovernance(t *testing.T) {
	governancetest.Run(t, governancetest.Harness{
		Features: governancetest.Features{Durable: true, Snapshots: true, Policies: true},
		New:      func(t testing.TB) governance.Backend { return fresh(t) },
		Reopen:   func(t testing.TB, b governance.Backend) governance.Backend { return b.(*file).again(t) },
		Advance: func(_ testing.TB, b governance.Backend, d time.Duration) {
			b.(*file).us.Add(d.Microseconds())
		},
	})
}

// keyFile is a file seen as a key store.
type keyFile struct {
	keys.Store
	file *file
}

func TestKeys(t *testing.T) {
	keystest.Run(t, keystest.Harness{
		Features: keystest.Features{Clock: true},
		New:      func(t testing.TB) keys.Store { f := fresh(t); return &keyFile{f.DB.Keys, f} },
		Advance: func(_ testing.TB, s keys.Store, d time.Duration) {
			s.(*keyFile).file.us.Add(d.Microseconds())
		},
	})
}
