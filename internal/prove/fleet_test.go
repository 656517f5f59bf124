package prove

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// TestMain runs the tests, or is one of the gateway processes that they start.
func TestMain(m *testing.M) {
	if text := os.Getenv(workerEnv); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, "gateway process:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(pgtest.Run(m))
}

const patience = 2 * time.Minute

// fleet is several gateway processes on one schema.
type fleet struct {
	db      *pgtest.DB
	ahead   time.Duration
	store   *governancepg.DB
	members []*member
	rounds  int
	seed    uint64
}

// member is one process, as its parent sees it.
type member struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	seen *collector
	turn chan error // it is ready, or done with a round; closed at its end
	dead bool       // killed by its parent

	answered atomic.Int64 // operations
}

// muster starts processes of a program: this one, or one with a mistake in it.
func muster(t *testing.T, program string, processes, clients int) *fleet {
	t.Helper()
	needClock(t)
	f := &fleet{db: pgtest.New(t), seed: fromEnv("TALLYSTICK_PROVE_SEED", uint64(time.Now().UnixNano()))}
	t.Logf("TALLYSTICK_PROVE_SEED=%d", f.seed)
	// The middle of the first day of a partition.
	const partition = 48 * time.Hour
	now := time.Now()
	f.ahead = now.Truncate(partition).Add(partition + 12*time.Hour).Sub(now)
	var err error
	f.store, err = governancepg.Open(f.db.Pool, &governancepg.Options{Schema: f.db.Schema, Clock: shift(f.ahead)})
	require.NoError(t, err)
	require.NoError(t, f.store.Migrate(t.Context()))
	for i := range processes {
		f.start(t, program, i, clients)
	}
	for _, m := range f.members {
		require.NoError(t, m.await(t))
	}
	return f
}

func (f *fleet) start(t *testing.T, program string, i, clients int) {
	t.Helper()
	text, err := json.Marshal(setup{f.db.DSN, f.db.Schema, i, clients, f.ahead})
	require.NoError(t, err)
	m := &member{cmd: exec.Command(program), seen: &collector{process: i, pending: map[int]*operation{}}, turn: make(chan error, 4)}
	m.cmd.Env, m.cmd.Stderr = append(os.Environ(), workerEnv+"="+string(text)), os.Stderr
	m.in, err = m.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := m.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, m.cmd.Start())
	read := make(chan struct{})
	t.Cleanup(func() {
		_ = m.in.Close() // it ends by itself, or else is made to
		select {
		case <-read:
		case <-time.After(20 * time.Second):
			_ = m.cmd.Process.Kill()
			<-read
		}
		_ = m.cmd.Wait()
	})
	go func() {
		defer close(read)
		defer close(m.turn)
		for lines := bufio.NewReader(out); ; {
			text, err := lines.ReadBytes('\n')
			if err != nil {
				return // what was killed in the middle of a line did not say it
			}
			l, err := m.seen.take(text)
			switch {
			case err != nil:
				m.turn <- err
				return
			case l.Broken != "":
				m.turn <- fmt.Errorf("process %d: %s", m.seen.process, l.Broken)
				return
			case l.Ready, l.Done:
				m.turn <- nil
			case l.Told != nil:
				m.answered.Add(1)
			}
		}
	}()
	f.members = append(f.members, m)
}

func (m *member) await(t *testing.T) error {
	t.Helper()
	select {
	case err, alive := <-m.turn:
		if err == nil && !alive {
			err = io.ErrUnexpectedEOF
		}
		return err
	case <-time.After(patience):
		return fmt.Errorf("process %d does not end its round", m.seen.process)
	}
}

// command gives every process its part of a round.
func (f *fleet) command(t *testing.T, o order) {
	t.Helper()
	for i, m := range f.members {
		o.Editor = i == 0
		text, err := json.Marshal(o)
		require.NoError(t, err)
		_, err = m.in.Write(append(text, '\n'))
		require.NoError(t, err)
	}
}

// order makes the next round's work, with teams that were never used.
func (f *fleet) order(teams, ops int) order {
	f.rounds++
	o := order{Round: f.rounds, Seed: f.seed + uint64(f.rounds), Ops: ops}
	for i := range teams {
		o.Teams = append(o.Teams, fmt.Sprintf("round%d-team%d", f.rounds, i))
	}
	return o
}

// found makes a team with two keys.
func (f *fleet) found(ctx context.Context, team string, l keys.Limits, each ...keys.Limits) error {
	if _, err := f.store.Keys.CreateTeam(ctx, keys.CreateTeam{ID: team, Limits: l}); err != nil {
		return err
	}
	for i, l := range each {
		if _, err := f.store.Keys.CreateKey(ctx, keys.CreateKey{ID: keyName(team, i+1), TeamID: team, Owner: "user", Limits: l, Token: tokenOf(team, i+1)}); err != nil {
			return err
		}
	}
	return nil
}

// round lets the fleet work on fresh teams and returns their histories. In between, while they work,
// disturb may do what it wants.
func (f *fleet) round(t *testing.T, o order, disturb func()) (list []*history) {
	t.Helper()
	begin := []limits{{60, 60, 9}, {40, none, 5}, {none, 40, none}}
	byTeam := map[string]*history{}
	for _, team := range o.Teams {
		require.NoError(t, f.found(t.Context(), team, keyLimits(begin[0]), keyLimits(begin[1]), keyLimits(begin[2])))
		h := &history{Team: team, Limits: begin[0], Keys: begin[1:]}
		list, byTeam[team] = append(list, h), h
	}
	f.command(t, o)
	if disturb != nil {
		disturb()
	}
	var left []*member
	for _, m := range f.members {
		err := m.await(t)
		if !m.dead || err != io.ErrUnexpectedEOF {
			require.NoError(t, err)
		}
		for _, op := range m.seen.all() {
			byTeam[op.Team].operations = append(byTeam[op.Team].operations, op)
		}
		if !m.dead {
			left = append(left, m)
		}
	}
	f.members = left
	return list
}

// verify asks whether the books balance.
func (f *fleet) verify(t *testing.T) {
	t.Helper()
	gov, err := governance.New(f.store, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, gov.Close(t.Context())) }()
	v, err := gov.Verify(t.Context(), governance.VerifyQuery{})
	require.NoError(t, err)
	require.Empty(t, v.Differences)
}

func fromEnv(name string, fallback uint64) uint64 {
	n, err := strconv.ParseUint(os.Getenv(name), 10, 64)
	if err != nil {
		return fallback
	}
	return n
}
