package prove

func (s *state) create(e *event) bool {
	d := &s.seen[e.Key]
	switch e.Said {
	case saidExists:
		return d.revision > 0
	case saidRevoked:
		return s.seen[0].gone
	case saidOK, saidLost:
		if d.revision > 0 || s.seen[0].gone {
			return e.Said == saidLost
		}
		// In force at once: no admission can know an earlier version.
		*d = definition{revision: 1, limits: e.request.Limits}
		s.force[e.Key] = *d
		return true
	}
	return false
}

// edit takes both parts of an edit of limits.
func (s *state) edit(e *event, i int) bool {
	d := &s.seen[i]
	if e.part == isForce {
		return s.enforce(e, i)
	}
	differs := d.limits != e.request.Limits
	switch e.Said {
	case saidAbsent:
		return d.revision == 0
	case saidRevoked:
		return d.gone
	case saidStale:
		return d.revision > 0 && !d.gone && differs && d.revision != e.IfRevision
	case saidOK, saidLost:
		switch {
		case d.revision == 0 || d.gone || (differs && d.revision != e.IfRevision):
			return e.Said == saidLost
		case differs:
			d.revision++
			d.limits = e.request.Limits
		}
		return e.Said == saidLost || e.Revision == d.revision
	}
	return false
}

// end takes both parts of a revocation, or of a team's deletion.
func (s *state) end(e *event, i int) bool {
	d := &s.seen[i]
	if e.part == isForce {
		return s.enforce(e, i)
	}
	switch {
	case e.Said == saidAbsent:
		return d.revision == 0
	case e.Said != saidOK && e.Said != saidLost:
		return false
	case d.revision == 0:
		return e.Said == saidLost
	case !d.gone:
		d.revision++
		d.gone = true
	}
	return e.Said == saidLost || e.Revision == d.revision
}

// enforce is the second part: from here on nothing goes by an older version.
func (s *state) enforce(e *event, i int) bool {
	if e.Said == saidLost {
		s.force[i] = s.seen[i]
		return true
	}
	if s.seen[i].revision < e.Revision {
		return false
	}
	if s.force[i].revision < e.Revision {
		s.force[i] = definition{e.Revision, e.answer.Limits, e.Verb == verbRevoke || e.Verb == verbDelete}
	}
	return true
}
