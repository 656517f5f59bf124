package lease

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const second = time.Second

func newPost() *post {
	return &post{name: "n", pace: pace{15 * second, 5 * second, 10 * second, func(d time.Duration) time.Duration { return d }}}
}

func taken(p *post, sent, now time.Duration) *post {
	p.acquired(sent, now, Lease{Name: "n", Holder: "a", Generation: 1, TTL: p.ttl}, nil)
	return p
}

func TestTrustCountsFromBeforeTheCall(t *testing.T) {
	p := taken(newPost(), 1*second, 4*second)
	require.True(t, p.holds(11*second-1))
	require.False(t, p.holds(11*second), "not at the deadline")
	what, pause := p.next(4*second, false, false)
	require.Equal(t, wait, what)
	require.Equal(t, 2*second, pause, "renewed five seconds after the call was sent")
	p.renewed(6*second, 9*second, p.held, nil)
	require.True(t, p.holds(16*second-1))
	require.False(t, p.holds(16*second))
}

func TestAnAnswerThatComesTooLateIsNotBelieved(t *testing.T) {
	p := taken(newPost(), 0, 10*second)
	require.False(t, p.holding)
	require.True(t, p.doubt, "the store may have it that way")
	p = taken(newPost(), 0, 1*second)
	p.renewed(5*second, 10*second, p.held, nil)
	require.False(t, p.holding, "the belief had ended when the answer came")
	require.ErrorIs(t, p.err, ErrGivenUp)
	require.False(t, p.holds(11*second))
}

func TestNoAnswerIsNoLoss(t *testing.T) {
	p := taken(newPost(), 0, 0)
	p.renewed(5*second, 6*second, Lease{}, ErrUnavailable)
	p.renewed(6*second, 7*second, Lease{}, ErrUnknownOutcome)
	require.True(t, p.holds(10*second-1))
	require.False(t, p.holds(10*second), "no answer lasts no longer")
	p.renewed(8*second, 8*second, p.held, nil)
	require.True(t, p.holds(18*second-1))
	require.Zero(t, p.failures)
}

func TestAnAnswerEndsTheBelief(t *testing.T) {
	for _, why := range []error{&LostError{Row: Row{Generation: 2, Holder: "b", TTL: 60 * second}}, &HistoryError{}} {
		p := taken(newPost(), 0, 0)
		p.renewed(5*second, 5*second, Lease{}, why)
		require.False(t, p.holds(5*second))
		require.ErrorIs(t, p.err, why)
	}
	p := taken(newPost(), 0, 0)
	p.renewed(5*second, 5*second, Lease{}, &HistoryError{})
	what, pause := p.next(5*second, false, false)
	require.Equal(t, wait, what)
	require.Equal(t, 5*second, pause, "a store that went back is not asked all the time")
}

func TestSuccessorsComeWhenTheTenureEnds(t *testing.T) {
	p := newPost()
	now := time.Unix(100, 0)
	p.acquired(0, 1*second, Lease{}, &HeldError{Row: Row{Generation: 1, Holder: "b", TTL: 60 * second, Now: now, ExpiresAt: now.Add(2 * second)}})
	_, pause := p.next(1*second, false, false)
	require.Equal(t, 2*second, pause, "when it ends, by the store's clock")
	require.True(t, p.drifts())
	require.Equal(t, 60*second, p.inForce())
	p.acquired(0, 1*second, Lease{}, &HeldError{Row: Row{Generation: 1, Holder: "b", TTL: 20 * second, Now: now, ExpiresAt: now.Add(12 * second)}})
	_, pause = p.next(1*second, false, false)
	require.Equal(t, 5*second, pause, "one round at most: it may be handed over")
	require.False(t, p.drifts())
	p.acquired(0, 1*second, Lease{}, &HeldError{Fenced: true})
	_, pause = p.next(1*second, false, false)
	require.Less(t, pause, second, "it waited already")
}

func TestNothingBeginsWhileWorkRuns(t *testing.T) {
	p := taken(newPost(), 0, 0)
	require.True(t, p.lapse(10*second))
	require.False(t, p.lapse(10*second), "once")
	what, _ := p.next(10*second, false, true)
	require.Equal(t, wait, what, "work of the tenure that ended runs")
	what, _ = p.next(10*second, false, false)
	require.Equal(t, acquire, what)
}

func TestLeaving(t *testing.T) {
	p := newPost()
	what, _ := p.next(0, true, false)
	require.Equal(t, leave, what, "nothing to hand over")
	taken(p, 0, 0)
	what, _ = p.next(second, true, true)
	require.Equal(t, wait, what, "the work has not stopped")
	what, _ = p.next(5*second, true, true)
	require.Equal(t, renew, what, "so the lease must last")
	what, _ = p.next(second, true, false)
	require.Equal(t, release, what)
	p.released(second, ErrUnavailable)
	what, _ = p.next(second, true, false)
	require.Equal(t, wait, what)
	what, _ = p.next(9*second, true, false)
	require.Equal(t, release, what)
	p.released(9*second, nil)
	what, _ = p.next(9*second, true, false)
	require.Equal(t, leave, what)

	p = newPost()
	p.acquired(0, 0, Lease{}, ErrUnknownOutcome)
	what, _ = p.next(0, true, false)
	require.Equal(t, release, what, "it may have it")
	for range mostTries {
		p.released(0, ErrUnavailable)
	}
	what, _ = p.next(0, true, false)
	require.Equal(t, leave, what, "it lapses by itself")
}

func TestCallsAreBoundedByTrust(t *testing.T) {
	p := newPost()
	require.Equal(t, 5*second, p.bound(0))
	taken(p, 0, 0)
	require.Equal(t, 5*second, p.bound(0))
	require.Equal(t, 2*second, p.bound(6*second), "another connection can be tried")
	for now := 6 * second; now < 10*second; now += second / 10 {
		require.LessOrEqual(t, p.bound(now), 10*second-now)
		require.Positive(t, p.bound(now))
	}
}

func TestFailuresAreRepeatedSoonAndNotForEver(t *testing.T) {
	p := newPost()
	p.acquired(0, 0, Lease{}, ErrUnavailable)
	require.False(t, p.doubt, "nothing changed")
	_, first := p.next(0, false, false)
	require.Less(t, first, second)
	for range 20 {
		p.acquired(0, 0, Lease{}, errors.New("anything"))
	}
	require.True(t, p.doubt)
	_, last := p.next(0, false, false)
	require.LessOrEqual(t, last, p.renew)
	require.Greater(t, last, first)
}

// naive is a store as one would tell it.
type naive struct {
	holder     string
	generation Generation
	end        time.Duration
}

func (s *naive) row(now time.Duration) Row {
	at := func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }
	return Row{Name: "n", Holder: s.holder, Generation: s.generation, Now: at(now), ExpiresAt: at(s.end), TTL: 15 * second}
}

func (s *naive) do(what step, who string, held Lease, now, ttl time.Duration) (Lease, error) {
	live := s.holder != "" && now < s.end
	switch {
	case what == acquire && live && s.holder != who:
		return Lease{}, &HeldError{Row: s.row(now)}
	case what == acquire:
		s.holder, s.end = who, now+ttl
		s.generation++
		return Lease{Name: "n", Holder: who, Generation: s.generation, TTL: ttl}, nil
	case s.holder != who || held.Generation != 0 && held.Generation != s.generation:
		return Lease{}, &LostError{Row: s.row(now)}
	case what == renew && !live:
		return Lease{}, &LostError{Row: s.row(now)}
	case what == renew:
		s.end = now + ttl
		return held, nil
	}
	s.holder = ""
	return Lease{}, nil
}

// actor is a keeper's post whose calls take time, get lost, and hang.
type actor struct {
	*post
	who             string
	call            step // on its way; 0: none
	sent, does, end time.Duration
	lost, unsent    bool // its answer, or all of it
	leaving         bool
	answer          Lease
	err             error
	work            time.Duration // of work that runs, until when
	generation      Generation    // that it runs under
}

// Processes with calls that take any time, whose answers get lost, who work and leave: on clocks that agree, no
// two ever believe at once, and whoever believes has what the store has.
func TestPropertyOneBelieves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := &naive{}
		var actors []*actor
		for i := range 3 {
			a := &actor{post: newPost(), who: fmt.Sprint("p", i)}
			a.ttl = time.Duration(rapid.SampledFrom([]int{15, 15, 60}).Draw(t, "ttl")) * second
			a.renew, a.deadline = a.ttl/3, a.ttl*2/3
			actors = append(actors, a)
		}
		var now time.Duration
		for range rapid.IntRange(50, 200).Draw(t, "steps") {
			a := rapid.SampledFrom(actors).Draw(t, "who")
			if a.call == 0 {
				a.begin(t, now)
			}
			if rapid.IntRange(0, 60).Draw(t, "leaves") == 0 {
				a.leaving = true
			}
			// Time goes on to somebody's next event, or anywhere.
			until := now + time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms"))*time.Millisecond
			for _, b := range actors {
				if b.call != 0 && rapid.Bool().Draw(t, "to an event") {
					until = min(until, max(b.does, now))
				}
			}
			now = advance(t, store, actors, until)
			believers := 0
			for _, b := range actors {
				if !b.holds(now) || b.call == release || b.tries > 0 {
					continue // whoever hands over does nothing any more
				}
				believers++
				if store.holder != b.who || store.generation != b.held.Generation || now >= store.end {
					t.Fatalf("at %v %s believes in generation %d, and the store has %+v", now, b.who, b.held.Generation, *store)
				}
			}
			if believers > 1 {
				t.Fatalf("at %v %d processes believe", now, believers)
			}
		}
	})
}

// advance carries out what calls do, and hands over their answers, in the order of time.
func advance(t *rapid.T, store *naive, actors []*actor, until time.Duration) time.Duration {
	for {
		var next *actor
		at := until + 1
		for _, a := range actors {
			for _, e := range []time.Duration{a.does, a.end} {
				if a.call != 0 && e >= 0 && e < at {
					next, at = a, e
				}
			}
		}
		if next == nil {
			return until
		}
		if next.does == at {
			next.does = -1
			if next.unsent {
				next.answer, next.err = Lease{}, ErrUnavailable
				continue
			}
			if next.answer, next.err = store.do(next.call, next.who, next.answer, at, next.ttl); next.lost {
				next.answer, next.err = Lease{}, ErrUnknownOutcome
			}
			continue
		}
		next.lapse(at)
		switch next.call {
		case acquire:
			next.acquired(next.sent, at, next.answer, next.err)
			if next.holds(at) && next.work > at {
				t.Fatalf("at %v %s begins generation %d while work of %d runs", at, next.who, next.held.Generation, next.generation)
			}
		case renew:
			next.renewed(next.sent, at, next.answer, next.err)
		case release:
			next.released(at, next.err)
		}
		next.call = 0
	}
}

func (a *actor) begin(t *rapid.T, now time.Duration) {
	a.lapse(now)
	if a.holds(now) && !a.leaving && a.work <= now && rapid.IntRange(0, 3).Draw(t, "works") == 0 {
		a.work, a.generation = now+time.Duration(rapid.IntRange(0, 40000).Draw(t, "work ms"))*time.Millisecond, a.held.Generation
	}
	busy := a.work > now
	what, _ := a.next(now, a.leaving, busy)
	if what == wait || what == leave {
		return
	}
	if busy && !slices.Contains([]step{renew}, what) {
		t.Fatalf("at %v %s does %d while work runs", now, a.who, what)
	}
	a.call, a.sent, a.answer, a.err = what, now, a.held, nil
	if what == release && !a.holding {
		a.answer.Generation = 0
	}
	a.does = now + time.Duration(rapid.IntRange(0, 12000).Draw(t, "way there ms"))*time.Millisecond
	a.end = a.does + time.Duration(rapid.IntRange(0, 12000).Draw(t, "way back ms"))*time.Millisecond
	a.lost, a.unsent = rapid.IntRange(0, 5).Draw(t, "lost") == 0, rapid.IntRange(0, 3).Draw(t, "unsent") == 0
}
