package governancesqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/keys"
)

// The test binary runs itself as a gateway that admits and settles, says on its
// output what it was told, and is killed.
const (
	childFile  = "TALLYSTICK_TEST_CHILD_FILE"
	childToken = "TALLYSTICK_TEST_CHILD_TOKEN"
	childHub   = "TALLYSTICK_TEST_CHILD_AUTHORITY" // a file too: the child is a node
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		run := child
		if hub := os.Getenv(childHub); hub != "" {
			run = func(path, token string) error { return childNode(path, token, hub) }
		}
		if err := run(path, os.Getenv(childToken)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child never ends by itself.
func child(path, token string) error {
	db, err := sql.Open("sqlite", "file:"+path+pragmas)
	if err != nil {
		return err
	}
	d := governancesqlite.Open(db, nil)
	ctx := context.Background()
	if err := d.Check(ctx); err != nil {
		return err
	}
	p, err := d.Keys.Resolve(ctx, token)
	if err != nil {
		return err
	}
	g, err := governance.New(d, nil)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(what string, id governance.PermitID) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(what, id) // one write, unbuffered
	}
	failed := make(chan error)
	for i := range 8 {
		go func() {
			for n := 0; ; n++ {
				permit, err := g.Admit(ctx, governance.Request{Principal: &p, Bound: governance.Bound{Tokens: 10, Cost: 7}})
				if err != nil {
					failed <- err
					return
				}
				say("admitted", permit.ID())
				outcome, what := governance.Used(3, 2), "settled"
				switch (n + i) % 4 {
				case 0:
					continue // still on its way when the process dies
				case 1:
					outcome, what = governance.NotSent(), "cancelled"
				}
				if err := permit.Settle(ctx, outcome); err != nil {
					failed <- err
					return
				}
				say(what, permit.ID())
			}
		}()
	}
	return <-failed
}

// TestKilled kills the process at a random moment, several times over the same
// file. Whatever it said must be so.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "governance.db")
	o := open(t, path, now())
	ctx := t.Context()
	if _, err := o.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "team-1", Limits: keys.Limits{
		TokensPerDay: keys.Limit(1 << 40), CostPerMonth: keys.Cost(1 << 40), TokensPerMinute: keys.Limit(1 << 40), RequestsPerMinute: keys.Limit(1 << 30),
	}}); err != nil {
		t.Fatal(err)
	}
	made, err := o.Keys.CreateKey(ctx, keys.CreateKey{TeamID: "team-1"})
	if err != nil {
		t.Fatal(err)
	}
	token := made.Token.Reveal()
	_ = o.Close()
	_ = o.sql.Close()

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	said := map[string]string{}
	for round := range 6 {
		run(t, time.Duration(20+r.IntN(150))*time.Millisecond, said, childFile+"="+path, childToken+"="+token)
		checkSaid(t, path, said)
		t.Logf("round %d: %d permits were admitted in all", round, len(said))
	}
}

// run starts the child and kills it some time after its first word.
func run(t *testing.T, after time.Duration, said map[string]string, env ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), env...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		once.Do(func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) })
		what, id, ok := strings.Cut(lines.Text(), " ")
		if !ok || len(id) != 36 {
			continue // the last line was cut off
		}
		said[id] = what
	}
	_ = cmd.Wait()
	if complaints.Len() > 0 {
		t.Fatalf("the child failed: %s", complaints.String())
	}
}

// checkSaid opens the file as it was left and compares.
func checkSaid(t *testing.T, path string, said map[string]string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+pragmas)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d := governancesqlite.Open(db, nil)
	defer d.Close()
	ctx := t.Context()
	if err := d.Check(ctx); err != nil {
		t.Fatal(err)
	}
	g, err := governance.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(ctx)
	v, err := g.Verify(ctx, governance.VerifyQuery{})
	if err != nil || len(v.Differences) != 0 {
		t.Fatalf("verify: %+v, %v", v, err)
	}
	states := map[string]governance.State{}
	open, reserved := 0, int64(0)
	q := governance.PermitQuery{Limit: 1000}
	for {
		page, err := d.Store.Permits(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page {
			states[page[i].ID.String()] = page[i].State
			if page[i].State == governance.StateOpen {
				open++
			}
			q.After = page[i].ID
		}
		if len(page) < q.Limit {
			break
		}
	}
	for id, what := range said {
		state := states[id]
		ended := state == governance.StateSettled || state == governance.StateCancelled
		// One that was only admitted may have ended without a word about it.
		if state == 0 || (what != "admitted" && state.String() != what) || (what == "admitted" && state != governance.StateOpen && !ended) {
			t.Fatalf("the process said that permit %s was %s; it is %s", id, what, state)
		}
	}
	var listed int
	hq := governance.HoldQuery{Limit: 1000, Open: true}
	for {
		page, err := g.Holds(ctx, hq)
		if err != nil {
			t.Fatal(err)
		}
		listed += len(page)
		if len(page) < hq.Limit {
			break
		}
		hq.After = page[len(page)-1].ID
	}
	cells, err := d.Store.Accounts(ctx, governance.AccountQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		if c.Kind == governance.KindTokenQuota {
			reserved += c.Account.Reserved
		}
	}
	if listed != open || reserved != int64(open)*10 {
		t.Fatalf("%d permits are open, %d are listed, %d tokens are reserved", open, listed, reserved)
	}
}
