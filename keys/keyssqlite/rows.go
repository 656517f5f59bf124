package keyssqlite

import (
	"context"
	"fmt"
	"iter"

	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/keys"
)

var (
	_ keys.Importer = (*Store)(nil)
	_ keys.Exporter = (*Store)(nil)
)

// Bootstrap implements keys.Store.
func (s *Store) Bootstrap(ctx context.Context, b keys.Bootstrap) (keys.Bootstrapped, error) {
	b, err := b.Prepare(s.format)
	if err != nil {
		return keys.Bootstrapped{}, err
	}
	var done keys.Bootstrapped
	err = s.telling(ctx, func(tx *sqlitetx.Tx) ([]keys.Event, error) {
		have, err := readRows(tx, b.Names())
		if err != nil {
			return nil, err
		}
		var add keys.Rows
		if add, done, err = b.Apply(have, now(tx)); err != nil {
			return nil, err
		}
		return add.CreationEvents(), addRows(tx, add)
	})
	return orZero(done, err)
}

// Import implements keys.Importer. It holds the writer's turn to its end.
func (s *Store) Import(ctx context.Context, rows iter.Seq2[keys.Rows, error]) (keys.Imported, error) {
	var done keys.Imported
	err := s.telling(ctx, func(tx *sqlitetx.Tx) (told []keys.Event, err error) {
		done, err = keys.MergeAll(rows,
			func(n keys.Names) (keys.Rows, error) {
				if err := left(ctx); err != nil {
					return keys.Rows{}, err
				}
				return readRows(tx, n)
			},
			func(add keys.Rows) error { return addRows(tx, add) })
		return done.Events(now(tx)), err
	})
	return orZero(done, err)
}

// exported is how many teams, or keys with their secrets, one batch holds.
const exported = 500

// Export implements keys.Exporter. It holds the file's write lock until use returns:
// whoever else wants to write waits, or is refused by the file's busy timeout, and
// nobody's earlier write is still under way. It writes nothing.
//
// A gateway that goes on with the file afterwards goes on with a copy: stop it for good
// before, or give its file away.
func (s *Store) Export(ctx context.Context, use func(rows iter.Seq2[keys.Rows, error]) error) error {
	return s.write(ctx, func(tx *sqlitetx.Tx) error {
		return use(func(yield func(keys.Rows, error) bool) {
			for _, page := range []func(*sqlitetx.Tx, *keys.Rows, keys.Name) (last keys.Name, err error){pageOfTeams, pageOfKeys, pageOfDeclared} {
				for after := (keys.Name{}); ; {
					var batch keys.Rows
					err := left(ctx)
					if err == nil {
						after, err = page(tx, &batch, after)
					}
					if err != nil {
						yield(keys.Rows{}, coreError(err))
						return
					}
					if batch.Count() == (keys.Count{}) {
						break
					}
					if !yield(batch, nil) {
						return
					}
				}
			}
		})
	})
}

// left tells a caller that has left between two batches.
func left(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", keys.ErrUnavailable, err)
	}
	return nil
}

// A page begins behind what the one before ended with.
func pageOfTeams(tx *sqlitetx.Tx, batch *keys.Rows, after keys.Name) (last keys.Name, err error) {
	err = each(tx, selectTeams, []any{after.ID, exported}, collect(scanTeam, &batch.Teams))
	if n := len(batch.Teams); n > 0 {
		after.ID = batch.Teams[n-1].ID
	}
	return after, err
}

func pageOfKeys(tx *sqlitetx.Tx, batch *keys.Rows, after keys.Name) (last keys.Name, err error) {
	err = each(tx, selectKeys, []any{after.ID, exported}, collect(scanKey, &batch.Keys))
	n := len(batch.Keys)
	if err != nil || n == 0 {
		return after, err
	}
	last.ID = batch.Keys[n-1].ID
	return last, each(tx, selectSecretsBetween, []any{after.ID, last.ID}, collect(scanSecret, &batch.Secrets))
}

func pageOfDeclared(tx *sqlitetx.Tx, batch *keys.Rows, after keys.Name) (last keys.Name, err error) {
	err = each(tx, selectDeclaredAfter, []any{string(after.Kind), after.ID, exported}, collect(scanDeclared, &batch.Declarations))
	if n := len(batch.Declarations); n > 0 {
		after = batch.Declarations[n-1].Name
	}
	return after, err
}

// readRows reads what is there of n.
func readRows(tx *sqlitetx.Tx, n keys.Names) (have keys.Rows, err error) {
	read := func(query string, visit func(*sqlitetx.Rows) error, args ...any) {
		if err == nil {
			err = each(tx, query, args, visit)
		}
	}
	for _, id := range n.Teams {
		read(selectTeam, collect(scanTeam, &have.Teams), id)
	}
	for _, id := range n.Keys {
		read(selectKey, collect(scanKey, &have.Keys), id)
		read(selectSecretsOf, collect(scanSecret, &have.Secrets), id)
	}
	for _, hash := range n.Hashes {
		read(selectSecret, collect(scanSecret, &have.Secrets), hash[:])
	}
	for _, name := range n.Declared {
		read(selectDeclared, collect(scanDeclared, &have.Declarations), string(name.Kind), name.ID)
	}
	return have, err
}

func addRows(tx *sqlitetx.Tx, add keys.Rows) error {
	err := insertAll(tx, insertTeam, add.Teams)
	if err == nil {
		err = insertAll(tx, insertKey, add.Keys)
	}
	if err == nil {
		err = insertAll(tx, insertSecret, add.Secrets)
	}
	if err == nil {
		err = insertAll(tx, insertDeclared, add.Declarations)
	}
	return err
}

func insertAll[T interface{ Columns() []any }](tx *sqlitetx.Tx, query string, rows []T) error {
	for _, row := range rows {
		if _, err := tx.Exec(query, row.Columns()...); err != nil {
			return err
		}
	}
	return nil
}

func collect[T any](scan func(scanner) (T, error), to *[]T) func(*sqlitetx.Rows) error {
	return func(rows *sqlitetx.Rows) error {
		one, err := scan(rows)
		*to = append(*to, one)
		return err
	}
}

// scanner is a row, of one or of many.
type scanner interface{ Scan(targets ...any) error }

func scanTeam(row scanner) (keys.Team, error) {
	var r keys.TeamRow
	if err := row.Scan(r.Targets()...); err != nil {
		return keys.Team{}, found(err, keys.ErrNotFound)
	}
	return r.Team()
}

func scanKey(row scanner) (keys.Key, error) {
	var r keys.KeyRow
	if err := row.Scan(r.Targets()...); err != nil {
		return keys.Key{}, found(err, keys.ErrNotFound)
	}
	return r.Key()
}

func scanSecret(row scanner) (keys.Secret, error) {
	var r keys.SecretRow
	if err := row.Scan(r.Targets()...); err != nil {
		return keys.Secret{}, err
	}
	return r.Secret()
}

func scanDeclared(row scanner) (keys.Declared, error) {
	var r keys.DeclaredRow
	err := row.Scan(r.Targets()...)
	return r.Declared(), err
}
