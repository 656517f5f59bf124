package governancesqlite_test

import (
	"database/sql"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/internal/migrate/migratesqlite"
)

// TestPlans: what admissions and lists run must be found by key, on an empty file
// and on a full one.
func TestPlans(t *testing.T) {
	d := govern(t, open(t, filepath.Join(t.TempDir(), "governance.db"), now()))
	check := func() {
		t.Helper()
		for name, query := range governancesqlite.HotQueries {
			args := make([]any, strings.Count(query, "?"))
			if n := lastNumber(query); n > 0 {
				args = args[:n]
			}
			for i := range args {
				args[i] = 1
			}
			rows, err := d.sql.Query("explain query plan "+query, args...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for rows.Next() {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(detail, "SCAN") && !strings.Contains(detail, "SCAN wanted") && !strings.Contains(detail, "CONSTANT ROW") && !strings.Contains(detail, "governance_meta") {
					t.Errorf("%s: %s", name, detail)
				}
				if strings.Contains(detail, "TEMP B-TREE") || strings.Contains(detail, "AUTOMATIC") {
					t.Errorf("%s: %s", name, detail)
				}
			}
			_ = rows.Close()
		}
	}
	check()
	for i := range 300 {
		p, err := d.admit(t.Context())
		if err == nil && i%3 > 0 {
			err = p.Settle(t.Context(), governance.Used(1, 1))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.sql.Exec("analyze"); err != nil {
		t.Fatal(err)
	}
	check()
}

// lastNumber is the number of the last numbered parameter, zero when there is none.
func lastNumber(query string) int {
	n := 0
	for i := 1; i <= 20; i++ {
		if strings.Contains(query, "?"+strconv.Itoa(i)) {
			n = i
		}
	}
	return n
}

func TestMigrationsAreFiles(t *testing.T) {
	exported, err := governancesqlite.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	// Another tool runs the files: what they leave is what Check wants.
	by := filepath.Join(t.TempDir(), "other-tool.db")
	handle, err := sql.Open("sqlite", "file:"+by+pragmas)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = handle.Close() }()
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
			if _, err := handle.Exec(string(text)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	made := governancesqlite.Open(handle, nil)
	defer func() { _ = made.Close() }()
	if err := made.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Down and up again leave an empty, sound schema; the keys stay.
	o := open(t, filepath.Join(t.TempDir(), "governance.db"), now())
	d := govern(t, o)
	if _, err := d.admit(t.Context()); err != nil {
		t.Fatal(err)
	}
	source := governancesqlite.Source()
	_ = o.Close()
	if err := migratesqlite.Down(t.Context(), o.sql, source, 0); err != nil {
		t.Fatal(err)
	}
	again := open(t, o.path, o.clock)
	if list, err := again.Store.Permits(t.Context(), governance.PermitQuery{Limit: 10}); err != nil || len(list) != 0 {
		t.Fatalf("permits after down and up: %v, %v", list, err)
	}
	if team, err := again.Keys.Team(t.Context(), "team-1"); err != nil || team.ID != "team-1" {
		t.Fatalf("team after down and up: %v, %v", team, err)
	}
}

func TestFilesHaveTheirOwnNamespace(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		o := open(t, filepath.Join(t.TempDir(), "governance.db"), now())
		var namespace []byte
		if err := o.sql.QueryRow("select namespace from governance_meta").Scan(&namespace); err != nil || len(namespace) != 16 || seen[string(namespace)] {
			t.Fatalf("namespace %x, %v", namespace, err)
		}
		seen[string(namespace)] = true
	}
}

// TestHorizon: ids older than it are forgotten, whoever asks.
func TestHorizon(t *testing.T) {
	d := govern(t, open(t, filepath.Join(t.TempDir(), "governance.db"), now()))
	horizon := d.clock.us.Load() + 60_000_000
	if _, err := d.sql.Exec("update governance_meta set horizon_us = ?", horizon); err != nil {
		t.Fatal(err)
	}
	loaded, err := d.Store.View(t.Context(), &governance.Plan{})
	if err != nil || loaded.Horizon != horizon {
		t.Fatalf("horizon %d, %v; want %d", loaded.Horizon, err, horizon)
	}
}
