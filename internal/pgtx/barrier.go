package pgtx

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrUnconfirmed says that an edit is committed but that transactions which may have read
// what stood before were still running when the wait ended. Repeating the edit waits again.
var ErrUnconfirmed = errors.New("tallystick: committed, not yet confirmed: admissions that may have read the old definition were still running; repeat the edit to wait again")

// SharedLock is the statement by which an admission enters the barrier: $1 is Schema.LockKey.
// It must run before the transaction reads any definition.
const SharedLock = "select pg_advisory_xact_lock_shared($1::bigint)"

// A bigint advisory key is stored as (classid, objid) with objsubid 1. Those who wait for the
// lock have read nothing yet, so only granted ones count.
const holders = `select coalesce(l.pid, 0)::bigint, coalesce(l.virtualtransaction, '')
from pg_catalog.pg_locks l
where l.locktype = 'advisory' and l.granted and l.mode = 'ShareLock' and l.objsubid = 1
  and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
  and l.classid::bigint = (($1::bigint >> 32) & 4294967295) and l.objid::bigint = ($1::bigint & 4294967295)
  and l.pid is distinct from pg_backend_pid()`

type holder struct {
	pid  int64
	vxid string
}

const (
	defaultBarrierWait = 10 * time.Second
	firstPoll          = 200 * time.Microsecond
	longestPoll        = 50 * time.Millisecond
)

// Barrier waits until every transaction that held the schema's key in shared mode when
// Barrier was called has ended. It takes no lock itself: whoever queued for the exclusive lock would
// stop every later admission. Later holders are not waited for; they read what was committed.
// It must be called after the edit's commit, on no open transaction. The wait is bounded by
// wait (0 = 10 s) and by ctx.
//
// Errors: ErrUnconfirmed, for whatever reason the end was not seen.
//
// Source: internal/docs/architecture.md "In Postgres".
func Barrier(ctx context.Context, pool *pgxpool.Pool, s Schema, wait time.Duration) error {
	if wait <= 0 {
		wait = defaultBarrierWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var old map[holder]bool
	for poll := firstPoll; ; poll = min(2*poll, longestPoll) {
		now, err := readHolders(ctx, pool, s)
		if err != nil {
			return errors.Join(ErrUnconfirmed, Scrub(err))
		}
		if old == nil {
			old = now
		}
		for h := range old {
			if !now[h] {
				delete(old, h)
			}
		}
		if len(old) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ErrUnconfirmed, Scrub(ctx.Err()))
		case <-time.After(poll):
		}
	}
}

func readHolders(ctx context.Context, pool *pgxpool.Pool, s Schema) (map[holder]bool, error) {
	rows, err := pool.Query(ctx, holders, s.LockKey())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[holder]bool{}
	for rows.Next() {
		var h holder
		if err := rows.Scan(&h.pid, &h.vxid); err != nil {
			return nil, err
		}
		out[h] = true
	}
	return out, rows.Err()
}
