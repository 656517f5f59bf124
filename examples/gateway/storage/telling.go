package storage

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/examples/gateway/audit"
)

// telling has whoever opens the schema of gateways that coordinate tell them what it changes: an operator's command, an
// authority. It does not follow the log, so that its events are exported, where there are exports, as those of a gateway that
// is gone. Where nobody has coordinated yet there is no log, and nobody is told. end, which is never nil, comes before the pool is closed.
//
// Errors: eventlog.ErrUnavailable; those of eventlogpg's Migrate and Check.
func telling(ctx context.Context, pool *pgxpool.Pool, o Postgres) (_ *eventlogpg.Recorder, end func(), err error) {
	end = func() {}
	var there bool
	err = pool.QueryRow(ctx, "select to_regclass($1::text) is not null", pgx.Identifier{o.Schema, "event_log"}.Sanitize()).Scan(&there)
	if err != nil {
		return nil, end, eventlog.ErrUnavailable // the driver's text can say too much
	}
	if !there {
		return nil, end, nil
	}
	store, err := eventlogpg.New(pool, &eventlogpg.Options{Schema: o.Schema})
	if err != nil {
		return nil, end, err
	}
	if o.Migrate {
		if err := store.Migrate(ctx); err != nil {
			return nil, end, err
		}
	}
	if err := store.Check(ctx); err != nil {
		return nil, end, err
	}
	exports, err := store.Checkpoints(ctx, audit.Name)
	if err != nil {
		return nil, end, err
	}
	var subscriptions []eventlog.Subscription
	if len(exports) > 0 { // who exports finds, by the checkpoint of this, what it left
		subscriptions = append(subscriptions, eventlog.Effect(audit.Name, func(context.Context, eventlog.Recorded, eventlog.Appender) error {
			return fmt.Errorf("%w: this process exports nothing", eventlog.ErrDeclined)
		}))
	}
	log, err := eventlog.New(store, &eventlog.Options{Label: "command", Subscriptions: subscriptions})
	if err != nil {
		return nil, end, err
	}
	events, err := eventlogpg.NewRecorder(store, log)
	if err == nil && len(subscriptions) > 0 {
		end = remembered(store, log.Producer())
	}
	return events, end, err
}
