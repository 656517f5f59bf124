package eventlogpg_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
)

// A replica starts: it makes sure of the log, follows it, and adopts what dead replicas left where it holds the lease.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://gateway@db.internal/gateway")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	st, err := eventlogpg.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := st.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	if err := st.Check(ctx); err != nil { // a standby, rows of another cluster
		log.Fatal(err)
	}
	l, err := eventlog.New(st, &eventlog.Options{
		Label: "gateway-1", Wake: st.Listen(ctx, nil), // directly to the server
		Subscriptions: []eventlog.Subscription{
			eventlog.Effect("audit", func(ctx context.Context, e eventlog.Recorded, _ eventlog.Appender) error {
				return export(ctx, e.ID, e.Data)
			}),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(l.Run(ctx))
}

func export(context.Context, string, []byte) error { return nil }

// What the page makes of a table and how far the consumer came are one transaction: each event counts once.
func ExampleStore_SaveTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://gateway@db.internal/gateway")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	st, err := eventlogpg.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	c, err := st.Claim(ctx, eventlog.Claim{Consumer: "totals", Owner: "worker-1"})
	if err != nil {
		log.Fatal(err)
	}
	tail, err := eventlog.NewTailer(st, eventlog.TailOptions{From: c.Cursor, Registered: true})
	if err != nil {
		log.Fatal(err)
	}
	for {
		page, err := tail.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			for _, e := range page.Events {
				if _, err := tx.Exec(ctx, "update totals set n = n + 1 where type = $1", e.Type); err != nil {
					return err
				}
			}
			c.Cursor = page.Next
			return st.SaveTx(ctx, tx, c)
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("through", c.Cursor.Through())
	}
}
