package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

var (
	// ErrPostgres: the Postgres cannot be used.
	ErrPostgres = errors.New("storage: the Postgres cannot be used")
	// ErrNamespace: it is another database than the one that is wanted, whatever its
	// policies say.
	ErrNamespace = errors.New("storage: this schema is another authority than storage.postgres.namespace says: equal policies in two databases are two sets of accounts")
)

// Postgres says how to reach a schema. Zero fields are the defaults of the driver and
// of governancepg.
type Postgres struct {
	// DSN is a connection string. Whatever it says, only a server that takes writes is
	// used: a standby would answer with what was true some time ago.
	DSN    string
	Schema string
	// Namespace is the authority that the schema must be; empty: any.
	Namespace string
	// Migrate creates and updates the tables. Without it they must be there and up to date.
	Migrate     bool
	Connections int32
	// Connect bounds the opening of one connection.
	Connect time.Duration
	// Lock, Statement, Idle and Commit bound what one transaction waits for. Call bounds
	// everything of the key store but the wait for admissions, which Barrier bounds.
	Lock, Statement, Idle, Commit, Call, Barrier time.Duration
	// Format is how tokens look.
	Format keys.Format
	// Events records what is changed, in a log of the same schema. Nil: where gateways coordinate on the schema they are told all the same.
	Events *eventlogpg.Recorder
	// Clock makes the time of the store of the database's; see governancepg.Options.
	Clock func(database time.Time) time.Time
}

// PostgresOf is what a configuration says, with the times for one connection and for one
// transaction.
//
// Errors: *config.SecretError, where its connection string was not read.
func PostgresOf(p *config.Postgres, connect, transaction time.Duration) (Postgres, error) {
	dsn, err := p.ConnString()
	return Postgres{
		DSN: dsn, Schema: p.Schema, Namespace: p.Namespace, Migrate: p.Migrate, Connections: p.Connections(), Connect: connect,
		Lock: p.LockTimeout.Duration, Statement: p.StatementTimeout.Duration, Idle: p.IdleTimeout.Duration, Commit: p.CommitTimeout.Duration,
		Call: transaction, Barrier: barrier * transaction,
	}, err
}

// barrier is how often the time for one transaction fits into the wait for those that
// are under way: one that hangs has ended before.
const barrier = 2

// OpenPostgres opens a schema, and waits for the database as long as the context allows.
//
// Errors: ErrPostgres, together with those of governancepg's Migrate and Check.
func OpenPostgres(ctx context.Context, o Postgres) (*Database, error) {
	settings, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("%w: that is no connection string", ErrPostgres) // the driver's text repeats it
	}
	settings.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	if o.Connections > 0 {
		settings.MaxConns = o.Connections
	}
	if o.Connect > 0 {
		settings.ConnConfig.ConnectTimeout = o.Connect
	}
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("%w: no pool can be made of the connection string", ErrPostgres)
	}
	db, end, err := open(ctx, pool, o)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("%w: %w", ErrPostgres, err)
	}
	closer := func() error {
		end()
		pool.Close()
		return nil
	}
	return &Database{Keys: db.Keys, Policies: db.Policies, Store: db.Store, backend: db, close: closer}, nil
}

// open makes sure of the tables. end, which is never nil, comes before the pool is closed.
func open(ctx context.Context, pool *pgxpool.Pool, o Postgres) (_ *governancepg.DB, end func(), _ error) {
	end = func() {}
	db, err := governed(pool, o)
	if err != nil {
		return nil, end, err
	}
	if o.Migrate {
		if err := db.Migrate(ctx); err != nil {
			return nil, end, err
		}
	}
	if err := db.Check(ctx); err != nil {
		return nil, end, err
	}
	if o.Namespace != "" {
		now, err := db.Policies.Load(ctx)
		if err != nil {
			return nil, end, err
		}
		if is := now.Namespace.String(); is != o.Namespace {
			return nil, end, fmt.Errorf("%w: it is %s", ErrNamespace, is)
		}
	}
	if o.Events != nil {
		return db, end, nil
	}
	if o.Events, end, err = telling(ctx, pool, o); err != nil || o.Events == nil {
		return db, end, err
	}
	if db, err = governed(pool, o); err != nil {
		end()
	}
	return db, end, err
}

func governed(pool *pgxpool.Pool, o Postgres) (*governancepg.DB, error) {
	return governancepg.Open(pool, &governancepg.Options{
		Schema: o.Schema, LockTimeout: o.Lock, StatementTimeout: o.Statement, IdleTimeout: o.Idle, CommitTimeout: o.Commit,
		Keys:   &keyspg.Options{Tokens: o.Format, Timeout: o.Call, BarrierWait: o.Barrier},
		Events: o.Events, Clock: o.Clock,
	})
}
