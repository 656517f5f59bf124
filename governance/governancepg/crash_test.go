package governancepg_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// The environment of the process that is killed.
const (
	crashDSN    = "TALLYSTICK_CRASH_DSN"
	crashSchema = "TALLYSTICK_CRASH_SCHEMA"
	crashToken  = "TALLYSTICK_CRASH_TOKEN"
)

// TestKilledProcess: a gateway is killed while it admits and settles. Every permit
// that it had received is there; nothing was refunded; the books balance.
func TestKilledProcess(t *testing.T) {
	o := fresh(t)
	ctx := t.Context()
	_, err := o.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "team", Name: "team", Limits: keys.Limits{TokensPerDay: keys.Limit(1_000_000), RequestsPerMinute: keys.Limit(1_000_000)}})
	require.NoError(t, err)
	created, err := o.Keys.CreateKey(ctx, keys.CreateKey{ID: "key", TeamID: "team", Name: "key", Owner: "user"})
	require.NoError(t, err)
	p, err := o.Keys.Resolve(ctx, created.Token.Reveal())
	require.NoError(t, err)
	w := &world{governor(t, o, nil), p, o}
	said := map[string]string{} // permit -> the last that the process said of it
	for round := range 3 {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestCrashingProcess$")
		cmd.Env = append(os.Environ(), crashDSN+"="+o.dsn, crashSchema+"="+o.schema, crashToken+"="+created.Token.Reveal())
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := 0
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			verb, id, ok := strings.Cut(scanner.Text(), " ")
			if !ok || (verb != "admitted" && verb != "settled") {
				continue
			}
			said[id] = verb
			if lines++; lines == 40+37*round {
				require.NoError(t, cmd.Process.Kill()) // SIGKILL; what is in the pipe is still read
			}
		}
		_ = cmd.Wait()
	}
	open := map[string]bool{}
	for after := (governance.PermitID{}); ; {
		holds, err := w.gov.Holds(ctx, governance.HoldQuery{After: after, Limit: 1000})
		require.NoError(t, err)
		for _, h := range holds {
			open[h.ID.String()], after = true, h.ID
		}
		if len(holds) < 1000 {
			break
		}
	}
	for id, verb := range said {
		require.Equal(t, verb == "admitted" && !settledUnsaid(t, o, id), open[id], "permit %s was %s", id, verb)
	}
	require.NotEmpty(t, open)
	v, err := w.gov.Verify(ctx, governance.VerifyQuery{})
	require.NoError(t, err)
	require.Empty(t, v.Differences)
}

// settledUnsaid: the process was killed after a settlement and before it said so.
func settledUnsaid(t *testing.T, o *opened, id string) bool {
	t.Helper()
	var state int16
	require.NoError(t, conn(t, o).QueryRow(t.Context(), fmt.Sprintf(`select state from %q.governance_permits where id = $1`, o.schema), id).Scan(&state))
	return governance.State(state) == governance.StateSettled
}

// TestCrashingProcess is the process; it does nothing in an ordinary run.
func TestCrashingProcess(t *testing.T) {
	dsn := os.Getenv(crashDSN)
	if dsn == "" {
		t.SkipNow() // not a test by itself: TestKilledProcess starts it
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	require.NoError(t, err)
	db, err := governancepg.Open(pool, &governancepg.Options{Schema: os.Getenv(crashSchema)})
	require.NoError(t, err)
	gov, err := governance.New(db, nil)
	require.NoError(t, err)
	p, err := db.Keys.Resolve(ctx, os.Getenv(crashToken))
	require.NoError(t, err)
	var n atomic.Int64
	for range 8 {
		go func() {
			for {
				permit, err := gov.Admit(ctx, governance.Request{Principal: &p, Model: "model", Bound: governance.Bound{Tokens: 10, Cost: 1}})
				if err != nil {
					panic(err)
				}
				fmt.Printf("admitted %s\n", permit.ID())
				if n.Add(1)%2 == 0 {
					if err := permit.Settle(ctx, governance.Used(5, 1)); err != nil {
						panic(err)
					}
					fmt.Printf("settled %s\n", permit.ID())
				}
			}
		}()
	}
	select {} // until killed
}

// TestServerDies: the database is killed and comes back. Meanwhile calls are
// refused within their bound; afterwards the same Governor goes on, nothing that
// was acknowledged is lost, and outcomes that could not be recorded are.
func TestServerDies(t *testing.T) {
	server := pgtest.Own(t, "fsync=on")
	ctx := t.Context()
	pool := pgtest.Connect(t, server.DSN(), nil)
	o := open(t, pool, server.DSN(), "tallystick", &clock{})
	o.migrate(t)
	w := newWorld(t, o, keys.Limits{TokensPerDay: keys.Limit(1000)})
	w.gov = governor(t, o, &governance.Options{StepTimeout: time.Second})
	first, second := w.admit(t, 100), w.admit(t, 50)

	require.NoError(t, server.Kill(ctx))
	_, err := w.gov.Admit(ctx, w.request(1))
	require.ErrorIs(t, err, governance.ErrUnavailable)
	require.Equal(t, governance.Status{Code: 503, RetryAfter: time.Second, Retryable: true}, governance.StatusOf(err))
	err = first.Settle(ctx, governance.Used(70, 5))
	var unsettled *governance.SettleError
	require.ErrorAs(t, err, &unsettled)
	require.Equal(t, first.ID(), unsettled.ID)

	require.NoError(t, server.Start(ctx))
	require.Eventually(t, func() bool {
		usage, err := w.gov.Usage(ctx, governance.UsageQuery{Principal: &w.principal})
		return err == nil && usage.Verdicts[0].Consumed == 70
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, second.Settle(ctx, governance.NotSent()))
	w.admit(t, 1)
	w.verify(t, 70, 0, 1)
}

// TestServerHangs: a database that accepts and never answers is an outage within
// the bound, not a queue.
func TestServerHangs(t *testing.T) {
	server := pgtest.Own(t)
	ctx := t.Context()
	o := open(t, pgtest.Connect(t, server.DSN(), nil), server.DSN(), "tallystick", &clock{})
	o.migrate(t)
	w := newWorld(t, o, keys.Limits{TokensPerDay: keys.Limit(1000)})
	w.gov = governor(t, o, &governance.Options{StepTimeout: 500 * time.Millisecond})
	w.admit(t, 1)
	require.NoError(t, server.Pause(ctx))
	_, err := w.gov.Admit(ctx, w.request(1))
	require.Equal(t, 503, governance.StatusOf(err).Code, "%v", err)
	require.NoError(t, server.Resume(ctx))
	require.Eventually(t, func() bool {
		_, err := w.gov.Admit(ctx, w.request(1))
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	v, err := w.gov.Verify(ctx, governance.VerifyQuery{})
	require.NoError(t, err)
	require.Empty(t, v.Differences)
}
