package prove

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// maxKeys is how many keys a team of the model has in its life.
const maxKeys = 6

// definition is one version of a team or key; revision 0 is one that does not exist.
type definition struct {
	revision int64
	limits   limits
	gone     bool // revoked, or deleted
}

// sum is what an account holds. Of places only reserved is used.
type sum struct{ consumed, uncertain, reserved int64 }

// state is one team with its keys: what a store in one process would be that does one thing after another. Place 0 is
// the team, the others are its keys.
//
// A definition has two sides. Readers see an edit as soon as it is committed. It is in force, for
// whatever reserves, somewhere between that and the edit's return: an admission that began before may still go by the
// version before. Whoever reserves goes by one version after another, never back.
type state struct {
	seen, force [1 + maxKeys]definition
	sums        [1 + maxKeys][kinds]sum
	permits     string // permitBytes for each
}

// A permit's bytes: its condition, the constraints it holds in, its key, what it reserved, and what an operator found.
const (
	atCondition = iota
	atMask
	atKey
	atTokens
	atCost
	atFoundTokens
	atFoundCost
	permitBytes
)

// Conditions of a permit. A settled one adds what is uncertain.
const (
	absent     = 0
	open       = 1
	ended      = 2 // cancelled, or settled with nothing left to find out
	blurTokens = 4
	blurCost   = 8
	resolved   = 16
)

func (s *state) permit(i int) []byte { return []byte(s.permits[i*permitBytes : (i+1)*permitBytes]) }

func (s *state) put(i int, p []byte) {
	s.permits = s.permits[:i*permitBytes] + string(p) + s.permits[(i+1)*permitBytes:]
}

// event is an operation as the model takes it.
type event struct {
	*operation
	part   part
	permit int         // place of the permit, or -1
	holds  map[int]int // the answer's holds by their permit's place
}

// part of an operation: an edit is two, in the order of the words, and a lost admission is followed by
// its cancellation.
type part int

const (
	whole part = iota
	isSeen
	isForce
	isOrphan
)

func bit(of, kind int) byte { return 1 << (of*kinds + kind) }

func place(of, key int) int {
	if of == 0 {
		return 0
	}
	return key
}

// judge lists the constraints that have no room for the need, with their numbers.
func (s *state) judge(key int, mask byte, need [kinds]int64) (full []count) {
	for of := range 2 {
		for kind := range kinds {
			limit := s.force[place(of, key)].limits[kind]
			if limit == none || mask&bit(of, kind) == 0 {
				continue
			}
			a := s.sums[place(of, key)][kind]
			free := limit - a.consumed - a.uncertain
			if need[kind] <= free-a.reserved {
				continue
			}
			c := count{Of: of, Kind: kind, Limit: limit, Need: need[kind], Consumed: a.consumed, Uncertain: a.uncertain, Reserved: a.reserved}
			switch {
			case need[kind] > limit:
				c.Reason = "never_fits"
			case kind == places:
				c.Reason = "concurrency"
			case need[kind] <= free:
				c.Reason = "reserved"
			case kind == tokens:
				c.Reason = "quota"
			default:
				c.Reason = "money"
			}
			full = append(full, c)
		}
	}
	return full
}

// mask tells which constraints the definitions in force have.
func (s *state) mask(key int) (m byte) {
	for of := range 2 {
		for kind := range kinds {
			if s.force[place(of, key)].limits[kind] != none {
				m |= bit(of, kind)
			}
		}
	}
	return m
}

func (s *state) add(key int, mask byte, more [kinds]int64) {
	for of := range 2 {
		for kind := range kinds {
			if mask&bit(of, kind) != 0 {
				s.sums[place(of, key)][kind].reserved += more[kind]
			}
		}
	}
}

// live reports whether key and team exist and are not gone.
func live(d *[1 + maxKeys]definition, key int) bool {
	return d[0].revision > 0 && d[key].revision > 0 && !d[0].gone && !d[key].gone
}

// goneFor reports whether a reader may be told that the key is no longer good.
func (s *state) goneFor(key int) bool {
	return s.seen[key].revision > 0 && (s.seen[0].gone || s.seen[key].gone)
}

// step is the model: whether the answer is one that the state allows, and the state after it.
func step(before *state, e *event) (*state, bool) {
	switch e.Verb {
	case verbResolve:
		return before, before.resolves(e)
	case verbUsage:
		return before, before.uses(e)
	case verbHolds:
		return before, before.lists(e)
	}
	s := *before
	switch e.Verb {
	case verbAdmit:
		if e.part == isOrphan {
			return &s, s.orphan(e)
		}
		return &s, s.admit(e)
	case verbRaise:
		return &s, s.raise(e)
	case verbSettle:
		return &s, s.settle(e)
	case verbFind:
		return &s, s.find(e)
	case verbCreate:
		return &s, s.create(e)
	case verbEditKey:
		return &s, s.edit(e, e.Key)
	case verbEditTeam:
		return &s, s.edit(e, 0)
	case verbRevoke:
		return &s, s.end(e, e.Key)
	case verbDelete:
		return &s, s.end(e, 0)
	}
	return before, false
}

func (s *state) resolves(e *event) bool {
	key, team := &s.seen[e.Key], &s.seen[0]
	switch e.Said {
	case saidOK:
		return live(&s.seen, e.Key) && e.Revision == key.revision && e.TeamRevision == team.revision && e.answer.Limits == key.limits && e.TeamLimits == team.limits
	case saidRevoked:
		return s.goneFor(e.Key)
	case saidUnknown:
		return key.revision == 0
	}
	return false
}

// uses compares exactly; the limits are those of the principal that the caller had.
func (s *state) uses(e *event) bool {
	if e.Said != saidOK {
		return false
	}
	for _, c := range e.Counts {
		a := s.sums[place(c.Of, e.Key)][c.Kind]
		if (sum{c.Consumed, c.Uncertain, c.Reserved}) != a {
			return false
		}
	}
	return true
}

// lists demands all permits that hold something, and no other.
func (s *state) lists(e *event) bool {
	if e.Said != saidOK {
		return false
	}
	found := 0
	for i := range len(s.permits) / permitBytes {
		p := s.permits[i*permitBytes : (i+1)*permitBytes]
		condition := p[atCondition]
		if condition&(open|blurTokens|blurCost) == 0 || condition&resolved != 0 {
			continue
		}
		at, listed := e.holds[i]
		if !listed {
			return false
		}
		h := &e.Holds[at]
		if h.Open != (condition == open) || h.BlurTokens != (condition&blurTokens != 0) || h.BlurCost != (condition&blurCost != 0) ||
			h.Tokens != int64(p[atTokens]) || h.Cost != int64(p[atCost]) {
			return false
		}
		found++
	}
	return found == len(e.Holds)
}

func (s *state) admit(e *event) bool {
	need := [kinds]int64{e.Tokens, e.Cost, 1}
	switch e.Said {
	case saidUnauth:
		return s.goneFor(e.Key)
	case saidRefused:
		return live(&s.force, e.Key) && len(e.Counts) > 0 && slices.Equal(s.judge(e.Key, 0xff, need), e.Counts)
	case saidOK, saidLost:
		if !live(&s.force, e.Key) || len(s.judge(e.Key, 0xff, need)) > 0 || s.permit(e.permit)[atCondition] != absent {
			return e.Said == saidLost
		}
		mask := s.mask(e.Key)
		s.add(e.Key, mask, need)
		s.put(e.permit, []byte{open, mask, byte(e.Key), byte(e.Tokens), byte(e.Cost), 0, 0})
		return true
	}
	return false
}

// orphan cancels a permit that nobody received, if there is one.
func (s *state) orphan(e *event) bool {
	p := s.permit(e.permit)
	if p[atCondition] == open {
		s.close(p, nil, nil)
		p[atCondition] = ended
		s.put(e.permit, p)
	}
	return true
}

func (s *state) raise(e *event) bool {
	p := s.permit(e.permit)
	key, mask := int(p[atKey]), p[atMask]
	need := [kinds]int64{max(0, e.Tokens-int64(p[atTokens])), max(0, e.Cost-int64(p[atCost]))}
	may := p[atCondition] == open && live(&s.force, key)
	switch e.Said {
	case saidTerminal:
		return p[atCondition] > open
	case saidUnauth:
		return s.goneFor(key)
	case saidRefused:
		return may && len(e.Counts) > 0 && slices.Equal(s.judgeRaise(key, mask, need), e.Counts)
	case saidOK, saidLost:
		if !may || len(s.judgeRaise(key, mask, need)) > 0 {
			return e.Said == saidLost
		}
		s.add(key, mask, need)
		p[atTokens] += byte(need[tokens])
		p[atCost] += byte(need[cost])
		s.put(e.permit, p)
		return true
	}
	return false
}

// judgeRaise asks only those constraints that are to hold more.
func (s *state) judgeRaise(key int, mask byte, need [kinds]int64) []count {
	for of := range 2 {
		for kind := range kinds {
			if need[kind] == 0 {
				mask &^= bit(of, kind)
			}
		}
	}
	return s.judge(key, mask, need)
}

// close gives back what an open permit reserved; used is consumed where it is known, else the
// bound becomes uncertain. Nil for both: nothing was sent.
func (s *state) close(p []byte, usedTokens, usedCost *int64) {
	key := int(p[atKey])
	for of := range 2 {
		for kind, reserved := range [kinds]int64{int64(p[atTokens]), int64(p[atCost]), 1} {
			if p[atMask]&bit(of, kind) == 0 {
				continue
			}
			a := &s.sums[place(of, key)][kind]
			a.reserved -= reserved
			used := [kinds]*int64{usedTokens, usedCost, nil}[kind]
			switch {
			case kind == places || (usedTokens == nil && usedCost == nil):
			case *used == unknown:
				a.uncertain += reserved
			default:
				a.consumed += *used
			}
		}
	}
}

const unknown = -1

// blurs reports whether the permit holds in any constraint of the kind.
func blurs(p []byte, kind int) bool { return p[atMask]&(bit(0, kind)|bit(1, kind)) != 0 }

func (s *state) settle(e *event) bool {
	p := s.permit(e.permit)
	switch {
	case e.Said == saidTerminal:
		return p[atCondition] == resolved
	case e.Said != saidOK && e.Said != saidLost:
		return false
	case p[atCondition] != open:
		return e.Said == saidLost
	}
	condition := byte(ended)
	if e.Unsent {
		s.close(p, nil, nil)
	} else {
		t, c := e.Tokens, e.Cost
		if e.BlurTokens {
			t = unknown
		}
		if e.BlurCost {
			c = unknown
		}
		s.close(p, &t, &c)
		if e.BlurTokens && blurs(p, tokens) {
			condition = condition&^ended | blurTokens
		}
		if e.BlurCost && blurs(p, cost) {
			condition = condition&^ended | blurCost
		}
	}
	p[atCondition] = condition
	s.put(e.permit, p)
	return true
}

// find is what an operator found out of a permit that is open or uncertain.
func (s *state) find(e *event) bool {
	p := s.permit(e.permit)
	t, c := e.Tokens, e.Cost
	condition := p[atCondition]
	switch condition {
	case absent:
		return e.Said == saidAbsent || e.Said == saidLost
	case ended:
		return e.Said == saidTerminal || e.Said == saidLost
	case resolved:
		same := p[atFoundTokens] == byte(t) && p[atFoundCost] == byte(c)
		return e.Said == saidLost || (e.Said == saidOK && same) || (e.Said == saidConflict && !same)
	}
	if e.Said != saidOK && e.Said != saidLost {
		return false
	}
	if condition == open {
		s.close(p, &t, &c)
	} else {
		key := int(p[atKey])
		for of := range 2 {
			if p[atMask]&bit(of, tokens) != 0 && condition&blurTokens != 0 {
				a := &s.sums[place(of, key)][tokens]
				a.uncertain, a.consumed = a.uncertain-int64(p[atTokens]), a.consumed+t
			}
			if p[atMask]&bit(of, cost) != 0 && condition&blurCost != 0 {
				a := &s.sums[place(of, key)][cost]
				a.uncertain, a.consumed = a.uncertain-int64(p[atCost]), a.consumed+c
			}
		}
	}
	p[atCondition], p[atFoundTokens], p[atFoundCost] = resolved, byte(t), byte(c)
	s.put(e.permit, p)
	return true
}

var seed = maphash.MakeSeed()

// modelOf is the model of a team that begins with these limits, and keys 1 and 2 with theirs.
func modelOf(team limits, keys []limits, permits int) porcupine.Model {
	begin := &state{permits: strings.Repeat("\x00", permits*permitBytes)}
	begin.seen[0] = definition{revision: 1, limits: team}
	for i, l := range keys {
		begin.seen[i+1] = definition{revision: 1, limits: l}
	}
	begin.force = begin.seen
	return porcupine.Model{
		Init: func() any { return begin },
		Step: func(s, in, _ any) (bool, any) {
			after, ok := step(s.(*state), in.(*event))
			return ok, after
		},
		Equal:             func(a, b any) bool { return a.(*state) == b.(*state) || *a.(*state) == *b.(*state) },
		Hash:              func(s any) uint64 { return maphash.String(seed, s.(*state).permits) },
		DescribeOperation: func(in, _ any) string { return in.(*event).String() },
		DescribeState:     func(s any) string { return s.(*state).String() },
	}
}
