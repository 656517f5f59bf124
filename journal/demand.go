package journal

import (
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// draw is what one transaction took of an account, and what it had to refuse.
type draw struct {
	taken   amount.MicroUSD // reserved, less what came back
	largest amount.MicroUSD // of the needs
	short   amount.MicroUSD // refused, in all
	most    amount.MicroUSD // of what was refused
	least   amount.MicroUSD
	lacking bool
}

func (b *Book) draw(a escrow.Account, add func(*draw)) {
	if b.drawn == nil {
		b.drawn = map[escrow.Account]draw{}
	}
	d := b.drawn[a]
	add(&d)
	b.drawn[a] = d
}

// demand estimates what an account will need in one interval of renewal. It is a
// guess: it sizes requests, and nothing that is enforced depends on it.
type demand struct {
	flow  amount.MicroUSD // estimate per interval, of the intervals that are over
	draw                  // of the interval that goes on
	since time.Time
}

// mostSum keeps estimates where they can be doubled and added.
const mostSum = amount.MicroUSD(1) << 55

func (d *demand) add(x draw) {
	d.taken = max(-mostSum, min(d.taken+max(-mostSum, min(x.taken, mostSum)), mostSum))
	d.short = min(d.short+min(max(x.short, 0), mostSum), mostSum)
	d.largest, d.most = max(d.largest, min(x.largest, mostSum)), max(d.most, min(x.most, mostSum))
	if x.lacking && (!d.lacking || x.least < d.least) {
		d.lacking, d.least = true, min(x.least, mostSum)
	}
}

// current is the estimate with what is known of the interval that goes on. Who was
// refused comes back, again and again: what was refused counts up to a few times what
// else is known to be needed.
func (d *demand) current(grant amount.MicroUSD) amount.MicroUSD {
	refused := min(d.short, max(2*d.flow, 4*min(grant, mostSum), d.most))
	return max(d.flow, max(0, d.taken)+refused)
}

// roll ends the interval when it has lasted long enough to say something.
func (d *demand) roll(now time.Time, grant amount.MicroUSD, renew time.Duration) {
	elapsed := now.Sub(d.since)
	if d.since.IsZero() {
		d.since = now
		return
	}
	if elapsed < renew/2 {
		return
	}
	seen := min(max(0, d.taken)+min(d.short, max(2*d.flow, 4*min(grant, mostSum), d.most)), mostSum)
	if elapsed > renew && renew > 0 { // a long interval counts for one of the usual length
		if scaled, err := amount.MulDivUp(seen, int64(renew), int64(elapsed)); err == nil {
			seen = scaled
		}
	}
	if seen >= d.flow {
		d.flow = seen
	} else {
		d.flow = (d.flow + seen) / 2
	}
	d.draw, d.since = draw{}, now
}

// served forgets what was refused: the authority has answered.
func (d *demand) served() { d.most, d.least, d.lacking = 0, 0, false }

// idle reports whether nothing is needed and was not for a while.
func (d *demand) idle() bool { return d.flow == 0 && d.taken <= 0 && d.short == 0 && !d.lacking }

// target is how much should be there to last for two intervals.
func (d *demand) target(grant amount.MicroUSD) amount.MicroUSD {
	if d.idle() {
		return 0
	}
	return max(2*d.current(grant), min(grant, mostSum), d.most)
}

// want is what to ask for when so much is held or asked for already; zero: nothing.
func (d *demand) want(held, grant amount.MicroUSD) (ask, least amount.MicroUSD) {
	target := d.target(grant)
	enough := held >= target/2 && held >= d.most
	if enough && (held > 0 || !d.lacking) { // a need of nothing lacks a grant that it can be charged to
		return 0, 0
	}
	ask = max(1, target-held, min(grant, mostSum))
	need := d.largest
	if d.lacking {
		need = d.least // the smallest of those who wait is helped already
	}
	return ask, min(ask, max(1, need-held))
}

// mostPieces bounds the requests for one account in one heartbeat.
const mostPieces = 16

// pieces divides what to ask for into grants, since an authority gives no more than one for
// a request, unless a single attempt needs more.
func pieces(ask, least, grant amount.MicroUSD) (list []amount.MicroUSD) {
	for size := max(least, min(ask, max(grant, 1))); ask > 0 && len(list) < mostPieces; size = min(ask, max(grant, 1)) {
		list = append(list, size)
		ask -= size
	}
	return list
}

// spare reports what is far too much: four times what is wanted.
func (d *demand) spare(held, grant amount.MicroUSD) bool {
	target := d.target(grant)
	return held > 0 && held/4 > target
}

// crumbs gives back what is too little for everybody who waits, where the authority has no room
// for more: several nodes that each keep a rest would keep each other from the sum of it, and
// none of them would hear that the budget is spent.
func (p *pen) crumbs(b *Book) {
	p.j.mu.RLock()
	defer p.j.mu.RUnlock()
	for a, denial := range p.j.denied {
		d := p.j.demands[a]
		if denial.Reason != escrow.NoRoom || d == nil || !d.lacking || d.taken > 0 {
			continue
		}
		if held, _ := b.free(a); held >= d.least {
			continue
		}
		for _, i := range b.open[a] {
			if l := &b.lines[i]; !l.Meter && l.Reserved == 0 && l.Ending == escrow.Open {
				l.Ending = escrow.Closed
			}
		}
	}
}

// denial is what the authority last said of asking for more of an account, and of how much.
type denial struct {
	escrow.Denial
	least amount.MicroUSD
}

// or is what to go by of two denials by one answer: that the rest is spent is true of all that need as much.
func (d denial) or(other denial) denial {
	if d.Reason == escrow.Spent && (other.Reason == escrow.NoRoom || other.Reason == escrow.Spent && other.least >= d.least) {
		return d
	}
	return other
}

// of is the reason for a need. That there is not as much as was asked for does not say that there is no less.
func (d denial) of(need amount.MicroUSD) escrow.DenialReason {
	if d.Reason == escrow.Spent && need < d.least {
		return escrow.NoRoom
	}
	return d.Reason
}

// outdated reports whether the account stands otherwise by now: an operator raised its limit, or released it.
func (d denial) outdated(def *escrow.Definition, b *escrow.Budget) bool {
	switch {
	case b == nil:
		return false
	case d.Reason == escrow.Frozen:
		return !b.Frozen
	}
	return d.Reason == escrow.Spent && def.Limit-b.Consumed-b.Uncertain >= d.least
}

// theirs is the time by the authority's clock, never ahead of it. It refuses ids that lie
// ahead, and takes those that are long past for forgotten: a node's own clock may be wrong
// by any amount.
func (j *Journal) theirs() time.Time {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.beat.theirs(j.options.Now())
}

func (t *beat) theirs(now time.Time) time.Time {
	if t.clock == 0 {
		return now
	}
	return time.UnixMicro(t.clock).Add(now.Sub(t.read))
}
