package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

// environment holds the databases, started when first asked for.
type environment struct {
	options options
	server  *pgserver.Server
	folder  string
	pools   []*pgxpool.Pool
	schemas atomic.Int64
	files   []*sql.DB
	keys    map[int]*keyspg.Store // by how many they hold
}

// postgres starts the server: durable, as in production.
func (e *environment) postgres(ctx context.Context) (string, error) {
	if e.server == nil {
		server, err := pgserver.Start(ctx, pgserver.Config{Durable: true, Settings: map[string]string{
			"shared_buffers": "1GB", "max_connections": "300", "max_wal_size": "4GB", "checkpoint_timeout": "15min",
		}})
		if err != nil {
			return "", err
		}
		e.server = server
		pool, err := e.pool(ctx, 1)
		if err != nil {
			return "", err
		}
		for _, name := range []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "wal_sync_method"} {
			var value string
			if err := pool.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
				return "", err
			}
			fmt.Fprintf(os.Stderr, "# postgres %s = %s\n", name, value)
		}
	}
	return e.server.DSN(), nil
}

func (e *environment) pool(ctx context.Context, size int) (*pgxpool.Pool, error) {
	dsn, err := e.postgres(ctx)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = int32(size), int32(size)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		e.pools = append(e.pools, pool)
	}
	return pool, err
}

// schema returns a name that was not used yet.
func (e *environment) schema() string { return fmt.Sprintf("bench_%d", e.schemas.Add(1)) }

// file returns the path of a new SQLite file.
func (e *environment) file() (string, error) {
	if e.folder == "" {
		folder, err := os.MkdirTemp("", "tallystick-bench-")
		if err != nil {
			return "", err
		}
		e.folder = folder
	}
	return filepath.Join(e.folder, fmt.Sprintf("bench-%d.db", e.schemas.Add(1))), nil
}

func (e *environment) close() {
	for _, pool := range e.pools {
		pool.Close()
	}
	for _, db := range e.files {
		_ = db.Close()
	}
	if e.server != nil {
		_ = e.server.Close()
	}
	if e.folder != "" {
		_ = os.RemoveAll(e.folder)
	}
}
