// Package governancepg keeps keys and counters in Postgres: exact for any number
// of gateways that share one database and schema, through crashes.
//
//	db, err := governancepg.Open(pool, nil)
//	err = db.Migrate(ctx) // or run the exported files with your own tool; then db.Check(ctx)
//	gov, err := governance.New(db, nil)
//
// # How it is exact
//
// Each limit has a pointer row. A transaction locks the pointer rows of all its
// limits in one order, then reads the database's clock and the state, decides,
// writes and commits: two round trips. Definitions of keys and teams are read,
// not locked; an edit returns only when every admission that may have read the
// older definition has ended.
//
// # How it stays fast
//
// Callers share transactions. Rows that change often are replaced by a row of
// another identity every few dozen updates, so that a backup's old snapshot does
// not slow look-ups down. Permits live in a ring of partitions by day.
//
// # The pool
//
// The caller opens and owns it. What is worth setting:
//
//   - connect_timeout (ConnConfig.ConnectTimeout), a few seconds: a pool otherwise spends two
//     minutes, and one of its places, on a server that does not answer.
//   - target_session_attrs=read-write where the DSN names several hosts. A standby is refused
//     in any case, and the pool then begins anew.
//   - TCP keepalives on the server (tcp_keepalives_idle, by default of Linux 2 hours), or
//     transaction_timeout of PostgreSQL 17: a gateway whose network goes silent in the middle of
//     a statement keeps its row locks until one of them ends it. On our side nothing is needed:
//     every answer is waited for within a bound.
//
// A restart of the server leaves dead connections in the pool. They are replaced when the next
// transaction begins on one of them, which does not fail for that.
//
// No session state is kept: a pooler in transaction mode, PgBouncer say, may stand between.
// pgx's default, QueryExecModeCacheStatement, needs PgBouncer 1.21 and its max_prepared_statements
// above zero there; QueryExecModeExec and QueryExecModeSimpleProtocol work with any.
//
// Source: internal/docs/architecture.md "In Postgres".
package governancepg
