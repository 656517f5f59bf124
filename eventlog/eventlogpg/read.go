package eventlogpg

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/eventlog"
)

// found is what the queries of a read come back with.
type found struct {
	view        eventlog.View
	written     bool   // the transaction has an id
	isolation   string // of the transaction
	late, fresh []eventlog.Recorded
}

// ask queues the queries of a read from c.
func (s *Store) ask(b *pgx.Batch, f *found, c eventlog.Cursor, limit int) {
	b.Queue(s.sql.view).QueryRow(func(row pgx.Row) (err error) {
		f.view, f.written, f.isolation, err = scanView(row)
		return err
	})
	l := c.Lookup()
	if late := l.Late; late != nil {
		target := ""
		if late.Target != nil {
			target = late.Target.String()
		}
		all(b.Queue(s.sql.late, texts(late.Running), text(late.From), text(late.To), late.After, late.Through, int64(limit), target), &f.late, scanEvent)
		if late.Target != nil {
			return
		}
	}
	all(b.Queue(s.sql.fresh, l.After, int64(limit)), &f.fresh, scanEvent)
}

func text(xid uint64) string { return strconv.FormatUint(xid, 10) }

func texts(xids []uint64) []string {
	out := make([]string, len(xids))
	for i, x := range xids {
		out[i] = text(x)
	}
	return out
}

func scanView(row pgx.Row) (v eventlog.View, written bool, isolation string, err error) {
	var snapshot, high, timeline, log, prunedXID string
	var ahead, system, database, table int64
	if err := row.Scan(&snapshot, &high, &ahead, &system, &timeline, &database, &table, &log, &v.Head, &v.Pruned, &prunedXID, &v.Now, &written, &isolation); err != nil {
		return v, false, "", err
	}
	end, err := strconv.ParseUint(high, 10, 64)
	if err != nil {
		return v, false, "", err
	}
	if v.PrunedXID, err = strconv.ParseUint(prunedXID, 10, 64); err != nil {
		return v, false, "", err
	}
	line, err := strconv.ParseUint(timeline, 16, 32)
	if err != nil {
		return v, false, "", err
	}
	// A log that is dumped and restored, even into the same cluster, is another table.
	sum := sha256.Sum256([]byte(log + "/" + strconv.FormatInt(database, 10) + "/" + strconv.FormatInt(table, 10)))
	v.Origin = eventlog.Origin{System: uint64(system), Timeline: uint32(line), Log: binary.BigEndian.Uint64(sum[:8])}
	v.Head = max(v.Head, v.Pruned)
	v.Snapshot, err = eventlog.ParseSnapshot(snapshot, end+uint64(max(0, ahead)))
	return v, written, isolation, err
}

// Read implements eventlog.Store.
func (s *Store) Read(ctx context.Context, r eventlog.Read) (eventlog.Page, error) {
	r, err := r.Prepare()
	if err != nil {
		return eventlog.Page{}, err
	}
	mark := s.witness.Mark()
	var b pgx.Batch
	var f found
	s.ask(&b, &f, r.Cursor, r.Limit)
	if err := s.read(ctx, &b); err != nil {
		return eventlog.Page{}, err
	}
	if err := s.witness.See(mark, f.view); err != nil {
		return eventlog.Page{}, err
	}
	return r.Cursor.Page(f.view, r.Limit, f.late, f.fresh, r.Registered)
}

// view is what the log looks like now.
func (s *Store) view(ctx context.Context) (eventlog.View, error) {
	mark := s.witness.Mark()
	var b pgx.Batch
	var f found
	b.Queue(s.sql.view).QueryRow(func(row pgx.Row) (err error) {
		f.view, _, _, err = scanView(row)
		return err
	})
	if err := s.read(ctx, &b); err != nil {
		return eventlog.View{}, err
	}
	return f.view, s.witness.See(mark, f.view)
}

// Head implements eventlog.Store.
func (s *Store) Head(ctx context.Context) (eventlog.Cursor, error) {
	v, err := s.view(ctx)
	if err != nil {
		return eventlog.Cursor{}, err
	}
	return v.At(v.Head)
}

// At implements eventlog.Store.
func (s *Store) At(ctx context.Context, position int64) (eventlog.Cursor, error) {
	v, err := s.view(ctx)
	if err != nil {
		return eventlog.Cursor{}, err
	}
	return v.At(position)
}

// HeadTx is the cursor of the snapshot of a caller's transaction, which must be at repeatable read or above and must not have written. What
// else is read in it is of the same moment: a state that is read there, and this cursor, are together what a late joiner needs.
//
// Errors: eventlog.ErrInTransaction, those of Head.
//
// Source: ADR-020 "Joining late".
func (s *Store) HeadTx(ctx context.Context, tx pgx.Tx) (eventlog.Cursor, error) {
	f, err := s.askTx(ctx, tx, eventlog.Cursor{}, 0)
	if err != nil {
		return eventlog.Cursor{}, err
	}
	return f.view.At(f.view.Head)
}

// ReadTx is Read in a caller's transaction, under the same conditions as HeadTx.
//
// Errors: eventlog.ErrInTransaction, those of Read.
func (s *Store) ReadTx(ctx context.Context, tx pgx.Tx, r eventlog.Read) (eventlog.Page, error) {
	r, err := r.Prepare()
	if err != nil {
		return eventlog.Page{}, err
	}
	f, err := s.askTx(ctx, tx, r.Cursor, r.Limit)
	if err != nil {
		return eventlog.Page{}, err
	}
	return r.Cursor.Page(f.view, r.Limit, f.late, f.fresh, r.Registered)
}

func (s *Store) askTx(ctx context.Context, tx pgx.Tx, c eventlog.Cursor, limit int) (found, error) {
	var f found
	var standby bool
	if err := tx.QueryRow(ctx, "select pg_catalog.pg_is_in_recovery()").Scan(&standby); err != nil {
		return f, coreError(err)
	}
	if standby {
		return f, eventlog.ErrStandby
	}
	var b pgx.Batch
	s.ask(&b, &f, c, limit)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return f, coreError(err)
	}
	if f.written || f.isolation != "repeatable read" && f.isolation != "serializable" {
		return f, eventlog.ErrInTransaction
	}
	return f, nil // not shown to the witness: the snapshot may be older than what was seen since
}

// Stream implements eventlog.Store.
func (s *Store) Stream(ctx context.Context, q eventlog.ReadStream) ([]eventlog.Recorded, error) {
	q, err := q.Prepare()
	if err != nil {
		return nil, err
	}
	var b pgx.Batch
	var out []eventlog.Recorded
	all(b.Queue(s.sql.stream, q.Stream, q.After, int64(q.Limit)), &out, scanEvent)
	return out, s.read(ctx, &b)
}

// checkNumbers refuses rows of transactions that this cluster has not had, and positions that it would hand out again.
func (s *Store) checkNumbers(ctx context.Context) error {
	var b pgx.Batch
	var ahead, behind bool
	b.Queue(s.sql.newest).QueryRow(func(row pgx.Row) error { return row.Scan(&ahead, &behind, nil) })
	if err := s.read(ctx, &b); err != nil {
		return err
	}
	if ahead || behind {
		return eventlog.ErrFuture
	}
	return nil
}
