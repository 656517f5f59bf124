package policypg_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policypg"
)

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // yours to configure and to close
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	st, err := policypg.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := st.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	documents, err := policy.Decode([]byte(`{"apiVersion": "tallystick.dev/v1alpha1", "kind": "GovernancePolicy",
		"metadata": {"name": "research"}, "spec": {"subject": {"team": "research"}, "rules": [
			{"name": "pace", "failurePolicy": "FailOpen", "rate": {"rpm": 60}}]}}`))
	if err != nil {
		log.Fatal(err)
	}
	now, err := st.Load(ctx)
	if err != nil {
		log.Fatal(err)
	}
	edit := policy.Apply{Documents: documents, Expect: now.Generation}
	now, err = st.Apply(ctx, edit)
	for errors.Is(err, policy.ErrUnconfirmed) { // committed; admissions of before are still running
		now, err = st.Apply(ctx, edit)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(now.Generation, "is in force on every gateway")
}

// ExampleStore_Migrations lists the files for a migration tool of your own. No
// database is asked: the pool connects when it is first used.
func ExampleStore_Migrations() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	st, err := policypg.New(pool, &policypg.Options{Schema: "tallystick"})
	if err != nil {
		log.Fatal(err)
	}
	files, err := st.Migrations()
	if err != nil {
		log.Fatal(err)
	}
	names, err := fs.Glob(files, "policypg/*.sql")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		fmt.Println(name)
	}
	// Output:
	// policypg/001_policies.down.sql
	// policypg/001_policies.up.sql
}
