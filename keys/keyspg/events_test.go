package keyspg_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

func telling(t *testing.T, db *pgtest.DB) (*keyspg.Store, eventlog.Store) {
	t.Helper()
	log, events := recording(t, db.Pool, db.Schema)
	s, err := keyspg.New(db.Pool, &keyspg.Options{Schema: db.Schema, Events: events})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	return s, log
}

// TestNothingIsEditedUntold: where the event cannot be appended there is no edit, and no edit is made within a projection.
func TestNothingIsEditedUntold(t *testing.T) {
	ctx := t.Context()
	db := pgtest.New(t)
	s, log := telling(t, db)
	_, err := s.CreateTeam(ctx, keys.CreateTeam{ID: "red"})
	require.NoError(t, err)

	_, err = db.Pool.Exec(ctx, "alter table "+db.Schema+".events rename to gone")
	require.NoError(t, err)
	_, err = s.CreateTeam(ctx, keys.CreateTeam{ID: "blue"})
	require.ErrorIs(t, err, keys.ErrUnavailable)
	_, err = s.UpdateTeam(ctx, keys.UpdateTeam{ID: "red", IfRevision: 1, Name: keys.Set("x")})
	require.ErrorIs(t, err, keys.ErrUnavailable)
	_, err = db.Pool.Exec(ctx, "alter table "+db.Schema+".gone rename to events")
	require.NoError(t, err)
	page, err := s.Teams(ctx, keys.ListTeams{})
	require.NoError(t, err)
	require.Len(t, page.Teams, 1)
	require.EqualValues(t, 1, page.Teams[0].Revision)

	within, stop := context.WithCancel(ctx)
	defer stop()
	tried := make(chan error, 1)
	l, err := eventlog.New(log, &eventlog.Options{Subscriptions: []eventlog.Subscription{eventlog.Projection("p", func(ctx context.Context, _ eventlog.Recorded) error {
		_, err := s.CreateTeam(ctx, keys.CreateTeam{ID: "echo"})
		tried <- err
		return nil
	}, nil)}})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(within) }()
	err = <-tried
	require.ErrorIs(t, err, keys.ErrUnavailable)
	require.ErrorIs(t, err, eventlog.ErrMayNotAppend)
	stop()
	<-ended
	require.Len(t, toldBy(t, log), 1)
}

// TestAStreamThatIsNotAlone: what somebody appended to a team's stream without its row is before the next edit.
func TestAStreamThatIsNotAlone(t *testing.T) {
	ctx := t.Context()
	db := pgtest.New(t)
	s, log := telling(t, db)
	_, err := s.CreateTeam(ctx, keys.CreateTeam{ID: "red"})
	require.NoError(t, err)
	_, err = log.Append(ctx, []eventlog.Append{{Stream: "team/red", Producer: "stranger", Events: []eventlog.Event{{ID: "x", Type: "t", Schema: 1}}}})
	require.NoError(t, err)
	_, err = s.UpdateTeam(ctx, keys.UpdateTeam{ID: "red", IfRevision: 1, Name: keys.Set("x")})
	require.NoError(t, err)
	list, err := log.Stream(ctx, eventlog.ReadStream{Stream: "team/red"})
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, "team/red/2", list[2].ID)
}

// TestTellingInEveryMode sends the statement as poolers have it.
func TestTellingInEveryMode(t *testing.T) {
	ctx := t.Context()
	db := pgtest.New(t)
	_, log := telling(t, db)
	for i, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec} {
		pool := db.Connect(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		_, events := recording(t, pool, db.Schema)
		through, err := keyspg.New(pool, &keyspg.Options{Schema: db.Schema, Events: events})
		require.NoError(t, err)
		team := fmt.Sprint("team", i)
		_, err = through.Bootstrap(ctx, keys.Bootstrap{Declarations: []keys.Declaration{{Team: &keys.CreateTeam{ID: team, Name: "é \"\\ '"}}}})
		require.NoError(t, err, mode)
		_, err = through.UpdateTeam(ctx, keys.UpdateTeam{ID: team, IfRevision: 1, Metadata: keys.Set(map[string]string{"a": "{\"\\x00"})})
		require.NoError(t, err, mode)
	}
	told := toldBy(t, log)
	require.Len(t, told, 8)
	for _, e := range told {
		_, err := keys.ParseEvent(e.Type, e.Data)
		require.NoError(t, err)
	}
}
