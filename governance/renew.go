package governance

import "github.com/tallystick-go/tallystick/keys"

// renewal keeps the concurrency slots of one incarnation in one constraint.
type renewal struct {
	constraint  ConstraintID
	incarnation uint64
	group       *slotGroup
	members     []*Permit // the live permits whose slots they are

	at   int64 // when, by the store's clock
	lost bool  // the incarnation had expired
	err  error
}

// renew extends all slots of the incarnation at once.
//
// Source: internal/docs/guarantees.md "Concurrency".
func (s *sheet) renew(o *renewal) {
	w, err := s.slotsOf(o.constraint)
	if err != nil {
		o.err = err
		return
	}
	o.at = s.now
	o.lost = !w.Slots.renew(o.incarnation, s.now)
	w.dirty = w.dirty || !o.lost
}

// slotsOf returns the cell of a concurrency limit.
func (s *sheet) slotsOf(id ConstraintID) (*cell, error) {
	i, ok := s.position(id)
	if !ok || !s.current[i].locked {
		return nil, ErrUnavailable
	}
	if s.current[i].Kind != KindConcurrency {
		return nil, ErrCorrupt
	}
	return &s.current[i], nil
}

// regaining takes slots again for permits whose incarnation had expired: as many as
// the limit in force allows. The other permits go on without.
type regaining struct {
	constraint  ConstraintID
	incarnation uint64
	wanted      int64
	members     []*Permit // for whom; one that an operator ended meanwhile wants none
	set         *constraintSet
	principal   *keys.Principal // whose limits they are

	at    int64
	held  int64
	ended map[*Permit]bool
	err   error
}

func (s *sheet) regain(o *regaining) {
	o.held, o.ended = 0, map[*Permit]bool{}
	if o.err = s.fresh(o.principal, o.set.rules); o.err != nil {
		return
	}
	w, err := s.slotsOf(o.constraint)
	if err != nil {
		o.err = err
		return
	}
	o.at = s.now
	c := o.set.find(o.constraint)
	if c == nil {
		return // no limit any more, so no slots
	}
	for _, p := range o.members {
		if i := s.permit(p.id); i < 0 || s.loaded.Permits[i].State != StateOpen {
			o.ended[p] = true
		}
	}
	wanted := o.wanted - int64(len(o.ended))
	for used := w.Slots.used(s.now); o.held < wanted && used < c.Limit; used++ {
		w.Slots.acquire(o.incarnation, s.now)
		o.held++
		w.dirty = true
	}
}

// surrender gives back slots that have no permit any more.
type surrender struct {
	constraint  ConstraintID
	incarnation uint64
	count       int64
	err         error
}

func (s *sheet) surrender(o *surrender) {
	w, err := s.slotsOf(o.constraint)
	if err != nil {
		o.err = err
		return
	}
	for range o.count {
		w.dirty = w.Slots.release(o.incarnation) || w.dirty
	}
}

// The keeper runs these in transactions of its own, so they never wait in a lane.

func (o *renewal) plan(p *planner)     { p.constraints = append(p.constraints, o.constraint) }
func (o *renewal) decide(s *sheet)     { s.renew(o) }
func (o *renewal) fail(err error)      { o.err = err }
func (o *renewal) failed() error       { return o.err }
func (o *renewal) subject() string     { return "" }
func (o *renewal) patient() bool       { return true }
func (o *renewal) replayable() bool    { return true }
func (o *renewal) abandoned(*Governor) {}

func (o *regaining) plan(p *planner) {
	p.constraints = append(p.constraints, o.constraint)
	p.keys = append(p.keys, o.principal.KeyID)
	p.policies = p.policies || o.set.rules != nil
	for _, m := range o.members {
		p.permits = append(p.permits, m.id)
	}
}
func (o *regaining) decide(s *sheet)     { s.regain(o) }
func (o *regaining) fail(err error)      { o.err = err }
func (o *regaining) failed() error       { return o.err }
func (o *regaining) subject() string     { return "" }
func (o *regaining) patient() bool       { return true }
func (o *regaining) replayable() bool    { return false } // it would take them twice
func (o *regaining) abandoned(*Governor) {}

func (o *surrender) plan(p *planner)     { p.constraints = append(p.constraints, o.constraint) }
func (o *surrender) decide(s *sheet)     { s.surrender(o) }
func (o *surrender) fail(err error)      { o.err = err }
func (o *surrender) failed() error       { return o.err }
func (o *surrender) subject() string     { return "" }
func (o *surrender) patient() bool       { return true }
func (o *surrender) replayable() bool    { return false } // it would take another permit's
func (o *surrender) abandoned(*Governor) {}
