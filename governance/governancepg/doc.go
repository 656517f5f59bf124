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
// The caller opens and owns the pool. The package keeps no session state: it
// works through a pooler in transaction mode.
//
// Source: internal/docs/architecture.md "In Postgres".
package governancepg
