package eventlogpg_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

// recording makes a store with a recorder and a table whose row decides the order of the stream of its name.
func recording(t *testing.T) (*eventlogpg.Store, *eventlogpg.Recorder, *pgtest.DB) {
	t.Helper()
	s, db := fresh(t)
	l, err := eventlog.New(s, nil)
	require.NoError(t, err)
	r, err := eventlogpg.NewRecorder(s, l)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), "create table "+db.Schema+".things (id text primary key, n int not null)")
	require.NoError(t, err)
	return s, r, db
}

func record(stream string, ids ...string) eventlog.Append {
	a := eventlog.Append{Stream: stream}
	for _, id := range ids {
		a.Events = append(a.Events, eventlog.Event{ID: id, Type: "t", Data: []byte(id)})
	}
	return a
}

// queued runs one transaction with nothing in it but what is recorded.
func queued(t *testing.T, r *eventlogpg.Recorder, db *pgtest.DB, appends ...eventlog.Append) error {
	t.Helper()
	b := &pgx.Batch{}
	require.NoError(t, r.Queue(b, appends))
	return pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error { return tx.SendBatch(t.Context(), b).Close() })
}

func idsOf(t *testing.T, s eventlog.Store, stream string) (ids []string) {
	t.Helper()
	list, err := s.Stream(t.Context(), eventlog.ReadStream{Stream: stream})
	require.NoError(t, err)
	for i, e := range list {
		require.Equal(t, int64(i+1), e.Version, "no version is left out")
		ids = append(ids, e.ID)
	}
	return ids
}

func TestRecorderLeavesWhatIsThere(t *testing.T) {
	s, r, db := recording(t)
	require.ErrorIs(t, r.Queue(&pgx.Batch{}, []eventlog.Append{record("a", "1")}), eventlog.ErrInvalid, "it was not made ready")
	require.NoError(t, r.Ready(t.Context()))
	require.NoError(t, queued(t, r, db, record("a", "1", "2"), record("b", "3"), record("a", "4")))
	require.NoError(t, queued(t, r, db, record("a", "2", "5"), record("b", "3"), record("a", "1", "6")))
	require.Equal(t, []string{"1", "2", "4", "5", "6"}, idsOf(t, s, "a"))
	require.Equal(t, []string{"3"}, idsOf(t, s, "b"))
	order, _ := drain(t, s, eventlog.Cursor{}, 10)
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, order)

	list, err := s.Stream(t.Context(), eventlog.ReadStream{Stream: "a"})
	require.NoError(t, err)
	require.NotEqual(t, eventlog.Unknown, list[0].Producer)
	require.Equal(t, 1, list[0].Schema)
	require.NoError(t, queued(t, r, db, record("c", "")))
	require.Len(t, idsOf(t, s, "c")[0], 32, "an id was minted")
}

func TestRecorderRefuses(t *testing.T) {
	s, r, db := recording(t)
	require.NoError(t, r.Ready(t.Context()))
	b := &pgx.Batch{}
	require.NoError(t, r.Queue(b, nil))
	require.ErrorIs(t, r.Queue(b, []eventlog.Append{record("a", "1", "1")}), eventlog.ErrDuplicate)
	require.ErrorIs(t, r.Queue(b, []eventlog.Append{record("", "1")}), eventlog.ErrInvalid)
	exact := record("a", "1")
	exact.Expect = eventlog.Empty
	require.ErrorIs(t, r.Queue(b, []eventlog.Append{exact}), eventlog.ErrInvalid)
	require.Zero(t, b.Len(), "nothing was queued")

	other, err := eventlog.New(at(t, db.Pool, db.Schema), nil)
	require.NoError(t, err)
	_, err = eventlogpg.NewRecorder(s, other)
	require.ErrorIs(t, err, eventlog.ErrInvalid)
	_, err = eventlogpg.NewRecorder(nil, other)
	require.ErrorIs(t, err, eventlog.ErrInvalid)
	_, err = eventlogpg.NewRecorder(s, nil)
	require.ErrorIs(t, err, eventlog.ErrInvalid)
}

// TestRecorderIsPartOfTheTransaction: many writers of a few rows, some of which roll back. Each stream has the
// changes of its row, in their order, and a reader beside them misses none.
func TestRecorderIsPartOfTheTransaction(t *testing.T) {
	s, r, db := recording(t)
	ctx := t.Context()
	require.NoError(t, r.Ready(ctx))
	_, err := db.Pool.Exec(ctx, "insert into "+db.Schema+".things select 'r' || i, 0 from generate_series(0, 2) i")
	require.NoError(t, err)
	var writers sync.WaitGroup
	for w := range 6 {
		writers.Go(func() {
			for n := range 20 {
				stream := fmt.Sprint("r", (w+n)%3)
				err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
					var next int
					if err := tx.QueryRow(ctx, "update "+db.Schema+".things set n = n + 1 where id = $1 returning n", stream).Scan(&next); err != nil {
						return err
					}
					b := &pgx.Batch{}
					if err := r.Queue(b, []eventlog.Append{record(stream, fmt.Sprint(stream, "/", next))}); err != nil {
						return err
					}
					if err := tx.SendBatch(ctx, b).Close(); err != nil {
						return err
					}
					if n%5 == 4 {
						return errGaveUp
					}
					return nil
				})
				if err != nil && !errors.Is(err, errGaveUp) {
					t.Error(err)
				}
			}
		})
	}
	read := map[string]bool{}
	var c eventlog.Cursor
	ended := make(chan struct{})
	go func() { writers.Wait(); close(ended) }()
	for last := false; !last; {
		select {
		case <-ended:
			last = true
		default:
		}
		var ids []string
		ids, c = drain(t, s, c, 7)
		for _, id := range ids {
			require.False(t, read[id], id)
			read[id] = true
		}
	}
	total := 0
	for i := range 3 {
		stream := fmt.Sprint("r", i)
		for n, id := range idsOf(t, s, stream) {
			require.Equal(t, fmt.Sprint(stream, "/", n+1), id)
			require.True(t, read[id], id)
			total++
		}
	}
	require.Equal(t, 6*20*4/5, total)
	require.Len(t, read, total)
}

var errGaveUp = errors.New("it is not to be")

func TestRecorderRegistersEffectsFirst(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	l, err := eventlog.New(s, &eventlog.Options{Subscriptions: []eventlog.Subscription{
		eventlog.Effect("e", func(context.Context, eventlog.Recorded, eventlog.Appender) error { return nil }),
	}})
	require.NoError(t, err)
	r, err := eventlogpg.NewRecorder(s, l)
	require.NoError(t, err)
	list, err := s.Checkpoints(ctx, "e")
	require.NoError(t, err)
	require.Empty(t, list)
	require.NoError(t, r.Ready(ctx))
	list, err = s.Checkpoints(ctx, "e")
	require.NoError(t, err)
	require.Len(t, list, 1)
}
