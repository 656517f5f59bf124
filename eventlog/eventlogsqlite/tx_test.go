package eventlogsqlite_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
)

func one(stream, id string, e eventlog.Expect) eventlog.Append {
	return eventlog.Append{Stream: stream, Expect: e, Producer: "p", Events: []eventlog.Event{{ID: id, Type: "t", Schema: 1}}}
}

func TestCallersTransactions(t *testing.T) {
	ctx := t.Context()
	s, db := open(t, filepath.Join(t.TempDir(), "events.db"))
	_, err := s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Any)})
	require.NoError(t, err)
	c, err := s.Claim(ctx, eventlog.Claim{Consumer: "c", Owner: "me"})
	require.NoError(t, err)
	page, err := s.Read(ctx, eventlog.Read{Cursor: c.Cursor})
	require.NoError(t, err)
	c.Cursor = page.Next
	for _, keep := range []bool{false, true} {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = s.AppendTx(ctx, tx, one("a", "2", eventlog.Empty))
		require.ErrorIs(t, err, eventlog.ErrConflict)
		_, err = s.AppendTx(ctx, tx, one("b", "1", eventlog.Any))
		require.ErrorIs(t, err, eventlog.ErrDuplicate)
		out, err := s.AppendTx(ctx, tx, one("a", "2", 1))
		require.NoError(t, err)
		require.Equal(t, int64(2), out[0].Version, "a refusal left the transaction usable, and nothing in it")
		require.NoError(t, s.SaveTx(ctx, tx, c))
		_, err = s.HeadTx(ctx, tx)
		require.ErrorIs(t, err, eventlog.ErrInTransaction, "what it appended may yet be rolled back")
		if !keep {
			require.NoError(t, tx.Rollback())
			continue
		}
		require.NoError(t, tx.Commit())
	}
	page, err = s.Read(ctx, eventlog.Read{Cursor: c.Cursor})
	require.NoError(t, err)
	require.Len(t, page.Events, 1, "what was rolled back never was")
	list, err := s.Checkpoints(ctx, "c")
	require.NoError(t, err)
	require.Equal(t, int64(1), list[0].Behind)

	_, err = s.Claim(ctx, eventlog.Claim{Consumer: "c", Owner: "other"})
	require.NoError(t, err)
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.SaveTx(ctx, tx, c), eventlog.ErrTaken)
	require.NoError(t, tx.Rollback())

	tx, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	head, err := s.HeadTx(ctx, tx)
	require.NoError(t, err)
	_, err = s.Append(ctx, []eventlog.Append{one("a", "3", eventlog.Any)}) // beside the reader
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	page, err = s.Read(ctx, eventlog.Read{Cursor: head})
	require.NoError(t, err)
	require.Len(t, page.Events, 1, "the cursor is of the reader's snapshot")
	require.Equal(t, "3", page.Events[0].ID)
}

func TestProjectionsMayNotAppendInATransactionEither(t *testing.T) {
	s, db := open(t, filepath.Join(t.TempDir(), "events.db"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, err := s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Any)})
	require.NoError(t, err)
	tried := make(chan error, 1)
	l, err := eventlog.New(s, &eventlog.Options{Subscriptions: []eventlog.Subscription{eventlog.Projection("p", func(ctx context.Context, _ eventlog.Recorded) error {
		tx, err := db.BeginTx(ctx, nil)
		if err == nil {
			_, err = s.AppendTx(ctx, tx, one("echo", "2", eventlog.Any))
			_ = tx.Rollback()
		}
		tried <- err
		return nil
	}, nil)}})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	require.ErrorIs(t, <-tried, eventlog.ErrMayNotAppend)
	stop()
	<-ended
}
