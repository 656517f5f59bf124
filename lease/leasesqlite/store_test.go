package leasesqlite_test

import (
	"database/sql"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasesqlite"
	"github.com/tallystick-go/tallystick/lease/leasetest"
)

const safe = "?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)"

// file is where a leaser keeps its data, and by how much its clock was moved.
type file struct {
	path  string
	ahead *atomic.Int64
	db    *sql.DB
}

// files remembers them for the suite's hooks.
type files struct {
	mu sync.Mutex
	of map[lease.Leaser]file
}

func (f *files) open(t testing.TB, at file) lease.Leaser {
	t.Helper()
	var err error
	at.db, err = sql.Open("sqlite", at.path+safe)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, at.db.Close()) })
	l := leasesqlite.New(at.db, &leasesqlite.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(at.ahead.Load())) }})
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	require.NoError(t, l.Migrate(t.Context()))
	require.NoError(t, l.Check(t.Context()))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[l] = at
	return l
}

func (f *files) where(l lease.Leaser) file {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[l]
}

func harness() leasetest.Harness {
	f := &files{of: map[lease.Leaser]file{}}
	return leasetest.Harness{
		Features: leasetest.Features{Handles: true, Clock: true, Fence: true, Rewind: true},
		New: func(t testing.TB) lease.Leaser {
			return f.open(t, file{path: filepath.Join(t.TempDir(), "leases.db"), ahead: new(atomic.Int64)})
		},
		Reopen:  func(t testing.TB, l lease.Leaser) lease.Leaser { return f.open(t, f.where(l)) },
		Advance: func(_ testing.TB, l lease.Leaser, d time.Duration) { f.where(l).ahead.Add(int64(d)) },
		Fence: func(t testing.TB, l lease.Leaser, held lease.Lease) error {
			tx, err := f.where(l).db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			if err := l.(*leasesqlite.Leaser).Fence(t.Context(), tx, held); err != nil {
				require.NoError(t, tx.Rollback())
				return err
			}
			return tx.Commit()
		},
		Rewind: func(t testing.TB, l lease.Leaser, name string, to lease.Generation) {
			query, args := `update leases set generation = ?2, holder = '' where name = ?1`, []any{name, int64(to)}
			if to == 0 {
				query, args = `drop trigger leases_are_kept; delete from leases where name = ?1`, args[:1]
			}
			_, err := f.where(l).db.ExecContext(t.Context(), query, args...)
			require.NoError(t, err)
		},
	}
}

func TestLeaser(t *testing.T) { leasetest.Run(t, harness()) }

// Two programs on a file each get each every lease, and neither sees anything wrong.
func TestStorageOfOneMachineGetsNoKeeper(t *testing.T) {
	h := harness()
	l := h.New(t)
	_, err := lease.NewKeeper(l, []string{"sweep"}, nil)
	require.ErrorIs(t, err, lease.ErrNotShared)
	k, err := lease.NewKeeper(l, []string{"sweep"}, &lease.KeeperOptions{OneMachine: true})
	require.NoError(t, err)
	_, err = k.Await(t.Context(), "sweep")
	require.NoError(t, err)
	require.NoError(t, k.Close(t.Context()))
}

func TestRowsAreNotDeleted(t *testing.T) {
	f := &files{of: map[lease.Leaser]file{}}
	l := f.open(t, file{path: filepath.Join(t.TempDir(), "leases.db"), ahead: new(atomic.Int64)})
	_, err := l.Acquire(t.Context(), lease.Claim{Name: "sweep", Holder: "a", TTL: time.Minute})
	require.NoError(t, err)
	_, err = f.where(l).db.ExecContext(t.Context(), `delete from leases`)
	require.ErrorContains(t, err, "never deleted")
}

// A file that was made anew begins at generation 1, which is no progress.
func TestAnotherFileIsAnotherOrigin(t *testing.T) {
	f := &files{of: map[lease.Leaser]file{}}
	seen := &lease.History{}
	open := func() *leasesqlite.Leaser {
		at := f.where(f.open(t, file{path: filepath.Join(t.TempDir(), "leases.db"), ahead: new(atomic.Int64)}))
		l := leasesqlite.New(at.db, &leasesqlite.Options{History: seen})
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		return l
	}
	claim := lease.Claim{Name: "sweep", Holder: "a", TTL: time.Minute}
	_, err := open().Acquire(t.Context(), claim)
	require.NoError(t, err)
	other := open()
	_, err = other.Acquire(t.Context(), claim)
	require.ErrorIs(t, err, lease.ErrHistoryRegressed)
	claim.Name = "a name that neither file has"
	_, err = other.Acquire(t.Context(), claim)
	require.ErrorIs(t, err, lease.ErrHistoryRegressed)
}

// A fence in no transaction would be over with its own statement.
func TestFenceWantsATransaction(t *testing.T) {
	f := &files{of: map[lease.Leaser]file{}}
	l := f.open(t, file{path: filepath.Join(t.TempDir(), "leases.db"), ahead: new(atomic.Int64)})
	held, err := l.Acquire(t.Context(), lease.Claim{Name: "sweep", Holder: "a", TTL: time.Minute})
	require.NoError(t, err)
	db := f.where(l).db
	require.ErrorIs(t, l.(*leasesqlite.Leaser).Fence(t.Context(), db, held), lease.ErrInvalid)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "begin immediate")
	require.NoError(t, err)
	require.NoError(t, l.(*leasesqlite.Leaser).Fence(t.Context(), conn, held))
	_, err = conn.ExecContext(t.Context(), "commit")
	require.NoError(t, err)
}
