package journalsqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
)

func refused(t *testing.T, path string, want error) error {
	t.Helper()
	o, err := attach(t, path, false)
	if err == nil {
		_ = o.Close()
	}
	if !errors.Is(err, want) {
		t.Fatalf("%q: %v, want %v", path, err, want)
	}
	if strings.Contains(err.Error(), filepath.Dir(path)) && len(filepath.Dir(path)) > 1 {
		t.Fatalf("the error tells the path: %v", err)
	}
	return err
}

func TestPathsThatAreNoPrivateFile(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{
		"", ":memory:", "journal.db", "./journal.db", dir + "/../x.db", "file:" + dir + "/x.db", dir + "/x.db?mode=memory", dir + "/x%20.db", dir + "/x#.db",
		dir + "/x\x00.db", dir + "/x.db-wal", dir + "/x.db.lock", dir + "/no/such/x.db", dir,
	} {
		refused(t, path, journalsqlite.ErrPath)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 1 { // the lock of the folder's own name lies beside it
		t.Fatalf("left is %v, %v", left, err)
	}
}

// TestTricks puts something else in the place of the file, or of what lies beside it.
func TestTricks(t *testing.T) {
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, trick := range map[string]func(path string){
		"symlink": func(p string) {
			do(os.WriteFile(p+"x", nil, 0o600))
			do(os.Symlink(p+"x", p))
		},
		"dangling symlink": func(p string) { do(os.Symlink(p+"x", p)) },
		"second name": func(p string) {
			do(os.WriteFile(p+"x", nil, 0o600))
			do(os.Link(p+"x", p))
		},
		"readable by the group": func(p string) { do(os.WriteFile(p, nil, 0o640)) },
		"readable by all":       func(p string) { do(os.WriteFile(p, nil, 0o604)) },
		"folder":                func(p string) { do(os.Mkdir(p, 0o700)) },
		"symlinked log": func(p string) {
			do(os.WriteFile(p, nil, 0o600))
			do(os.Symlink(p+"x", p+"-wal"))
		},
		"symlinked lock":   func(p string) { do(os.Symlink(p+"x", p+".lock")) },
		"log without file": func(p string) { do(os.WriteFile(p+"-wal", []byte("x"), 0o600)) },
		"open folder":      func(p string) { do(os.Chmod(filepath.Dir(p), 0o777)) },
		"shared folder":    func(p string) { do(os.Chmod(filepath.Dir(p), 0o777|os.ModeSticky)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			trick(path)
			refused(t, path, journalsqlite.ErrPath)
		})
	}
}

func TestFileIsPrivate(t *testing.T) {
	path := file(t)
	o := open(t, path, false)
	if _, err := journal.Open(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		if info, err := os.Stat(path + suffix); err != nil || info.Mode() != 0o600 {
			t.Fatalf("%q: %v, %v", suffix, info, err)
		}
	}
}

func TestHandleOnAnotherFile(t *testing.T) {
	f, err := journalsqlite.Claim(file(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := journalsqlite.Claim(file(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	db, err := sql.Open("sqlite", other.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := journalsqlite.New(db, f, nil)
	defer s.Close()
	if err := s.Migrate(t.Context()); !errors.Is(err, journalsqlite.ErrPath) {
		t.Fatal(err)
	}
}

func TestUnsafeHandle(t *testing.T) {
	f, err := journalsqlite.Claim(file(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", strings.Replace(f.DSN(), "synchronous(full)", "synchronous(normal)", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := journalsqlite.New(db, f, nil)
	defer s.Close()
	if err := s.Migrate(t.Context()); !errors.Is(err, journalsqlite.ErrUnsafe) {
		t.Fatal(err)
	}
}

// used makes a journal with something in it and closes it.
func used(t *testing.T, path string) {
	t.Helper()
	o := open(t, path, false)
	j, err := journal.Open(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if err := j.Reserve(t.Context(), journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{{Account: anAccount, Amount: 1, Soft: true}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(j.Close(), o.db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedIsSetAside: a damaged file is kept, and nothing takes its place until somebody says so.
func TestDamagedIsSetAside(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"no database": func([]byte) []byte { return []byte(strings.Repeat("no database at all ", 500)) },
		"header":      func(b []byte) []byte { copy(b, "XXXX"); return b },
		"schema":      func(b []byte) []byte { copy(b[100:], strings.Repeat("\xff", 300)); return b },
		"page":        func(b []byte) []byte { copy(b[len(b)-4096:], strings.Repeat("\x2a", 4096)); return b },
		"half":        func(b []byte) []byte { return b[:len(b)/2/4096*4096] },
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			used(t, path)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			broken := damage(append([]byte(nil), whole...))
			if err := os.WriteFile(path, broken, 0o600); err != nil {
				t.Fatal(err)
			}
			err = refused(t, path, journalsqlite.ErrQuarantined)
			var aside *journalsqlite.QuarantinedError
			if !errors.As(err, &aside) {
				t.Fatal(err)
			}
			if kept, err := os.ReadFile(aside.As); err != nil || string(kept) != string(broken) {
				t.Fatalf("what was set aside is not what was there: %v", err)
			}
			again := refused(t, path, journalsqlite.ErrQuarantined)
			if errors.As(again, &aside); aside.As == "" {
				t.Fatal("nobody knows where it is")
			}
			if err := journalsqlite.StartAnew(path, "", "why"); !errors.Is(err, journalsqlite.ErrPath) {
				t.Fatal(err)
			}
			if err := journalsqlite.StartAnew(path, "op", "looked at it"); err != nil {
				t.Fatal(err)
			}
			o := open(t, path, false)
			if j, err := journal.Open(t.Context(), o, nil); err != nil || j.Burnt().Number != 1 {
				t.Fatal(err)
			}
			if kept, err := os.ReadFile(aside.As); err != nil || string(kept) != string(broken) {
				t.Fatalf("what was set aside is gone: %v", err)
			}
			if note, err := os.ReadFile(aside.As[:strings.LastIndex(aside.As, ".damaged-")] + ".quarantined"); err == nil {
				t.Fatalf("the mark is still there: %s", note)
			}
		})
	}
}

// TestLostFileIsMissed: a journal that was there and is gone, or empty, is not begun anew in silence.
func TestLostFileIsMissed(t *testing.T) {
	for name, lose := range map[string]func(string) error{
		"deleted":   os.Remove,
		"truncated": func(p string) error { return os.Truncate(p, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			used(t, path)
			if err := lose(path); err != nil {
				t.Fatal(err)
			}
			refused(t, path, journalsqlite.ErrPath)
			if err := journalsqlite.StartAnew(path, "op", "it is lost"); err != nil {
				t.Fatal(err)
			}
			open(t, path, false)
		})
	}
}

func TestStartAnewNeedsTheFileFree(t *testing.T) {
	path := file(t)
	o := open(t, path, false)
	if err := journalsqlite.StartAnew(path, "op", "why"); !errors.Is(err, journalsqlite.ErrLocked) {
		t.Fatal(err)
	}
	if _, err := o.View(t.Context(), &journal.Plan{Everything: true}); err != nil {
		t.Fatal(err)
	}
}

// TestRestoredCopy: a copy that was taken while the journal was open has burned everything
// before it can be used, and its number is one that the authority may have heard.
func TestRestoredCopy(t *testing.T) {
	path, copied := file(t), file(t)
	o := open(t, path, false)
	j, err := journal.Open(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	reserve := func() journal.ID {
		id := journal.NewID()
		if err := j.Reserve(t.Context(), journal.Reservation{ID: id, Needs: []journal.Need{{Account: anAccount, Amount: 7, Soft: true}}}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	before := reserve()
	if _, err := o.db.Exec("vacuum into ?", copied); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(copied, 0o600); err != nil {
		t.Fatal(err)
	}
	after := reserve()
	other := open(t, copied, false)
	k, err := journal.Open(t.Context(), other, nil)
	if err != nil || k.Burnt().Number != j.Burnt().Number+1 || k.Boot() == j.Boot() || k.Burnt().Reservations != 1 {
		t.Fatalf("%+v, %v", k.Burnt(), err)
	}
	if err := k.Settle(t.Context(), before, journal.NotSent()); !errors.Is(err, journal.ErrEnded) {
		t.Fatal(err)
	}
	if err := k.Settle(t.Context(), after, journal.NotSent()); !errors.Is(err, journal.ErrNotFound) {
		t.Fatal(err)
	}
}
