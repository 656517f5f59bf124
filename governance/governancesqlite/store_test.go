package governancesqlite_test

import (
	"database/sql"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/governance/governancetest"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keystest"
)

const pragmas = "?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)"

// clock is the clock of one file, for all its handles: it stands still unless moved.
type clock struct{ us atomic.Int64 }

func (c *clock) now() time.Time { return time.UnixMicro(c.us.Load()) }

// opened is a backend with what the suite needs to handle it.
type opened struct {
	*governancesqlite.DB
	sql   *sql.DB
	path  string
	clock *clock
	file  *journalsqlite.File // not nil: a node's
}

func now() *clock {
	c := &clock{}
	c.us.Store(time.Now().UnixMicro())
	return c
}

func open(t testing.TB, path string, c *clock) *opened {
	t.Helper()
	return openWith(t, "sqlite", path, &governancesqlite.Options{Now: c.now}, c)
}

func openWith(t testing.TB, driver, path string, options *governancesqlite.Options, c *clock) *opened {
	t.Helper()
	db, err := sql.Open(driver, "file:"+path+pragmas)
	if err != nil {
		t.Fatal(err)
	}
	logged := *options
	logged.Events = recorder(t, db)
	o := &opened{DB: governancesqlite.Open(db, &logged), sql: db, path: path, clock: c}
	t.Cleanup(func() {
		_ = o.Close()
		_ = db.Close()
	})
	if err := o.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

// recorder makes an event log in a file.
func recorder(t testing.TB, db *sql.DB) *eventlogsqlite.Recorder {
	t.Helper()
	store := eventlogsqlite.New(db)
	log, err := eventlog.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := eventlogsqlite.NewRecorder(store, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// told lists the events in the log of a backend's file.
func told(t testing.TB, b governance.Backend) (list []governance.Event) {
	t.Helper()
	rows, err := b.(*opened).sql.QueryContext(t.Context(), "select id, stream, type, schema, data from tallystick_events order by position")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e governance.Event
		if err := rows.Scan(&e.ID, &e.Stream, &e.Type, &e.Schema, &e.Data); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// openNode claims a file, also from a process that still has it, as after a crash.
func openNode(t testing.TB, path string, c *clock) *opened {
	t.Helper()
	file, err := journalsqlite.Claim(path, &journalsqlite.ClaimOptions{TakeOver: true})
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", file.DSN())
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{DB: governancesqlite.OpenNode(db, file, &governancesqlite.Options{Now: c.now, Events: recorder(t, db)}), sql: db, path: path, clock: c, file: file}
	t.Cleanup(func() {
		_ = o.Journal.Close()
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
		Features: governancetest.Features{Durable: true, Shared: true, Snapshots: true, Policies: true, Nodes: true, Journal: true, Events: true},
		Events:   told,
		Node: func(t testing.TB) governance.Backend {
			return openNode(t, filepath.Join(t.TempDir(), "node.db"), now())
		},
		New: func(t testing.TB) governance.Backend {
			return open(t, filepath.Join(t.TempDir(), "governance.db"), now())
		},
		Reopen: func(t testing.TB, b governance.Backend) governance.Backend {
			o := b.(*opened)
			if o.file != nil {
				return openNode(t, o.path, o.clock)
			}
			return open(t, o.path, o.clock)
		},
		Advance: func(_ testing.TB, b governance.Backend, d time.Duration) {
			b.(*opened).clock.us.Add(d.Microseconds())
		},
	}
}

func TestSuite(t *testing.T) { governancetest.Run(t, harness()) }

func BenchmarkSuite(b *testing.B) { governancetest.Bench(b, harness()) }

// keyStore is the keys of a file, as the suite of package keys handles them.
type keyStore struct {
	keys.Store
	file *opened
}

func TestKeys(t *testing.T) {
	newWith := func(t testing.TB, f keys.Format) keys.Store {
		c := now()
		o := openWith(t, "sqlite", filepath.Join(t.TempDir(), "keys.db"), &governancesqlite.Options{Now: c.now, Format: f}, c)
		return &keyStore{o.Keys, o}
	}
	keystest.Run(t, keystest.Harness{
		Features: keystest.Features{Handles: true, Clock: true, Formats: true},
		New:      func(t testing.TB) keys.Store { return newWith(t, keys.Format{}) },
		NewWith:  newWith,
		Reopen: func(t testing.TB, s keys.Store) keys.Store {
			o := open(t, s.(*keyStore).file.path, s.(*keyStore).file.clock)
			return &keyStore{o.Keys, o}
		},
		Advance: func(_ testing.TB, s keys.Store, d time.Duration) { s.(*keyStore).file.clock.us.Add(d.Microseconds()) },
	})
}
