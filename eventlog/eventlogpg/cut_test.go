package eventlogpg_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgwire"
)

// call is something that is asked of a log, on a fresh subject each time.
type call struct {
	name string
	do   func(ctx context.Context, s *eventlogpg.Store, i int) error
	// done says how often it happened.
	done func(t *testing.T, direct *eventlogpg.Store, i int) int
}

func calls() []call {
	appended := func(t *testing.T, direct *eventlogpg.Store, i int) int {
		list, err := direct.Stream(t.Context(), eventlog.ReadStream{Stream: fmt.Sprint("s", i)})
		require.NoError(t, err)
		require.True(t, len(list) == 0 || len(list) == 2, "all or none")
		return len(list) / 2
	}
	two := func(i int, e eventlog.Expect) eventlog.Append {
		a := one(fmt.Sprint("s", i), fmt.Sprint("first", i), e)
		a.Events = append(a.Events, eventlog.Event{ID: fmt.Sprint("second", i), Type: "t", Schema: 1})
		return a
	}
	checkpoint := func(t *testing.T, direct *eventlogpg.Store, i int) (eventlog.Checkpoint, bool) {
		list, err := direct.Checkpoints(t.Context(), fmt.Sprint("c", i))
		require.NoError(t, err)
		if len(list) == 0 {
			return eventlog.Checkpoint{}, false
		}
		return list[0], true
	}
	return []call{
		{"Append", func(ctx context.Context, s *eventlogpg.Store, i int) error {
			_, err := s.Append(ctx, []eventlog.Append{two(i, eventlog.Any)})
			return err
		}, appended},
		{"AppendExpected", func(ctx context.Context, s *eventlogpg.Store, i int) error {
			_, err := s.Append(ctx, []eventlog.Append{two(i, eventlog.Empty)})
			return err
		}, appended},
		{"Save", func(ctx context.Context, s *eventlogpg.Store, i int) error {
			return s.Save(ctx, eventlog.Checkpoint{Consumer: fmt.Sprint("c", i), Generation: 1, Left: true})
		}, func(t *testing.T, direct *eventlogpg.Store, i int) int {
			if c, _ := checkpoint(t, direct, i); c.Left {
				return 1
			}
			return 0
		}},
		{"Claim", func(ctx context.Context, s *eventlogpg.Store, i int) error {
			_, err := s.Claim(ctx, eventlog.Claim{Consumer: fmt.Sprint("c", i), Owner: "other"})
			return err
		}, func(t *testing.T, direct *eventlogpg.Store, i int) int {
			c, _ := checkpoint(t, direct, i)
			return min(1, int(c.Generation-1)) // each claim is one more
		}},
		{"SetAside", func(ctx context.Context, s *eventlogpg.Store, i int) error {
			return s.SetAside(ctx, eventlog.Aside{Consumer: fmt.Sprint("c", i), Runner: "r", Event: eventlog.Recorded{
				Event: eventlog.Event{ID: "e", Type: "t", Schema: 1}, Stream: "s", Position: 1, Version: 1,
			}})
		}, func(t *testing.T, direct *eventlogpg.Store, i int) int {
			list, err := direct.ListAside(t.Context(), eventlog.AsideQuery{Consumer: fmt.Sprint("c", i)})
			require.NoError(t, err)
			return len(list)
		}},
	}
}

// TestCutAtEveryMessage: the connection ends at the k-th message of a call, for every k. It was done, or not, or may have been, and who
// is told which is told the truth; a repetition finds out and does nothing a second time.
func TestCutAtEveryMessage(t *testing.T) {
	for _, c := range calls() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.everywhere(t, false)
		})
	}
}

// TestLostAtEveryMessage: and the database stays away, so that nobody can find out.
func TestLostAtEveryMessage(t *testing.T) {
	for _, c := range calls()[:2] {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.everywhere(t, true)
		})
	}
}

func (c call) everywhere(t *testing.T, gone bool) {
	ctx := t.Context()
	direct, db := fresh(t)
	proxy, err := pgwire.Start(db.DSN)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	pool := pgtest.Connect(t, proxy.DSN(), func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, pgx.QueryExecModeExec
	})
	s, err := eventlogpg.New(pool, &eventlogpg.Options{Schema: db.Schema, Timeout: 20 * time.Second})
	require.NoError(t, err)
	connected := func() bool { return pool.Ping(ctx) == nil }
	prepare := func(i int) {
		_, err := direct.Claim(ctx, eventlog.Claim{Consumer: fmt.Sprint("c", i), Owner: "me"})
		require.NoError(t, err)
	}

	require.True(t, connected())
	proxy.Arm(pgwire.Fault{})
	prepare(0)
	require.NoError(t, c.do(ctx, s, 0))
	faults := pgwire.Everywhere(proxy.Messages(), pgwire.Cut, gone)
	require.NotEmpty(t, faults)
	told := map[string]int{}
	for i, f := range pgwire.Sample(faults) {
		i++
		prepare(i)
		require.Eventually(t, connected, 30*time.Second, time.Millisecond)
		happened := proxy.Arm(f)
		err := c.do(ctx, s, i)
		<-happened
		proxy.Heal()
		require.Eventually(t, connected, 30*time.Second, time.Millisecond)
		done := c.done(t, direct, i)
		switch {
		case err == nil:
			require.Equal(t, 1, done, "%+v", f)
			told["done"]++
		case errors.Is(err, eventlog.ErrUnknownOutcome):
			told["unknown"]++
		default:
			require.ErrorIs(t, err, eventlog.ErrUnavailable)
			require.Zero(t, done, "it was said that nothing was done: %+v", f)
			told["not"]++
		}
		require.NoError(t, c.do(ctx, s, i), "%+v", f)
		require.Equal(t, 1, c.done(t, direct, i), "%+v", f)
	}
	t.Logf("%d faults: %v", len(faults), told)
	require.Zero(t, pool.Stat().AcquiredConns())
}
