package keyspg

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/keys"
)

var _ keys.Importer = (*Store)(nil)

// Bootstrap implements keys.Store.
func (s *Store) Bootstrap(ctx context.Context, b keys.Bootstrap) (keys.Bootstrapped, error) {
	b, err := b.Prepare(s.format)
	if err != nil {
		return keys.Bootstrapped{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var done keys.Bootstrapped
	err = s.intake(ctx, pgtx.Options{}, func(ctx context.Context, tx *pgtx.Tx) ([]keys.Event, error) {
		have, err := s.have(ctx, tx, b.Names())
		if err != nil {
			return nil, err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return nil, err
		}
		var add keys.Rows
		if add, done, err = b.Apply(have, now); err != nil {
			return nil, err
		}
		return add.CreationEvents(), s.add(ctx, tx, add)
	})
	return orZero(done, err)
}

// importing bounds the transaction of an import: single statements and the pauses in
// which rows are read elsewhere, not the whole.
var importing = pgtx.Options{Idle: time.Minute, Statement: time.Minute, Lock: 10 * time.Second, Commit: time.Minute}

// many is after how many keys the tables are analyzed.
const many = 1000

// Import implements keys.Importer. Bootstraps and other imports wait meanwhile; what
// gateways do goes on.
func (s *Store) Import(ctx context.Context, rows iter.Seq2[keys.Rows, error]) (keys.Imported, error) {
	var done keys.Imported
	err := s.intake(ctx, importing, func(ctx context.Context, tx *pgtx.Tx) (told []keys.Event, err error) {
		done, err = keys.MergeAll(rows,
			func(n keys.Names) (keys.Rows, error) { return s.have(ctx, tx, n) },
			func(add keys.Rows) error { return s.add(ctx, tx, add) })
		if err == nil && done.Added.Keys >= many {
			_, err = tx.Exec(ctx, s.sql.analyze)
		}
		if err != nil {
			return nil, err
		}
		now, err := s.now(ctx, tx)
		return done.Events(now), err
	})
	return orZero(done, err)
}

// intake runs fn alone among bootstraps, imports and migrations. Somebody may still
// create one of the rows: then it is run again, and finds it.
func (s *Store) intake(ctx context.Context, o pgtx.Options, fn telling) error {
	const attempts = 5
	for i := 1; ; i++ {
		err := s.telling(ctx, o, func(ctx context.Context, tx *pgtx.Tx) ([]keys.Event, error) {
			if _, err := tx.Exec(ctx, takeTurn, s.schema.MigrateKey()); err != nil {
				return nil, err
			}
			return fn(ctx, tx)
		})
		if pgtx.Classify(err) != pgtx.UniqueViolation {
			return coreError(err)
		}
		if i == attempts {
			return fmt.Errorf("%w: others keep creating what is brought in", keys.ErrUnavailable)
		}
	}
}

// have reads what is there of n. Its teams cannot be deleted until tx ends. Each
// statement is planned for the tables as they are: an import makes them grow.
func (s *Store) have(ctx context.Context, tx *pgtx.Tx, n keys.Names) (have keys.Rows, err error) {
	hashes := make([][]byte, len(n.Hashes))
	for i := range n.Hashes {
		hashes[i] = n.Hashes[i][:]
	}
	kinds, ids := make([]string, len(n.Declared)), make([]string, len(n.Declared))
	for i, d := range n.Declared {
		kinds[i], ids[i] = string(d.Kind), d.ID
	}
	read := func(some int, visit func(pgx.Row) error, sql string, args ...any) {
		if err != nil || some == 0 {
			return
		}
		rows, failed := tx.Query(ctx, sql, append([]any{s.listing}, args...)...)
		for err = failed; err == nil && rows.Next(); {
			err = visit(rows)
		}
		if failed == nil {
			rows.Close()
			err = errors.Join(err, pgtx.Scrub(rows.Err()))
		}
	}
	read(len(n.Teams), collect(scanTeam, &have.Teams), s.sql.keepTeams, n.Teams)
	read(len(n.Keys), collect(scanKey, &have.Keys), s.sql.selectKeysByID, n.Keys)
	read(len(n.Hashes)+len(n.Keys), collect(scanSecret, &have.Secrets), s.sql.selectSecrets, hashes, n.Keys)
	read(len(n.Declared), collect(scanDeclared, &have.Declarations), s.sql.selectDeclared, kinds, ids)
	return have, err
}

func collect[T any](scan func(pgx.Row) (T, error), to *[]T) func(pgx.Row) error {
	return func(row pgx.Row) error {
		one, err := scan(row)
		*to = append(*to, one)
		return err
	}
}

// add inserts rows, a statement per table.
func (s *Store) add(ctx context.Context, tx *pgtx.Tx, add keys.Rows) error {
	for _, table := range []struct {
		sql, columns string
		rows         [][]any
	}{
		{s.sql.insertTeams, keys.TeamColumns, columnsOf(add.Teams)},
		{s.sql.insertKeys, keys.KeyColumns, columnsOf(add.Keys)},
		{s.sql.insertSecrets, keys.SecretColumns, columnsOf(add.Secrets)},
		{s.sql.insertDeclared, keys.DeclaredColumns, columnsOf(add.Declarations)},
	} {
		if len(table.rows) == 0 {
			continue
		}
		if _, err := tx.Exec(ctx, table.sql, arrays(table.columns, table.rows)...); err != nil {
			return err
		}
	}
	return nil
}

func columnsOf[T interface{ Columns() []any }](rows []T) [][]any {
	out := make([][]any, len(rows))
	for i, row := range rows {
		out[i] = row.Columns()
	}
	return out
}

// arrays turns rows into one array per column, of the column's type.
func arrays(columns string, rows [][]any) []any {
	var out []any
	for i, column := range strings.Split(columns, ", ") {
		switch columnTypes[column] {
		case "":
			out = append(out, array[int64](rows, i))
		case "bytea":
			hashes := make([][]byte, len(rows))
			for n, row := range rows {
				hashes[n] = row[i].([]byte)
			}
			out = append(out, hashes)
		default:
			out = append(out, array[string](rows, i))
		}
	}
	return out
}

// array is a column of values that may be NULL.
func array[T any](rows [][]any, i int) []*T {
	out := make([]*T, len(rows))
	for n, row := range rows {
		switch v := row[i].(type) {
		case T:
			out[n] = &v
		case *T:
			out[n] = v
		}
	}
	return out
}

func scanSecret(row pgx.Row) (keys.Secret, error) {
	var r keys.SecretRow
	if err := row.Scan(r.Targets()...); err != nil {
		return keys.Secret{}, err
	}
	return r.Secret()
}

func scanDeclared(row pgx.Row) (keys.Declared, error) {
	var r keys.DeclaredRow
	err := row.Scan(r.Targets()...)
	return r.Declared(), err
}
