package journal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
)

// Take implements escrow.Ledger. It brings in grants, denials and receipts of the
// heartbeat h, and commits before anything of it can be used.
//
// Time: deadlines are counted from sent, on the monotonic clock. A replay never moves one back.
// Errors: ErrInvalid for an answer that does not belong to this boot, escrow.ErrIncompatible
// for one of another authority, and those of Settle.
func (j *Journal) Take(ctx context.Context, h *escrow.Heartbeat, a *escrow.Answer, sent time.Time) error {
	if h == nil || a == nil || h.Boot != j.boot {
		return invalid("heartbeat", "is not of this boot")
	}
	j.mu.RLock()
	msg, known := j.beat.sent[h.Sequence]
	j.mu.RUnlock()
	if !known {
		return nil // it was answered before, or a later one was
	}
	t := &taking{j: j, h: h, a: a, sent: sent, msg: msg, deadlines: map[escrow.GrantID]time.Time{}}
	if err := j.step(ctx, &Plan{Everything: true}, t.decide); err != nil {
		return err
	}
	t.remember()
	return nil
}

type taking struct {
	j         *Journal
	h         *escrow.Heartbeat
	a         *escrow.Answer
	sent      time.Time
	msg       message
	deadlines map[escrow.GrantID]time.Time
	rest      bool // something was left to say
}

// current are the accounts that the answer defines.
func (t *taking) current() map[escrow.Account]escrow.Definition {
	defs := make(map[escrow.Account]escrow.Definition, len(t.a.Definitions))
	for _, d := range t.a.Definitions {
		defs[d.Account] = d
	}
	return defs
}

func (t *taking) decide(b *Book) error {
	switch theirs := t.a.Mark.Namespace; {
	case theirs == b.meta.Namespace || theirs.IsZero():
	case !b.meta.Namespace.IsZero():
		return fmt.Errorf("%w: it is authority %s, and this journal holds what %s granted", escrow.ErrIncompatible, theirs, b.meta.Namespace)
	default:
		b.meta.Namespace, b.moved = theirs, true
	}
	defs := t.current()
	for i := range t.a.Grants {
		if err := t.grant(b, &t.a.Grants[i]); err != nil {
			return err
		}
	}
	for i := range t.a.Denials {
		if k, ok := b.byID[t.a.Denials[i].ID]; ok && b.lines[k].Asked && b.lines[k].Ending == escrow.Open {
			b.dropped = append(b.dropped, t.a.Denials[i].ID)
		}
	}
	for _, r := range t.a.Receipts {
		t.receipt(b, &r, defs)
	}
	if t.msg.complete && t.msg.ended > b.meta.Acked {
		b.meta.Acked, b.moved = t.msg.ended, true
	}
	b.prune(int64(t.j.options.Receipts))
	b.version()
	for i := range b.lines {
		t.rest = t.rest || (b.lines[i].Pending() && !slices.Contains(b.dropped, b.lines[i].ID))
	}
	return nil
}

// grant turns what was asked for into authority.
func (t *taking) grant(b *Book, g *escrow.Grant) error {
	i, ok := b.byID[g.ID]
	if !ok {
		return nil // ended, receipted and forgotten: a replay brings nothing back
	}
	l := &b.lines[i]
	switch {
	case l.Account != g.Account || l.Meter:
		return invalid("grants", "has one for another account than was asked for")
	case l.Ending != escrow.Open:
		return nil // given up: its report is on its way
	case !l.Asked && l.Amount != g.Amount:
		return invalid("grants", "has one that was of another amount before")
	case l.Asked && (g.Amount <= 0 || g.Amount > l.Amount):
		return invalid("grants", "has one of an amount that was not asked for")
	}
	if l.Asked {
		l.Asked, l.Amount = false, g.Amount
	}
	t.deadlines[g.ID] = t.a.Deadline(g.ExpiresAt, t.sent)
	return nil
}

func (t *taking) receipt(b *Book, r *escrow.Receipt, defs map[escrow.Account]escrow.Definition) {
	i, ok := b.byID[r.Grant]
	if !ok {
		return
	}
	l := &b.lines[i]
	if told, said := t.msg.versions[r.Grant]; said && told > l.Acked && told <= l.Version {
		l.Acked = told
	}
	gone := r.Ending != escrow.Open || r.Late
	if !l.Meter && gone && l.Ending == escrow.Open {
		// It ended there by another hand: nothing more is reserved from it.
		l.Ending = escrow.Burned
	}
	_, defined := defs[l.Account]
	switch {
	case l.Reserved > 0:
	case !l.Meter && l.Ending != escrow.Open && gone && (l.Acked == l.Version || r.Late):
		b.dropped = append(b.dropped, l.ID)
	case l.Meter && l.Acked == l.Version && (l.Ending != escrow.Open || !defined):
		b.dropped = append(b.dropped, l.ID)
	}
}

// prune forgets reservations that ended, that the authority was told of and that are more
// than are kept; a bounded number at a time.
func (b *Book) prune(keep int64) {
	const most = 4096
	upTo := min(b.meta.Acked, b.meta.Ended-keep, b.meta.Forgotten+most)
	if upTo > b.meta.Forgotten {
		b.forget, b.meta.Forgotten, b.moved = upTo, upTo, true
	}
}

// remember keeps what no store does, after the commit.
func (t *taking) remember() {
	j := t.j
	now := j.options.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, deadline := range t.deadlines {
		if old, ok := j.deadlines[id]; !ok || deadline.Before(old) {
			j.deadlines[id] = deadline
		}
		delete(j.beat.requests, id)
	}
	for _, r := range t.h.Requests {
		delete(j.denied, r.Account)
	}
	for _, d := range t.a.Denials {
		if r, ok := j.beat.requests[d.ID]; ok {
			if d.Reason != escrow.Over { // that says something of the id, not of the account
				j.denied[r.Account] = j.denied[r.Account].or(denial{d, r.Least})
			}
			delete(j.beat.requests, d.ID)
		}
	}
	for s := range j.beat.sent {
		if s <= t.h.Sequence {
			delete(j.beat.sent, s)
		}
	}
	j.beat.answered, j.beat.mark, j.beat.definitions = t.h.Sequence, t.a.Mark, t.current()
	j.beat.answeredAll = !t.rest
	j.beat.clock, j.beat.read = t.a.Now, t.sent
	for a, d := range maps.Clone(j.demands) {
		def, ok := j.beat.definitions[a]
		if !ok {
			// In the budget's next window as much will be needed as in this one.
			delete(j.demands, a)
			next, goes := t.successor(a)
			if !goes || j.demands[next] != nil {
				continue
			}
			j.demands[next], def = d, j.beat.definitions[next]
			j.wake()
		}
		d.roll(now, def.Grant, def.Renew)
	}
	for a, d := range j.denied {
		if def, ok := j.beat.definitions[a]; !ok || d.outdated(&def, t.budget(a)) {
			delete(j.denied, a)
		}
	}
	for _, r := range t.h.Requests {
		if d := j.demands[r.Account]; d != nil {
			d.served()
		}
	}
}

// budget is how an account stands by the answer; nil where it does not say.
func (t *taking) budget(a escrow.Account) *escrow.Budget {
	for i := range t.a.Definitions {
		if i < len(t.a.Budgets) && t.a.Definitions[i].Account == a {
			return &t.a.Budgets[i]
		}
	}
	return nil
}

// successor is the account of the same budget in the window that is current now.
func (t *taking) successor(a escrow.Account) (escrow.Account, bool) {
	for i := range t.a.Definitions {
		b := t.a.Definitions[i].Account
		if a.Window = b.Window; a == b {
			return b, true
		}
	}
	return a, false
}
