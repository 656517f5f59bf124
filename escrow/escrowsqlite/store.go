// Package escrowsqlite keeps in an SQLite file what an authority knows of its nodes: one
// row each. Grants are permits and are kept with the counters, in the same file;
// governancesqlite reads and writes a node's row in the transaction that answers
// its heartbeat.
//
// Source: ADR-045.
package escrowsqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/internal/migrate"
	"github.com/tallystick-go/tallystick/internal/migrate/migratesqlite"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

// The errors of Migrate and Check. Each comes with a text that says what to do;
// nothing was changed.
var (
	// ErrOlder: the schema is older than this program. Run Migrate.
	ErrOlder = migrate.ErrOlder
	// ErrForeign: the file holds something that this library did not make.
	ErrForeign = migrate.ErrForeign
)

// All SQL of the package. What writes runs under BEGIN IMMEDIATE.
const (
	selectNode  = `SELECT data, heard_us FROM escrow_nodes WHERE name = ?1`
	upsertNode  = `INSERT INTO escrow_nodes (name, data, heard_us) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET data = excluded.data, heard_us = excluded.heard_us`
	selectNodes = `SELECT name, data, heard_us FROM escrow_nodes WHERE name > ?1 ORDER BY name LIMIT ?2`
)

// Store lists nodes. It is safe for concurrent use.
type Store struct{ db *sqlitetx.DB }

var _ escrow.NodeStore = (*Store)(nil)

// New makes a store on the caller's handle. It does no I/O: Migrate or Check comes next.
// The handle must be opened as governancesqlite asks for. Close gives its connections
// back, the handle stays the caller's.
func New(db *sql.DB) *Store { return On(sqlitetx.New(db, nil)) }

// On makes a store on a writer that other adapters of the same file use too.
func On(db *sqlitetx.DB) *Store { return &Store{db} }

// Close gives the store's connections back to the handle, which stays open.
func (s *Store) Close() error { return s.db.Close() }

// Nodes implements escrow.NodeStore.
func (s *Store) Nodes(ctx context.Context, q escrow.NodeQuery) ([]escrow.NodeRow, error) {
	var list []escrow.NodeRow
	err := s.db.Read(ctx, func(tx *sqlitetx.Tx) error {
		list = nil
		rows, err := tx.Query(selectNodes, q.After, q.Limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var n escrow.NodeRow
			if err := rows.Scan(&n.Name, &n.Data, &n.HeardAt); err != nil {
				return err
			}
			list = append(list, n)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", escrow.ErrUnavailable, err)
	}
	return list, nil
}

// Node reads a node's row in the caller's transaction; its Data is empty where there is none.
func Node(tx *sqlitetx.Tx, name string) (escrow.NodeRow, error) {
	n := escrow.NodeRow{Name: name}
	err := tx.QueryRow(selectNode, name).Scan(&n.Data, &n.HeardAt)
	if errors.Is(err, sql.ErrNoRows) {
		return escrow.NodeRow{Name: name}, nil
	}
	return n, err
}

// Write writes the new state of a node in the caller's transaction.
func Write(tx *sqlitetx.Tx, n *escrow.NodeRow) error {
	_, err := tx.Exec(upsertNode, n.Name, n.Data, n.HeardAt)
	return err
}

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the files for your own migration tool. They are complete: each
// file records itself, so that Check finds it.
func Migrations() (fs.FS, error) {
	script, err := migratesqlite.Script(Source())
	if err != nil {
		return nil, err
	}
	return migrate.Export(script)
}

// Source names the migrations for this module's own adapters that share one file:
// its type is internal. For a migration tool of your own take Migrations.
func Source() migrate.Source { return migrate.Source{Package: "escrowsqlite", FS: files} }

// Migrate creates or updates the table, all or nothing. Safe to run from several
// processes at once.
//
// Errors: ErrForeign, with what to do about it. A damaged file and an unsafe handle
// are refused as well, and nothing was changed.
func (s *Store) Migrate(ctx context.Context) error {
	_, err := migratesqlite.Migrate(ctx, s.db.Handle(), nil, Source())
	return err
}

// Check refuses a handle that would lose what it commits, a damaged file, and a
// schema that is older or not ours. A newer one passes.
//
// Errors: those of Migrate, ErrOlder.
func (s *Store) Check(ctx context.Context) error {
	return migratesqlite.Check(ctx, s.db.Handle(), Source())
}
