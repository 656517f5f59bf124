package keyspg_test

import (
	"context"
	"fmt"
	"io/fs"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // yours to configure and to close
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	st, err := keyspg.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := st.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	team, err := st.CreateTeam(ctx, keys.CreateTeam{Name: "Research"})
	if err != nil {
		log.Fatal(err)
	}
	made, err := st.CreateKey(ctx, keys.CreateKey{TeamID: team.ID, Owner: "ann@example.com"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("show this once:", made.Token.Reveal())
}

func ExampleMigrations() {
	names, err := fs.Glob(keyspg.Migrations(), "migrations/*.sql")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		fmt.Println(name)
	}
	// Output:
	// migrations/001_keys.down.sql
	// migrations/001_keys.up.sql
}
