package lease

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	believing = "TestPropertyOneBelieves"
	histories = "TestHistory"
	stopping  = "TestReleasedOnlyWhenTheWorkHasStopped"
)

var mutants = []mutate.Mutant{
	{Name: "an acquisition is trusted from its answer", File: "post.go", Test: "TestTrustCountsFromTheAttemptsStart",
		Old: "p.holding, p.held, p.trust, p.due = true, l, sent+p.deadline", New: "p.holding, p.held, p.trust, p.due = true, l, now+p.deadline"},
	{Name: "a renewal is trusted from its answer", File: "post.go", Test: "TestTrustCountsFromBeforeTheCall",
		Old: "max(p.trust, sent+p.deadline)", New: "max(p.trust, now+p.deadline)"},
	{Name: "an answer is never too late", File: "post.go", Test: "TestAnAnswerThatComesTooLateIsNotBelieved",
		Old: "case err == nil && now < sent+p.deadline:", New: "case err == nil:"},
	{Name: "a belief that ended begins again", File: "post.go", Test: "TestAnAnswerThatComesTooLateIsNotBelieved",
		Old: "if p.lapse(now) || !p.holding {", New: "if !p.holding {"},
	{Name: "no answer keeps the belief", File: "post.go", Test: believing,
		Old: "\tdefault:\n\t\tp.fail(now, err)\n\t}\n}\n\n// released", New: "\tdefault:\n\t\tp.trust = now + p.deadline\n\t}\n}\n\n// released"},
	{Name: "a loss is no loss", File: "post.go", Test: "TestAnAnswerEndsTheBelief",
		Old: "case errors.Is(err, ErrLost), errors.Is(err, ErrHistoryRegressed):", New: "case errors.Is(err, ErrHistoryRegressed):"},
	{Name: "history that went back is believed", File: "post.go", Test: "TestAnAnswerEndsTheBelief",
		Old: "case errors.Is(err, ErrLost), errors.Is(err, ErrHistoryRegressed):", New: "case errors.Is(err, ErrLost):"},
	{Name: "the deadline is the tenure", File: "post.go", Test: "TestTrustCountsFromBeforeTheCall",
		Old: "return p.holding && now < p.trust }", New: "return p.holding && now < p.trust+p.ttl-p.deadline }"},
	{Name: "handed over while work runs", File: "post.go", Test: stopping,
		Old: "case leaving && !busy && (p.holds(now) || p.doubt)", New: "case leaving && (p.holds(now) || p.doubt)"},
	{Name: "acquired anew while work runs", File: "post.go", Test: believing,
		Old: "case !p.holds(now) && busy:", New: "case false:"},
	{Name: "not renewed while it leaves", File: "post.go", Test: stopping,
		Old: "case leaving && busy && !p.holds(now):", New: "case leaving && busy:"},
	{Name: "what may have been granted is not given back", File: "post.go", Test: "TestClosedWhileAcquiring",
		Old: "p.doubt = p.doubt || !nothing", New: "p.doubt = p.doubt && !nothing"},
	{Name: "a failed release is tried for ever", File: "post.go", Test: "TestLeaving",
		Old: "p.tries++", New: "p.tries = min(p.tries+1, 1)"},
	{Name: "a dead holder is followed a round later", File: "post.go", Test: "TestDeadHolderIsFollowedWithinOneTenure",
		Old: "p.due = min(p.due, now+left)", New: "p.due = max(p.due, now+left+p.renew)"},
	{Name: "a call may take all trust that is left", File: "post.go", Test: "TestCallsAreBoundedByTrust",
		Old: "return max(left/2, min(left, p.deadline/50), 1)", New: "return max(left, 1)"},
	{Name: "drift is not noticed", File: "post.go", Test: "TestTenuresConfiguredApart",
		Old: "p.inForce() > p.ttl+p.ttl/2", New: "p.inForce() > 10*p.ttl"},
	{Name: "less than was seen passes", File: "history.go", Test: histories,
		Old: "if r.Generation < m.Generation {", New: "if r.Generation < m.Generation-1 {"},
	{Name: "another origin passes", File: "history.go", Test: histories,
		Old: "if m.Origin != \"\" && r.Origin != m.Origin {", New: "if false {"},
	{Name: "an overtaken answer is history that went back", File: "history.go", Test: histories,
		Old: "\th.mu.Lock()\n\tdefer h.mu.Unlock()\n\tif h.origin ==", New: "\th.mu.Lock()\n\tdefer h.mu.Unlock()\n\tif r.Generation < h.seen[name] {\n\t\treturn &HistoryError{}\n\t}\n\tif h.origin =="},
	{Name: "a release of another's is a success", File: "history.go", Test: "TestWhatAnAnswerMeans",
		Old: "already := a.Row.Holder == \"\"", New: "already := true"},
}

// mutantsOfTheKeeper are mistakes in what carries the decisions out, and in clocks.
var mutantsOfTheKeeper = []mutate.Mutant{
	{Name: "a deadline at the tenure's end passes", File: "keeper.go", Test: "TestOptionsThatAreUnsafeAreRefused",
		Old: "case out.Deadline >= out.TTL:", New: "case out.Deadline > out.TTL:"},
	{Name: "storage of one machine gets a keeper", File: "keeper.go", Test: "TestOptionsThatAreUnsafeAreRefused",
		Old: "if !l.Shared() && !options.OneMachine {", New: "if false {"},
	{Name: "a closed keeper lets a cycle begin", File: "keeper.go", Test: stopping,
		Old: "if s == nil || k.leaving.Err() != nil || !s.holds", New: "if s == nil || !s.holds"},
	{Name: "work is not told that its tenure ended", File: "tend.go", Test: "TestTakenByAnotherEndsTheWork",
		Old: "case before && !s.holding:\n\t\ts.over(s.err)", New: "case before && !s.holding:"},
	{Name: "nobody watches while a call hangs", File: "tend.go", Test: "TestHungRenewalEndsTheBeliefAtTheDeadline",
		Old: "\t\ttimer.Reset(k.look())\n", New: "\t\ttimer.Reset(time.Hour)\n"},
	{Name: "every failure is logged", File: "tend.go", Test: "TestFailuresAreSaidAndDoNotFloodTheLog",
		Old: "s.failures&(s.failures-1) == 0", New: "true"},
	{Name: "a tenure is judged as held at its end", File: "lease.go", Test: "TestRowIsJudgedOnItsOwnClock",
		Old: "r.Now.Before(r.ExpiresAt) }", New: "!r.Now.After(r.ExpiresAt) }"},
	{Name: "a clock stands still in suspension", File: "clock.go", Test: "TestStitchedClock",
		Old: "max(mono-s.mono, wall-s.wall, 0)", New: "max(mono-s.mono, 0)"},
	{Name: "a clock can be set back", File: "clock.go", Test: "TestStitchedClock",
		Old: "max(mono-s.mono, wall-s.wall, 0)", New: "max(mono-s.mono, wall-s.wall)"},
}

// Every mistake makes its test fail.
func TestMutants(t *testing.T) { mutate.Run(t, suite(mutants)) }

// CI has no time for these: whoever changes the keeper runs them.
func TestMutantsOfTheKeeper(t *testing.T) { mutate.Run(t, suite(mutantsOfTheKeeper)) }

func suite(list []mutate.Mutant) mutate.Suite {
	return mutate.Suite{Files: []string{"history_test.go", "post_test.go", "keeper_test.go"}, Checks: 2000, Mutants: list}
}
