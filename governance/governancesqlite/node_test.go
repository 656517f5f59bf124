package governancesqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

var quiet = slog.New(slog.DiscardHandler)

// nodeOn is one process of a node: its file, its journal, its Governor, and a key of team-1.
type nodeOn struct {
	*governancesqlite.DB
	sql *sql.DB
	j   *journal.Journal
	g   *governance.Governor
	p   keys.Principal
}

// startNode opens a node's file by a driver. token is empty where a key is to be made.
func startNode(ctx context.Context, driver, path, token string, takeOver bool) (*nodeOn, error) {
	file, err := journalsqlite.Claim(path, &journalsqlite.ClaimOptions{TakeOver: takeOver})
	if err != nil {
		return nil, err
	}
	n := &nodeOn{}
	if n.sql, err = sql.Open(driver, file.DSN()); err != nil {
		return nil, err
	}
	n.DB = governancesqlite.OpenNode(n.sql, file, nil)
	if err := n.Migrate(ctx); err != nil {
		return nil, errors.Join(err, n.Journal.Close())
	}
	if n.j, err = journal.Open(ctx, n.Journal, &journal.Options{Node: "node-1", Logger: quiet}); err != nil {
		return nil, err
	}
	if n.g, err = governance.New(n, &governance.Options{Journal: n.j, Logger: quiet}); err != nil {
		return nil, err
	}
	if token == "" {
		if _, err := n.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "team-1", Limits: keys.Limits{TokensPerDay: keys.Limit(1 << 40), RequestsPerMinute: keys.Limit(1 << 30)}}); err != nil {
			return nil, err
		}
		made, err := n.Keys.CreateKey(ctx, keys.CreateKey{TeamID: "team-1"})
		if err != nil {
			return nil, err
		}
		token = made.Token.Reveal()
	}
	n.p, err = n.Keys.Resolve(ctx, token)
	return n, err
}

func (n *nodeOn) stop() {
	_ = n.g.Close(context.Background())
	_ = n.j.Close()
	_ = n.Close()
	_ = n.sql.Close()
}

func (n *nodeOn) admit(ctx context.Context) (*governance.Permit, error) {
	return n.g.Admit(ctx, governance.Request{Principal: &n.p, Model: "m", Bound: governance.Bound{Tokens: 10, Cost: 1000}})
}

// exchange is one heartbeat.
func (n *nodeOn) exchange(ctx context.Context, a escrow.Authority, leaving bool) (bye bool, err error) {
	h, err := n.g.Ledger().Next(ctx, leaving)
	if err != nil {
		return false, err
	}
	sent := time.Now()
	answer, err := a.Beat(ctx, h)
	if err != nil {
		return false, err
	}
	return h.Bye, n.g.Ledger().Take(ctx, h, answer, sent)
}

// fund admits once, so that there is credit.
func (n *nodeOn) fund(t *testing.T, a escrow.Authority) {
	t.Helper()
	for range 4 {
		if _, err := n.exchange(t.Context(), a, false); err != nil {
			t.Fatal(err)
		}
		if p, err := n.admit(t.Context()); err == nil {
			if err := p.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no credit came")
}

// keyOfTeam1 is a second key of the team that startNode makes.
var keyOfTeam1 = keys.CreateKey{TeamID: "team-1"}

// authorityOn grants from a file of its own: a dollar in pieces of 20 000 microUSD.
func authorityOn(ctx context.Context, db *governancesqlite.DB) (*governance.Authority, error) {
	now, err := db.Policies.Load(ctx)
	if err != nil {
		return nil, err
	}
	doc := policy.Document{Name: "p", Subject: policy.Subject{Team: "team-1"}, Rules: []policy.Rule{{
		Name: "month", FailurePolicy: policy.FailClosed,
		Budget: &policy.Budget{LimitMilliUSD: 1000, HardCap: true, Calendar: quota.Calendar{Period: quota.Month}},
	}}}
	if _, err := db.Policies.Apply(ctx, policy.Apply{Documents: []policy.Document{doc}, Expect: now.Generation}); err != nil {
		return nil, err
	}
	return governance.NewAuthority(db, nil)
}

// sums are what the journal has reserved, and what the open permits hold.
func (n *nodeOn) sums(t *testing.T) (reserved, consumed, open int64) {
	t.Helper()
	status, err := journal.Look(t.Context(), n.Journal)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range status.Accounts {
		reserved, consumed = reserved+int64(a.Reserved), consumed+int64(a.Consumed)
	}
	list, err := n.Store.Permits(t.Context(), governance.PermitQuery{Limit: 1000, States: []governance.State{governance.StateOpen}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		open += list[i].Cost
	}
	v, err := n.g.Verify(t.Context(), governance.VerifyQuery{})
	if err != nil || len(v.Differences) > 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	return reserved, consumed, open
}

// TestNodeCommitFails has COMMIT fail in every way: permit and reservation are both there, or neither.
func TestNodeCommitFails(t *testing.T) {
	t.Cleanup(func() { injected.active.Store(false) })
	hub := open(t, filepath.Join(t.TempDir(), "authority.db"), now())
	a, err := authorityOn(t.Context(), hub.DB)
	if err != nil {
		t.Fatal(err)
	}
	n, err := startNode(t.Context(), "sqlite-faulty", filepath.Join(t.TempDir(), "node.db"), "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer n.stop()
	hub.clock.us.Store(time.Now().UnixMicro())
	n.fund(t, a)
	spent := int64(0)
	for _, c := range []struct {
		code  int
		after bool
		times int32
	}{
		{codeBusy, false, 1}, {codeIOErr, false, 1}, {codeFsync, false, 1}, {codeFull, false, 1}, {codeFull, false, 2}, {codeIOErr, true, 1}, {codeFsync, true, 1}, {codeIOErr, false, 2},
	} {
		inject(c.code, c.after, c.times)
		p, err := n.admit(t.Context())
		injected.active.Store(false)
		if errors.Is(err, governance.ErrUnknownOutcome) { // the orphan is cancelled when that is known
			for reserved, _, open := n.sums(t); reserved+open > 0; reserved, _, open = n.sums(t) {
				time.Sleep(time.Millisecond)
			}
			continue
		}
		if reserved, _, open := n.sums(t); reserved != open || (err == nil) != (open == 1000) {
			t.Fatalf("%+v: the caller was told %v, the journal has %d reserved, permits hold %d", c, err, reserved, open)
		}
		if err != nil {
			if p, err = n.admit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		inject(c.code, c.after, c.times)
		err = p.Settle(t.Context(), governance.Used(1, 100))
		injected.active.Store(false)
		var later *governance.SettleError
		if err != nil && !errors.As(err, &later) {
			t.Fatal(err)
		}
		spent += 100
		for reserved, consumed, open := n.sums(t); reserved+open > 0 || consumed != spent; reserved, consumed, open = n.sums(t) {
			if err == nil {
				t.Fatalf("%+v: settled, and the journal has %d reserved and %d consumed of %d, permits hold %d", c, reserved, consumed, spent, open)
			}
			time.Sleep(time.Millisecond) // the backlog tries again
		}
	}
}

// TestNodeFile: a node's file is claimed, private and its own; what is damaged is set aside with all that
// is in it, and nothing takes its place.
func TestNodeFile(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "node.db")
	n, err := startNode(ctx, "sqlite", path, "", false)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if _, err := startNode(ctx, "sqlite", path, "", false); !errors.Is(err, journalsqlite.ErrLocked) {
		t.Fatal(err)
	}
	// A tool looks beside the owner, and no other profile serves from the file.
	handle, err := sql.Open("sqlite", "file:"+path+pragmas)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	tool := governancesqlite.OpenNode(handle, nil, nil)
	defer tool.Close()
	if err := tool.Check(ctx); err != nil {
		t.Fatal(err)
	}
	if s, err := journal.Look(ctx, tool.Backend().Journal); err != nil || s.Number != 1 || s.Boot != n.j.Boot() {
		t.Fatalf("%+v, %v", s, err)
	}
	local := governancesqlite.Open(handle, nil)
	defer local.Close()
	if err := local.Check(ctx); !errors.Is(err, governancesqlite.ErrNodes) {
		t.Fatal(err)
	}
	if err := local.Migrate(ctx); !errors.Is(err, governancesqlite.ErrNodes) {
		t.Fatal(err)
	}
	_ = tool.Close()
	_ = local.Close()
	_ = handle.Close() // else what was written is in the log still
	n.stop()
	// A handle on another file than the one that was claimed.
	file, err := journalsqlite.Claim(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "other.db")+pragmas)
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	other := governancesqlite.OpenNode(elsewhere, file, nil)
	if err := other.Migrate(ctx); !errors.Is(err, journalsqlite.ErrPath) {
		t.Fatal(err)
	}
	_ = other.Close()
	if err := file.Release(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(whole[len(whole)-4096:], strings.Repeat("\x2a", 4096))
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := startNode(ctx, "sqlite", path, "", false); !errors.Is(err, journalsqlite.ErrQuarantined) {
			t.Fatal(err)
		}
	}
	if err := journalsqlite.StartAnew(path, "ada", "looked at it"); err != nil {
		t.Fatal(err)
	}
	if n, err = startNode(ctx, "sqlite", path, "", false); err != nil {
		t.Fatal(err)
	}
	n.stop()
}

func TestNodeMigrationsAreFiles(t *testing.T) {
	exported, err := governancesqlite.NodeMigrations()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "node.db")
	file, err := journalsqlite.Claim(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := sql.Open("sqlite", file.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	n := governancesqlite.OpenNode(handle, file, nil)
	defer n.Close()
	defer n.Journal.Close()
	for _, folder := range []string{"keyssqlite", "escrowsqlite", "governancesqlite", "journalsqlite"} {
		if err := n.Check(t.Context()); !errors.Is(err, governancesqlite.ErrOlder) {
			t.Fatalf("before %s: %v", folder, err)
		}
		names, err := fs.Glob(exported, folder+"/*.up.sql")
		if err != nil || len(names) == 0 {
			t.Fatalf("files of %s: %v, %v", folder, names, err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(exported, name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := handle.Exec(string(text)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	if err := n.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}
