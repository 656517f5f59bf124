package governancesqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/keys"
)

// Edits are events of the transactions that make them, and a cache of principals follows the log: whoever
// revokes a key, in whichever process, every cache forgets it.
func ExampleOptions_events() {
	dir, err := os.MkdirTemp("", "governance")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "gateway.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := follow(context.Background(), db); err != nil {
		log.Fatal(err)
	}
	// Output:
	// team.created team/research
	// key.created key/crawler
	// kept: 1
	// key.revoked key/crawler
	// kept: 0
}

func follow(ctx context.Context, db *sql.DB) error {
	events := eventlogsqlite.New(db)
	defer events.Close()
	if err := events.Migrate(ctx); err != nil {
		return err
	}
	principals := governancesqlite.Open(db, nil) // for reading
	defer principals.Close()
	cache := keys.NewCache(principals.Keys, nil)
	seen := make(chan eventlog.Recorded)
	history, err := eventlog.New(events, &eventlog.Options{Subscriptions: []eventlog.Subscription{
		eventlog.Projection("principals", func(_ context.Context, e eventlog.Recorded) error {
			cache.Follow(e.Stream)
			seen <- e
			return nil
		}, nil),
	}})
	if err != nil {
		return err
	}
	told, err := eventlogsqlite.NewRecorder(events, history)
	if err != nil {
		return err
	}
	st := governancesqlite.Open(db, &governancesqlite.Options{Events: told})
	defer st.Close()
	if err := st.Migrate(ctx); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- history.Run(running) }()
	tell := func() {
		e := <-seen
		fmt.Println(e.Type, e.Stream)
	}

	if _, err := st.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "research"}); err != nil {
		return err
	}
	made, err := st.Keys.CreateKey(ctx, keys.CreateKey{ID: "crawler", TeamID: "research"})
	if err != nil {
		return err
	}
	tell()
	tell()
	if _, err := cache.Resolve(ctx, made.Token.Reveal()); err != nil {
		return err
	}
	fmt.Println("kept:", cache.Len())
	if _, err := st.Keys.RevokeKey(ctx, keys.RevokeKey{ID: "crawler"}); err != nil {
		return err
	}
	tell()
	fmt.Println("kept:", cache.Len())
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
