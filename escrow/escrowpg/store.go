// Package escrowpg keeps in Postgres what an authority knows of its nodes: one row each.
// Grants are permits and are kept with the counters, in the same schema; governancepg
// locks a node's row before all others, in the transaction that answers its heartbeat.
//
// Source: ADR-045.
package escrowpg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// Options adjust a Store. The zero value is the default.
type Options struct {
	// Schema holds the table. Default "tallystick".
	Schema string
	// Timeout bounds every call. Default 5 s.
	Timeout time.Duration
}

// Store lists nodes. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	schema  pgtx.Schema
	list    string
	timeout time.Duration
}

var _ escrow.NodeStore = (*Store)(nil)

// New makes a store on the caller's pool; nil options are the defaults. It does no
// I/O: Migrate or Check comes next.
//
// Errors: *escrow.Error, for a schema name that cannot be used.
func New(pool *pgxpool.Pool, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	schema, err := pgtx.ParseSchema(o.Schema)
	if err != nil {
		return nil, &escrow.Error{Field: "options.schema", Why: err.Error()}
	}
	s := &Store{pool: pool, schema: schema, list: schema.Splice(selectNodes), timeout: o.Timeout}
	if s.timeout <= 0 {
		s.timeout = 5 * time.Second
	}
	return s, nil
}

// Nodes implements escrow.NodeStore.
func (s *Store) Nodes(ctx context.Context, q escrow.NodeQuery) ([]escrow.NodeRow, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, s.list, q.After, q.Limit)
	if err != nil {
		return nil, coreError(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n escrow.NodeRow, err error) {
		err = row.Scan(&n.Name, &n.Data, &n.HeardAt)
		return n, err
	})
	return list, coreError(err)
}

// QueueNode adds to the caller's pipeline one statement that reads a node's row, and locks it
// if lock says so. collect is called while the pipeline's results are read, and not
// where there is no such row. The schema's name must have been validated.
func QueueNode(b *pgx.Batch, schema, name string, lock bool, collect func(escrow.NodeRow)) {
	sql := selectNode
	if lock {
		sql = lockNode
	}
	b.Queue(splice(sql, schema), name).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			n := escrow.NodeRow{Name: name}
			if err := rows.Scan(&n.Data, &n.HeardAt); err != nil {
				return err
			}
			collect(n)
		}
		return rows.Err()
	})
}

// QueueWrite adds to the caller's pipeline the new state of a node. known says that the
// transaction has locked its row. Otherwise the row is made, and where another transaction
// made it meanwhile, the pipeline ends with a violated uniqueness.
func QueueWrite(b *pgx.Batch, schema string, n *escrow.NodeRow, known bool) {
	sql := insertNode
	if known {
		sql = updateNode
	}
	b.Queue(splice(sql, schema), n.Name, n.Data, n.HeardAt)
}

func splice(sql, schema string) string {
	s, err := pgtx.ParseSchema(schema)
	if err != nil {
		panic("escrowpg: the schema's name was not validated: " + err.Error())
	}
	return s.Splice(sql)
}
