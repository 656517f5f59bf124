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
				c.dirty[w.Key] = shelve(w.Cell)
			} else if w.Kind != 0 {
				c.clean[w.Key] = shelve(w.Cell)
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
	explained := p.explain(tasks)
	if err := p.g.carry(context.Background(), tasks, false); err != nil {
		p.t.Fatalf("the transaction failed: %v", err)
	}
	if have := nameOf(moves[0].failed()); explained != "" && have != explained {
		p.t.Fatalf("%s, but the dry run said %s", have, explained)
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

// explain asks for a dry run of a lone admission, and calls its answer as nameOf does.
func (p *play) explain(tasks []task) string {
	a, ok := tasks[0].(*move).task.(*admission)
	if len(tasks) > 1 || !ok || !a.minted || len(p.books.taken) > 0 {
		return ""
	}
	e, err := p.g.Explain(context.Background(), *a.request)
	switch {
	case err != nil:
		return nameOf(err)
	case e.Admitted:
		return "ok"
	}
	return nameOf(e.Refusal)
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
			(flags&FlagTokensUncertain != 0) != want.tokensOpen || (flags&FlagCostUncertain != 0) != want.costOpen || flags&(FlagFree|FlagUnpriced) != want.flags {
			p.t.Fatalf("permit %s is %+v, the model has %+v", id, rec, want)
		}
	}
}

// finish ends a schedule: the audit finds nothing, and everything that is open can
// be ended and leaves nothing reserved.
func (p *play) finish() {
	clear(p.books.taken)
	for key, c := range p.shelf.cells { // what was granted here has no permits that Verify could add up
		c.account.Granted = 0
		p.shelf.cells[key] = c
	}
	clear(p.books.granted)
	ctx := context.Background()
	v, err := p.g.Verify(ctx, VerifyQuery{})
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
