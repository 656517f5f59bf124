package eventlog_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
)

// A gateway suspends sessions: every replica keeps a view of which, and the replica that suspended one tells the outside.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	st, closer := emptyStore()
	defer closer()

	suspended := map[string]bool{}
	seen, told := make(chan struct{}), make(chan struct{})
	l, err := eventlog.New(st, &eventlog.Options{Label: "gateway-1", Subscriptions: []eventlog.Subscription{
		eventlog.Projection("suspensions", func(_ context.Context, e eventlog.Recorded) error {
			suspended[e.Stream] = e.Type == "suspended"
			close(seen)
			return nil
		}, nil),
		eventlog.Effect("siem", func(_ context.Context, e eventlog.Recorded, _ eventlog.Appender) error {
			<-seen
			fmt.Printf("tell the outside: %s %s, key %s\n", e.Stream, e.Type, e.ID) // which may hear it twice
			close(told)
			return nil
		}),
	}})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()

	done, err := l.Append(ctx, eventlog.Append{
		Stream: "session-7", Expect: eventlog.Empty,
		Events: []eventlog.Event{{ID: "0192-a", Type: "suspended", Data: []byte(`{"rule":"exfiltration"}`)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("session-7 is at version", done[0].Version)
	<-told
	fmt.Println("suspended here:", suspended["session-7"])

	_, err = l.Append(ctx, eventlog.Append{Stream: "session-7", Expect: eventlog.Empty, Events: []eventlog.Event{{Type: "suspended"}}})
	var conflict *eventlog.ConflictError
	fmt.Println(errors.As(err, &conflict), err)
	stop()
	fmt.Println("ended:", <-ended)
	// Unordered output:
	// session-7 is at version 1
	// tell the outside: session-7 suspended, key 0192-a
	// suspended here: true
	// true eventlog: the stream is at version 1, not 0
	// ended: context canceled
}

// A checkpoint is a place in the log under a name. Whoever claims it goes on where the last owner came to.
func ExampleCheckpoints() {
	ctx := context.Background()
	st, closer := emptyStore()
	defer closer()
	l, err := eventlog.New(st, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{"one", "two", "three"} {
		if _, err := l.Append(ctx, eventlog.Append{Stream: "s", Events: []eventlog.Event{{ID: id, Type: "counted"}}}); err != nil {
			log.Fatal(err)
		}
	}
	for _, process := range []eventlog.Producer{"first", "second"} {
		c, err := st.Claim(ctx, eventlog.Claim{Consumer: "report", Owner: process})
		if err != nil {
			log.Fatal(err)
		}
		page, err := st.Read(ctx, eventlog.Read{Cursor: c.Cursor, Limit: 2, Registered: true})
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range page.Events {
			fmt.Println(process, "reports", e.ID)
		}
		c.Cursor = page.Next
		if err := st.Save(ctx, c); err != nil { // after what it stands for is done
			log.Fatal(err)
		}
	}
	// Output:
	// first reports one
	// first reports two
	// second reports three
}

func emptyStore() (st *eventlogsqlite.Store, closer func()) {
	folder, err := os.MkdirTemp("", "eventlog")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(folder, "events.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=fullfsync(1)")
	if err != nil {
		log.Fatal(err)
	}
	st = eventlogsqlite.New(db)
	if err := st.Migrate(context.Background()); err != nil {
		log.Fatal(err)
	}
	return st, func() {
		if err := errors.Join(st.Close(), db.Close(), os.RemoveAll(folder)); err != nil {
			log.Fatal(err)
		}
	}
}
