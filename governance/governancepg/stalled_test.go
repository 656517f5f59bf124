//go:build unix

package governancepg_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

const stalledEnv = "TALLYSTICK_STALLED_GATEWAY"

// fleetConfig is what a gateway process is started with.
type fleetConfig struct{ DSN, Schema, Token string }

// member is one gateway process. It says a line for each permit, does what it is told, and ends when its input does.
type member struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	admitted atomic.Int64
	failed   atomic.Int64
	holding  chan struct{}
	final    chan int64 // how many permits its callers have received, at the end
}

func startMember(t *testing.T, c fleetConfig) *member {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	m := &member{cmd: exec.Command(os.Args[0], "-test.run", "^TestFleetMember$"), holding: make(chan struct{}, 1), final: make(chan int64, 1)}
	m.cmd.Env = append(os.Environ(), stalledEnv+"="+string(text))
	m.cmd.Stderr = os.Stderr
	m.in, err = m.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := m.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, m.cmd.Start())
	t.Cleanup(func() {
		_ = m.cmd.Process.Signal(syscall.SIGCONT)
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
	})
	go func() {
		defer close(m.final)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			switch verb, rest, _ := strings.Cut(lines.Text(), " "); verb {
			case "admitted":
				m.admitted.Add(1)
			case "unavailable":
				m.failed.Add(1)
			case "holding":
				m.holding <- struct{}{}
			case "final":
				var n int64
				_, _ = fmt.Sscan(rest, &n)
				m.final <- n
			}
		}
	}()
	return m
}

// TestStalledGateway: one of four gateways is stopped while it holds the rows of the limit that all share.
// The server takes them from it, the others go on, and when it wakes up it has admitted nothing by what it held.
func TestStalledGateway(t *testing.T) {
	o := fresh(t)
	ctx := t.Context()
	const limit = 1_000_000
	_, err := o.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "team", Limits: keys.Limits{TokensPerDay: keys.Limit(limit)}})
	require.NoError(t, err)
	created, err := o.Keys.CreateKey(ctx, keys.CreateKey{ID: "key", TeamID: "team"})
	require.NoError(t, err)
	p, err := o.Keys.Resolve(ctx, created.Token.Reveal())
	require.NoError(t, err)
	w := &world{governor(t, o, nil), p, o}
	var fleet [4]*member
	for i := range fleet {
		fleet[i] = startMember(t, fleetConfig{o.dsn, o.schema, created.Token.Reveal()})
	}
	progress := func(members []*member) {
		t.Helper()
		for _, m := range members {
			before := m.admitted.Load()
			require.Eventually(t, func() bool { return m.admitted.Load() >= before+20 }, patience, tick, "a gateway admits nothing")
		}
	}
	progress(fleet[:])
	stalled := fleet[0]
	for range 2 {
		_, err = io.WriteString(stalled.in, "hold\n")
		require.NoError(t, err)
		<-stalled.holding // inside its transaction, with the rows locked
		require.NoError(t, stalled.cmd.Process.Signal(syscall.SIGSTOP))
		held := stalled.admitted.Load()
		progress(fleet[1:])
		require.Equal(t, held, stalled.admitted.Load())
		require.NoError(t, stalled.cmd.Process.Signal(syscall.SIGCONT))
		_, err = io.WriteString(stalled.in, "go on\n")
		require.NoError(t, err)
		progress(fleet[:])
	}
	var said int64
	for _, m := range fleet {
		require.NoError(t, m.in.Close())
	}
	for _, m := range fleet {
		n, ok := <-m.final
		require.True(t, ok, "a gateway did not end well")
		require.NoError(t, m.cmd.Wait())
		said += n
	}
	w.verify(t, said, 0, 0)
	require.Empty(t, func() []governance.Hold {
		holds, err := w.gov.Holds(ctx, governance.HoldQuery{})
		require.NoError(t, err)
		return holds
	}())
}

// heldStore stops inside a transaction when it is told to.
type heldStore struct {
	governance.Store
	hold  atomic.Bool
	woken chan struct{}
}

func (h *heldStore) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	return h.Store.Step(ctx, plan, func(l *governance.Loaded) *governance.Changes {
		ch := decide(l)
		if !ch.Empty() && h.hold.CompareAndSwap(true, false) {
			fmt.Println("holding rows")
			<-h.woken
		}
		return ch
	})
}

// TestFleetMember is the process; it does nothing in an ordinary run.
func TestFleetMember(t *testing.T) {
	text := os.Getenv(stalledEnv)
	if text == "" {
		t.SkipNow() // not a test by itself: TestStalledGateway starts it
	}
	ctx := context.Background()
	var c fleetConfig
	require.NoError(t, json.Unmarshal([]byte(text), &c))
	pool := pgtest.Connect(t, c.DSN, func(c *pgxpool.Config) { c.MaxConns = 4 })
	db, err := governancepg.Open(pool, brisk(c.Schema))
	require.NoError(t, err)
	store := &heldStore{Store: db.Store, woken: make(chan struct{})}
	gov, err := governance.New(governance.Stores{Keys: db.Keys, Store: store}, &governance.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p, err := db.Keys.Resolve(ctx, c.Token)
	require.NoError(t, err)
	stop := make(chan struct{})
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				permit, err := gov.Admit(ctx, governance.Request{Principal: &p, Model: "model", Bound: governance.Bound{Tokens: 10}})
				switch {
				case err == nil:
					admitted.Add(1)
					fmt.Println("admitted one")
					var unsettled *governance.SettleError
					if err := permit.Settle(ctx, governance.Used(1, 0)); err != nil && !errors.As(err, &unsettled) {
						panic(err)
					}
				case errors.Is(err, governance.ErrUnavailable), errors.Is(err, governance.ErrUnknownOutcome):
					fmt.Println("unavailable now")
				default:
					panic(err)
				}
			}
		})
	}
	for told := bufio.NewScanner(os.Stdin); told.Scan(); {
		switch told.Text() {
		case "hold":
			store.hold.Store(true)
		case "go on":
			store.woken <- struct{}{}
		}
	}
	close(stop)
	callers.Wait()
	require.NoError(t, gov.Close(ctx)) // what could not be settled is
	fmt.Printf("final %d\n", admitted.Load())
}
