// Package coordination is what makes the gateways of one database one: an event log that all follow, leases on
// what one of them does at a time, and tables of what they share. What is shared is in packages suspend and
// upstreams; what each does for itself is none of its business.
package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasepg"
)

// The leases, by what their holder does.
const (
	FleetLease  = "gateway-fleet"  // manages the registered upstreams
	ExportLease = "gateway-export" // exports what a dead gateway left
)

var (
	// ErrUnavailable: the database did not answer, and nothing changed.
	ErrUnavailable = errors.New("coordination: the database does not answer")
	// ErrUnknownOutcome: it may have changed or not. Every edit here may be repeated.
	ErrUnknownOutcome = errors.New("coordination: it is not known whether this was done: repeat it")
	// ErrPostgres: the Postgres cannot be used for coordination.
	ErrPostgres = errors.New("coordination: the Postgres cannot be used")
	// ErrStarting: what others did is not known here yet.
	ErrStarting = errors.New("coordination: what the other gateways did is not known yet")
)

// Options say how gateways coordinate.
type Options struct {
	// DSN is of the database that the gateways share; Schema holds the tables.
	DSN, Schema string
	// Connect bounds the opening of a connection, Call everything else.
	Connect, Call time.Duration
	// Migrate creates and updates the tables.
	Migrate bool
	// Tenure is how long a lease lasts, Tail how often the log is looked at.
	Tenure, Tail time.Duration
	// Stale is how long the log may be unreadable until Following says so; zero: for ever.
	Stale  time.Duration
	Logger *slog.Logger
}

// Base is one gateway's part in it. Open makes it, Join gives it an identity, Start sets it going.
type Base struct {
	Leaser *leasepg.Leaser
	Store  *eventlogpg.Store
	Log    *eventlog.Log        // after Join
	Events *eventlogpg.Recorder // after Join
	Keeper *lease.Keeper        // after Start

	options Options
	pool    *pgxpool.Pool // of appends and the tables
	follow  *pgxpool.Pool // who follows the log waits behind nothing
	leases  *pgxpool.Pool // nor do renewals
	schema  string        // quoted
	stop    context.CancelFunc
	running sync.WaitGroup

	began time.Time

	mu     sync.Mutex
	ended  error  // why the log is not followed any more
	heldBy string // see HeldBy
}

// Open opens the database and makes sure of the tables. Nothing runs yet.
//
// Errors: ErrPostgres, with what Migrate or Check of the packages found.
func Open(ctx context.Context, o Options) (*Base, error) {
	b := &Base{options: o, schema: pgx.Identifier{o.Schema}.Sanitize()}
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	return b, nil
}

func (b *Base) open(ctx context.Context) (err error) {
	if b.pool, err = b.newPool(ctx, 4); err != nil {
		return err
	}
	if b.follow, err = b.newPool(ctx, 3); err != nil {
		return err
	}
	if b.leases, err = b.newPool(ctx, 2); err != nil {
		return err
	}
	if b.Leaser, err = leasepg.New(b.leases, &leasepg.Options{Schema: b.options.Schema, Timeout: b.options.Call}); err != nil {
		return fmt.Errorf("%w: %w", ErrPostgres, err)
	}
	if b.Store, err = eventlogpg.New(b.pool, &eventlogpg.Options{Schema: b.options.Schema, Timeout: b.options.Call, Following: b.follow}); err != nil {
		return fmt.Errorf("%w: %w", ErrPostgres, err)
	}
	if b.options.Migrate {
		if err = errors.Join(b.Leaser.Migrate(ctx), b.Store.Migrate(ctx)); err == nil {
			err = b.migrate(ctx)
		}
	}
	if err == nil {
		err = errors.Join(b.Leaser.Check(ctx), b.Store.Check(ctx))
	}
	if err == nil {
		err = b.check(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPostgres, err)
	}
	return nil
}

func (b *Base) newPool(ctx context.Context, connections int32) (*pgxpool.Pool, error) {
	settings, err := pgxpool.ParseConfig(b.options.DSN)
	if err != nil {
		return nil, fmt.Errorf("%w: that is no connection string", ErrPostgres) // the driver's text repeats it
	}
	settings.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	settings.MaxConns, settings.ConnConfig.ConnectTimeout = connections, b.options.Connect
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("%w: no pool can be made of the connection string", ErrPostgres)
	}
	return pool, nil
}

// Start follows the log, and competes for the leases. It joins with these subscriptions where Join was not called.
//
// Errors: those of Join and lease.NewKeeper.
func (b *Base) Start(subscriptions ...eventlog.Subscription) (err error) {
	if b.Log == nil {
		if err := b.Join(subscriptions...); err != nil {
			return err
		}
	}
	b.Keeper, err = lease.NewKeeper(b.Leaser, []string{FleetLease, ExportLease}, &lease.KeeperOptions{
		Label: label(), TTL: b.options.Tenure, Logger: b.options.Logger,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.began = cancel, time.Now()
	b.running.Go(func() {
		err := b.Log.Run(ctx)
		if ctx.Err() != nil {
			return
		}
		b.options.Logger.Error("coordination: the log cannot be followed any more; nothing is admitted", "error", err)
		b.mu.Lock()
		b.ended = err
		b.mu.Unlock()
	})
	return nil
}

// Beat is how often a gateway says that it lives, and Silence after how long without that others take it for dead.
func (b *Base) Beat() time.Duration    { return b.options.Tenure / 3 }
func (b *Base) Silence() time.Duration { return 2 * b.options.Tenure }

// Instance is this gateway's identity, as events carry it.
func (b *Base) Instance() string { return string(b.Log.Producer()) }

// Every runs a cycle of work now and then, wherever a lease is held, until ctx ends. What fails is logged and
// tried again with the next cycle.
func (b *Base) Every(ctx context.Context, cycle time.Duration, name string, work func(context.Context, lease.Lease) error) {
	tick := time.NewTicker(cycle)
	defer tick.Stop()
	for {
		err := b.Keeper.Do(ctx, name, work)
		switch {
		case ctx.Err() != nil || errors.Is(err, lease.ErrClosed):
			return
		case err != nil && !errors.Is(err, lease.ErrNotHeld):
			b.options.Logger.Warn("coordination: a cycle failed", "lease", name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close hands the leases over, stops to follow the log, and closes the database.
//
// Errors: those of lease.Keeper.Close.
func (b *Base) Close(ctx context.Context) error {
	var err error
	if b.Keeper != nil {
		err = b.Keeper.Close(ctx)
	}
	if b.stop != nil {
		b.stop()
		b.running.Wait()
	}
	for _, pool := range []*pgxpool.Pool{b.pool, b.follow, b.leases} {
		if pool != nil {
			pool.Close()
		}
	}
	return err
}
