package storage

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
)

// TestNoAnswerIsNoAbsence: a database that does not answer yet says nothing about whether there is a log.
func TestNoAnswerIsNoAbsence(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://somebody:secret@127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	events, end, err := telling(t.Context(), pool, Postgres{Schema: "tallystick"})
	require.ErrorIs(t, err, eventlog.ErrUnavailable)
	require.NotContains(t, err.Error(), "127.0.0.1")
	require.Nil(t, events)
	end()
}
