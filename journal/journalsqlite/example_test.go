package journalsqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the SQLite driver

	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
)

// Each opening of a journal has a number, and burns what the one before it left open.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "node-") // in a gateway: a folder of its own that stays
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	for range 2 {
		if err := live(ctx, filepath.Join(folder, "journal.db")); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// opening 1 burned 0 grants and 0 reservations
	// opening 2 burned 1 grants and 1 reservations
}

func live(ctx context.Context, path string) error {
	file, err := journalsqlite.Claim(path, nil)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", file.DSN())
	if err != nil {
		return err
	}
	defer db.Close()
	store := journalsqlite.New(db, file, nil)
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	j, err := journal.Open(ctx, store, nil)
	if err != nil {
		return err
	}
	defer j.Close()
	fmt.Println(j.Burnt())
	return j.Reserve(ctx, journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{{Account: anAccount, Amount: 5_000, Soft: true}}})
}
