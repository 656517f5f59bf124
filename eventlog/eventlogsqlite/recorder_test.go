package eventlogsqlite_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
)

func record(stream string, ids ...string) eventlog.Append {
	a := eventlog.Append{Stream: stream}
	for _, id := range ids {
		a.Events = append(a.Events, eventlog.Event{ID: id, Type: "t", Data: []byte(id)})
	}
	return a
}

func TestRecorder(t *testing.T) {
	ctx := t.Context()
	s, handle := open(t, filepath.Join(t.TempDir(), "events.db"))
	l, err := eventlog.New(s, nil)
	require.NoError(t, err)
	r, err := eventlogsqlite.NewRecorder(s, l)
	require.NoError(t, err)
	db := sqlitetx.New(handle, nil)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	gaveUp := errors.New("it is not to be")
	within := func(end error, appends ...eventlog.Append) error {
		return db.Write(ctx, func(tx *sqlitetx.Tx) error { return errors.Join(r.Append(tx, appends), end) })
	}
	require.ErrorIs(t, within(nil, record("a", "1")), eventlog.ErrInvalid, "it was not made ready")
	require.NoError(t, r.Ready(ctx))
	require.NoError(t, within(nil, record("a", "1", "2"), record("b", "3"), record("a", "4")))
	require.ErrorIs(t, within(gaveUp, record("a", "never")), gaveUp)
	require.NoError(t, within(nil, record("a", "2", "5"), record("b", "3"), record("a", "1", "6")))
	require.NoError(t, within(nil))

	require.ErrorIs(t, within(nil, record("a", "7", "7")), eventlog.ErrDuplicate)
	require.ErrorIs(t, within(nil, record("", "7")), eventlog.ErrInvalid)
	exact := record("a", "7")
	exact.Expect = eventlog.Empty
	require.ErrorIs(t, within(nil, exact), eventlog.ErrInvalid)

	list, err := s.Stream(ctx, eventlog.ReadStream{Stream: "a"})
	require.NoError(t, err)
	require.Len(t, list, 5)
	for i, id := range []string{"1", "2", "4", "5", "6"} {
		require.Equal(t, id, list[i].ID)
		require.Equal(t, int64(i+1), list[i].Version)
		require.Equal(t, l.Producer(), list[i].Producer)
		require.Equal(t, []byte(id), list[i].Data)
	}

	other, _ := open(t, filepath.Join(t.TempDir(), "other.db"))
	_, err = eventlogsqlite.NewRecorder(other, l)
	require.ErrorIs(t, err, eventlog.ErrInvalid)
	_, err = eventlogsqlite.NewRecorder(s, nil)
	require.ErrorIs(t, err, eventlog.ErrInvalid)
}
