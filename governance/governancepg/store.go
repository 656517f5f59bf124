package governancepg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/escrow/escrowpg"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policypg"
	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

// Options tune the adapter. Nil and zero fields are the defaults.
type Options struct {
	// Schema holds the tables. Default "tallystick". Lower-case letters, digits and
	// underscores; it is spliced in once, search_path is not used.
	Schema string
	// Keys tune the key store; its Schema must be empty or the same.
	Keys *keyspg.Options
	// LockTimeout bounds the wait for a row that another gateway holds. Default 2 s.
	LockTimeout time.Duration
	// IdleTimeout is how long the server keeps a transaction of a stalled gateway. Default 5 s.
	IdleTimeout time.Duration
	// StatementTimeout bounds each statement. Default 5 s.
	StatementTimeout time.Duration
	// CommitTimeout is how long the answer to a COMMIT is waited for. Default 5 s.
	CommitTimeout time.Duration
	// Clock makes the store's time of the database's, for counters and keys. It is for tests of
	// calendars and expiry; every process on the schema must use the same.
	Clock func(database time.Time) time.Time
	// Events appends what steps (governance.Changes.Events) and edits of keys and policies tell to the log, in their transactions. The
	// log must be in the same database and schema. Nil: nothing is told. The Events of Keys must be nil or the same.
	Events *eventlogpg.Recorder
}

// DB is one schema of one Postgres database: keys, policies and counters in one place.
type DB struct {
	Keys     *keyspg.Store
	Policies *policypg.Store
	Nodes    *escrowpg.Store
	Store    *Store

	pool   *pgxpool.Pool
	schema pgtx.Schema
}

var (
	_ governance.Backend = (*DB)(nil)
	_ governance.Store   = (*Store)(nil)
)

// Open returns a handle on the caller's pool. It does no I/O: call Migrate or
// Check before first use.
//
// Errors: an invalid schema name, governance.ErrInvalid for a negative timeout.
func Open(pool *pgxpool.Pool, o *Options) (*DB, error) {
	var options Options
	if o != nil {
		options = *o
	}
	if options.Schema == "" {
		options.Schema = "tallystick"
	}
	schema, err := pgtx.ParseSchema(options.Schema)
	if err != nil {
		return nil, err
	}
	var keyOptions keyspg.Options
	if options.Keys != nil {
		keyOptions = *options.Keys
	}
	if keyOptions.Schema != "" && keyOptions.Schema != options.Schema {
		return nil, &governance.FieldError{Field: "options.keys.schema", Why: "must be empty or the schema of the counters"}
	}
	if keyOptions.Events != nil && keyOptions.Events != options.Events {
		return nil, &governance.FieldError{Field: "options.keys.events", Why: "must be nil or the events of the counters"}
	}
	keyOptions.Schema, keyOptions.Events = options.Schema, options.Events
	if options.Clock == nil {
		options.Clock = func(database time.Time) time.Time { return database }
	}
	keyOptions.Clock = options.Clock
	store, err := keyspg.New(pool, &keyOptions)
	if err != nil {
		return nil, err
	}
	policies, err := policypg.New(pool, &policypg.Options{Schema: options.Schema, Events: options.Events})
	if err != nil {
		return nil, err
	}
	nodes, err := escrowpg.New(pool, &escrowpg.Options{Schema: options.Schema})
	if err != nil {
		return nil, err
	}
	for _, t := range []struct {
		field    string
		of       *time.Duration
		fallback time.Duration
	}{
		{"options.lock_timeout", &options.LockTimeout, 2 * time.Second}, {"options.idle_timeout", &options.IdleTimeout, 5 * time.Second},
		{"options.statement_timeout", &options.StatementTimeout, 5 * time.Second}, {"options.commit_timeout", &options.CommitTimeout, 5 * time.Second},
	} {
		if *t.of < 0 {
			return nil, &governance.FieldError{Field: t.field, Why: "must not be negative; zero is the default"}
		}
		if *t.of == 0 {
			*t.of = t.fallback
		}
	}
	bounds := pgtx.Options{
		Lock: options.LockTimeout, Idle: options.IdleTimeout, Statement: options.StatementTimeout, Commit: options.CommitTimeout,
	}
	step, read := bounds, bounds
	step.Barrier, step.PinPlans = schema.LockKey(), true
	read.ReadOnly, read.Snapshot = true, true
	return &DB{
		Keys: store, Policies: policies, Nodes: nodes, pool: pool, schema: schema,
		Store: &Store{
			pool: pool, schema: schema, q: splice(schema), clock: options.Clock, events: options.Events, known: known{ids: map[governance.ConstraintID]struct{}{}},
			stepping: step, reading: read, described: pool != nil && described(pool.Config().ConnConfig.DefaultQueryExecMode),
		},
	}, nil
}

// Backend is what governance.New takes.
func (db *DB) Backend() governance.Stores {
	return governance.Stores{Keys: db.Keys, Policies: db.Policies, Store: db.Store, Nodes: db.Nodes, Profile: policy.Shared}
}

// Store keeps the counters.
type Store struct {
	pool              *pgxpool.Pool
	schema            pgtx.Schema
	q                 *queries
	stepping, reading pgtx.Options
	clock             func(database time.Time) time.Time
	described         bool // the server describes parameters
	events            *eventlogpg.Recorder
	known             known
}

// Step implements governance.Store in two round trips: begin, lock and load; write
// and commit.
func (s *Store) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for again := false; ; again = true {
		if err := s.ensure(ctx, plan.Constraints); err != nil {
			return translate(err)
		}
		l := s.loading(plan)
		var b pgx.Batch
		l.queue(&b, true)
		tx, err := pgtx.Begin(ctx, s.pool, s.stepping, &b)
		if err != nil {
			return translate(err)
		}
		if l.missing() && !plan.SkipLocked {
			tx.Rollback()
			if s.known.forget(plan.Constraints); again {
				return governance.ErrCorrupt
			}
			continue
		}
		return s.decide(ctx, tx, l, decide)
	}
}

func (s *Store) decide(ctx context.Context, tx *pgtx.Tx, l *load, decide func(*governance.Loaded) *governance.Changes) error {
	defer tx.Rollback()
	if err := l.finish(ctx, tx.Send); err != nil {
		return translate(err)
	}
	ch := decide(l.loaded)
	if ch.Empty() {
		return nil
	}
	var b pgx.Batch
	if err := s.write(&b, l, ch); err != nil {
		return err
	}
	err := translate(tx.Commit(ctx, &b))
	s.wake(ch.Events, err)
	if errors.Is(err, governance.ErrUnknownOutcome) && ch.Batch != nil {
		return s.learn(ctx, ch.Batch.ID)
	}
	return err
}

// View implements governance.Store, in one snapshot.
func (s *Store) View(ctx context.Context, plan *governance.Plan) (*governance.Loaded, error) {
	var l *load
	read := s.read
	if len(plan.Permits) > 0 || plan.Entries != nil {
		read = s.readRing
	}
	err := read(ctx, func(ctx context.Context, tx *pgtx.Tx) error {
		l = s.loading(plan)
		var b pgx.Batch
		l.queue(&b, false)
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		return l.finish(ctx, tx.Send)
	})
	if err != nil {
		return nil, translate(err)
	}
	return l.loaded, nil
}

// learn finds out whether a batch whose commit was not acknowledged did commit, by
// making it impossible: the tombstone's insert waits for a transaction in doubt.
// One look-up answers for the whole batch. It goes on until the context ends.
func (s *Store) learn(ctx context.Context, id governance.BatchID) error {
	slot := slotOf(id)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		var void bool
		err := s.pool.QueryRow(ctx, s.q.tombstone[slot], pgUUID(id)).Scan(&void)
		switch {
		case err == nil && void:
			return governance.ErrRetry // it can never commit now
		case err == nil:
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return governance.ErrUnknownOutcome
		case <-timer.C:
		}
	}
}

// known remembers which pointer rows exist, so that a step does not ask.
type known struct {
	mu  sync.RWMutex
	ids map[governance.ConstraintID]struct{}
}

const maxKnown = 1_000_000

// unknown returns the ids that were not seen yet.
func (k *known) unknown(ids []governance.ConstraintID) (list []governance.ConstraintID) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, id := range ids {
		if _, ok := k.ids[id]; !ok {
			list = append(list, id)
		}
	}
	return list
}

func (k *known) add(ids []governance.ConstraintID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.ids)+len(ids) > maxKnown {
		k.ids = map[governance.ConstraintID]struct{}{}
	}
	for _, id := range ids {
		k.ids[id] = struct{}{}
	}
}

func (k *known) forget(ids []governance.ConstraintID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		delete(k.ids, id)
	}
}

// ensure makes the pointer rows, in a statement and transaction of its own.
func (s *Store) ensure(ctx context.Context, ids []governance.ConstraintID) error {
	missing := s.known.unknown(ids)
	if len(missing) == 0 {
		return nil
	}
	if _, err := s.pool.Exec(ctx, s.q.ensure, uuids(missing)); err != nil {
		return err
	}
	s.known.add(missing)
	return nil
}

// slotOf is the partition of an id: a pure function of the time inside it.
func slotOf[T ~[16]byte](id T) int {
	return int(governance.PermitID(id).UnixMilli() / slotMillis % slots)
}
