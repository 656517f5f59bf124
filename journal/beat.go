package journal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// beat is what the journal remembers of its talk with the authority. A restart begins
// anew.
type beat struct {
	sequence    int64
	answered    int64
	mark        policy.Mark
	definitions map[escrow.Account]escrow.Definition
	sent        map[int64]message // by sequence; those above answered
	requests    map[escrow.GrantID]escrow.Request
	leaving     bool
	answeredAll bool // of the last heartbeat that was answered: nothing was left to say
	// The authority's clock, and this one's reading when the heartbeat was sent that told it.
	clock int64 // µs; zero before the first answer
	read  time.Time
}

// message is what one heartbeat told.
type message struct {
	versions map[escrow.GrantID]int64
	complete bool
	ended    int64 // reservations that had ended by then
}

// mostUnanswered bounds the heartbeats that are remembered while no answer comes.
const mostUnanswered = 64

// Ready reports whether the authority has answered this opening: before, nothing is known
// of budgets and nothing is granted.
func (j *Journal) Ready() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.beat.answered > 0
}

// Definitions are the budgets as the last answer had them, in no order.
func (j *Journal) Definitions() []escrow.Definition {
	j.mu.RLock()
	defer j.mu.RUnlock()
	list := make([]escrow.Definition, 0, len(j.beat.definitions))
	for _, d := range j.beat.definitions {
		list = append(list, d)
	}
	return list
}

// Wants implements escrow.Ledger.
func (j *Journal) Wants() <-chan struct{} { return j.wants }

// Fence implements escrow.Ledger: the authority refuses this boot, and nothing is
// reserved any more. What is on its way can still be settled.
func (j *Journal) Fence(_ context.Context, why *escrow.Fenced) error {
	j.end(&FencedError{why})
	return nil
}

// Next implements escrow.Ledger: it closes what is past its deadline, far too much or no
// longer defined, asks for what will be needed, and says all that the authority has not
// receipted. What it asks for is on the disk first, so that a later opening knows of it.
//
// With leaving, what is still on its way is charged as uncertain, and the rest of every
// grant goes back.
//
// Errors: *FieldError where Options.Node is missing, and those of Settle.
func (j *Journal) Next(ctx context.Context, leaving bool) (*escrow.Heartbeat, error) {
	if j.options.Node == "" {
		return nil, invalid("options.node", "must be given: an authority grants to a node")
	}
	j.mu.Lock()
	if leaving {
		j.beat.leaving = true
		if j.refuse == nil {
			j.refuse = ErrClosed
		}
	}
	leaving = j.beat.leaving
	j.mu.Unlock()
	if leaving {
		j.lane.settled(j)
	}
	p := &pen{j: j, leaving: leaving, now: j.options.Now()}
	err := j.step(ctx, &Plan{Everything: true, OnTheirWay: leaving}, func(b *Book) error {
		p.compose(b)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p.post(), nil
}

// pen writes one heartbeat.
type pen struct {
	j       *Journal
	leaving bool
	now     time.Time
	asked   []escrow.Request // new
	out     *escrow.Heartbeat
	msg     message
	open    []escrow.GrantID // that can still be used, and ones asked for
}

// compose decides inside the transaction.
func (p *pen) compose(b *Book) {
	if p.leaving {
		b.abandon()
	}
	p.tidy(b)
	if !p.leaving {
		p.ask(b)
	}
	b.version()
	p.out = &escrow.Heartbeat{Node: b.meta.Node, Boot: p.j.boot, BootNumber: b.meta.Number}
	p.msg = message{versions: map[escrow.GrantID]int64{}, complete: true, ended: b.meta.Ended}
	for i := range b.lines {
		l := &b.lines[i]
		if slices.Contains(b.dropped, l.ID) {
			continue
		}
		if l.Ending == escrow.Open && !l.Meter {
			p.open = append(p.open, l.ID)
		}
		switch {
		case l.Asked && l.Ending == escrow.Open, !l.Pending():
			continue
		case l.Meter && len(p.out.Meters) < escrow.MaxMeters:
			p.out.Meters = append(p.out.Meters, l.meter())
		case !l.Meter && len(p.out.Reports) < escrow.MaxReports:
			p.out.Reports = append(p.out.Reports, l.report())
		default:
			p.msg.complete = false
			continue
		}
		p.msg.versions[l.ID] = l.Version
	}
	slices.SortFunc(p.out.Reports, func(a, b escrow.Report) int { return bytes.Compare(a.Grant[:], b.Grant[:]) })
	slices.SortFunc(p.out.Meters, func(a, b escrow.Meter) int { return bytes.Compare(a.ID[:], b.ID[:]) })
}

// tidy closes grants of which nothing is reserved and that are of no more use here.
func (p *pen) tidy(b *Book) {
	p.j.mu.RLock()
	defs, answered := p.j.beat.definitions, p.j.beat.answered > 0
	unanswered := maps.Clone(p.j.beat.requests)
	p.j.mu.RUnlock()
	for i := range b.lines {
		l := &b.lines[i]
		if l.Ending != escrow.Open || l.Meter || l.Reserved > 0 {
			continue
		}
		_, defined := defs[l.Account]
		_, waits := unanswered[l.ID]
		switch {
		case l.Asked && !waits: // its heartbeat was never sent: the commit before it was in doubt
			b.dropped = append(b.dropped, l.ID)
		case p.leaving, !waits && (!l.usable || (answered && !defined)):
			l.Ending = escrow.Closed
		}
	}
	if p.leaving {
		return
	}
	p.crumbs(b)
	for a, d := range defs {
		held, list := amount.MicroUSD(0), []int(nil)
		for _, i := range b.open[a] {
			if l := &b.lines[i]; !l.Meter && l.Ending == escrow.Open {
				held = min(held+min(l.Free(), mostFree), mostFree)
				list = append(list, i)
			}
		}
		if held == 0 {
			continue
		}
		p.j.mu.RLock()
		e, target := p.j.demands[a], amount.MicroUSD(0)
		if e == nil {
			e = &demand{}
		}
		far := e.spare(held, d.Grant)
		target = max(e.target(d.Grant), min(d.Grant, mostSum))
		p.j.mu.RUnlock()
		if !far {
			continue
		}
		for _, i := range slices.Backward(list) {
			if l := &b.lines[i]; l.Reserved == 0 && l.Free() > 0 && held-l.Free() >= target {
				held -= l.Free()
				l.Ending = escrow.Closed
			}
		}
	}
}

// ask adds a request for every hard budget of which too little is held.
func (p *pen) ask(b *Book) {
	p.j.mu.RLock()
	defer p.j.mu.RUnlock()
	asked, now := map[escrow.Account]amount.MicroUSD{}, p.j.beat.theirs(p.now)
	n := 0
	for i := range b.lines {
		if l := &b.lines[i]; l.Asked && l.Ending == escrow.Open && !slices.Contains(b.dropped, l.ID) {
			asked[l.Account] = min(asked[l.Account]+min(l.Amount, mostSum), mostSum)
			n++
		}
	}
	accounts := make([]escrow.Account, 0, len(p.j.demands))
	for a := range p.j.demands {
		if d, ok := p.j.beat.definitions[a]; ok && d.Hard {
			accounts = append(accounts, a)
		}
	}
	slices.SortFunc(accounts, compareAccounts)
	for _, a := range accounts {
		if n == escrow.MaxRequests {
			break
		}
		d := p.j.beat.definitions[a]
		held := asked[a]
		for _, i := range b.open[a] {
			// What ends before the next heartbeat or soon after is as good as gone.
			if l := &b.lines[i]; !l.Meter && l.Ending == escrow.Open && l.left > d.Renew {
				held = min(held+min(l.Free(), mostSum), mostSum)
			}
		}
		want, least := p.j.demands[a].want(held, d.Grant)
		if want == 0 {
			continue
		}
		for _, piece := range pieces(want, least, d.Grant) {
			if n == escrow.MaxRequests {
				break
			}
			r := escrow.Request{ID: escrow.NewGrantID(now), Account: a, Amount: piece, Least: min(least, piece)}
			b.add(Grant{ID: r.ID, Account: a, Boot: b.meta.Number, Asked: true, Amount: piece, Version: 1, Acked: 1}, true)
			p.asked = append(p.asked, r)
			n++
			if least = 1; p.j.demands[a].lacking { // less than that helps nobody who waits
				least = max(1, min(p.j.demands[a].least, d.Grant))
			}
		}
	}
}

func compareAccounts(a, b escrow.Account) int {
	return cmp.Or(
		cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Subject.Team, b.Subject.Team), cmp.Compare(a.Subject.User, b.Subject.User),
		cmp.Compare(a.Period, b.Period), cmp.Compare(a.Window.Start, b.Window.Start), cmp.Compare(a.Window.End, b.Window.End),
	)
}

// post numbers the heartbeat after its transaction was committed.
func (p *pen) post() *escrow.Heartbeat {
	j := p.j
	j.mu.Lock()
	defer j.mu.Unlock()
	t := &j.beat
	if t.requests == nil {
		t.requests, t.sent = map[escrow.GrantID]escrow.Request{}, map[int64]message{}
	}
	for _, r := range p.asked {
		t.requests[r.ID] = r
	}
	t.sequence++
	h := p.out
	h.Sequence, h.Answered, h.Mark = t.sequence, t.answered, t.mark
	if p.leaving {
		h.Bye = p.msg.complete
		clear(t.requests)
	}
	live := make(map[escrow.GrantID]bool, len(p.open))
	for _, id := range p.open {
		live[id] = true
	}
	for id, r := range t.requests {
		if !live[id] { // denied by an answer whose commit was in doubt: granted now, nobody would know of it
			delete(t.requests, id)
			continue
		}
		h.Requests = append(h.Requests, r)
	}
	// What somebody waits for goes before what only might be needed.
	slices.SortFunc(h.Requests, func(a, b escrow.Request) int {
		return cmp.Or(cmp.Compare(b.Least, a.Least), bytes.Compare(a.ID[:], b.ID[:]))
	})
	t.sent[h.Sequence] = p.msg
	if old := h.Sequence - mostUnanswered; old > 0 {
		delete(t.sent, old)
	}
	for id := range j.deadlines {
		if !live[id] {
			delete(j.deadlines, id)
		}
	}
	return h
}

// settled gives back what nobody was told of, so that it is not charged.
func (l *lane) settled(j *Journal) {
	l.mu.Lock()
	var id ID
	if len(l.orphans) > 0 {
		id = l.orphans[0]
	}
	l.mu.Unlock()
	if id != (ID{}) {
		_ = l.run(context.Background(), j, &call{id: id, outcome: NotSent(), wake: make(chan turn, 1)})
	}
}

// abandon charges what is on its way as uncertain: this process will not hear of it.
func (b *Book) abandon() {
	for i := range b.records {
		r := &b.records[i]
		if r.State != Reserved {
			continue
		}
		for k := range r.Portions {
			if l := b.lineOf(&r.Portions[k]); l != nil {
				l.Reserved -= r.Portions[k].Amount
				l.Uncertain += r.Portions[k].Amount
			}
		}
		b.meta.Ended++
		r.State, r.Number, r.changed, b.moved = Burned, b.meta.Ended, true, true
	}
}

// version raises the versions of what the authority has to be told.
func (b *Book) version() {
	for i := range b.lines {
		if l := &b.lines[i]; !l.made && l.Version == l.was.Version && !told(&l.Grant, &l.was) {
			l.Version++
		}
	}
}

// Said reports whether the authority has receipted all that the last answered heartbeat
// found to say, which is what a node that leaves waits for.
func (j *Journal) Said() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.beat.answeredAll && errors.Is(j.refuse, ErrClosed)
}
