package leasepg_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasepg"
	"github.com/tallystick-go/tallystick/lease/leasetest"
)

// place is one schema for a run of the suite, and the pools of the leasers on it.
type place struct {
	db     *pgtest.DB
	dsn    string
	adjust func(*pgxpool.Config)
	mu     sync.Mutex
	pools  map[lease.Leaser]*pgxpool.Pool
}

func (p *place) open(t testing.TB) lease.Leaser {
	t.Helper()
	pool := pgtest.Connect(t, p.dsn, p.adjust)
	l, err := leasepg.New(pool, &leasepg.Options{Schema: p.db.Schema})
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pools[l] = pool
	return l
}

func (p *place) fence(t testing.TB, l lease.Leaser, held lease.Lease) error {
	p.mu.Lock()
	pool := p.pools[l]
	p.mu.Unlock()
	return pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return l.(*leasepg.Leaser).Fence(t.Context(), tx, held)
	})
}

// harness is for one run of the suite, one case after another. Its leasers go through what stands in front of the
// shared server, if dsn is not empty.
func harness(t *testing.T, dsn string, adjust func(*pgxpool.Config)) leasetest.Harness {
	t.Helper()
	p := &place{db: pgtest.New(t), dsn: dsn, adjust: adjust, pools: map[lease.Leaser]*pgxpool.Pool{}}
	if dsn == "" {
		p.dsn = p.db.DSN
	}
	l, err := leasepg.New(pgtest.Connect(t, p.dsn, adjust), &leasepg.Options{Schema: p.db.Schema})
	require.NoError(t, err)
	require.NoError(t, l.Migrate(t.Context()))
	require.NoError(t, l.Check(t.Context()))
	return leasetest.Harness{
		Features: leasetest.Features{Shared: true, Handles: true, Clock: true, Fence: true, Rewind: true},
		New: func(t testing.TB) lease.Leaser {
			remove(t, p.db, "true")
			return p.open(t)
		},
		Reopen:  func(t testing.TB, _ lease.Leaser) lease.Leaser { return p.open(t) },
		Advance: func(t testing.TB, _ lease.Leaser, d time.Duration) { shift(t, p.db, d) },
		Fence:   p.fence,
		Rewind:  func(t testing.TB, _ lease.Leaser, name string, to lease.Generation) { rewind(t, p.db, name, to) },
	}
}

// shift moves every time of a schema back, which is the same as moving the clock forward.
func shift(t testing.TB, db *pgtest.DB, d time.Duration) {
	t.Helper()
	_, err := db.Pool.Exec(context.Background(), "update "+db.Schema+".leases set acquired_us = acquired_us - $1, renewed_us = renewed_us - $1, expires_us = expires_us - $1", d.Microseconds())
	require.NoError(t, err)
}

func rewind(t testing.TB, db *pgtest.DB, name string, to lease.Generation) {
	t.Helper()
	if to == 0 {
		remove(t, db, "name = $1", name)
		return
	}
	_, err := db.Pool.Exec(context.Background(), "update "+db.Schema+".leases set generation = $2, holder = '' where name = $1", name, int64(to))
	require.NoError(t, err)
}

// remove deletes rows, past the trigger that keeps them.
func remove(t testing.TB, db *pgtest.DB, where string, args ...any) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(context.Background(), db.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), "set local session_replication_role = replica"); err != nil {
			return err
		}
		_, err := tx.Exec(context.Background(), "delete from "+db.Schema+".leases where "+where, args...)
		return err
	}))
}

func TestLeaser(t *testing.T) { leasetest.Run(t, harness(t, "", nil)) }

// TestLeaserModes runs the suite as poolers and hostile sessions would have it: no named statements, no binary formats,
// a time zone in which the clock of the wall is half a day away, another search_path, and every statement serializable.
func TestLeaserModes(t *testing.T) {
	for name, mode := range map[string]pgx.QueryExecMode{
		"Exec": pgx.QueryExecModeExec, "SimpleProtocol": pgx.QueryExecModeSimpleProtocol, "DescribeExec": pgx.QueryExecModeDescribeExec,
		"CacheDescribe": pgx.QueryExecModeCacheDescribe,
	} {
		t.Run(name, func(t *testing.T) {
			if (testing.Short() || os.Getenv(pgwire.EnvEach) != "") && name != "SimpleProtocol" {
				t.Skip("one mode is enough for a short run")
			}
			t.Parallel()
			leasetest.Run(t, harness(t, "", func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
				c.ConnConfig.RuntimeParams["timezone"] = "Pacific/Kiritimati"
				c.ConnConfig.RuntimeParams["datestyle"] = "German, DMY"
				c.ConnConfig.RuntimeParams["intervalstyle"] = "sql_standard"
				c.ConnConfig.RuntimeParams["search_path"] = "pg_catalog"
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
				c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "61s"
			}))
		})
	}
}

// TestBouncer runs the suite through PgBouncer in transaction mode.
func TestBouncer(t *testing.T) {
	b := pgtest.PgBouncer(t, pgtest.Shared(t).DSN())
	modes := []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe}
	if b.Prepares() {
		modes = append(modes, pgx.QueryExecModeCacheStatement)
	}
	for i, mode := range modes {
		if i > 0 && (testing.Short() || os.Getenv(pgwire.EnvEach) != "") {
			break // TestLeaserModes tries the others without a pooler
		}
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			leasetest.Run(t, harness(t, b.DSN(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }))
		})
	}
}

// setup is a leaser on a fresh schema.
func setup(t testing.TB) (*pgtest.DB, *leasepg.Leaser) {
	t.Helper()
	db := pgtest.New(t)
	l, err := leasepg.New(db.Pool, &leasepg.Options{Schema: db.Schema})
	require.NoError(t, err)
	require.NoError(t, l.Migrate(t.Context()))
	return db, l
}
