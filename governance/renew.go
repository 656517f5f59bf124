package governance

// renewal keeps a Governor's concurrency slots of one constraint.
type renewal struct {
	constraint  ConstraintID
	incarnation uint64
	next        uint64 // the incarnation under which lost slots are taken again
	wanted      int64  // live permits of this Governor
	limit       int64
	team        string

	held int64 // permits that have a slot now; fewer than wanted after a loss
	lost bool  // the incarnation had expired; held counts slots of next
	err  error
}

// renew extends all slots of the incarnation at once. After they expired, it
// takes as many again as the limit allows: the other permits go on without.
//
// Source: design "Quotas and budgets".
func (s *sheet) renew(o *renewal) {
	i, ok := s.position(o.constraint)
	if !ok || !s.current[i].locked {
		o.err = ErrUnavailable
		return
	}
	w := &s.current[i]
	if w.Kind != KindConcurrency {
		o.lost = true
		return
	}
	if w.Slots.renew(o.incarnation, s.now) {
		o.held, w.dirty = o.wanted, true
		return
	}
	o.lost = true
	used, _ := w.Slots.used(s.now)
	for ; o.held < o.wanted && used < o.limit; used++ {
		w.Slots.acquire(o.next, s.now)
		o.held++
		w.dirty = true
	}
}
