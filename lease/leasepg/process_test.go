//go:build unix

package leasepg_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/lease"
)

const patience = time.Minute

// process is a worker, as its parent sees it.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func spawn(t *testing.T, db *pgtest.DB, role string, ttl time.Duration) *process {
	t.Helper()
	text, err := json.Marshal(orders{db.DSN, db.Schema, role, ttl})
	require.NoError(t, err)
	p := &process{cmd: exec.Command(os.Args[0]), lines: make(chan string, 100)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), workerEnv+"="+string(text)), os.Stderr
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-read
		_ = p.cmd.Wait()
	})
	return p
}

func (p *process) hears(t *testing.T) string {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		require.True(t, ok, "the process ended")
		return line
	case <-time.After(patience):
		require.Fail(t, "the process says nothing")
		return ""
	}
}

// word is the last word of what it says next, which begins with the other.
func (p *process) word(t *testing.T, first string) string {
	t.Helper()
	line := p.hears(t)
	require.True(t, strings.HasPrefix(line, first), line)
	return strings.TrimSpace(strings.TrimPrefix(line, first))
}

func (p *process) tell(t *testing.T, line string) {
	t.Helper()
	_, err := fmt.Fprintln(p.in, line)
	require.NoError(t, err)
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// written makes the table that processes write to.
func written(t *testing.T, db *pgtest.DB) {
	t.Helper()
	_, err := db.Pool.Exec(t.Context(), "create table "+db.Schema+".written (id bigint generated always as identity, generation bigint, holder text)")
	require.NoError(t, err)
}

func count(t *testing.T, db *pgtest.DB, where string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, db.Pool.QueryRow(t.Context(), "select count(*) from "+db.Schema+".written where "+where, args...).Scan(&n))
	return n
}

// Sixteen processes, each with a pool of its own, ask at once for a name that nobody had, and for one that lapsed.
func TestSixteenProcessesRace(t *testing.T) {
	db, l := setup(t)
	var all []*process
	for range 16 {
		all = append(all, spawn(t, db, "race", time.Minute))
	}
	for _, p := range all {
		p.word(t, "ready")
	}
	for _, want := range []string{"1", "2"} {
		for _, p := range all {
			p.tell(t, "go")
		}
		won := 0
		for _, p := range all {
			if line := p.hears(t); line != "lost" {
				require.Equal(t, "won "+want, line)
				won++
			}
		}
		require.Equal(t, 1, won)
		shift(t, db, time.Hour)
	}
	row, err := l.Look(t.Context(), name)
	require.NoError(t, err)
	require.EqualValues(t, 2, row.Generation)
}

// A holder is stopped, its tenure ends, another takes over, and the holder thaws with its work half done: what it
// would have written matches nothing.
func TestThawedHolderWritesNothing(t *testing.T) {
	db, l := setup(t)
	written(t, db)
	p := spawn(t, db, "hold", time.Minute)
	p.word(t, "ready")
	require.Equal(t, "1", p.word(t, "holds"))
	p.tell(t, "write")
	p.word(t, "wrote")
	p.signal(t, syscall.SIGSTOP)
	shift(t, db, time.Hour)
	held, err := l.Acquire(t.Context(), lease.Claim{Name: name, Holder: "successor", TTL: time.Minute})
	require.NoError(t, err)
	require.EqualValues(t, 2, held.Generation)
	p.tell(t, "write")
	p.signal(t, syscall.SIGCONT)
	p.word(t, "lost")
	require.Equal(t, 1, count(t, db, "true"))
}

// A holder is stopped between fence and commit. The server ends its session when its tenure is over, and not
// before; the successor takes over, and the holder's write is gone.
func TestStoppedBetweenFenceAndCommit(t *testing.T) {
	db, l := setup(t)
	written(t, db)
	p := spawn(t, db, "hold", 2*time.Second)
	p.word(t, "ready")
	p.word(t, "holds")
	p.tell(t, "slowly")
	p.word(t, "fenced")
	p.signal(t, syscall.SIGSTOP)
	before, err := l.Look(t.Context(), name)
	require.NoError(t, err)
	var after lease.Lease
	require.Eventually(t, func() bool { // the first attempts find it held, the last ones wait for the session's end
		after, err = l.Acquire(t.Context(), lease.Claim{Name: name, Holder: "successor", TTL: time.Minute})
		return err == nil
	}, patience, 50*time.Millisecond)
	require.EqualValues(t, 2, after.Generation)
	row, err := l.Look(t.Context(), name)
	require.NoError(t, err)
	require.False(t, row.AcquiredAt.Before(before.ExpiresAt), "not before the tenure's end")
	p.signal(t, syscall.SIGCONT)
	p.tell(t, "write")
	p.word(t, "failed")
	require.Zero(t, count(t, db, "true"))
}

// A fleet of three replicas writes in every cycle. Its leader is killed, then the next one leaves in order, and then
// the last is stopped, and thawed when another leads. Writes were made by one after another, in the order of
// their generations.
func TestFleetChangesItsLeader(t *testing.T) {
	db, l := setup(t)
	written(t, db)
	fleet := map[string]*process{}
	join := func() {
		p := spawn(t, db, "keep", 900*time.Millisecond)
		p.word(t, "ready")
		fleet[p.word(t, "keeps")] = p
	}
	for range 3 {
		join()
	}
	// leader is who has written in a generation above one.
	leader := func(above lease.Generation) (lease.Row, *process) {
		var row lease.Row
		var p *process
		require.Eventually(t, func() bool {
			var err error
			row, err = l.Look(t.Context(), name)
			require.NoError(t, err)
			p = fleet[row.Holder]
			return row.Held() && row.Generation > above && p != nil && count(t, db, "generation = $1", int64(row.Generation)) > 0
		}, patience, 10*time.Millisecond)
		return row, p
	}

	row, p := leader(0)
	p.signal(t, syscall.SIGKILL)
	delete(fleet, row.Holder)
	dead, err := l.Look(t.Context(), name)
	require.NoError(t, err)
	join()
	next, p := leader(row.Generation)
	if dead.Generation == row.Generation { // else it had lost the lease already
		require.False(t, next.AcquiredAt.Before(dead.ExpiresAt), "not before the tenure's end")
	}

	require.NoError(t, p.in.Close()) // it hands over and ends
	require.Eventually(t, func() bool { _, open := <-p.lines; return !open }, patience, time.Millisecond)
	require.NoError(t, p.cmd.Wait())
	delete(fleet, next.Holder)
	third, p := leader(next.Generation)

	p.signal(t, syscall.SIGSTOP)
	stopped := fleet[third.Holder]
	delete(fleet, third.Holder)
	fourth, _ := leader(third.Generation)
	stopped.signal(t, syscall.SIGCONT)
	fleet[third.Holder] = stopped
	leader(fourth.Generation - 1)

	var disorder int
	require.NoError(t, db.Pool.QueryRow(t.Context(), `select count(*) from `+db.Schema+`.written a join `+db.Schema+`.written b
		on a.generation = b.generation and a.holder <> b.holder`).Scan(&disorder))
	require.Zero(t, disorder, "a generation has one holder")
	require.Positive(t, count(t, db, "generation = $1", int64(fourth.Generation)))
}
