package escrow_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

var (
	simSeed  = flag.Uint64("escrow.seed", 0, "the one seed to simulate")
	simSeeds = flag.Int("escrow.seeds", 2000, "how many seeds to simulate")
)

// TestSimulation runs the protocol's state machines on a bus that loses, doubles, delays and
// reorders messages. Nodes crash, come back from old copies of their journals and run beside
// them; limits are edited, windows roll, operators burn and resolve. After every heartbeat
// that was taken the books are held against a naive account of what was said, and against what
// was really spent.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		if err := simulate(*simSeed); err != nil {
			t.Fatal(err)
		}
		return
	}
	n := *simSeeds
	if testing.Short() {
		n = min(n, 400)
	}
	first := rand.Uint64()>>16 | 1
	if f := flag.Lookup("rapid.seed"); f != nil && f.Value.String() != "0" { // planted mistakes are tried with the same seeds
		first = 1
	}
	t.Logf("seeds %d to %d", first, first+uint64(n)-1)
	for seed := first; seed < first+uint64(n); seed++ {
		if err := simulate(seed); err != nil {
			t.Fatalf("-escrow.seed=%d: %v", seed, err)
		}
	}
}

// world is one run.
type world struct {
	rng       *rand.Rand
	now       int64 // µs, true time; the authority's clock shows it plus skew
	skew      int64
	authority *modelAuthority
	nodes     []*simNode // processes that run
	dead      []corpse   // journals without a process
	copies    []corpse   // old copies of journals
	bus       []message
	ids       uint64

	spent   map[escrow.Account]int64 // really
	spentOf map[escrow.GrantID]int64
	naive   map[escrow.GrantID]*naive
	limits  map[escrow.Account]bool  // whose limit was edited within the window
	limitOf map[escrow.Account]int64 // of the others
	lost    map[string]bool          // nodes whose journal is gone
	limit   int64                    // milli-USD

	crashes, restores, edits, operators, overruns bool
	overran                                       bool
	err                                           error
}

type corpse struct {
	name    string
	journal *simJournal
}

// message is a heartbeat on its way, or its answer on the way back.
type message struct {
	ex     *exchange
	h      *escrow.Heartbeat
	answer *escrow.Answer
	err    error
}

type exchange struct {
	node *simNode
	sent int64
}

// naive is what reports and answers said of a grant or meter.
type naive struct {
	node               string
	account            escrow.Account
	amount             int64
	used, perhaps, out int64
	found, looked      int64 // by operators
	ended, meter       bool
	back               int64 // proved unused
}

func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *world) bootID() escrow.BootID {
	w.ids++
	var id escrow.BootID
	binary.BigEndian.PutUint64(id[8:], w.ids)
	return id
}

func (w *world) grantID() escrow.GrantID {
	w.ids++
	var id escrow.GrantID
	binary.BigEndian.PutUint64(id[8:], w.ids)
	binary.BigEndian.PutUint64(id[:8], uint64(w.now/1000)<<16)
	id[6], id[8] = 0x70, 0x80
	return id
}

func (w *world) definitions() []escrow.Definition {
	list, err := escrow.Definitions(w.authority.set, w.now+w.skew)
	if err != nil {
		w.failf("definitions: %v", err)
	}
	return list
}

func simulate(seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 45))
	w := &world{
		rng: rng, now: noon.UnixMicro(), skew: rng.Int64N(2_000_000_000) - 1_000_000_000,
		spent: map[escrow.Account]int64{}, spentOf: map[escrow.GrantID]int64{}, naive: map[escrow.GrantID]*naive{},
		limits: map[escrow.Account]bool{}, limitOf: map[escrow.Account]int64{}, lost: map[string]bool{},
		crashes: seed%2 > 0, restores: seed%4 > 2, edits: seed%3 > 0, operators: seed%5 > 2, overruns: seed%7 > 4,
	}
	w.limit = 1 + rng.Int64N(3)
	w.authority = newModelAuthority(w.policies(true), func() time.Time { return time.UnixMicro(w.now + w.skew) })
	w.authority.ttl = time.Duration(1+rng.Int64N(60)) * time.Second
	for i := range 1 + rng.IntN(4) {
		w.open(fmt.Sprintf("node-%d", i), &simJournal{})
	}
	for range 150 {
		w.step()
		if w.err != nil {
			return w.err
		}
	}
	w.quiesce()
	return w.err
}

// policies are one hard budget (for a time perhaps soft) and one soft one.
func (w *world) policies(hard bool) *policy.Set {
	failure := policy.FailClosed
	if !hard {
		failure = policy.FailOpen
	}
	day := quota.Calendar{Period: quota.Day}
	set, err := policy.NewSet([]policy.Document{{Name: "p", Subject: policy.Subject{Team: "a"}, Rules: []policy.Rule{
		{Name: "hard", FailurePolicy: failure, Budget: &policy.Budget{LimitMilliUSD: w.limit, HardCap: hard, Calendar: day, Lease: &policy.Lease{GrantMilliUSD: 1}}},
		{Name: "soft", FailurePolicy: policy.FailOpen, Budget: &policy.Budget{LimitMilliUSD: 5, Calendar: day, Tiers: []policy.Tier{{Threshold: 50}, {Threshold: 100}}}},
	}}})
	if err != nil {
		w.failf("policies: %v", err)
	}
	return set
}

func (w *world) step() {
	switch p := w.rng.IntN(100); {
	case p < 14:
		w.now += w.rng.Int64N(3_000_000)
	case p < 15:
		w.now += w.rng.Int64N(15 * 3600 * 1_000_000)
	case p < 45:
		w.deliver()
	case p < 47 && w.edits:
		w.edit()
	case p < 49 && w.operators:
		w.operate()
	case p < 52 && w.crashes:
		w.upset()
	default:
		if len(w.nodes) > 0 {
			w.act(w.nodes[w.rng.IntN(len(w.nodes))])
		}
	}
}

// act is something that a node does.
func (w *world) act(n *simNode) {
	d := w.definitions()
	switch p := w.rng.IntN(20); {
	case p < 8 && !n.leaving && n.fenced == nil:
		n.spend(d[0].Account, 50+w.rng.Int64N(400))
	case p < 10 && len(n.attempts) > 0:
		n.finish()
	case p < 11 && !n.leaving && n.fenced == nil:
		n.measure(d[1].Account, w.rng.Int64N(2000))
	case p < 13 && len(n.journal.grants) > 0: // no demand any more, or the deadline is over
		g := n.journal.grants[w.rng.IntN(len(n.journal.grants))]
		if g.pending == 0 {
			g.end(escrow.Closed)
		}
	case n.fenced == nil && (n.out == nil || w.rng.IntN(4) == 0): // else it waits; what it gives up may still arrive
		w.beat(n)
	}
}

func (w *world) beat(n *simNode) {
	h := n.next()
	n.out = &exchange{n, w.now}
	w.send(message{ex: n.out, h: h})
}

// send puts a message on the bus, once, twice, or not at all.
func (w *world) send(m message) {
	for range min(w.rng.IntN(5), 3) {
		w.bus = append(w.bus, m)
	}
	w.bus = w.bus[:min(len(w.bus), 40)]
}

// deliver takes any message from the bus.
func (w *world) deliver() {
	if len(w.bus) == 0 {
		return
	}
	i := w.rng.IntN(len(w.bus))
	m := w.bus[i]
	w.bus = slices.Delete(w.bus, i, i+1)
	if m.answer == nil && m.err == nil {
		w.bus = append(w.bus, w.beatAuthority(m)...)
		return
	}
	w.answered(m)
}

// answered brings an answer to who still waits for it.
func (w *world) answered(m message) {
	n := m.ex.node
	if n.out != m.ex {
		return
	}
	n.out = nil
	var fenced *escrow.Fenced
	switch {
	case m.err == nil:
		if err := m.answer.Verify(m.h); err != nil {
			w.failf("the answer does not pass: %v", err)
		}
		n.take(m.h, m.answer, m.ex.sent)
	case errors.As(m.err, &fenced):
		n.fenced = fenced
		if slices.Contains(w.nodes, n) && !w.restores {
			w.failf("%s was fenced (%v), and its journal was never copied", n.name, fenced)
		}
	}
}

// beatAuthority is the way of one heartbeat through the authority, in JSON now and then.
func (w *world) beatAuthority(m message) []message {
	h := m.h
	coded := w.rng.IntN(16) == 0
	if coded {
		h = new(escrow.Heartbeat)
		if err := h.UnmarshalJSON(m.h.AppendJSON(nil)); err != nil {
			w.failf("a heartbeat does not come through: %v", err)
		}
	}
	before := w.authority.copy()
	a, err := w.authority.Beat(noContext, h)
	if err == nil {
		w.heard(h, a)
		w.audit()
		if coded {
			back := new(escrow.Answer)
			if err := back.UnmarshalJSON(a.AppendJSON(nil)); err != nil {
				w.failf("an answer does not come through: %v", err)
			}
			a = back
		}
	} else {
		w.unheard(before, err)
	}
	if w.rng.IntN(4) == 0 {
		return nil // the answer is lost
	}
	return []message{{ex: m.ex, h: m.h, answer: a, err: err}}
}

// quiesce heals the network, brings every journal back and says goodbye to everybody.
func (w *world) quiesce() {
	w.bus = nil
	for _, n := range w.nodes {
		for len(n.attempts) > 0 {
			n.finish()
		}
	}
	for len(w.dead) > 0 && w.err == nil {
		w.open(w.dead[0].name, w.dead[0].journal)
		w.dead = w.dead[1:]
	}
	for range 200 {
		waiting := false
		for _, n := range w.nodes {
			if n.left || w.err != nil || n.fenced != nil {
				continue
			}
			waiting, n.leaving = true, true
			h := n.next()
			n.out = &exchange{n, w.now}
			a, err := w.authority.Beat(noContext, h)
			if err == nil {
				w.heard(h, a)
				w.audit()
			}
			w.answered(message{ex: n.out, h: h, answer: a, err: err})
		}
		if !waiting {
			break
		}
	}
	for _, n := range w.nodes {
		if w.err == nil && !n.left && n.fenced == nil {
			w.failf("%s never got to say goodbye", n.name)
		}
	}
	if w.err == nil {
		w.nothingStranded()
	}
}
