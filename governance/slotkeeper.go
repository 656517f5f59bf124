package governance

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// slotKeeper keeps the concurrency slots of this Governor's live permits: once per
// constraint for all of them.
type slotKeeper struct {
	g *Governor

	mu          sync.Mutex
	incarnation uint64 // under which new permits take slots
	spare       uint64 // under which they do when that one may have expired somewhere
	sign        int64  // every slot of the incarnation was taken or renewed at this time (store's clock, µs) or later; never used: the end of time
	groups      map[slotGroupKey]*slotGroup
	owed        []*surrender // slots without a permit that could not be given back yet
	started     bool
}

type slotGroupKey struct {
	constraint  ConstraintID
	incarnation uint64
}

type slotGroup struct {
	sign    int64
	permits map[*Permit]struct{}
	ending  int // slots of permits whose end is on its way to the store, for however long
}

func (g *slotGroup) empty() bool { return len(g.permits) == 0 && g.ending == 0 }

// slotTicket says under which incarnation an admission takes slots.
type slotTicket struct {
	incarnation uint64
	until       int64  // from this moment on, by the store's clock,
	spare       uint64 // under this one
}

// at returns the incarnation at the moment. One that may have expired in any
// constraint is never used again: its old permits would lend their names to
// slots that they have lost.
func (t *slotTicket) at(now int64) uint64 {
	if now < t.until {
		return t.incarnation
	}
	return t.spare
}

func (k *slotKeeper) init(g *Governor) {
	k.g, k.groups = g, map[slotGroupKey]*slotGroup{}
	k.use(randomIncarnation())
}

func (k *slotKeeper) ticket() slotTicket {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slotTicket{incarnation: k.incarnation, until: min(k.sign, math.MaxInt64-slotLife.Microseconds()) + slotLife.Microseconds(), spare: k.spare}
}

// track remembers a permit that took slots, and starts the renewal.
func (k *slotKeeper) track(p *Permit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.terms.incarnation == k.spare {
		k.use(k.spare)
	}
	for i := range p.terms.holds {
		if h := &p.terms.holds[i]; h.kind == KindConcurrency {
			k.join(slotGroupKey{h.constraint, p.terms.incarnation}, p, p.at)
		}
	}
	if !k.started {
		k.started = k.g.spawn(k.loop)
	}
}

// use makes an incarnation that has no permit yet the one of new permits.
func (k *slotKeeper) use(incarnation uint64) {
	k.incarnation, k.spare, k.sign = incarnation, randomIncarnation(), math.MaxInt64
}

func (k *slotKeeper) join(key slotGroupKey, p *Permit, sign int64) {
	k.group(key, sign).permits[p] = struct{}{}
}

// group returns a group one of whose slots was taken at the moment.
func (k *slotKeeper) group(key slotGroupKey, sign int64) *slotGroup {
	group := k.groups[key]
	if group == nil {
		group = &slotGroup{permits: map[*Permit]struct{}{}}
		k.groups[key] = group
	}
	group.sign = max(group.sign, sign)
	if key.incarnation == k.incarnation {
		k.sign = min(k.sign, sign)
	}
	return group
}

// forget drops a permit that is about to end, and returns under which incarnations
// it has slots, where those differ from the captured one. Its slots are ending until
// the end is recorded: while it is not, it may still give back a slot in the name of
// their incarnation, which must not come back to life there once it has expired.
func (k *slotKeeper) forget(p *Permit) (moved map[ConstraintID]uint64, ending []slotGroupKey) {
	if p.terms.incarnation == 0 {
		return nil, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.terms.holds {
		h := &p.terms.holds[i]
		if h.kind != KindConcurrency {
			continue
		}
		incarnation, moved := p.slots[h.constraint]
		if !moved {
			incarnation = p.terms.incarnation
		}
		key := slotGroupKey{h.constraint, incarnation}
		group := k.groups[key]
		if group == nil {
			continue
		}
		if _, member := group.permits[p]; member {
			delete(group.permits, p)
			group.ending++
			ending = append(ending, key)
		}
	}
	return p.slots, ending
}

// orphan is forget for a permit that nobody received, admitted at the moment.
func (k *slotKeeper) orphan(t *terms, at int64) (ending []slotGroupKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range t.holds {
		if h := &t.holds[i]; h.kind == KindConcurrency {
			key := slotGroupKey{h.constraint, t.incarnation}
			k.group(key, at).ending++
			ending = append(ending, key)
		}
	}
	return ending
}

// ended says that nothing gives these slots back any more.
func (k *slotKeeper) ended(list []slotGroupKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range list {
		group := k.groups[key]
		if group.ending--; group.empty() {
			delete(k.groups, key)
		}
	}
}

func (k *slotKeeper) loop() {
	ticker := time.NewTicker(k.g.options.RenewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-k.g.stop:
			return
		case <-ticker.C:
		}
		if err := k.renewAll(context.Background(), nil); err != nil {
			k.g.options.Logger.Warn("governance: concurrency slots were not renewed", "error", err)
		}
	}
}

// renewAll renews the groups of the terms, or of all permits when nil.
func (k *slotKeeper) renewAll(ctx context.Context, only *terms) error {
	k.mu.Lock()
	var due []task
	for key, group := range k.groups {
		if len(group.permits) == 0 || (only != nil && !only.hasConstraint(key.constraint)) {
			continue
		}
		o := &renewal{constraint: key.constraint, incarnation: key.incarnation, group: group, members: make([]*Permit, 0, len(group.permits))}
		for p := range group.permits {
			o.members = append(o.members, p)
		}
		due = append(due, o)
	}
	for _, o := range k.owed {
		due = append(due, o)
	}
	k.owed = nil
	k.mu.Unlock()
	k.run(ctx, due)
	var failed error
	for _, t := range due {
		var err error
		switch o := t.(type) {
		case *surrender:
			k.repay(o)
		case *renewal:
			if err = o.err; err == nil && o.lost {
				err = k.moveOn(ctx, o)
			}
		}
		if failed == nil {
			failed = err
		}
	}
	k.signed(due)
	return failed
}

// run brings tasks through as few transactions as their number allows.
func (k *slotKeeper) run(ctx context.Context, tasks []task) {
	for len(tasks) > 0 {
		n := min(len(tasks), k.g.options.BatchLimit)
		step, cancel := k.g.stepContext(ctx)
		k.g.transact(step, tasks[:n])
		cancel()
		tasks = tasks[n:]
	}
}

// signed notes what was renewed, and since when all slots are known to be alive.
func (k *slotKeeper) signed(due []task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range due {
		if o, ok := t.(*renewal); ok && o.err == nil && !o.lost {
			o.group.sign = max(o.group.sign, o.at)
		}
	}
	sign := int64(math.MaxInt64)
	for key, group := range k.groups {
		if key.incarnation == k.incarnation {
			sign = min(sign, group.sign)
		}
	}
	if sign != math.MaxInt64 {
		k.sign = sign
	}
}

// moveOn follows a loss: as many open permits as get a slot again go on with it, the
// others without.
func (k *slotKeeper) moveOn(ctx context.Context, o *renewal) error {
	regained, err := k.regain(ctx, o)
	if err != nil {
		return err
	}
	k.mu.Lock()
	if k.incarnation == o.incarnation {
		k.use(k.spare)
	}
	left := regained.held
	old := slotGroupKey{o.constraint, o.incarnation}
	for _, p := range o.members {
		if _, alive := o.group.permits[p]; !alive {
			continue // it ended meanwhile
		}
		delete(o.group.permits, p)
		incarnation := uint64(0)
		if left > 0 && !regained.ended[p] {
			left--
			incarnation = regained.incarnation
			k.join(slotGroupKey{o.constraint, incarnation}, p, regained.at)
		}
		p.setSlot(o.constraint, incarnation)
	}
	if o.group.empty() && k.groups[old] == o.group {
		delete(k.groups, old)
	}
	k.mu.Unlock()
	if left > 0 { // some permits ended meanwhile: their new slots have no owner
		surplus := &surrender{constraint: o.constraint, incarnation: regained.incarnation, count: left}
		k.run(ctx, []task{surplus})
		k.repay(surplus)
	}
	return nil
}

// regain takes slots for the members again, under the limit in force. It asks with
// the key of any member that still has one in force.
func (k *slotKeeper) regain(ctx context.Context, o *renewal) (*regaining, error) {
	again := &regaining{constraint: o.constraint, incarnation: randomIncarnation(), members: o.members, wanted: int64(len(o.members))}
	gone := map[string]bool{}
	for _, p := range o.members {
		p.mu.Lock()
		principal := p.principal
		p.mu.Unlock()
		if gone[principal.KeyID] {
			continue
		}
		err := k.g.upToDate(ctx, principal, func(current *keys.Principal, set *constraintSet) error {
			again.principal, again.set = current, set
			k.run(ctx, []task{again})
			return again.err
		})
		var refused *Refusal
		if !errors.As(err, &refused) {
			return again, err
		}
		gone[principal.KeyID] = true
	}
	again.held = 0
	return again, nil // no key is left that may take slots
}

// over follows the end of a permit that was recorded, or never will be. An operator
// who ended it before knew only of the slots that it had captured: what it had again
// since is given back here.
func (k *slotKeeper) over(ctx context.Context, o *settlement, ending []slotGroupKey) {
	k.ended(ending)
	if !errors.Is(o.err, ErrTerminal) {
		return
	}
	for _, key := range ending {
		if incarnation, moved := o.slots[key.constraint]; moved && incarnation == key.incarnation {
			back := &surrender{constraint: key.constraint, incarnation: incarnation, count: 1}
			k.run(ctx, []task{back})
			k.repay(back)
		}
	}
}

// repay keeps a surrender that did not happen for the next renewal. After an
// unknown outcome it is not repeated: it could take another permit's slot.
func (k *slotKeeper) repay(o *surrender) {
	if o.err == nil || errors.Is(o.err, ErrUnknownOutcome) || errors.Is(o.err, ErrCorrupt) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.owed = append(k.owed, o)
}

func (t *terms) hasConstraint(id ConstraintID) bool {
	for i := range t.holds {
		if t.holds[i].constraint == id {
			return true
		}
	}
	return false
}

// setSlot records under which incarnation the permit has its slot of a constraint.
func (p *Permit) setSlot(id ConstraintID, incarnation uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := make(map[ConstraintID]uint64, len(p.slots)+1)
	for k, v := range p.slots {
		moved[k] = v
	}
	moved[id] = incarnation
	p.slots = moved
}
