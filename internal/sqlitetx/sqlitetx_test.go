package sqlitetx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

const safe = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)"

func open(t testing.TB, path, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+params)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func file(t testing.TB) string { return filepath.Join(t.TempDir(), "a.db") }

func store(t testing.TB, db *sql.DB, o *sqlitetx.Options) *sqlitetx.DB {
	t.Helper()
	_, err := db.Exec("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v INTEGER NOT NULL DEFAULT 0 CHECK (v >= 0), ref INTEGER REFERENCES t) STRICT")
	require.NoError(t, err)
	d := sqlitetx.New(db, o)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func count(t testing.TB, d *sqlitetx.DB) (n int) {
	t.Helper()
	require.NoError(t, d.Read(bounded(t), func(tx *sqlitetx.Tx) error { return tx.QueryRow("SELECT count(*) FROM t").Scan(&n) }))
	return n
}

func insert(id int) func(*sqlitetx.Tx) error {
	return func(tx *sqlitetx.Tx) error {
		_, err := tx.Exec("INSERT INTO t (id) VALUES (?)", id)
		return err
	}
}

func TestVerifyNamesTheSetting(t *testing.T) {
	ctx := bounded(t)
	for params, setting := range map[string]string{
		"":                                    "journal_mode",
		"?busy_timeout=5000&journal_mode=wal": "journal_mode", // ignored in silence
		"?_pragma=journal_mode(wal)":          "busy_timeout",
		strings.Replace(safe, "full", "normal", 1):                     "synchronous",
		strings.Replace(safe, "(full)", "(off)", 1):                    "synchronous",
		strings.Replace(safe, "foreign_keys(1)", "foreign_keys(0)", 1): "foreign_keys",
		strings.Replace(safe, "5000", "10", 1):                         "busy_timeout",
	} {
		db := open(t, file(t), params)
		for name, err := range map[string]error{
			"Verify": sqlitetx.Verify(ctx, db),
			"Write":  sqlitetx.New(db, nil).Write(ctx, func(*sqlitetx.Tx) error { return nil }),
			"Read":   sqlitetx.New(db, nil).Read(ctx, func(*sqlitetx.Tx) error { return nil }),
		} {
			require.ErrorIs(t, err, sqlitetx.ErrUnsafe, "%s %s", name, params)
			var unsafe *sqlitetx.UnsafeError
			require.True(t, errors.As(err, &unsafe))
			require.Equal(t, setting, unsafe.Setting, params)
			require.Contains(t, err.Error(), "_pragma="+setting)
		}
	}
	db := open(t, file(t), safe)
	require.NoError(t, sqlitetx.Verify(ctx, db))
	db.SetMaxOpenConns(1)
	require.NoError(t, sqlitetx.Verify(ctx, db))

	memory, err := sql.Open("sqlite", ":memory:?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
	require.NoError(t, err)
	defer memory.Close()
	require.ErrorContains(t, sqlitetx.Verify(ctx, memory), "a file on a local disk")
}

// A pragma that was executed holds for one connection of the pool.
func TestVerifyLooksAtMoreThanOneConnection(t *testing.T) {
	db := open(t, file(t), "?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)")
	_, err := db.Exec("PRAGMA busy_timeout = 5000")
	require.NoError(t, err)
	require.ErrorIs(t, sqlitetx.Verify(bounded(t), db), sqlitetx.ErrUnsafe)
}

func TestDamagedAndForeignFiles(t *testing.T) {
	ctx := bounded(t)
	text := file(t)
	require.NoError(t, os.WriteFile(text, []byte(fmt.Sprintf("%8192s", "not a database")), 0o600))
	err := sqlitetx.Verify(ctx, open(t, text, safe))
	require.ErrorIs(t, err, sqlitetx.ErrNotSQLite)
	require.ErrorContains(t, err, "another path")
	require.NotContains(t, err.Error(), text)

	path := file(t)
	db := open(t, path, safe)
	d := store(t, db, nil)
	require.NoError(t, d.Write(ctx, func(tx *sqlitetx.Tx) error {
		for i := range 2000 {
			if err := insert(i)(tx); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, d.Close())
	_, err = db.Exec("PRAGMA wal_checkpoint(truncate)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for _, whole := range []bool{true, false} {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		if whole {
			copy(b[100:], strings.Repeat("\xff", 200)) // the schema itself
		} else {
			copy(b[len(b)-4096:], strings.Repeat("\x2a", 4096)) // a page that no first query meets
		}
		bad := file(t)
		require.NoError(t, os.WriteFile(bad, b, 0o600))
		err = sqlitetx.Verify(ctx, open(t, bad, safe))
		require.ErrorIs(t, err, sqlitetx.ErrCorrupt)
		require.ErrorContains(t, err, "restore a backup")
	}
	err = sqlitetx.Verify(ctx, open(t, filepath.Join(t.TempDir(), "no", "such", "folder.db"), safe))
	require.Equal(t, sqlitetx.Unavailable, sqlitetx.Classify(err), "%v", err)
}

func TestWriteCommitsRollsBackAndGoesOn(t *testing.T) {
	ctx := bounded(t)
	d := store(t, open(t, file(t), safe), nil)
	own := errors.New("refused")
	require.NoError(t, d.Write(ctx, insert(1)))
	require.Equal(t, own, d.Write(ctx, func(tx *sqlitetx.Tx) error {
		require.NoError(t, insert(2)(tx))
		return own
	}))
	require.Panics(t, func() {
		_ = d.Write(ctx, func(tx *sqlitetx.Tx) error {
			require.NoError(t, insert(2)(tx))
			panic("x")
		})
	})
	require.Equal(t, 1, count(t, d))
	require.NoError(t, d.Write(ctx, insert(2)))

	for want, sqlText := range map[sqlitetx.Class]string{
		sqlitetx.UniqueViolation: "INSERT INTO t (id) VALUES (1) /* hunter2 */",
		sqlitetx.Poison:          "INSERT INTO t (id, v) VALUES (9, -1) /* hunter2 */",
		sqlitetx.Rejected:        "INSERT INTO hunter2 VALUES (1)",
	} {
		err := d.Write(ctx, func(tx *sqlitetx.Tx) error {
			require.NoError(t, insert(7)(tx))
			_, err := tx.Exec(sqlText)
			return err
		})
		require.Equal(t, want, sqlitetx.Classify(err), "%v", err)
		require.NotContains(t, fmt.Sprintf("%v %+v", err, err), "hunter2")
	}
	err := d.Write(ctx, func(tx *sqlitetx.Tx) error {
		_, err := tx.Exec("INSERT INTO t (id, ref) VALUES (9, 999)")
		return err
	})
	require.Equal(t, sqlitetx.Poison, sqlitetx.Classify(err), "foreign keys bind: %v", err)
	require.Equal(t, 2, count(t, d))
}

func TestScanErrorsHoldNoValue(t *testing.T) {
	d := store(t, open(t, file(t), safe), nil)
	var n int64
	err := d.Read(bounded(t), func(tx *sqlitetx.Tx) error { return tx.QueryRow("SELECT 'hunter2'").Scan(&n) })
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	err = d.Read(bounded(t), func(tx *sqlitetx.Tx) error { return tx.QueryRow("SELECT 1 WHERE 0").Scan(&n) })
	require.Equal(t, sql.ErrNoRows, err)
}

func TestRowsLeftOpenDoNotHoldTheTransaction(t *testing.T) {
	ctx := bounded(t)
	d := store(t, open(t, file(t), safe), nil)
	for i := range 3 {
		require.NoError(t, d.Write(ctx, func(tx *sqlitetx.Tx) error {
			if err := insert(i)(tx); err != nil {
				return err
			}
			rows, err := tx.Query("SELECT id FROM t")
			if err == nil {
				rows.Next()
			}
			return err
		}))
	}
	require.Equal(t, 3, count(t, d))
}

// Read, compute, write: with a deferred BEGIN nearly every one of these fails.
func TestManyWritersOfManyHandlesLoseNothing(t *testing.T) {
	ctx, path := bounded(t), file(t)
	const handles, workers, rounds = 3, 4, 25
	var wg sync.WaitGroup
	var first *sqlitetx.DB
	for range handles {
		d := store(t, open(t, path, safe), nil)
		if first == nil {
			first = d
			require.NoError(t, d.Write(ctx, insert(1)))
		}
		for range workers {
			wg.Go(func() {
				for range rounds {
					err := d.Write(ctx, func(tx *sqlitetx.Tx) error {
						var v int64
						if err := tx.QueryRow("SELECT v FROM t WHERE id = 1").Scan(&v); err != nil {
							return err
						}
						_, err := tx.Exec("UPDATE t SET v = ? WHERE id = 1", v+1)
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	var v int
	require.NoError(t, first.Read(ctx, func(tx *sqlitetx.Tx) error { return tx.QueryRow("SELECT v FROM t").Scan(&v) }))
	require.Equal(t, handles*workers*rounds, v)
}

func TestCallersWhoLeave(t *testing.T) {
	ctx := bounded(t)
	d := store(t, open(t, file(t), safe), nil)
	gone, leave := context.WithCancel(ctx)
	leave()
	err := d.Write(gone, insert(1))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, sqlitetx.Canceled, sqlitetx.Classify(err))

	// One who leaves while waiting for the turn never begins; one who leaves inside goes through to the commit.
	inside, proceed := make(chan struct{}), make(chan struct{})
	leaving, leave := context.WithCancel(ctx)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		first <- d.Write(leaving, func(tx *sqlitetx.Tx) error {
			close(inside)
			<-proceed
			return insert(1)(tx)
		})
	}()
	<-inside
	go func() { second <- d.Write(leaving, insert(2)) }()
	leave()
	require.ErrorIs(t, <-second, context.Canceled)
	close(proceed)
	require.NoError(t, <-first)
	require.Equal(t, 1, count(t, d))
}

func TestLockedByAnotherProcessIsBusy(t *testing.T) {
	ctx, path := bounded(t), file(t)
	a := store(t, open(t, path, safe), nil)
	b := store(t, open(t, path, strings.Replace(safe, "5000", "1000", 1)), nil)
	require.NoError(t, a.Write(ctx, func(*sqlitetx.Tx) error {
		err := b.Write(ctx, insert(1))
		require.Equal(t, sqlitetx.Busy, sqlitetx.Classify(err), "%v", err)
		return nil
	}))
	require.NoError(t, b.Write(ctx, insert(1)))
}

func TestClockIsReadAfterTheLock(t *testing.T) {
	ctx := bounded(t)
	now := int64(1)
	d := store(t, open(t, file(t), safe), &sqlitetx.Options{Now: func() int64 { return now }})
	waiting := make(chan struct{})
	got := make(chan int64, 1)
	require.NoError(t, d.Write(ctx, func(tx *sqlitetx.Tx) error {
		require.EqualValues(t, 1, tx.Now)
		go func() {
			close(waiting)
			_ = d.Write(ctx, func(tx *sqlitetx.Tx) error { got <- tx.Now; return nil })
		}()
		<-waiting
		now = 2
		return nil
	}))
	require.EqualValues(t, 2, <-got)
	d = store(t, open(t, file(t), safe), nil)
	require.NoError(t, d.Write(ctx, func(tx *sqlitetx.Tx) error {
		require.InDelta(t, time.Now().UnixMicro(), tx.Now, 60e6)
		return nil
	}))
}

func TestReadIsOneSnapshot(t *testing.T) {
	ctx := bounded(t)
	d := store(t, open(t, file(t), safe), nil)
	require.NoError(t, d.Read(ctx, func(tx *sqlitetx.Tx) error {
		var before, after int
		require.NoError(t, tx.QueryRow("SELECT count(*) FROM t").Scan(&before))
		require.NoError(t, d.Write(ctx, insert(1)))
		require.NoError(t, tx.QueryRow("SELECT count(*) FROM t").Scan(&after))
		require.Equal(t, before, after)
		return nil
	}))
	require.Equal(t, 1, count(t, d))
}

// Several stores and the caller's own queries share a handle that allows one connection.
func TestNoConnectionIsKeptFromASmallHandle(t *testing.T) {
	ctx := bounded(t)
	db := open(t, file(t), safe)
	db.SetMaxOpenConns(1)
	a, b := store(t, db, nil), store(t, db, nil)
	for i := range 3 {
		require.NoError(t, a.Write(ctx, insert(2*i)))
		require.NoError(t, b.Write(ctx, insert(2*i+1)))
		require.Equal(t, 2*i+2, count(t, a))
		require.NoError(t, db.PingContext(ctx))
	}
	require.NoError(t, sqlitetx.Verify(ctx, db))
}

func TestClose(t *testing.T) {
	ctx := bounded(t)
	db := open(t, file(t), safe)
	d := store(t, db, nil)
	require.NoError(t, d.Write(ctx, insert(1)))
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	require.Zero(t, db.Stats().InUse)
	require.Equal(t, sqlitetx.Unavailable, sqlitetx.Classify(d.Write(ctx, insert(2))))
	require.Equal(t, sqlitetx.Unavailable, sqlitetx.Classify(d.Read(ctx, insert(2))))
	require.NoError(t, db.PingContext(ctx), "the handle is the caller's and stays open")
	require.NoError(t, db.Close())
	require.Equal(t, sqlitetx.Unavailable, sqlitetx.Classify(sqlitetx.Verify(ctx, db)))
}
