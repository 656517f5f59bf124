package governance

import (
	"context"
	"errors"
	"sync"
	"time"
)

// slotKeeper keeps the concurrency slots of this Governor's live permits.
type slotKeeper struct {
	g *Governor

	mu          sync.Mutex
	incarnation uint64 // under which new permits take slots
	groups      map[slotGroupKey]*slotGroup
	started     bool
}

type slotGroupKey struct {
	constraint  ConstraintID
	incarnation uint64
}

type slotGroup struct {
	limit   int64
	team    string
	permits map[*Permit]struct{}
}

func (k *slotKeeper) init(g *Governor) {
	k.g, k.incarnation, k.groups = g, randomIncarnation(), map[slotGroupKey]*slotGroup{}
}

func (k *slotKeeper) current() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.incarnation
}

// track remembers a permit that took slots, and starts the renewal.
func (k *slotKeeper) track(p *Permit, set *constraintSet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range p.terms.holds {
		h := &p.terms.holds[i]
		if h.kind != KindConcurrency {
			continue
		}
		key := slotGroupKey{h.constraint, p.terms.incarnation}
		group := k.groups[key]
		if group == nil {
			group = &slotGroup{team: p.terms.teamID, permits: map[*Permit]struct{}{}}
			k.groups[key] = group
		}
		if c := set.find(h.constraint); c != nil {
			group.limit = c.Limit
		}
		group.permits[p] = struct{}{}
	}
	if !k.started && !k.g.isClosed() {
		k.started = true
		k.g.work.Add(1)
		go k.loop()
	}
}

// forget drops a permit that ended.
func (k *slotKeeper) forget(p *Permit) {
	if p.terms.incarnation == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, group := range k.groups {
		delete(group.permits, p)
		if len(group.permits) == 0 {
			delete(k.groups, key)
		}
	}
}

func (k *slotKeeper) loop() {
	defer k.g.work.Done()
	ticker := time.NewTicker(k.g.options.RenewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-k.g.stop:
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), k.g.options.StepTimeout)
		if err := k.renewAll(ctx, nil); err != nil && !errors.Is(err, ErrClosed) {
			k.g.options.Logger.Warn("governance: concurrency slots were not renewed", "error", err)
		}
		cancel()
	}
}

// renewAll renews the groups of the terms, or of all permits when nil: once per
// row for all its live permits.
func (k *slotKeeper) renewAll(ctx context.Context, only *terms) error {
	k.mu.Lock()
	var due []*renewal
	var teams []string
	for key, group := range k.groups {
		if only != nil && !only.hasConstraint(key.constraint) {
			continue
		}
		due = append(due, &renewal{
			constraint: key.constraint, incarnation: key.incarnation, next: randomIncarnation(),
			wanted: int64(len(group.permits)), limit: group.limit, team: group.team,
		})
		teams = append(teams, group.team)
	}
	k.mu.Unlock()
	var failed error
	for i, o := range due {
		if err := k.g.lane(teams[i]).run(ctx, o); err != nil {
			failed = err
			continue
		}
		if o.err != nil {
			failed = o.err
			continue
		}
		if o.lost {
			k.moved(ctx, o)
		}
	}
	return failed
}

// moved follows a loss: as many permits as got a slot again go on with it, the
// others without.
func (k *slotKeeper) moved(ctx context.Context, o *renewal) {
	k.mu.Lock()
	old := slotGroupKey{o.constraint, o.incarnation}
	group := k.groups[old]
	delete(k.groups, old)
	if k.incarnation == o.incarnation {
		k.incarnation = o.next
	}
	left := o.held
	if group != nil {
		kept := &slotGroup{limit: group.limit, team: group.team, permits: map[*Permit]struct{}{}}
		for p := range group.permits {
			incarnation := uint64(0)
			if left > 0 {
				left--
				incarnation = o.next
				kept.permits[p] = struct{}{}
			}
			p.setSlot(o.constraint, incarnation)
		}
		if len(kept.permits) > 0 {
			k.groups[slotGroupKey{o.constraint, o.next}] = kept
		}
	}
	k.mu.Unlock()
	if left > 0 { // some permits ended meanwhile: their new slots have no owner
		surplus := &surrender{constraint: o.constraint, incarnation: o.next, count: left, team: o.team}
		_ = k.g.lane(o.team).run(ctx, surplus) // after a failure they expire by themselves
	}
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

// surrender gives back slots that have no permit any more.
type surrender struct {
	constraint  ConstraintID
	incarnation uint64
	count       int64
	team        string
	err         error
}

func (o *surrender) plan(p *planner) { p.constraints = append(p.constraints, o.constraint) }
func (o *surrender) decide(s *sheet) {
	i, ok := s.position(o.constraint)
	if !ok || !s.current[i].locked {
		o.err = ErrUnavailable
		return
	}
	w := &s.current[i]
	for range o.count {
		if w.Slots.release(o.incarnation) {
			w.dirty = true
		}
	}
}
func (o *surrender) fail(err error)      { o.err = err }
func (o *surrender) failed() error       { return o.err }
func (o *surrender) subject() string     { return o.team }
func (o *surrender) patient() bool       { return true }
func (o *surrender) abandoned(*Governor) {}

func (o *renewal) plan(p *planner)     { p.constraints = append(p.constraints, o.constraint) }
func (o *renewal) decide(s *sheet)     { s.renew(o) }
func (o *renewal) fail(err error)      { o.err = err }
func (o *renewal) failed() error       { return o.err }
func (o *renewal) subject() string     { return o.team }
func (o *renewal) patient() bool       { return true }
func (o *renewal) abandoned(*Governor) {}
