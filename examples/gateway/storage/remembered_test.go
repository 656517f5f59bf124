package storage

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
	"github.com/tallystick-go/tallystick/examples/gateway/audit"
)

func openLog(t *testing.T) *eventlogsqlite.Store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(t.TempDir(), "log.db"))+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=fullfsync(1)&_txlock=immediate")
	require.NoError(t, err)
	store := eventlogsqlite.New(db)
	t.Cleanup(func() {
		require.NoError(t, store.Close())
		require.NoError(t, db.Close())
	})
	require.NoError(t, store.Migrate(t.Context()))
	return store
}

// TestTheQuietAreRemembered: an authority that tells nothing for longer than events are kept, and then something, is exported all the
// same, and nothing of it twice.
func TestTheQuietAreRemembered(t *testing.T) {
	store := openLog(t)
	var exported []string
	gateway, err := eventlog.New(store, &eventlog.Options{Subscriptions: []eventlog.Subscription{
		eventlog.Effect(audit.Name, func(_ context.Context, e eventlog.Recorded, _ eventlog.Appender) error {
			exported = append(exported, e.ID)
			return nil
		}),
	}})
	require.NoError(t, err)
	quiet, err := eventlog.New(store, &eventlog.Options{Subscriptions: []eventlog.Subscription{
		eventlog.Effect(audit.Name, func(context.Context, eventlog.Recorded, eventlog.Appender) error { return eventlog.ErrDeclined }),
	}})
	require.NoError(t, err)
	tell := func(id string) {
		_, err := quiet.Append(t.Context(), eventlog.Append{Stream: "a", Events: []eventlog.Event{{ID: id, Type: "b", Schema: 1}}})
		require.NoError(t, err)
	}
	adopt := func() {
		_, err := gateway.Adopt(t.Context(), eventlog.Adopt{Idle: time.Nanosecond})
		require.NoError(t, err)
	}
	own := func() (own eventlog.Checkpoint) {
		list, err := store.Checkpoints(t.Context(), audit.Name)
		require.NoError(t, err)
		for _, c := range list {
			if c.Producer == quiet.Producer() {
				own = c
			}
		}
		return own
	}
	tell("one")
	adopt()
	require.True(t, own().Closed)
	tell("two")
	adopt()
	for range 3 {
		before := own().SeenAt.Add(time.Microsecond)
		require.NoError(t, remember(t.Context(), store, quiet.Producer()))
		_, err := store.Prune(t.Context(), eventlog.Prune{Before: before})
		require.NoError(t, err)
		require.True(t, own().Closed, "it is remembered, and not opened")
	}
	tell("three")
	adopt()
	require.Equal(t, []string{"one", "two", "three"}, exported)

	// One that could not be touched for so long is made anew.
	_, err = store.Prune(t.Context(), eventlog.Prune{Before: own().SeenAt.Add(time.Microsecond)})
	require.NoError(t, err)
	require.Zero(t, own().Generation)
	require.NoError(t, remember(t.Context(), store, quiet.Producer()))
	left := own()
	require.True(t, left.Left)
	require.NoError(t, remember(t.Context(), store, quiet.Producer()))
	require.Equal(t, left.SeenAt, own().SeenAt, "an open one is left alone")
	tell("four")
	adopt()
	require.Equal(t, []string{"one", "two", "three", "four"}, exported)
}

func TestRememberingEnds(t *testing.T) {
	store := openLog(t)
	end := remembered(store, "anybody")
	end()
	end()
}
