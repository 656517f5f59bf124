package eventlogpg

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// attempts bounds how often an append is tried that lost a race or an answer.
const attempts = 20

// Append implements eventlog.Store.
func (s *Store) Append(ctx context.Context, appends []eventlog.Append) ([]eventlog.Appended, error) {
	rows, err := eventlog.Plan(appends)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	sql, args := s.insertion(rows)
	doubt := false // an earlier attempt may have committed
	for i := 1; ; i++ {
		answers, err := s.insert(ctx, rows, len(appends), sql, args, i > 1)
		if err == nil {
			return answers, nil
		}
		switch class := pgtx.Classify(err); {
		case refused(err):
			answers, err := s.standing(ctx, s.pool, appends, rows)
			if answers != nil {
				return answers, nil
			}
			if err != nil {
				return nil, unsure(doubt, err)
			}
		case class == pgtx.UnknownOutcome:
			doubt = true
		case class == pgtx.Retryable:
		default:
			return nil, unsure(doubt, coreError(err))
		}
		if i == attempts || ctx.Err() != nil {
			if doubt || ctx.Err() != nil {
				return nil, unsure(doubt, coreError(pgtx.Scrub(err)))
			}
			return nil, &eventlog.ConflictError{Expected: -1, Actual: -1}
		}
	}
}

// unsure keeps an error after a lost answer from saying that nothing was done. What the log was found to hold is sure.
func unsure(doubt bool, err error) error {
	if doubt && (errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrStandby)) {
		return fmt.Errorf("%w: the answer was lost, and asking again failed", eventlog.ErrUnknownOutcome)
	}
	return err
}

// insert runs the one statement: by itself, or in turns with others who had to repeat.
func (s *Store) insert(ctx context.Context, rows []eventlog.Row, appends int, sql string, args []any, inTurn bool) (out []eventlog.Appended, err error) {
	if !inTurn {
		return s.insertAlone(ctx, rows, appends, sql, args)
	}
	lead := &pgx.Batch{}
	lead.Queue(lockStreams, s.turns(rows))
	tx, err := pgtx.Begin(ctx, s.pool, pgtx.Options{}, lead)
	if err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	b.Queue(sql, args...).Query(func(got pgx.Rows) (err error) {
		out, err = answersOf(got, rows, appends)
		return err
	})
	err = tx.Commit(ctx, b)
	return out, err
}

// insertAlone is one round trip. What pgx says of the error does not tell whether the statement was
// sent, so that anything but a server's answer is an unknown outcome.
func (s *Store) insertAlone(ctx context.Context, rows []eventlog.Row, appends int, sql string, args []any) ([]eventlog.Appended, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, pgtx.ScrubConnect(err)
	}
	defer conn.Release()
	got, err := conn.Query(ctx, sql, args...)
	var out []eventlog.Appended
	if err == nil {
		out, err = answersOf(got, rows, appends)
	}
	err = pgtx.ScrubStatement(err)
	leaveStandby(ctx, s.pool, conn, err)
	return out, err
}

// leaveStandby gives up connections to a server that became a standby: it keeps answering, and the
// pool's other connections lead to it too.
func leaveStandby(ctx context.Context, pool *pgxpool.Pool, conn *pgxpool.Conn, err error) {
	if pgtx.Classify(err) == pgtx.ReadOnly {
		_ = conn.Conn().Close(ctx)
		pool.Reset()
	}
}

func answersOf(got pgx.Rows, rows []eventlog.Row, appends int) ([]eventlog.Appended, error) {
	defer got.Close()
	out := make([]eventlog.Appended, appends)
	for _, r := range rows {
		if !got.Next() {
			break
		}
		a := &out[r.Append]
		if err := got.Scan(&a.Position, &a.Version); err != nil {
			return nil, err
		}
	}
	got.Close()
	return out, got.Err()
}

// insertion is the statement for the rows, with its arguments.
func (s *Store) insertion(rows []eventlog.Row) (string, []any) {
	if len(rows) == 1 {
		r := rows[0]
		return s.sql.insertOne, []any{r.Base, int32(r.Schema), r.Stream, r.ID, r.Type, string(r.Producer), notNil(r.Data)}
	}
	streams, ids, types, producers := make([]string, len(rows)), make([]string, len(rows)), make([]string, len(rows)), make([]string, len(rows))
	schemas, order, bases, offsets, data := make([]int32, len(rows)), make([]int32, len(rows)), make([]int64, len(rows)), make([]int64, len(rows)), make([][]byte, len(rows))
	for i, r := range rows {
		streams[i], ids[i], types[i], producers[i] = r.Stream, r.ID, r.Type, string(r.Producer)
		schemas[i], order[i], bases[i], offsets[i], data[i] = int32(r.Schema), int32(i), r.Base, r.Offset, notNil(r.Data)
	}
	return s.sql.insert, []any{streams, ids, types, schemas, bases, offsets, producers, data, order}
}

func notNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// turns are the advisory keys of the rows' streams.
func (s *Store) turns(rows []eventlog.Row) []int64 {
	var out []int64
	for _, r := range rows {
		sum := sha256.Sum256([]byte("eventlog\x00" + s.schema.Name() + "\x00" + r.Stream))
		out = append(out, int64(binary.BigEndian.Uint64(sum[:8])))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// standing says what the log has that an append ran into: its own earlier success, or the reason why it cannot
// be. Neither means that it lost a race and may be tried again.
func (s *Store) standing(ctx context.Context, q querier, appends []eventlog.Append, rows []eventlog.Row) ([]eventlog.Appended, error) {
	ids := make([]string, len(rows))
	streams := map[string]bool{}
	for i, r := range rows {
		ids[i], streams[r.Stream] = r.ID, true
	}
	got, err := q.Query(ctx, s.sql.ids, ids)
	if err != nil {
		return nil, coreError(err)
	}
	found, err := pgx.CollectRows(got, func(row pgx.CollectableRow) (eventlog.Recorded, error) { return scanEvent(row) })
	if err != nil {
		return nil, coreError(err)
	}
	if answers, err := eventlog.Replay(rows, len(appends), found); answers != nil || err != nil {
		return answers, err
	}
	if got, err = q.Query(ctx, s.sql.versions, slices.Sorted(maps.Keys(streams))); err != nil {
		return nil, coreError(err)
	}
	at := map[string]int64{}
	var stream string
	var version int64
	if _, err = pgx.ForEachRow(got, []any{&stream, &version}, func() error { at[stream] = version; return nil }); err != nil {
		return nil, coreError(err)
	}
	if c := eventlog.Conflict(appends, at); c != nil {
		return nil, c
	}
	return nil, nil
}

// AppendTx appends in the caller's transaction: the events are there when it commits, and never
// were when it does not. Take the appends from Log.Stamp. A refusal leaves the transaction usable. Who appends to the same
// stream elsewhere waits for the transaction's end. At repeatable read or above the stream is as the transaction's snapshot
// shows it, and others' later events are ErrConflict.
//
// Retry: with the same ids, also in another transaction.
// Errors: those of Append, and eventlog.ErrMayNotAppend within a projection. After ErrUnavailable the transaction is lost.
//
// Source: ADR-020 "Appending".
func (s *Store) AppendTx(ctx context.Context, tx pgx.Tx, appends ...eventlog.Append) ([]eventlog.Appended, error) {
	if err := eventlog.MayAppend(ctx); err != nil {
		return nil, err
	}
	rows, err := eventlog.Plan(appends)
	if err != nil {
		return nil, err
	}
	sql, args := s.insertion(rows)
	for i := 1; ; i++ {
		answers, err := s.insertWithin(ctx, tx, rows, len(appends), sql, args)
		if !refused(err) {
			return answers, coreError(err)
		}
		answers, err = s.standing(ctx, tx, appends, rows)
		if answers != nil || err != nil {
			return answers, err
		}
		if i == attempts {
			return nil, &eventlog.ConflictError{Expected: -1, Actual: -1}
		}
	}
}

// insertWithin inserts behind a savepoint and goes back to it where that is refused.
func (s *Store) insertWithin(ctx context.Context, tx pgx.Tx, rows []eventlog.Row, appends int, sql string, args []any) ([]eventlog.Appended, error) {
	save, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	got, err := save.Query(ctx, sql, args...)
	var out []eventlog.Appended
	if err == nil {
		out, err = answersOf(got, rows, appends)
	}
	if err != nil {
		if back := save.Rollback(ctx); back != nil {
			return nil, back
		}
		return nil, err
	}
	return out, save.Commit(ctx)
}
