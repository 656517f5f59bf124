package governancesqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/keys"
)

// SQLite's result codes.
const (
	codeBusy  = 5
	codeIOErr = 10
	codeFull  = 13
	codeFsync = 1034
)

// governed is a file with a team, a key and a Governor.
type governed struct {
	*opened
	g *governance.Governor
	p keys.Principal
}

func govern(t testing.TB, o *opened) *governed {
	t.Helper()
	g, err := governance.New(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	d := &governed{opened: o, g: g}
	ctx := t.Context()
	if _, err := o.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "team-1", Limits: keys.Limits{
		TokensPerDay: keys.Limit(1_000_000), CostPerMonth: keys.Cost(1_000_000), TokensPerMinute: keys.Limit(1_000_000), Concurrency: keys.Limit(1000),
	}}); err != nil {
		t.Fatal(err)
	}
	made, err := o.Keys.CreateKey(ctx, keys.CreateKey{TeamID: "team-1"})
	if err != nil {
		t.Fatal(err)
	}
	if d.p, err = o.Keys.Resolve(ctx, made.Token.Reveal()); err != nil {
		t.Fatal(err)
	}
	return d
}

func faulty(t testing.TB) *governed {
	t.Helper()
	c := now()
	t.Cleanup(func() { injected.active.Store(false) })
	return govern(t, openWith(t, "sqlite-faulty", filepath.Join(t.TempDir(), "governance.db"), &governancesqlite.Options{Now: c.now}, c))
}

func (d *governed) admit(ctx context.Context) (*governance.Permit, error) {
	return d.g.Admit(ctx, governance.Request{Principal: &d.p, Model: "m", Bound: governance.Bound{Tokens: 10, Cost: 10}})
}

// reserved is what the store itself says, and Verify 0.
func (d *governed) reserved(t testing.TB) (tokens int64, permits int) {
	t.Helper()
	v, err := d.g.Verify(t.Context(), governance.VerifyQuery{})
	if err != nil || len(v.Differences) != 0 {
		t.Fatalf("verify: %+v, %v", v, err)
	}
	list, err := d.Store.Permits(t.Context(), governance.PermitQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	usage, err := d.g.Usage(t.Context(), governance.UsageQuery{Principal: &d.p})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range usage.Verdicts {
		if u.Constraint.Kind == governance.KindTokenQuota {
			return u.Reserved, len(list)
		}
	}
	return 0, len(list)
}

// TestCommitFails has COMMIT fail in every way. Whatever the caller is told must be
// what the file says.
func TestCommitFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  int
		after bool
		times int32
		want  error // of Admit; nil: admitted
		held  int64
	}{
		{"busy before", codeBusy, false, 1, governance.ErrUnavailable, 0},
		{"disk error before", codeIOErr, false, 1, governance.ErrUnavailable, 0},
		{"flush error before", codeFsync, false, 1, governance.ErrUnavailable, 0},
		{"full before", codeFull, false, 1, governance.ErrUnavailable, 0},
		{"full before, and stays so", codeFull, false, 2, governance.ErrUnavailable, 0},
		{"disk error after", codeIOErr, true, 1, nil, 10},
		{"flush error after", codeFsync, true, 1, nil, 10},
		{"disk error before, and stays so", codeIOErr, false, 2, governance.ErrUnknownOutcome, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := faulty(t)
			inject(c.code, c.after, c.times)
			p, err := d.admit(t.Context())
			if !errors.Is(err, c.want) {
				t.Fatalf("error is %v, want %v", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Fatalf("the error tells of the driver's: %v", err)
			}
			injected.active.Store(false)
			if held, permits := d.reserved(t); held != c.held || int64(permits)*10 != c.held {
				t.Fatalf("%d are held by %d permits, want %d", held, permits, c.held)
			}
			if p != nil {
				if err := p.Settle(t.Context(), governance.Used(3, 3)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := d.admit(t.Context()); err != nil { // the store goes on
				t.Fatal(err)
			}
		})
	}
}

// TestSettlementCommitFails: a settlement has no batch to look for; the permit tells. That it is uncertain is told once.
func TestSettlementCommitFails(t *testing.T) {
	for _, after := range []bool{false, true} {
		d := faulty(t)
		p, err := d.admit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		inject(codeIOErr, after, 1)
		err = p.Settle(t.Context(), governance.Unknown())
		var failed *governance.SettleError
		if err != nil && !errors.As(err, &failed) {
			t.Fatalf("error is %v", err)
		}
		if after && err != nil {
			t.Fatalf("the settlement was committed, and is reported as %v", err)
		}
		if err := d.g.Close(t.Context()); err != nil { // the background has recorded it by then
			t.Fatal(err)
		}
		loaded, err := d.Store.View(t.Context(), &governance.Plan{Permits: []governance.PermitID{p.ID()}})
		if err != nil || loaded.Permits[0].State != governance.StateSettled || loaded.Permits[0].Version != 2 {
			t.Fatalf("the permit is %+v, %v", loaded.Permits, err)
		}
		list := slices.DeleteFunc(told(t, d.opened), func(e governance.Event) bool { return e.Type != governance.EventHoldOpened })
		if len(list) != 1 {
			t.Fatalf("told %+v", list)
		}
	}
}

// TestCellsOnly: of a step that wrote neither permit nor batch nothing can be learned.
func TestCellsOnly(t *testing.T) {
	d := faulty(t)
	inject(codeIOErr, true, 1)
	step := func() error {
		plan := &governance.Plan{Constraints: []governance.ConstraintID{{1}}}
		return d.Store.Step(t.Context(), plan, func(l *governance.Loaded) *governance.Changes {
			c := l.Current[0].Cell
			c.Key.Constraint, c.Kind, c.End = governance.ConstraintID{1}, governance.KindMoney, 5
			c.Account.Observed++
			return &governance.Changes{Cells: []governance.Cell{c}}
		})
	}
	if err := step(); !errors.Is(err, governance.ErrUnknownOutcome) {
		t.Fatalf("error is %v, want ErrUnknownOutcome", err)
	}
	if err := step(); err != nil {
		t.Fatal(err)
	}
}

// TestBusy has another process hold the file for longer than busy_timeout.
func TestBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "governance.db")
	c := now()
	d := govern(t, open(t, path, c))
	other := open(t, path, c)
	holder, err := other.sql.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	for _, q := range []string{"pragma busy_timeout = 1000", "begin immediate"} {
		if _, err := holder.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.admit(ctx); err == nil {
		t.Fatal("admitted while another process held the file")
	}
	if _, err := d.g.Usage(t.Context(), governance.UsageQuery{Principal: &d.p}); err != nil { // readers do not wait
		t.Fatal(err)
	}
	if _, err := holder.ExecContext(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	if err := d.g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	g, err := governance.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.g = g
	if held, _ := d.reserved(t); held != 0 {
		t.Fatalf("%d are held by a caller who left", held)
	}
}

// TestFull lets the file grow no further. Nothing may change but an answer.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "governance.db")
	c := now()
	first := govern(t, open(t, path, c))
	if _, err := first.admit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var pages int64
	if err := first.sql.QueryRow("pragma page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	d := &governed{opened: openFull(t, path, c, pages), p: first.p}
	var err error
	if d.g, err = governance.New(d, nil); err != nil {
		t.Fatal(err)
	}
	defer d.g.Close(context.Background())
	admitted := int64(1)
	for range 500 {
		if _, err = d.admit(t.Context()); err != nil {
			break
		}
		admitted++
	}
	if !errors.Is(err, governance.ErrUnavailable) {
		t.Fatalf("a full disk answers %v", err)
	}
	if held, permits := first.reserved(t); held != admitted*10 || int64(permits) != admitted {
		t.Fatalf("%d held by %d permits, want %d permits", held, permits, admitted)
	}
}
