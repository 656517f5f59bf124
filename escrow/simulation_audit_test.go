package escrow_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

var noContext = context.Background()

// edit changes the limit, and makes the budget soft or hard again. Nothing that was
// issued is revoked.
func (w *world) edit() {
	w.limit = w.rng.Int64N(4)
	hard := w.rng.IntN(6) > 0
	if w.limit == 0 {
		w.limit = 1
	}
	account := w.definitions()[0].Account
	w.limits[account] = true
	w.authority.edit(w.policies(hard))
}

// upset crashes a process, and what follows from it: it comes back, or an older copy of its
// journal does, perhaps beside it; or the journal is lost.
func (w *world) upset() {
	if len(w.nodes) == 0 || w.rng.IntN(3) == 0 {
		if len(w.dead) > 0 {
			c := w.dead[0]
			w.dead = w.dead[1:]
			w.open(c.name, c.journal)
		}
		return
	}
	i := w.rng.IntN(len(w.nodes))
	n := w.nodes[i]
	copied := corpse{n.name, n.journal.clone()}
	switch p := w.rng.IntN(10); {
	case p < 3 && w.restores:
		w.copies = append(w.copies, copied)
		return
	case p < 5 && len(w.copies) > 0: // beside whoever runs
		c := w.copies[0]
		w.copies = w.copies[1:]
		w.open(c.name, c.journal)
		return
	}
	w.nodes = slices.Delete(w.nodes, i, i+1)
	n.attempts, n.out = nil, nil
	if w.rng.IntN(8) == 0 {
		w.lost[n.name] = true
		w.ids++
		w.open(fmt.Sprintf("new-%d", w.ids), &simJournal{})
		return
	}
	w.dead = append(w.dead, copied)
}

// operate is an operator who burns a grant that nobody can spend from any more, and finds out
// what was used of it.
func (w *world) operate() {
	for id, r := range w.authority.records {
		if (r.Meter && r.Ending == escrow.Open) || r.ExpiresAt > w.now+w.skew {
			continue // an older process may not know yet that it was burned
		}
		if r.Ending == escrow.Open {
			if err := w.authority.operate(id, escrow.Held.Burn); err != nil {
				w.failf("burning %s: %v", id, err)
			}
			n := w.naive[id]
			n.perhaps, n.out, n.ended = n.perhaps+n.out, 0, true
		}
		n := w.naive[id]
		uncertain, used := n.perhaps-n.looked, max(w.spentOf[id]-n.used-n.found, 0)
		err := w.authority.operate(id, func(h escrow.Held) (escrow.Held, escrow.Delta, error) {
			return h.Resolve(amount.MicroUSD(uncertain), amount.MicroUSD(used))
		})
		if err != nil {
			w.failf("resolving %s: %v", id, err)
		}
		n.looked, n.found = n.looked+uncertain, n.found+used
		break
	}
	w.audit()
}

// heard follows a heartbeat that was taken, naively.
func (w *world) heard(h *escrow.Heartbeat, a *escrow.Answer) {
	for i, r := range h.Reports {
		n := w.naive[r.Grant]
		late := a.Receipts[i].Late
		if n == nil {
			if !late {
				w.failf("a grant that never was has a receipt %+v", a.Receipts[i])
			}
			continue
		}
		if n.ended {
			continue
		}
		if late {
			w.failf("an open grant has a late receipt")
		}
		n.used, n.perhaps = int64(r.Consumed), int64(r.Uncertain)
		n.out = max(n.amount-n.used-n.perhaps, 0)
		switch r.Ending {
		case escrow.Closed:
			n.back, n.out, n.ended = n.out, 0, true
		case escrow.Burned:
			n.perhaps, n.out, n.ended = n.perhaps+n.out, 0, true
		}
	}
	for _, m := range h.Meters {
		n := w.naive[m.ID]
		if n == nil {
			n = &naive{node: h.Node, account: m.Account, meter: true}
			w.naive[m.ID] = n
		}
		if !n.ended {
			n.used, n.perhaps, n.out = int64(m.Consumed), int64(m.Uncertain), int64(m.Pending)
		}
	}
	for _, g := range a.Grants {
		if n := w.naive[g.ID]; n != nil {
			if n.ended || n.amount != int64(g.Amount) || n.account != g.Account {
				w.failf("grant %s was given again, and not as it was", g.ID)
			}
			continue
		}
		if _, known := w.limitOf[g.Account]; !known {
			w.limitOf[g.Account] = w.limit * 1000
		}
		w.naive[g.ID] = &naive{node: h.Node, account: g.Account, amount: int64(g.Amount), out: int64(g.Amount)}
		s := w.authority.accounts[g.Account]
		if taken := s.Consumed + s.Uncertain + s.Reserved + s.Granted; taken > w.limit*1000 {
			w.failf("%s was issued, and %d is taken of %d", g.ID, taken, w.limit*1000)
		}
	}
}

// unheard demands that a heartbeat which was refused changed nothing, and that the refusal is one
// that this world can lead to.
func (w *world) unheard(before *modelAuthority, err error) {
	after := w.authority
	if !reflect.DeepEqual(before.records, after.records) || !reflect.DeepEqual(before.accounts, after.accounts) || !reflect.DeepEqual(before.nodes, after.nodes) {
		w.failf("a heartbeat that was refused (%v) changed something", err)
	}
	var fenced *escrow.Fenced
	switch {
	case errors.Is(err, escrow.ErrStale):
	case errors.As(err, &fenced) && w.crashes: // see answered
	default:
		w.failf("refused: %v", err)
	}
}

// audit holds the accounts against what was said and what was spent.
func (w *world) audit() {
	type sums struct{ used, perhaps, out, issued, back int64 }
	all := map[escrow.Account]*sums{}
	for _, n := range w.naive {
		s := all[n.account]
		if s == nil {
			s = &sums{}
			all[n.account] = s
		}
		s.used += n.used + n.found
		s.perhaps += n.perhaps - n.looked
		s.out += n.out
		s.issued += n.amount
		s.back += n.back
	}
	for account, s := range all {
		a := w.authority.accounts[account]
		if a.Consumed != s.used || a.Uncertain != s.perhaps || a.Granted != s.out {
			w.failf("%s has %+v, and what was said makes %+v", account.Rule, a.Account, *s)
		}
		if account.Rule != "hard" {
			continue
		}
		if taken := a.Consumed + a.Uncertain + a.Granted; taken < w.spent[account] && !w.overran {
			w.failf("%d was spent and %d is taken", w.spent[account], taken)
		}
		if w.limits[account] || w.overran || w.operators {
			continue
		}
		// Outstanding + consumed + burned + remaining = limit.
		limit := w.limitOf[account]
		if remaining := limit - s.issued + s.back; a.Granted+a.Consumed+a.Uncertain+remaining != limit || remaining < 0 {
			w.failf("%d outstanding, %d consumed, %d uncertain and %d remaining are not %d", a.Granted, a.Consumed, a.Uncertain, remaining, limit)
		}
	}
}

// nothingStranded is for the end: whoever said goodbye left nothing behind, and without crashes
// nothing is uncertain but what was.
func (w *world) nothingStranded() {
	for id, n := range w.naive {
		if n.out > 0 && !w.lost[n.node] && !w.restores {
			w.failf("%d of %s is stranded by %s", n.out, id, n.node)
		}
	}
	if w.crashes || w.overran || w.operators {
		return
	}
	for account, a := range w.authority.accounts {
		if account.Rule == "hard" && a.Consumed > w.spent[account] {
			w.failf("%d is consumed and %d was spent", a.Consumed, w.spent[account])
		}
	}
}
