package governance

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallystick-go/tallystick/keys"
)

// No test leaves a goroutine behind, so no Governor does once it is closed.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the clock of a new rig.
const noon = int64(1_773_144_000_000_000) // 2026-03-10T12:00:00Z

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// rig is a Governor on a shelf.
type rig struct {
	*testing.T
	ctx      context.Context
	g        *Governor
	shelf    *shelf
	registry *registry
}

func newRig(t *testing.T, o *Options) *rig {
	t.Helper()
	r := &rig{T: t, ctx: t.Context(), shelf: newShelf(noon)}
	r.registry = newRegistry(r.shelf)
	var options Options
	if o != nil {
		options = *o
	}
	if options.Logger == nil {
		options.Logger = discard
	}
	if options.StepTimeout == 0 {
		options.StepTimeout = patience
	}
	options.Now = r.shelf.time
	g, err := New(Stores{Store: r.shelf, Keys: r.registry}, &options)
	r.ok(err)
	r.g = g
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = g.Close(ctx)
	})
	return r
}

func (s *shelf) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.UnixMicro(s.clock)
}

func (s *shelf) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock += d.Microseconds()
}

// with runs f under the shelf's mutex.
func (s *shelf) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("unexpected error: %v", err)
	}
}

func (r *rig) is(err, want error) {
	r.Helper()
	if !errors.Is(err, want) {
		r.Fatalf("error is %v, want %v", err, want)
	}
}

func (r *rig) refused(err error, reason Reason) *Refusal {
	r.Helper()
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Reason != reason {
		r.Fatalf("error is %v, want a refusal (%s)", err, reason)
	}
	return refusal
}

// until waits for a condition.
func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	for end := time.Now().Add(patience); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			r.Fatalf("it never came true that %s", what)
		}
	}
}

// caller puts a key of a team in force.
func (r *rig) caller(team, key string, teamLimits, keyLimits keys.Limits) *keys.Principal {
	return r.registry.set(keys.Principal{
		KeyID: key, TeamID: team, User: "ann",
		Key:  keys.Key{ID: key, TeamID: team, Owner: "ann", Revision: 1, Limits: keyLimits},
		Team: keys.Team{ID: team, Revision: 1, Limits: teamLimits},
	})
}

// edit changes a key or its team and puts the next revision in force.
func (r *rig) edit(p *keys.Principal, change func(*keys.Key, *keys.Team)) *keys.Principal {
	next := *p
	next.Key.Revision++
	next.Team.Revision++
	change(&next.Key, &next.Team)
	return r.registry.set(next)
}

func (r *rig) admit(p *keys.Principal, b Bound) *Permit {
	r.Helper()
	permit, err := r.g.Admit(r.ctx, Request{Principal: p, Bound: b})
	r.ok(err)
	return permit
}

// stored is a permit as the shelf has it.
func (r *rig) stored(id PermitID) (rec Record) {
	r.shelf.with(func() { rec = r.shelf.permits[id] })
	return rec
}

// verify recomputes the books.
func (r *rig) verify() {
	r.Helper()
	v, err := r.g.Verify(context.Background(), VerifyQuery{})
	r.ok(err)
	if len(v.Differences) > 0 {
		r.Fatalf("the books differ: %+v", v.Differences)
	}
}

// reserved adds up what is reserved in all accounts.
func (r *rig) reserved() (n int64) {
	r.shelf.with(func() {
		for _, c := range r.shelf.cells {
			n += c.account.Reserved
		}
	})
	return n
}

// waiting is how many tasks wait in all lanes.
func (r *rig) waiting() (n int) {
	for _, l := range r.g.lanes {
		l.mu.Lock()
		n += l.length
		l.mu.Unlock()
	}
	return n
}

func (r *rig) idle() bool {
	for _, l := range r.g.lanes {
		l.mu.Lock()
		busy := l.busy || l.length > 0 || len(l.queues) > 0 || l.ring != (ring{})
		l.mu.Unlock()
		if busy {
			return false
		}
	}
	return true
}

// gate makes transactions wait for each other by hand.
type gate struct {
	entered chan *Plan
	open    chan struct{}
}

// gate installs a gate: each transaction reports itself and waits.
func (r *rig) gate() *gate {
	g := &gate{make(chan *Plan, 1024), make(chan struct{}, 1024)}
	r.shelf.pause = func(ctx context.Context, p *Plan) {
		g.entered <- p
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}
	return g
}

// pass lets n transactions through.
func (g *gate) pass(n int) {
	for range n {
		g.open <- struct{}{}
	}
}

// lift lets everything through from now on.
func (g *gate) lift() { close(g.open) }

// goroutine returns the number of the calling goroutine.
func goroutine() string {
	var buf [64]byte
	text := string(buf[:runtime.Stack(buf[:], false)])
	id, _, _ := strings.Cut(strings.TrimPrefix(text, "goroutine "), " ")
	return id
}

// waitIn counts the goroutines that wait in a state with a function in their stack.
func waitIn(state, function string) (n int) {
	all := make([]byte, 1<<20)
	for _, g := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if head, frames, _ := strings.Cut(g, "\n"); strings.Contains(head, state) && strings.Contains(frames, function) {
			n++
		}
	}
	return n
}

// results collects what concurrent callers got.
type results struct {
	mu      sync.Mutex
	permits []*Permit
	errs    []error
	wg      sync.WaitGroup
}

func (c *results) admit(ctx context.Context, g *Governor, req Request) {
	c.wg.Go(func() {
		p, err := g.Admit(ctx, req)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.errs = append(c.errs, err)
		} else {
			c.permits = append(c.permits, p)
		}
	})
}

func (c *results) wait() ([]*Permit, []error) {
	c.wg.Wait()
	return c.permits, c.errs
}
