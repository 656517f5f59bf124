package journalsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
)

const childFile = "TALLYSTICK_TEST_JOURNAL"

// The test binary runs itself as a node that says on its output what it was told.
func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		if err := node(path); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// node lives a short life. A failure is said and lived with: only what it was told counts.
func node(path string) error {
	ctx := context.Background()
	if err := filter(); err != nil {
		return err
	}
	f, err := journalsqlite.Claim(path, nil)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", f.DSN())
	if err != nil {
		return err
	}
	s := journalsqlite.New(db, f, nil)
	if err := s.Check(ctx); err != nil {
		fmt.Println("denied", err)
		return nil
	}
	j, err := journal.Open(ctx, s, &journal.Options{Node: "node-1"})
	if err != nil {
		fmt.Println("denied", err)
		return nil
	}
	fmt.Println("opened", j.Burnt().Number)
	if err := credit(ctx, j, 100); err != nil {
		fmt.Println("denied", err)
	}
	for i := range 3 {
		id := journal.NewID()
		if err := j.Reserve(ctx, journal.Reservation{ID: id, Needs: []journal.Need{hard(10)}}); err != nil {
			fmt.Println("denied", err)
			continue
		}
		fmt.Println("reserved", id)
		if i == 2 {
			break // still on its way
		}
		o := []journal.Outcome{journal.Used(4), journal.Unknown(3)}[i]
		if err := j.Settle(ctx, id, o); err != nil {
			fmt.Println("denied", err)
			continue
		}
		fmt.Println("settled", id, uint8(o.State))
	}
	if err := beat(ctx, j); err != nil {
		fmt.Println("denied", err)
	}
	if err := errors.Join(j.Close(), db.Close()); err != nil {
		fmt.Println("denied", err)
	}
	fmt.Println("ended")
	return nil
}

// template is a journal that an earlier process left in the middle of its work.
func template(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.db")
	o := open(t, path, false)
	j, err := journal.Open(t.Context(), o, &journal.Options{Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := credit(t.Context(), j, 50); err != nil {
		t.Fatal(err)
	}
	if err := j.Reserve(t.Context(), journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{hard(5)}}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Close(), o.db.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := quick(t)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(to, "journal.db")
}

// TestKilledAtEveryWriteAndFlush ends a node before each operation on its files in turn,
// and cuts the power: what was not flushed is gone. Whatever the node was told before
// must be so, and no credit may be used again.
func TestKilledAtEveryWriteAndFlush(t *testing.T) {
	dir := template(t)
	total := 0
	for at := 1; ; at++ {
		path := copyOf(t, dir)
		disk := newDisk(t, path)
		n := 0
		said := trace(t, path, []string{childFile + "=" + path}, func(operation) ruling {
			if n++; n == at {
				return kill
			}
			return through
		}, disk.done)
		whole := n < at
		if whole != strings.Contains(said, "ended") {
			t.Fatalf("after %d of %d operations the node said %q", n, at, said)
		}
		if at%2 == 0 && !whole {
			disk.cut(t)
		}
		verify(t, path, said, at)
		if whole {
			total = n
			break
		}
	}
	t.Logf("killed at each of %d operations", total)
	if total < 20 {
		t.Fatalf("only %d operations were seen: the tracer is blind", total)
	}
}

// TestDiskFailsAtEveryWriteAndFlush has each operation in turn, and all behind it, say that the
// disk is full or broken. That denies, loses nothing, and is over when the disk is well again.
func TestDiskFailsAtEveryWriteAndFlush(t *testing.T) {
	dir := template(t)
	for at := 1; ; at += 5 {
		path := copyOf(t, dir)
		n := 0
		said := trace(t, path, []string{childFile + "=" + path}, func(op operation) ruling {
			n++
			switch {
			case n < at || op.name == "truncate":
				return through
			case at%2 == 0 || op.name == "sync":
				return failIO
			}
			return failFull
		}, nil)
		if !strings.Contains(said, "ended") && !strings.Contains(said, "denied") {
			t.Fatalf("operation %d failed and the node said %q", at, said)
		}
		if strings.Contains(said, path) || strings.Contains(said, "SELECT") {
			t.Fatalf("an error tells too much: %s", said)
		}
		verify(t, path, said, at)
		if n < at {
			if n < 20 {
				t.Fatalf("only %d operations were seen: the tracer is blind", n)
			}
			return
		}
	}
}

// disk remembers each file as it was when it was last flushed.
type disk struct {
	t     *testing.T
	dir   string
	files map[string][]byte
}

func newDisk(t *testing.T, path string) *disk {
	d := &disk{t: t, dir: filepath.Dir(path), files: map[string][]byte{}}
	list, err := os.ReadDir(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		d.keep(filepath.Join(d.dir, f.Name()))
	}
	return d
}

func (d *disk) keep(path string) {
	if data, err := os.ReadFile(path); err == nil {
		d.files[path] = data
	}
}

func (d *disk) done(op operation) {
	if op.name == "sync" {
		d.keep(op.path)
	}
}

// cut leaves of every file what was flushed.
func (d *disk) cut(t *testing.T) {
	t.Helper()
	list, err := os.ReadDir(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		path := filepath.Join(d.dir, f.Name())
		data, flushed := d.files[path]
		if !flushed || strings.HasSuffix(path, "-shm") {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// verify opens the journal as it was left, and holds it against what the node said.
func verify(t *testing.T, path, said string, at int) {
	t.Helper()
	o, err := attach(t, path, false)
	if err != nil {
		t.Fatalf("operation %d: %v; the node said %s", at, err, said)
	}
	defer func() { _ = o.db.Close() }()
	defer o.Close()
	j, err := journal.Open(t.Context(), o, &journal.Options{Node: "node-1"})
	if err != nil {
		t.Fatalf("operation %d: %v", at, err)
	}
	ids, states := map[string]journal.ID{}, map[string]string{}
	var list []journal.ID
	last := int64(1)
	for line := range strings.Lines(said) {
		var word, id, state string
		_, _ = fmt.Sscan(line, &word, &id, &state)
		switch word {
		case "opened":
			_, _ = fmt.Sscan(id, &last)
		case "reserved", "settled":
			if _, known := ids[id]; !known {
				ids[id] = parse(t, id)
				list = append(list, ids[id])
			}
			states[id] = state
		}
	}
	if j.Burnt().Number <= last {
		t.Fatalf("operation %d: opening %d comes after opening %d", at, j.Burnt().Number, last)
	}
	l, err := o.View(t.Context(), &journal.Plan{Everything: true, OnTheirWay: true, Reservations: list})
	if err != nil {
		t.Fatal(err)
	}
	found := map[journal.ID]journal.Record{}
	for _, r := range l.Records {
		if r.State == journal.Reserved {
			t.Fatalf("operation %d: a reservation is still on its way: %+v", at, r)
		}
		found[r.ID] = r
	}
	for text, id := range ids {
		r, ok := found[id]
		if !ok || (states[text] != "" && states[text] != fmt.Sprint(uint8(r.State))) {
			t.Fatalf("operation %d: %s was said to be %q and is %+v; said was %s", at, text, states[text], r, said)
		}
	}
	for _, g := range l.Grants {
		if g.Ending == escrow.Open || g.Reserved != 0 || g.Validate() != nil {
			t.Fatalf("operation %d: a grant can still be used: %+v", at, g)
		}
		if !g.Asked && g.Ending == escrow.Burned && g.Consumed+g.Uncertain != g.Amount {
			t.Fatalf("operation %d: a burned grant is not charged in full: %+v", at, g)
		}
	}
	if err := j.Reserve(t.Context(), journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{hard(1)}}); !errors.Is(err, journal.ErrShortage) {
		t.Fatalf("operation %d: credit is there again: %v", at, err)
	}
}

func parse(t *testing.T, s string) journal.ID {
	t.Helper()
	id, err := escrow.ParseGrantID(s) // the same form
	if err != nil {
		t.Fatal(err)
	}
	return journal.ID(id)
}
