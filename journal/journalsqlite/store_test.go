package journalsqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the SQLite driver

	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
	"github.com/tallystick-go/tallystick/journal/journaltest"
)

func file(t testing.TB) string { return filepath.Join(quick(t), "journal.db") }

// quick is a folder in memory where there is one: no test here needs what survives a power cut
// on the disk, and the tracer sees every flush.
func quick(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "tallystick-journal-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// opened is a store with what it stands on.
type opened struct {
	*journalsqlite.Store
	file *journalsqlite.File
	db   *sql.DB
}

func attach(t testing.TB, path string, takeOver bool) (*opened, error) {
	t.Helper()
	f, err := journalsqlite.Claim(path, &journalsqlite.ClaimOptions{TakeOver: takeOver})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", f.DSN())
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{journalsqlite.New(db, f, nil), f, db}
	t.Cleanup(func() { _ = o.Close(); _ = db.Close() })
	if err := o.Migrate(t.Context()); err != nil {
		_ = o.Close()
		_ = db.Close()
		return nil, err
	}
	return o, nil
}

func open(t testing.TB, path string, takeOver bool) *opened {
	t.Helper()
	o, err := attach(t, path, takeOver)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestStore(t *testing.T) {
	journaltest.Run(t, journaltest.Harness{
		New: func(t testing.TB) journal.Store { return open(t, file(t), false) },
		Reopen: func(t testing.TB, s journal.Store) journal.Store {
			return open(t, s.(*opened).file.Path(), true)
		},
	})
}

func TestOneOwner(t *testing.T) {
	path := file(t)
	first := open(t, path, false)
	if _, err := journalsqlite.Claim(path, nil); !errors.Is(err, journalsqlite.ErrLocked) {
		t.Fatalf("a second process claims it: %v", err)
	}
	j, err := journal.Open(t.Context(), first, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A tool looks at it, and takes nothing over.
	db, err := sql.Open("sqlite", first.file.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tool := journalsqlite.New(db, nil, nil)
	defer tool.Close()
	if err := tool.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err := journal.Look(t.Context(), tool); err != nil || s.Boot != j.Boot() || s.Number != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, path, false)
	if _, err := journal.Open(t.Context(), second, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}
