package pgtx

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Options bound a transaction. Zero fields take the defaults.
type Options struct {
	Idle      time.Duration // idle_in_transaction_session_timeout, default 5 s
	Statement time.Duration // statement_timeout, default 10 s
	Lock      time.Duration // lock_timeout, default 3 s
	Commit    time.Duration // how long to wait for the answer to COMMIT, default 10 s
	Answer    time.Duration // how much longer than Statement to wait for any other answer, default 5 s: a dead peer sends none
	ReadOnly  bool          // READ ONLY
	Snapshot  bool          // REPEATABLE READ instead of READ COMMITTED
	Barrier   int64         // a Schema's LockKey whose edit barrier the transaction enters, see Barrier; zero: none
	PinPlans  bool          // plan for every parameter alike, by index: what is kept must not depend on how full a table was
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Idle, 5*time.Second)
	def(&o.Statement, 10*time.Second)
	def(&o.Lock, 3*time.Second)
	def(&o.Commit, 10*time.Second)
	def(&o.Answer, 5*time.Second)
	return o
}

const (
	// Not "read write": a standby refuses that with a code of its own instead of saying that it is read-only.
	beginWrite    = "begin isolation level read committed"
	beginRead     = "begin isolation level read committed read only"
	beginSnapshot = "begin isolation level repeatable read"
	beginSnapRead = "begin isolation level repeatable read read only"
	// One statement for all that a transaction begins with, in this order. Compiling pays for no statement of ours, and a
	// plan that must not scan counts as dear enough for it: more than a second of CPU for a millisecond of work.
	settings       = "select pg_catalog.pg_is_in_recovery(), concat(set_config('idle_in_transaction_session_timeout', $1::text, true), set_config('statement_timeout', $2::text, true), set_config('lock_timeout', $3::text, true), set_config('jit', 'off', true)"
	pinned         = ", set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"
	sharedLock     = ", pg_advisory_xact_lock_shared($4::bigint)"
	rollbackBounds = 5 * time.Second
)

func (o Options) begin() string {
	switch {
	case o.Snapshot && o.ReadOnly:
		return beginSnapRead
	case o.Snapshot:
		return beginSnapshot
	case o.ReadOnly:
		return beginRead
	}
	return beginWrite
}

// settle queues the statement that sets what holds for this transaction alone.
func (o Options) settle(b *pgx.Batch) *pgx.QueuedQuery {
	sql, args := settings, []any{millis(o.Idle), millis(o.Statement), millis(o.Lock)}
	if o.PinPlans {
		sql += pinned
	}
	if o.Barrier != 0 {
		sql, args = sql+sharedLock, append(args, o.Barrier)
	}
	return b.Queue(sql+")", args...)
}

// Tx is one transaction on one pooled connection. It is for one goroutine. Its errors are
// scrubbed; Rows and Row hand out raw errors until the transaction's end, so Run's
// callback and every adapter pass them through Scrub.
type Tx struct {
	pool  *pgxpool.Pool
	conn  *pgxpool.Conn
	opt   Options
	bound []context.CancelFunc // of queries whose rows may still be read
}

// Begin opens a transaction in one round trip, on a primary only: BEGIN, the local timeouts (so that a stalled
// process cannot hold locks for ever), the edit barrier and whatever lead queues, with lead's callbacks run.
// On an error nothing is open.
//
// A connection that turns out to be dead, as all are after a restart of the server, is replaced
// once: as long as BEGIN was not answered, no callback has run and nothing was sent that could commit.
func Begin(ctx context.Context, pool *pgxpool.Pool, o Options, lead *pgx.Batch) (*Tx, error) {
	o = o.withDefaults()
	within, cancel := o.within(ctx)
	defer cancel()
	t := &Tx{pool: pool, opt: o}
	for again := false; ; again = true {
		var err error
		if t.conn, err = acquire(within, pool, again); err != nil {
			return nil, overdue(ctx, ScrubConnect(err))
		}
		answered, err := t.begin(within, lead, again)
		if err == nil {
			return t, nil
		}
		dead := !answered && t.conn.Conn().IsClosed() && within.Err() == nil
		t.end(err)
		if !dead || again {
			return nil, overdue(ctx, Scrub(err))
		}
	}
}

// acquire returns a connection, where wanted one that has just answered: where one was dead others are too.
func acquire(ctx context.Context, pool *pgxpool.Pool, living bool) (*pgxpool.Conn, error) {
	for left := pool.Stat().MaxConns(); ; left-- {
		conn, err := pool.Acquire(ctx)
		if err != nil || !living {
			return conn, err
		}
		if err = conn.Ping(ctx); err == nil {
			return conn, nil
		}
		conn.Release() // closed: the pool makes another
		if left <= 0 || ctx.Err() != nil {
			return nil, err
		}
	}
}

// begin sends all that a transaction begins with. What is sent again is copied: the driver
// notes in it what the other connection had prepared.
func (t *Tx) begin(ctx context.Context, lead *pgx.Batch, again bool) (answered bool, err error) {
	b := &pgx.Batch{}
	b.Queue(t.opt.begin()).Exec(func(pgconn.CommandTag) error { answered = true; return nil })
	t.opt.settle(b).QueryRow(func(row pgx.Row) error {
		var standby bool
		if err := row.Scan(&standby, nil); err != nil {
			return err
		}
		if standby { // it answers reads, with what was true some time ago
			return &Error{Class: ReadOnly}
		}
		return nil
	})
	if lead != nil {
		for _, q := range lead.QueuedQueries {
			if again {
				q = &pgx.QueuedQuery{SQL: q.SQL, Arguments: q.Arguments, Fn: q.Fn}
			}
			b.QueuedQueries = append(b.QueuedQueries, q)
		}
	}
	err = t.conn.SendBatch(ctx, b).Close()
	return answered, err
}

// within bounds the wait for an answer. The server's own timeouts come first where there still is a server.
func (o Options) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, o.Statement+o.Answer)
}

// overdue tells our own bound from the caller's: a server that does not answer is unavailable.
func overdue(caller context.Context, err error) error {
	var own *Error
	if errors.As(err, &own) && own.Class == Canceled && own.Code == "" && caller.Err() == nil {
		return &Error{Class: Unavailable}
	}
	return err
}

func millis(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

// Exec runs one statement.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	within, cancel := t.opt.within(ctx)
	defer cancel()
	tag, err := t.conn.Exec(within, sql, args...)
	return tag, overdue(ctx, Scrub(err))
}

// Query runs one query. Pass rows.Err() through Scrub.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := t.conn.Query(t.untilEnd(ctx), sql, args...)
	return rows, overdue(ctx, Scrub(err))
}

// QueryRow runs one query for one row. Pass Scan's error through Scrub; it is pgx.ErrNoRows where there is none.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.conn.QueryRow(t.untilEnd(ctx), sql, args...)
}

// untilEnd is within for answers that are read after the call: the transaction's end cancels it.
func (t *Tx) untilEnd(ctx context.Context) context.Context {
	within, cancel := t.opt.within(ctx)
	t.bound = append(t.bound, cancel)
	return within
}

// Send runs a batch inside the transaction in one round trip, its callbacks included.
func (t *Tx) Send(ctx context.Context, b *pgx.Batch) error {
	within, cancel := t.opt.within(ctx)
	defer cancel()
	return overdue(ctx, Scrub(t.conn.SendBatch(within, b).Close()))
}

// Conn is the connection, for what Tx does not offer (CopyFrom, the caller's own prepared
// statements). It belongs to the transaction and ends with it.
func (t *Tx) Conn() *pgx.Conn { return t.conn.Conn() }

// Commit sends the last writes and COMMIT in one round trip and returns the transaction's
// connection. The wait for the answer does not end with ctx, only with its own deadline.
//
// Callbacks of b must not be used to veto: COMMIT is already on its way when they run. A
// callback's own error is returned as UnknownOutcome. A COMMIT that the server answers with
// ROLLBACK (the transaction had failed) is Rejected: not committed.
func (t *Tx) Commit(ctx context.Context, b *pgx.Batch) error {
	conn := t.conn
	if conn == nil {
		return &Error{Class: Rejected}
	}
	if conn.Conn().IsClosed() { // it broke before anything could be sent
		t.end(nil)
		return &Error{Class: Unavailable}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.opt.Commit)
	defer cancel()
	all := &pgx.Batch{}
	if b != nil {
		all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	}
	for _, q := range all.QueuedQueries {
		if q.Fn == nil { // without a callback some exec modes go on to the next answer after an error
			q.Exec(func(pgconn.CommandTag) error { return nil })
		}
	}
	phase := Piped
	var tag pgconn.CommandTag
	all.Queue("commit").Fn = func(br pgx.BatchResults) error {
		phase = Commit
		var err error
		tag, err = br.Exec()
		return err
	}
	err := conn.SendBatch(ctx, all).Close()
	if err == nil && tag.String() != "COMMIT" {
		t.end(nil)
		return &Error{Class: Rejected}
	}
	t.end(err)
	if err == nil {
		return nil
	}
	if !IsDriver(err) {
		return errors.Join(&Error{Class: UnknownOutcome}, err)
	}
	return scrubAt(phase, err)
}

// Rollback ends the transaction and is harmless after Commit.
func (t *Tx) Rollback() {
	if t.conn != nil {
		t.end(errRollback)
	}
}

var errRollback = errors.New("rollback")

// end gives the connection back: as it is after a commit, rolled back where the server still
// answers, else closed so that the pool makes a new one.
func (t *Tx) end(err error) {
	conn := t.conn
	t.conn = nil
	defer conn.Release()
	defer func() {
		for _, cancel := range t.bound {
			cancel()
		}
	}()
	if err == nil || conn.Conn().IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackBounds)
	defer cancel()
	if Classify(err) == ReadOnly {
		// A standby keeps answering; every other connection of the pool leads to the same server.
		_ = conn.Conn().Close(ctx)
		t.pool.Reset()
		return
	}
	if conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	if _, rerr := conn.Exec(ctx, "rollback"); rerr != nil {
		_ = conn.Conn().Close(ctx)
	}
}

// Run runs fn in a transaction and commits it. fn's error rolls back and is returned, driver
// errors scrubbed, others as they are; a panic rolls back and goes on.
func Run(ctx context.Context, pool *pgxpool.Pool, o Options, fn func(context.Context, *Tx) error) error {
	t, err := Begin(ctx, pool, o, nil)
	if err != nil {
		return err
	}
	defer t.Rollback()
	if err := fn(ctx, t); err != nil {
		if Classify(err) == ReadOnly && t.conn != nil {
			t.end(err)
		}
		return Scrub(err)
	}
	err = t.Commit(ctx, nil)
	if o.ReadOnly && Classify(err) == UnknownOutcome {
		return nil // everything was read, and there was nothing to commit
	}
	return err
}

// Retry calls Run again, a bounded number of times, while the outcome is Retryable.
func Retry(ctx context.Context, pool *pgxpool.Pool, o Options, fn func(context.Context, *Tx) error) error {
	const attempts = 5
	for i := 1; ; i++ {
		err := Run(ctx, pool, o, fn)
		if i == attempts || Classify(err) != Retryable || ctx.Err() != nil {
			return err
		}
	}
}
