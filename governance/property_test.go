package governance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// A play drives decisions on a shelf and the model side by side and compares after
// every transaction.
type play struct {
	t       *rapid.T
	g       *Governor
	shelf   *shelf
	books   *books
	teams   map[string]keys.Team
	past    []*keys.Principal // snapshots that callers still have
	permits []*paper          // in the order in which they were admitted
	terms   map[PermitID]*terms
	named   []PermitID // ids that callers brought
	minted  uint64
}

// nameOf is how the model and the code under test call the same answer.
func nameOf(err error) string {
	var refusal *Refusal
	var ended *TerminalError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &refusal):
		return "refused " + refusal.Reason.String()
	case errors.As(err, &ended):
		return "terminal " + ended.State.String()
	}
	for name, target := range map[string]error{
		"stale": ErrStale, "conflict": ErrConflict, "in flight": ErrInFlight, "pruned": ErrPruned,
		"invalid": ErrInvalid, "not found": ErrNotFound, "unavailable": ErrUnavailable,
	} {
		if errors.Is(err, target) {
			return name
		}
	}
	return err.Error()
}

// turn3 is one task of a transaction, with what the model expects of it.
type move struct {
	task
	what   func() expected // asks the model, which then changes
	check  func(expected)  // compares more than the answer's name
	before sheetCopy
	after  sheetCopy
}

func (m *move) decide(s *sheet) {
	m.before = s.copyOf()
	m.task.decide(s)
	m.after = s.copyOf()
}

// sheetCopy is all that a decision may have changed.
type sheetCopy struct {
	dirty, clean map[AccountKey]shelved
	rest         string
}

func (s *sheet) copyOf() sheetCopy {
	c := sheetCopy{map[AccountKey]shelved{}, map[AccountKey]shelved{}, ""}
	for _, list := range [][]cell{s.older, s.current} {
		for i := range list {
			if w := &list[i]; w.dirty {
				c.dirty[w.Key] = shelve(&w.Cell)
			} else if w.Kind != 0 {
				c.clean[w.Key] = shelve(&w.Cell)
			}
		}
	}
	c.rest = fmt.Sprintf("%+v %+v %v %d %+v", s.loaded.Permits, s.made, s.ended, len(s.terms), s.notes)
	return c
}

// sameAs reports whether nothing changed. Entering the next window changes nothing
// as long as it stays empty.
func (c sheetCopy) sameAs(before sheetCopy) bool {
	if c.rest != before.rest || !maps.Equal(c.dirty, before.dirty) {
		return false
	}
	for key, now := range c.clean {
		then, ok := before.clean[key]
		if !ok {
			empty := Cell{Key: key, End: now.end, Kind: now.kind}
			then = shelve(&empty)
		}
		if now != then {
			return false
		}
	}
	return true
}

func newPlay(t *rapid.T) *play {
	// Some seconds before a day, and often a month, ends.
	start := rapid.SampledFrom([]string{"2026-01-31T23:59:40Z", "2026-03-10T12:00:00Z", "2026-02-28T23:59:59Z"}).Draw(t, "start")
	at, err := time.Parse(time.RFC3339, start)
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: t, shelf: newShelf(at.UnixMicro()), books: newBooks(), teams: map[string]keys.Team{}, terms: map[PermitID]*terms{}}
	p.books.now = p.shelf.clock
	p.shelf.taken = func(id ConstraintID) bool { return p.books.taken[id] }
	p.g, err = New(Stores{Store: p.shelf, Keys: newRegistry(p.shelf)}, &Options{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() time.Time { return time.UnixMicro(p.shelf.clock) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, team := range []string{"red", "blue"} {
		p.teams[team] = keys.Team{ID: team, Revision: 1, Limits: genLimits(t)}
	}
	for _, key := range [][2]string{{"k1", "red"}, {"k2", "red"}, {"k3", "blue"}} {
		p.enact(keys.Key{ID: key[0], TeamID: key[1], Owner: "ann", Revision: 1, Limits: genLimits(t)})
	}
	return p
}

func genLimits(t *rapid.T) (l keys.Limits) {
	limit := func(name string, most int64) *int64 {
		switch rapid.IntRange(0, 9).Draw(t, name+" kind") {
		case 0, 1, 2, 3:
			return nil
		case 4:
			return keys.Limit(1<<63 - 1)
		}
		return keys.Limit(rapid.Int64Range(0, most).Draw(t, name))
	}
	l.RequestsPerMinute, l.TokensPerMinute, l.TokensPerDay = limit("rpm", 6), limit("tpm", 60), limit("tpd", 90)
	l.CostPerDay, l.CostPerMonth = (*amount.MicroUSD)(limit("day", 60)), (*amount.MicroUSD)(limit("month", 120))
	l.Concurrency = limit("concurrency", 4)
	return l
}

// enact puts a key and its team in force.
func (p *play) enact(key keys.Key) {
	team := p.teams[key.TeamID]
	now := &keys.Principal{KeyID: key.ID, TeamID: team.ID, User: key.Owner, Key: key, Team: team}
	p.books.current[key.ID] = now
	p.past = append(p.past, now)
	p.shelf.definitions[key.ID] = keys.DefinitionOf(key, team)
}

// edit changes the limits of a team or a key, or revokes a key.
func (p *play) edit() {
	ids := slices.Sorted(maps.Keys(p.books.current))
	id := rapid.SampledFrom(ids).Draw(p.t, "edited key")
	key := p.books.current[id].Key
	switch rapid.IntRange(0, 8).Draw(p.t, "edit") {
	case 0:
		if key.RevokedAt == nil {
			now := time.UnixMicro(p.shelf.clock)
			key.RevokedAt = &now
		}
		fallthrough
	case 1, 2, 3, 4:
		key.Revision++
		key.Limits = genLimits(p.t)
		p.enact(key)
	default:
		team := p.teams[key.TeamID]
		team.Revision++
		team.Limits = genLimits(p.t)
		p.teams[team.ID] = team
		for _, other := range ids {
			if k := p.books.current[other].Key; k.TeamID == team.ID {
				p.enact(k)
			}
		}
	}
}

func (p *play) tick() {
	const second, day = int64(1_000_000), int64(86_400_000_000)
	step := rapid.SampledFrom([]int64{0, 0, 0, 1, 300_000, 5 * second, 10 * second, 59 * second, 61 * second, 20 * 60 * second, day, 31 * day, -2 * second}).Draw(p.t, "tick")
	p.shelf.clock += step
	p.books.now += step
}

func (p *play) principal() *keys.Principal {
	if rapid.IntRange(0, 7).Draw(p.t, "snapshot") > 0 {
		ids := slices.Sorted(maps.Keys(p.books.current))
		return p.books.current[rapid.SampledFrom(ids).Draw(p.t, "key")]
	}
	return rapid.SampledFrom(p.past).Draw(p.t, "old snapshot")
}

func (p *play) nonce() (n Nonce) {
	p.minted++
	binary.BigEndian.PutUint64(n[8:], p.minted)
	return n
}

func genBound(t *rapid.T) Bound {
	b := Bound{Tokens: amount.Tokens(rapid.Int64Range(0, 30).Draw(t, "tokens")), Cost: amount.MicroUSD(rapid.Int64Range(0, 20).Draw(t, "cost"))}
	if rapid.IntRange(0, 6).Draw(t, "free") == 0 {
		b.Free, b.Cost = true, 0
	}
	return b
}

func genOutcome(t *rapid.T) Outcome {
	measure := func(name string, most int64) Measure {
		m := Measure{Certainty: Known, Value: rapid.Int64Range(0, most).Draw(t, name)}
		switch rapid.IntRange(0, 9).Draw(t, name+" certainty") {
		case 0, 1:
			m.Certainty = Uncertain
		case 2:
			m.Certainty = Impossible
		}
		return m
	}
	switch rapid.IntRange(0, 5).Draw(t, "outcome") {
	case 0:
		return NotSent()
	case 1:
		return Unknown()
	}
	return Outcome{Tokens: measure("used tokens", 40), Cost: measure("used cost", 30)}
}

var incarnations = []uint64{11, 12, 13}

// id draws a permit id of the caller's.
func (p *play) id() PermitID {
	switch rapid.IntRange(0, 3).Draw(p.t, "which id") {
	case 0:
		if len(p.permits) > 0 {
			return rapid.SampledFrom(p.permits).Draw(p.t, "permit").id
		}
	case 1:
		if len(p.named) > 0 { // perhaps in this very transaction
			return p.named[len(p.named)-1]
		}
	}
	id := PermitID(p.nonce())
	ago := rapid.SampledFrom([]int64{0, 0, 0, -299, -301, 29 * 86400, 31 * 86400}).Draw(p.t, "seconds ago")
	id.stamp(p.shelf.clock/1000 - ago*1000)
	p.named = append(p.named, id)
	return id
}

func (p *play) admitMove() *move {
	r := &Request{Principal: p.principal(), Model: rapid.SampledFrom([]string{"m", "n"}).Draw(p.t, "model"), Bound: genBound(p.t), Price: []byte("price")}
	a := &admission{request: r, set: p.g.sets.of(r.Principal), owner: p.nonce(), slot: slotTicket{incarnation: rapid.SampledFrom(incarnations).Draw(p.t, "incarnation"), until: 1<<63 - 1}}
	if rapid.IntRange(0, 3).Draw(p.t, "own id") == 0 {
		a.id = p.id()
		a.fingerprint = (&Request{Principal: r.Principal, Model: r.Model, Bound: r.Bound, Price: r.Price}).fingerprint()
	} else {
		a.id, a.minted = PermitID(p.nonce()), true
	}
	asked := &asking{key: r.Principal.KeyID, model: r.Model, price: string(r.Price), bound: r.Bound}
	return &move{task: a, what: func() expected { return p.books.admit(a, asked) }, check: func(e expected) {
		if e.what == "ok" {
			made := p.books.permits[a.record.ID]
			p.permits = append(p.permits, made)
			p.terms[made.id] = a.terms
			p.withinLimits(made.where, r.Principal)
		}
		p.checkRefusal(a.err, e)
	}}
}

// withinLimits is the invariant: what adds to reserved leaves no account above the
// limit in force.
func (p *play) withinLimits(where []place, principal *keys.Principal) {
	for _, c := range constraintsOf(principal).list {
		i := slices.IndexFunc(where, func(w place) bool { return w.id == c.ID })
		if i < 0 {
			continue
		}
		switch a := p.books.sum(AccountKey{c.ID, where[i].window}, c.Kind); {
		case c.Kind == KindConcurrency && p.books.inUse(c.ID) > c.Limit:
			p.t.Fatalf("%d slots are in use, the limit is %d", p.books.inUse(c.ID), c.Limit)
		case c.Kind.isAccount() && (a.Frozen || a.Consumed+a.Uncertain+a.Reserved+a.Granted > c.Limit):
			p.t.Fatalf("reserved above the limit of %d: %+v", c.Limit, a)
		}
	}
}

func (p *play) checkRefusal(err error, e expected) {
	var r *Refusal
	if !errors.As(err, &r) || e.binding == 0 {
		return
	}
	if len(r.All) != e.binding || r.RetryAfter.Microseconds() != e.retry || (e.retry > 0) != r.Retryable || r.Verdict.Reason != r.Reason {
		p.t.Fatalf("refusal %+v, the model says %+v", r, e)
	}
}

func (p *play) known() *paper { return rapid.SampledFrom(p.permits).Draw(p.t, "permit") }

// ownerOf is the permit's owner, or somebody else.
func (p *play) ownerOf(pp *paper) Nonce {
	if rapid.IntRange(0, 9).Draw(p.t, "stranger") == 0 {
		return Nonce{1}
	}
	return pp.owner
}

func (p *play) settleMove() *move {
	pp := p.known()
	o := &settlement{id: pp.id, owner: p.ownerOf(pp), terms: p.terms[pp.id], outcome: genOutcome(p.t)}
	if pp.state != StateOpen && rapid.Bool().Draw(p.t, "replay") {
		o.outcome = pp.outcome
	}
	if rapid.IntRange(0, 12).Draw(p.t, "absent") == 0 {
		o.id = PermitID(p.nonce())
		return &move{task: o, what: func() expected {
			if p.books.anyTaken(pp.where, false) {
				return no("unavailable")
			}
			return no("not found")
		}}
	}
	return &move{task: o, what: func() expected { return p.books.settle(o) }}
}

func (p *play) raiseMove() *move {
	pp := p.known()
	principal := pp.principal
	if rapid.IntRange(0, 4).Draw(p.t, "fresh") > 0 {
		principal = p.books.current[principal.KeyID]
	}
	to := Bound{Tokens: amount.Tokens(rapid.Int64Range(0, 60).Draw(p.t, "to tokens")), Cost: amount.MicroUSD(rapid.Int64Range(0, 40).Draw(p.t, "to cost"))}
	o := &raising{id: pp.id, owner: p.ownerOf(pp), terms: p.terms[pp.id], set: p.g.sets.of(principal), principal: principal, to: to}
	var tokens, cost int64
	return &move{task: o, what: func() expected { tokens, cost = pp.tokens, pp.cost; return p.books.raise(o) }, check: func(e expected) {
		grew := slices.DeleteFunc(slices.Clone(pp.where), func(w place) bool {
			return (w.kind != KindTokenQuota || pp.tokens == tokens) && (w.kind != KindMoney || pp.cost == cost)
		})
		p.withinLimits(grew, principal)
		if e.what == "ok" && (int64(o.reached.Tokens) != pp.tokens || int64(o.reached.Cost) != pp.cost) {
			p.t.Fatalf("raised to %+v, the model says %+v", o.reached, pp)
		}
		p.checkRefusal(o.err, e)
	}}
}

func (p *play) resolveMove() *move {
	pp := p.known()
	o := &resolution{id: pp.id, terms: p.terms[pp.id], evidence: NotSent(), note: Note{Actor: "op", Reason: "why"}}
	if rapid.IntRange(0, 3).Draw(p.t, "evidence") > 0 {
		o.evidence = Used(amount.Tokens(rapid.Int64Range(0, 40).Draw(p.t, "found tokens")), amount.MicroUSD(rapid.Int64Range(0, 30).Draw(p.t, "found cost")))
	}
	if pp.state == StateResolved && rapid.Bool().Draw(p.t, "same finding") {
		o.evidence = pp.resolution
	}
	return &move{task: o, what: func() expected { return p.books.resolve(o) }}
}

func (p *play) unfreezeMove() *move {
	pp := p.known()
	if len(pp.where) == 0 {
		return p.settleMove()
	}
	w := rapid.SampledFrom(pp.where).Draw(p.t, "where")
	o := &unfreezing{account: AccountKey{w.id, w.window}, note: Note{Actor: "op", Reason: "why"}}
	return &move{task: o, what: func() expected { return p.books.unfreeze(o, w.kind.isAccount()) }}
}

// slotsMove renews, takes again or gives back slots of one constraint.
func (p *play) slotsMove() *move {
	pp := p.known()
	i := slices.IndexFunc(pp.where, func(w place) bool { return w.kind == KindConcurrency })
	if i < 0 {
		return p.settleMove()
	}
	id, incarnation := pp.where[i].id, rapid.SampledFrom(incarnations).Draw(p.t, "incarnation")
	switch rapid.IntRange(0, 2).Draw(p.t, "slots") {
	case 0:
		o := &renewal{constraint: id, incarnation: incarnation}
		return &move{task: o, what: func() expected { return p.books.renew(o) }, check: func(e expected) {
			if o.lost != (e.what == "lost") {
				p.t.Fatalf("lost: %v, the model says %s", o.lost, e.what)
			}
		}}
	case 1:
		principal := p.principal()
		o := &regaining{constraint: id, incarnation: incarnation, wanted: rapid.Int64Range(0, 4).Draw(p.t, "wanted"), set: p.g.sets.of(principal), principal: principal}
		var held int64
		return &move{task: o, what: func() (e expected) { e, held = p.books.regain(o); return e }, check: func(e expected) {
			if e.what == "ok" && o.held != held {
				p.t.Fatalf("took %d slots again, the model %d", o.held, held)
			}
		}}
	}
	o := &surrender{constraint: id, incarnation: incarnation, count: rapid.Int64Range(0, 3).Draw(p.t, "count")}
	return &move{task: o, what: func() expected {
		if p.books.taken[id] {
			return no("unavailable")
		}
		e := no("ok")
		for range o.count {
			e.changed = p.books.give(id, incarnation) || e.changed
		}
		return e
	}}
}

// grant hands authority of an account to a node, which happens elsewhere.
func (p *play) grant() {
	var accounts []AccountKey
	for key, c := range p.shelf.cells {
		if c.kind.isAccount() {
			accounts = append(accounts, key)
		}
	}
	if len(accounts) == 0 {
		return
	}
	slices.SortFunc(accounts, AccountKey.Compare)
	key := rapid.SampledFrom(accounts).Draw(p.t, "granted account")
	c := p.shelf.cells[key]
	c.account.Granted = rapid.Int64Range(0, 30).Draw(p.t, "granted")
	p.shelf.cells[key], p.books.granted[key] = c, c.account.Granted
}

// transaction runs a few moves together.
func (p *play) transaction() {
	clear(p.books.taken)
	if rapid.IntRange(0, 5).Draw(p.t, "contended") == 0 {
		for _, id := range slices.SortedFunc(maps.Keys(p.shelf.windows), func(a, b ConstraintID) int { return bytes.Compare(a[:], b[:]) }) {
			if rapid.IntRange(0, 3).Draw(p.t, "taken") == 0 {
				p.books.taken[id] = true
			}
		}
	}
	moves := make([]*move, rapid.IntRange(1, 5).Draw(p.t, "moves"))
	tasks := make([]task, len(moves))
	for i := range moves {
		kinds := []func() *move{p.admitMove}
		if len(p.permits) > 0 {
			kinds = []func() *move{
				p.admitMove, p.admitMove, p.admitMove, p.settleMove, p.settleMove, p.settleMove,
				p.raiseMove, p.raiseMove, p.resolveMove, p.unfreezeMove, p.slotsMove,
			}
		}
		moves[i] = kinds[rapid.IntRange(0, len(kinds)-1).Draw(p.t, "kind")]()
		tasks[i] = moves[i]
	}
	if err := p.g.carry(context.Background(), tasks, false); err != nil {
		p.t.Fatalf("the transaction failed: %v", err)
	}
	for i, m := range moves {
		e := m.what()
		have := nameOf(m.failed())
		if e.what == "lost" {
			e.what = "ok"
			if m.check != nil {
				m.check(no("lost"))
			}
			m.check = nil
		}
		if have != e.what {
			p.t.Fatalf("move %d (%T): %s (%v), the model says %s", i, m.task, have, m.failed(), e.what)
		}
		if !e.changed && !m.after.sameAs(m.before) {
			p.t.Fatalf("move %d (%T): %s, and yet something changed:\n%+v\n%+v", i, m.task, have, m.before, m.after)
		}
		if m.check != nil {
			m.check(e)
		}
	}
	p.compare()
}

// compare checks that the shelf holds what the model does.
func (p *play) compare() {
	p.t.Helper()
	for key, have := range p.shelf.cells {
		c := p.shelf.cell(key)
		switch {
		case c.Kind.isAccount():
			if want := p.books.sum(key, c.Kind); have.account != want {
				p.t.Fatalf("account %v holds %+v, its permits add up to %+v", key, have.account, want)
			}
		case c.Kind.isRate():
			want, err := p.books.bucket(key.Constraint).AppendBinary(nil)
			if err != nil || have.state != string(want) {
				p.t.Fatalf("bucket %v holds % x, the model % x (%v)", key, have.state, want, err)
			}
		default:
			var want Slots
			for _, id := range slices.Sorted(maps.Keys(p.books.slots[key.Constraint])) {
				s := p.books.slots[key.Constraint][id]
				want.Holders = append(want.Holders, SlotHolder{id, s.count, s.expires})
			}
			if have.state != string(want.AppendBinary(nil)) {
				p.t.Fatalf("slots %v hold %+v, the model %+v", key, c.Slots, want)
			}
		}
		if c.Kind != KindConcurrency && !c.Kind.isRate() && p.shelf.windows[key.Constraint].Start < key.WindowStart {
			p.t.Fatalf("account %v is ahead of its constraint's window", key)
		}
	}
	if !maps.Equal(p.shelf.windows, p.books.windows) {
		p.t.Fatalf("windows %v, the model %v", p.shelf.windows, p.books.windows)
	}
	if len(p.shelf.permits) != len(p.books.permits) {
		p.t.Fatalf("%d permits, the model has %d", len(p.shelf.permits), len(p.books.permits))
	}
	for id, want := range p.books.permits {
		rec := p.shelf.permits[id]
		flags := rec.Flags
		if rec.State != want.state || rec.Tokens != want.tokens || rec.Cost != want.cost || rec.Outcome != want.outcome || rec.Resolution != want.resolution ||
			(flags&FlagTokensUncertain != 0) != want.tokensOpen || (flags&FlagCostUncertain != 0) != want.costOpen || (flags&FlagFree != 0) != want.free {
			p.t.Fatalf("permit %s is %+v, the model has %+v", id, rec, want)
		}
	}
}

// finish ends a schedule: the audit finds nothing, and everything that is open can
// be ended and leaves nothing reserved.
func (p *play) finish() {
	clear(p.books.taken)
	ctx := context.Background()
	v, err := p.g.Verify(ctx)
	if err != nil || len(v.Differences) > 0 {
		p.t.Fatalf("Verify: %+v, %v", v, err)
	}
	for _, pp := range p.permits {
		if pp.state != StateOpen {
			continue
		}
		o := &settlement{id: pp.id, owner: pp.owner, terms: p.terms[pp.id], outcome: Used(1, 1)}
		p.g.transact(ctx, []task{o})
		if e := p.books.settle(o); o.err != nil || e.what != "ok" {
			p.t.Fatalf("permit %s cannot be settled: %v", pp.id, o.err)
		}
	}
	p.compare()
	for key, c := range p.shelf.cells {
		if c.account.Reserved != 0 {
			p.t.Fatalf("account %v still has %d reserved", key, c.account.Reserved)
		}
	}
}

// No schedule of admissions, settlements, raises, resolutions, slots, edits, clocks
// and contended rows makes the code and the naive model differ: in an answer, in a
// refusal, in what is stored.
func TestPropertyDecisionsAreTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlay(t)
		defer func() {
			if r := recover(); r != nil {
				if m, ok := r.(misuse); ok {
					t.Fatalf("the store was misused: %s", string(m))
				}
				panic(r)
			}
		}()
		for range rapid.IntRange(1, 14).Draw(t, "transactions") {
			if rapid.IntRange(0, 5).Draw(t, "edit") == 0 {
				p.edit()
			}
			if rapid.IntRange(0, 9).Draw(t, "grant") == 0 {
				p.grant()
			}
			p.tick()
			p.transaction()
		}
		p.finish()
	})
}
