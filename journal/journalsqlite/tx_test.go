package journalsqlite_test

import (
	"errors"
	"testing"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
)

// TestInACallersTransaction: what else a node counts and its reservations are written together
// or not at all, and a fenced node writes neither.
func TestInACallersTransaction(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	o := open(t, path, false)
	j, err := journal.Open(ctx, o, &journal.Options{Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := credit(ctx, j, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := o.db.Exec("create table rates (n integer not null) strict"); err != nil {
		t.Fatal(err)
	}
	tx := sqlitetx.New(o.db, nil)
	defer tx.Close()
	admit := func(r journal.Reservation, rated error) error {
		plan := &journal.Plan{Accounts: []escrow.Account{anAccount}, Reservations: []journal.ID{r.ID}}
		var book *journal.Book
		err := tx.Write(ctx, func(tx *sqlitetx.Tx) error {
			if _, err := tx.Exec("insert into rates values (1)"); err != nil {
				return err
			}
			loaded, err := journalsqlite.Load(tx, plan)
			if err != nil {
				return err
			}
			if book, err = j.Book(loaded); err != nil {
				return err
			}
			if err := errors.Join(book.Reserve(r), rated); err != nil {
				return err
			}
			return journalsqlite.Write(tx, book.Changes())
		})
		if book != nil {
			j.Done(book)
		}
		return err
	}
	state := func() (rates, reserved int64) {
		t.Helper()
		if err := o.db.QueryRow("select (select count(*) from rates), (select coalesce(sum(reserved_microusd), 0) from journal_grants)").Scan(&rates, &reserved); err != nil {
			t.Fatal(err)
		}
		return rates, reserved
	}
	one := func(n int64) journal.Reservation {
		return journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{hard(n)}}
	}
	if err := admit(one(10), nil); err != nil {
		t.Fatal(err)
	}
	tooFast := errors.New("too many requests")
	if err := admit(one(10), tooFast); !errors.Is(err, tooFast) {
		t.Fatal(err)
	}
	select { // what credit asked for
	case <-j.Wants():
	default:
	}
	if err := admit(one(1<<40), nil); !errors.Is(err, journal.ErrShortage) {
		t.Fatal(err)
	}
	if len(j.Wants()) != 1 {
		t.Fatal("nobody is told that credit is missing")
	}
	if rates, reserved := state(); rates != 1 || reserved != 10 {
		t.Fatalf("%d rates and %d reserved", rates, reserved)
	}
	other := open(t, path, true)
	if _, err := journal.Open(ctx, other, nil); err != nil {
		t.Fatal(err)
	}
	if err := admit(one(1), nil); !errors.Is(err, journal.ErrFenced) {
		t.Fatal(err)
	}
	if rates, reserved := state(); rates != 1 || reserved != 0 {
		t.Fatalf("%d rates and %d reserved after the take-over", rates, reserved)
	}
}
