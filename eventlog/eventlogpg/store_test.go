package eventlogpg_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func fresh(t testing.TB) (*eventlogpg.Store, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t)
	return at(t, db), db
}

func at(t testing.TB, db *pgtest.DB) *eventlogpg.Store {
	t.Helper()
	s, err := eventlogpg.New(db.Pool, &eventlogpg.Options{Schema: db.Schema})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Check(t.Context()))
	return s
}

func one(stream, id string, e eventlog.Expect) eventlog.Append {
	return eventlog.Append{Stream: stream, Expect: e, Producer: "p", Events: []eventlog.Event{{ID: id, Type: "t", Schema: 1, Data: []byte(id)}}}
}

// drain reads all there is from c.
func drain(t testing.TB, s eventlog.Store, c eventlog.Cursor, limit int) ([]string, eventlog.Cursor) {
	t.Helper()
	var ids []string
	for {
		page, err := s.Read(context.Background(), eventlog.Read{Cursor: c, Limit: limit})
		require.NoError(t, err)
		for _, e := range page.Events {
			ids = append(ids, e.ID)
		}
		c = page.Next
		if !page.More {
			return ids, c
		}
	}
}

func TestSmoke(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	got, err := s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Empty), one("a", "2", eventlog.Any), one("b", "3", 0)})
	require.NoError(t, err)
	fmt.Println(got)
	_, err = s.Append(ctx, []eventlog.Append{one("a", "4", eventlog.Empty)})
	require.ErrorIs(t, err, eventlog.ErrConflict)
	fmt.Println(err)
	got, err = s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Empty), one("a", "2", eventlog.Any), one("b", "3", 0)})
	require.NoError(t, err)
	fmt.Println(got)

	// A transaction that began after all that had finished, and has an early position.
	low, err := db.Pool.Begin(ctx)
	require.NoError(t, err)
	var x string
	require.NoError(t, low.QueryRow(ctx, "select pg_current_xact_id()::text").Scan(&x))
	high, err := db.Pool.Begin(ctx)
	require.NoError(t, err)
	_, err = s.AppendTx(ctx, high, one("c", "5", eventlog.Any))
	require.NoError(t, err)
	_, err = s.AppendTx(ctx, low, one("d", "6", eventlog.Any))
	require.NoError(t, err)
	require.NoError(t, low.Commit(ctx))
	ids, c := drain(t, s, eventlog.Cursor{}, 2)
	require.Equal(t, []string{"1", "2", "3", "6"}, ids)
	fmt.Println(c.Open(), c.Open().Next, c.Through(), len(c.String()))
	require.NoError(t, high.Commit(ctx))
	ids, c = drain(t, s, c, 2)
	require.Equal(t, []string{"5"}, ids)
	fmt.Println(c.Open(), c.Open().Next, c.Through(), len(c.String()))
	h, err := s.Holders(ctx, c)
	require.NoError(t, err)
	fmt.Println(h)
}
