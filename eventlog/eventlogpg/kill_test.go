package eventlogpg_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
)

const (
	envDSN    = "TALLYSTICK_EVENTLOG_CHILD_DSN"
	envSchema = "TALLYSTICK_EVENTLOG_CHILD_SCHEMA"
	killed    = 30 // events that a process appends
)

// exporter is an effect that writes down on the outside what it was called with, in a table that stands for another system.
func exporter(pool *pgxpool.Pool, schema string) eventlog.Subscription {
	return eventlog.Effect("export", func(ctx context.Context, e eventlog.Recorded, _ eventlog.Appender) error {
		_, err := pool.Exec(ctx, "insert into "+schema+".outside (id) values ($1::text)", e.ID)
		return err
	})
}

// TestChild is the process that is killed; by itself it does nothing.
func TestChild(t *testing.T) {
	dsn, schema := os.Getenv(envDSN), os.Getenv(envSchema)
	if dsn == "" {
		t.Skip("it is started by TestKilledConsumers")
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	require.NoError(t, err)
	s, err := eventlogpg.New(pool, &eventlogpg.Options{Schema: schema})
	require.NoError(t, err)
	l, err := eventlog.New(s, &eventlog.Options{Label: "child", Poll: time.Millisecond, Subscriptions: []eventlog.Subscription{exporter(pool, schema)}})
	require.NoError(t, err)
	go func() {
		for i := range killed {
			_, err := l.Append(ctx, eventlog.Append{Stream: string(l.Producer()), Events: []eventlog.Event{{Type: "t", ID: fmt.Sprintf("%s %d", l.Producer(), i)}}})
			if err == nil {
				fmt.Println("appended")
			}
		}
	}()
	_ = l.Run(ctx)
}

// TestKilledConsumers: processes are killed with -9 while they append and export. What they had been told is in the log is exported
// by somebody, at least once, whenever they died.
func TestKilledConsumers(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	_, err := db.Pool.Exec(ctx, "create table "+db.Schema+".outside (n bigint generated always as identity, id text not null)")
	require.NoError(t, err)
	for round := range 4 {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$")
		cmd.Env = append(os.Environ(), envDSN+"="+db.DSN, envSchema+"="+db.Schema)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; n < 1+round*killed/4 && lines.Scan(); n++ { // until so many events are in
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	l, err := eventlog.New(s, &eventlog.Options{Subscriptions: []eventlog.Subscription{exporter(db.Pool, db.Schema)}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := l.Adopt(ctx, eventlog.Adopt{Idle: time.Nanosecond})
		require.NoError(t, err)
		_, err = s.Append(ctx, []eventlog.Append{one("goes on", fmt.Sprint(time.Now().UnixNano()), eventlog.Any)})
		require.NoError(t, err)
		list, err := s.Checkpoints(ctx, "export")
		require.NoError(t, err)
		// What the dead left is dealt with, and nothing more can come.
		return !slices.ContainsFunc(list, func(c eventlog.Checkpoint) bool { return c.Producer != eventlog.Unknown && !c.Closed })
	}, time.Minute, time.Millisecond)
	var events, exported, calls int
	require.NoError(t, db.Pool.QueryRow(ctx, fmt.Sprintf("select (select count(*) from %[1]s.events where producer <> 'p'), (select count(distinct id) from %[1]s.outside), (select count(*) from %[1]s.outside)", db.Schema)).Scan(&events, &exported, &calls))
	require.Positive(t, events)
	require.Equal(t, events, exported)
	t.Logf("%d events of killed processes, exported in %d calls", events, calls)
}
