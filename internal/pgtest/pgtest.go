// Package pgtest gives tests a real, disposable Postgres. See internal/docs/testing.md for
// where it comes from and how to give one.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
)

const patience = 2 * time.Minute

// said: one line tells how to give a Postgres; hundreds that repeat it hide it.
var said sync.Once

var shared struct {
	once   sync.Once
	server *pgserver.Server
	err    error
}

// Run is for TestMain: os.Exit(pgtest.Run(m)). It runs the tests and removes the server that
// they shared. (Without it the server goes when the test binary ends.)
func Run(m *testing.M) int {
	code := m.Run()
	if s := shared.server; s != nil {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = max(code, 1)
		}
	}
	return code
}

// DB is one test's place in the server that the test binary shares.
type DB struct {
	Pool   *pgxpool.Pool
	DSN    string // the server's; the schema is not in it
	Schema string // fresh and empty, dropped at the test's end
}

// New gives a fresh schema, or skips the test where there is no Postgres (or fails it where one is required).
func New(t testing.TB) *DB {
	t.Helper()
	s := Shared(t)
	db := &DB{DSN: s.DSN(), Schema: schemaName()}
	db.Pool = db.Connect(t, nil)
	exec(t, db.DSN, "create schema "+db.Schema)
	t.Cleanup(func() { exec(t, db.DSN, "drop schema if exists "+db.Schema+" cascade") })
	return db
}

// Connect opens another pool on the same server, for a second process's part or other settings. It is closed at the test's end.
func (db *DB) Connect(t testing.TB, adjust func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return Connect(t, db.DSN, adjust)
}

// Connect opens a pool on any server. It is closed at the test's end.
func Connect(t testing.TB, dsn string, adjust func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal("pgtest: the DSN is not readable") // the driver's text can hold the password
	}
	cfg.MaxConns = 16
	if adjust != nil {
		adjust(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() { pool.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(20 * time.Second):
			t.Errorf("pgtest: %d connections were never given back to the pool", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// Shared is the server that the test binary shares. Do not stop it: take one of your Own.
func Shared(t testing.TB) *pgserver.Server {
	t.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		shared.server, shared.err = pgserver.Start(ctx, pgserver.Config{})
	})
	need(t, shared.err)
	return shared.server
}

// Own gives a server of the test's own, to stop, kill and pause. settings are "name=value".
func Own(t testing.TB, settings ...string) *pgserver.Server {
	t.Helper()
	cfg := pgserver.Config{Owned: true, Settings: map[string]string{}}
	for _, kv := range settings {
		k, v, ok := cut(kv)
		if !ok {
			t.Fatalf("pgtest: setting %q is not name=value", kv)
		}
		cfg.Settings[k] = v
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := pgserver.Start(ctx, cfg)
	need(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Required reports whether a missing Postgres is a failure: in CI, or with TALLYSTICK_REQUIRE_POSTGRES=1.
func Required() bool {
	return os.Getenv("TALLYSTICK_REQUIRE_POSTGRES") == "1" || (os.Getenv("CI") != "" && os.Getenv("CI") != "false")
}

func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, pgserver.ErrAbsent):
		why := "no Postgres, as the first test that needed one says"
		said.Do(func() { why = err.Error() })
		if Required() {
			t.Fatal(why)
		}
		t.Skip(why)
	default:
		t.Fatal(err)
	}
}

func exec(t testing.TB, dsn, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Error("pgtest: no connection")
		return
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, sql); err != nil {
		t.Error("pgtest:", err)
	}
}
