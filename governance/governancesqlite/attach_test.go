package governancesqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/keys"
)

func openFull(t testing.TB, path string, c *clock, pages int64) *opened {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+pragmas+fmt.Sprintf("&_pragma=max_page_count(%d)", pages))
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{DB: governancesqlite.Open(db, &governancesqlite.Options{Now: c.now}), sql: db, path: path, clock: c}
	t.Cleanup(func() { _ = o.Close(); _ = db.Close() })
	return o
}

// attach opens without migrating.
func attach(t testing.TB, dsn string) *governancesqlite.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	d := governancesqlite.Open(db, nil)
	t.Cleanup(func() { _ = d.Close(); _ = db.Close() })
	return d
}

func contents(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestForeignFile(t *testing.T) {
	for _, table := range []string{"customers", "governance_permits", "tallystick_teams"} {
		path := filepath.Join(t.TempDir(), "other.db")
		db, err := sql.Open("sqlite", "file:"+path+pragmas)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("create table " + table + " (id integer primary key)"); err != nil {
			t.Fatal(err)
		}
		db.Close()
		before := contents(t, path)
		d := attach(t, "file:"+path+pragmas)
		err = d.Migrate(t.Context())
		if !errors.Is(err, governancesqlite.ErrForeign) || !strings.Contains(err.Error(), "use another schema or file") || strings.Contains(err.Error(), path) {
			t.Fatalf("migrate over table %s: %v", table, err)
		}
		if err := d.Check(t.Context()); !errors.Is(err, governancesqlite.ErrOlder) && !errors.Is(err, governancesqlite.ErrForeign) {
			t.Fatalf("check over table %s: %v", table, err)
		}
		_ = d.Close()
		if contents(t, path) != before {
			t.Fatal("a foreign file was changed")
		}
	}
}

// TestBesideTheCallersTables: a file may hold tables of the caller's, with the plainest
// names, when the caller's own tool runs our files.
func TestBesideTheCallersTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.db")
	db, err := sql.Open("sqlite", "file:"+path+pragmas)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range []string{"teams", "keys", "key_secrets", "permits", "constraints", "cells", "entries", "batches", "notes", "meta"} {
		if _, err := db.Exec("create table " + table + " (id integer primary key)"); err != nil {
			t.Fatal(err)
		}
	}
	exported, err := governancesqlite.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"keyssqlite", "escrowsqlite", "governancesqlite"} {
		names, err := fs.Glob(exported, folder+"/*.up.sql")
		if err != nil || len(names) == 0 {
			t.Fatalf("files of %s: %v, %v", folder, names, err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(exported, name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(string(text)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	rows, err := db.Query("select name from sqlite_schema where sql like 'CREATE%' and tbl_name not in ('teams', 'keys', 'key_secrets', 'permits', 'constraints', 'cells', 'entries', 'batches', 'notes', 'meta')")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(name, "governance_") && !strings.HasPrefix(name, "escrow_") && !strings.HasPrefix(name, "tallystick_") {
			t.Errorf("%s may be the name of something of the caller's", name)
		}
	}
	if rows.Err() != nil || n < 10 {
		t.Fatalf("%d names, %v", n, rows.Err())
	}
	if err := attach(t, "file:"+path+pragmas).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("these are my notes, and no database\n", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	before := contents(t, path)
	d := attach(t, "file:"+path+pragmas)
	for _, err := range []error{d.Migrate(t.Context()), d.Check(t.Context())} {
		if !errors.Is(err, governancesqlite.ErrNotSQLite) || !strings.Contains(err.Error(), "give another path") {
			t.Fatalf("error is %v, want ErrNotSQLite", err)
		}
	}
	if contents(t, path) != before {
		t.Fatal("the file was changed")
	}
}

func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "governance.db")
	d := govern(t, open(t, path, now()))
	for range 50 {
		if _, err := d.admit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.sql.Exec("pragma wal_checkpoint(truncate)"); err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	_ = d.sql.Close()
	data := []byte(contents(t, path))
	for i := 4096; i < len(data); i++ { // all but the first page
		data[i] ^= 0x5a
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := attach(t, "file:"+path+pragmas)
	for _, err := range []error{broken.Migrate(t.Context()), broken.Check(t.Context())} {
		if !errors.Is(err, governance.ErrCorrupt) || !strings.Contains(err.Error(), "restore a backup") {
			t.Fatalf("error is %v, want ErrCorrupt", err)
		}
	}
	if _, err := broken.Store.Permits(t.Context(), governance.PermitQuery{Limit: 100}); !errors.Is(err, governance.ErrCorrupt) {
		t.Fatalf("permits of a damaged file: %v", err)
	}
	called := false
	err := broken.Store.Step(t.Context(), &governance.Plan{Constraints: []governance.ConstraintID{{1}}}, func(*governance.Loaded) *governance.Changes { called = true; return nil })
	if !errors.Is(err, governance.ErrCorrupt) || called {
		t.Fatalf("a step on a damaged file: %v, decided %v", err, called)
	}
}

// TestDamagedRows changes single values behind the adapter's back.
func TestDamagedRows(t *testing.T) {
	for _, spoil := range []string{
		"update governance_cells set state = x'0102030405' where state is not null and length(state) > 0",
		"update governance_cells set kind = 99",
		"update governance_cells set entries = -1",
		"update governance_batches set terms = x'ff'",
		"update governance_permits set outcome = x'09'",
		"update governance_permits set flags = 1 << 20",
		"update governance_permits set version = 0",
		"update governance_permits set terms_index = 7",
		"update governance_batches set permits = x'01'",
		"update governance_fresh set position = 7", "update governance_fresh set batch = 77",
		"delete from governance_meta",
	} {
		t.Run(spoil, func(t *testing.T) {
			d := govern(t, open(t, filepath.Join(t.TempDir(), "governance.db"), now()))
			for i := range 2 { // one that changed, and a fresh one
				p, err := d.admit(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					err = p.Settle(t.Context(), governance.Unknown())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if n, err := d.sql.Exec(spoil); err != nil {
				t.Fatal(err)
			} else if rows, _ := n.RowsAffected(); rows == 0 {
				t.Fatal("nothing was spoiled")
			}
			_, err1 := d.g.Verify(t.Context(), governance.VerifyQuery{})
			_, err2 := d.g.Holds(t.Context(), governance.HoldQuery{})
			_, err3 := d.admit(t.Context())
			if !errors.Is(errors.Join(err1, err2, err3), governance.ErrCorrupt) {
				t.Fatalf("verify: %v; holds: %v; admit: %v; want ErrCorrupt of one at least", err1, err2, err3)
			}
			for _, err := range []error{err1, err2, err3} {
				if err != nil && !errors.Is(err, governance.ErrCorrupt) {
					t.Fatalf("error is %v, want ErrCorrupt", err)
				}
			}
		})
	}
}

// TestMissingEntry: a row of the audit's index that is gone is a difference, not silence.
func TestMissingEntry(t *testing.T) {
	d := govern(t, open(t, filepath.Join(t.TempDir(), "governance.db"), now()))
	for range 5 {
		p, err := d.admit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.sql.Exec("delete from governance_entries where number = 3"); err != nil {
		t.Fatal(err)
	}
	v, err := d.g.Verify(t.Context(), governance.VerifyQuery{})
	if err != nil || len(v.Differences) != 2 {
		t.Fatalf("verify: %+v, %v; want a difference in both accounts", v, err)
	}
}

func TestOlderSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "governance.db")
	d := attach(t, "file:"+path+pragmas)
	if err := d.Check(t.Context()); !errors.Is(err, governancesqlite.ErrOlder) || !strings.Contains(err.Error(), "run Migrate") {
		t.Fatalf("an empty file: %v, want ErrOlder", err)
	}
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Migrate(t.Context()); err != nil { // again changes nothing
		t.Fatal(err)
	}
}

func TestNewerSchemaPasses(t *testing.T) {
	o := open(t, filepath.Join(t.TempDir(), "governance.db"), now())
	for _, q := range []string{
		"insert into tallystick_migrations (package, version, name, checksum) values ('governancesqlite', 3, 'later', 'x')",
		"alter table governance_permits add column later integer", "create table later (id integer primary key)",
	} {
		if _, err := o.sql.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := govern(t, o)
	if _, err := d.admit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestChangedSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "governance.db")
	o := open(t, path, now())
	if _, err := o.sql.Exec("drop table governance_entries"); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{o.Migrate(t.Context()), o.Check(t.Context())} {
		if !errors.Is(err, governancesqlite.ErrForeign) {
			t.Fatalf("a schema with a table missing: %v, want ErrForeign", err)
		}
	}
}

func TestUnsafeHandle(t *testing.T) {
	for setting, dsn := range map[string]string{
		"synchronous":  "?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)",
		"busy_timeout": "?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)",
		"journal_mode": "?_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)",
		"foreign_keys": "?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)",
	} {
		d := attach(t, "file:"+filepath.Join(t.TempDir(), "governance.db")+dsn)
		for _, err := range []error{d.Migrate(t.Context()), d.Check(t.Context())} {
			if !errors.Is(err, governancesqlite.ErrUnsafe) || !strings.Contains(err.Error(), setting) {
				t.Fatalf("%s: error is %v, want ErrUnsafe", setting, err)
			}
		}
		err := d.Store.Step(t.Context(), &governance.Plan{}, func(*governance.Loaded) *governance.Changes { return nil })
		if !errors.Is(err, governance.ErrUnavailable) || !errors.Is(err, governancesqlite.ErrUnsafe) {
			t.Fatalf("%s: a step answers %v", setting, err)
		}
	}
	d := attach(t, ":memory:")
	if err := d.Migrate(t.Context()); !errors.Is(err, governancesqlite.ErrUnsafe) {
		t.Fatalf("a database in memory: %v", err)
	}
}

func TestExposedFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "governance.db")
	o := open(t, path, now())
	for _, c := range []struct {
		path string
		mode fs.FileMode
	}{{path, 0o666}, {path, 0o602}, {dir, 0o777}} {
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{o.Migrate(t.Context()), o.Check(t.Context())} {
			var exposed *governancesqlite.ExposedError
			if !errors.Is(err, governancesqlite.ErrExposed) || !errors.As(err, &exposed) || !strings.Contains(err.Error(), "chmod") {
				t.Fatalf("mode %o: error is %v, want ErrExposed", c.mode, err)
			}
		}
		if err := os.Chmod(c.path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := o.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnusableFormat(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "governance.db")+pragmas)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d := governancesqlite.Open(db, &governancesqlite.Options{Format: keys.Format{Prefixes: []string{"no underscore"}}})
	for _, err := range []error{d.Migrate(t.Context()), d.Check(t.Context())} {
		if !errors.Is(err, keys.ErrInvalid) {
			t.Fatalf("error is %v, want keys.ErrInvalid", err)
		}
	}
}

func TestReadOnlyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "governance.db")
	d := govern(t, open(t, path, now()))
	if _, err := d.admit(t.Context()); err != nil {
		t.Fatal(err)
	}
	ro := attach(t, "file:"+path+pragmas+"&mode=ro")
	err := ro.Store.Step(t.Context(), &governance.Plan{}, func(*governance.Loaded) *governance.Changes {
		return &governance.Changes{Windows: []governance.WindowChange{{Constraint: governance.ConstraintID{1}}}}
	})
	if !errors.Is(err, governance.ErrUnavailable) {
		t.Fatalf("a step on a read-only handle: %v", err)
	}
	if list, err := ro.Store.Permits(t.Context(), governance.PermitQuery{Limit: 10}); err != nil || len(list) != 1 {
		t.Fatalf("tools may read: %v, %v", list, err)
	}
}
