package ratelimit_test

import (
	"bytes"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/ratelimit"
)

// A schedule drives a bucket and the model side by side and compares after
// every step.
type schedule struct {
	t     *rapid.T
	b     *ratelimit.Bucket
	m     *model
	now   int64
	limit ratelimit.Limit
	exact bool // false: segments are merged early, the model is a lower bound
	owned []*reservation
	grown []admission
	log   []event
}

type reservation struct {
	owner     int
	seq       uint64
	amount    int64
	keep      int64
	closed    bool
	admission int // index into grown
}

// admission is one line of the history that the bound on any stretch is checked with.
type admission struct {
	time     int64 // latest moment known then
	rate     int64
	sighting bool
	net      *big.Int // units admitted and not given back
}

// event is one line of the history that is replayed without what was given back.
type event struct {
	kind             string
	owner            int
	now, rate, extra int64
}

func genLimit(t *rapid.T) ratelimit.Limit {
	return ratelimit.Limit{
		PerMinute: rapid.SampledFrom([]int64{1, 7, 60, 60, 61, 600, 1000, 59_999_999, 120_000_001, ratelimit.MaxPerMinute}).Draw(t, "rate"),
		Burst:     rapid.Int64Range(0, 24).Draw(t, "burst"),
	}
}

func genStep(t *rapid.T) int64 {
	switch rapid.IntRange(0, 11).Draw(t, "step kind") {
	case 0, 1, 2:
		return 0
	case 3:
		return rapid.Int64Range(-5_000_000, -1).Draw(t, "back")
	case 4:
		return rapid.Int64Range(1, 5).Draw(t, "µs")
	case 5:
		return 100 * 366 * 86_400 * 1_000_000
	case 6:
		return rapid.Int64Range(1, 3_600_000_000).Draw(t, "within the hour")
	default:
		return rapid.Int64Range(1, 3_000_000).Draw(t, "seconds")
	}
}

func newSchedule(t *rapid.T, exact bool) *schedule {
	return &schedule{t: t, b: new(ratelimit.Bucket), m: new(model), now: 1_700_000_000_000_000, limit: genLimit(t), exact: exact}
}

func (s *schedule) require(ok bool, format string, args ...any) {
	if !ok {
		s.t.Helper()
		s.t.Fatalf(format, args...)
	}
}

// compare checks that the bucket and the model hold the same.
func (s *schedule) compare() {
	s.t.Helper()
	s.require(s.b.Check(), "cached sums are wrong")
	for _, ahead := range [...]int64{0, 1, 777_777, 60_000_000} {
		got, err := s.b.Debt(s.now+ahead, s.limit)
		s.require(err == nil, "Debt: %v", err)
		want := s.m.peek(s.now+ahead, s.limit.PerMinute, s.limit.Burst, 0).debt
		if s.exact {
			s.require(got == want, "%d µs ahead the bucket holds %d, the model %d", ahead, got, want)
		} else {
			s.require(got >= want, "%d µs ahead the bucket holds %d, less than the model's %d", ahead, got, want)
		}
	}
}

// recode goes on with the decoded encoding.
func (s *schedule) recode() {
	s.t.Helper()
	p := encode(s.t, s.b)
	s.require(len(p) <= ratelimit.MaxEncoded, "%d bytes", len(p))
	again := new(ratelimit.Bucket)
	if err := again.UnmarshalBinary(p); err != nil {
		s.t.Fatalf("the own encoding % x is refused: %v", p, err)
	}
	s.require(bytes.Equal(p, encode(s.t, again)), "the encoding changed")
	s.b = again
}

func encode(t rapid.TB, b *ratelimit.Bucket) []byte {
	t.Helper()
	p, err := b.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (s *schedule) judge(cost int64) ratelimit.Verdict {
	s.t.Helper()
	before := encode(s.t, s.b)
	v, err := s.b.Peek(s.now, s.limit, cost)
	s.require(err == nil, "Peek: %v", err)
	s.require(bytes.Equal(before, encode(s.t, s.b)), "Peek changed the bucket")
	want := s.m.peek(s.now, s.limit.PerMinute, s.limit.Burst, cost)
	if s.exact {
		s.require(v.OK == want.ok && v.Never == want.never && v.Debt == want.debt, "verdict %+v, the model says %+v", v, want)
	} else {
		s.require(!v.OK || want.ok, "admitted what the model refuses")
	}
	if v.OK || v.Never {
		s.require(v.RetryAfter == 0, "a wait of %v with %+v", v.RetryAfter, v)
		return v
	}
	s.require(v.RetryAfter > 0 && v.RetryAfter%time.Microsecond == 0, "wait %v", v.RetryAfter)
	if v.RetryAfter < ratelimit.MaxRetryAfter && s.now < 1<<61 {
		wait := v.RetryAfter.Microseconds()
		early, _ := s.b.Peek(s.now+wait-1, s.limit, cost)
		then, _ := s.b.Peek(s.now+wait, s.limit, cost)
		s.require(!early.OK && then.OK, "wait %v is not tight: a µs earlier %v, then %v", v.RetryAfter, early.OK, then.OK)
	}
	return v
}

func (s *schedule) reserve(raise bool) {
	s.t.Helper()
	cost := rapid.Int64Range(0, 12).Draw(s.t, "cost")
	peeked := s.judge(cost)
	before := encode(s.t, s.b)
	do := s.b.Admit
	if raise {
		do = s.b.Raise
	}
	seq, v, err := do(s.now, s.limit, cost)
	s.require(err == nil, "reserve: %v", err)
	s.require(v == peeked, "Peek said %+v, then %+v", peeked, v)
	if !v.OK || cost == 0 {
		s.require(seq == 0 && bytes.Equal(before, encode(s.t, s.b)), "a refusal changed the bucket")
		return
	}
	r := &reservation{owner: len(s.owned) + 1, seq: seq, amount: cost, admission: len(s.grown)}
	s.owned = append(s.owned, r)
	units := new(big.Int).Mul(big.NewInt(cost), tokenUnits)
	if raise {
		s.m.join(r.owner, s.now, cost)
		if s.m.rate < 0 {
			s.m.rate = s.limit.PerMinute
		}
		s.grown = append(s.grown, admission{s.m.since, 0, false, units})
		s.log = append(s.log, event{"raise", r.owner, s.now, s.limit.PerMinute, cost})
	} else {
		s.m.admit(r.owner, s.now, s.limit.PerMinute, cost)
		s.grown = append(s.grown, admission{s.m.since, s.limit.PerMinute, true, units})
		s.log = append(s.log, event{"admit", r.owner, s.now, s.limit.PerMinute, cost})
	}
	s.checkStretches()
}

// checkStretches computes from the history alone that no stretch of time that ends
// now admitted more than the burst and what the rates drain in it.
func (s *schedule) checkStretches() {
	s.t.Helper()
	last := s.grown[len(s.grown)-1]
	allowed := new(big.Int).Mul(big.NewInt(s.limit.Burst), tokenUnits)
	if !last.sighting { // a raise: time has gone on since the last sighting
		dt := new(big.Int).Sub(big.NewInt(max(s.now, last.time)), big.NewInt(last.time))
		allowed.Add(allowed, dt.Mul(dt, big.NewInt(s.m.slower(s.limit.PerMinute))))
	}
	admitted := new(big.Int)
	seen := admission{time: -1}
	for i := len(s.grown) - 1; i >= 0; i-- {
		a := s.grown[i]
		if a.sighting {
			if seen.time >= 0 {
				dt := new(big.Int).Sub(big.NewInt(seen.time), big.NewInt(a.time))
				allowed.Add(allowed, dt.Mul(dt, big.NewInt(min(seen.rate, a.rate))))
			}
			seen = a
		}
		admitted.Add(admitted, a.net)
		if seen.time >= 0 && !a.sighting {
			continue // a raise joined somewhere inside; the stretch from the sighting before it counts
		}
		s.require(admitted.Cmp(allowed) <= 0, "a stretch admitted %v units where %v are allowed", admitted, allowed)
	}
}

func (s *schedule) giveBack() {
	s.t.Helper()
	if len(s.owned) == 0 {
		return
	}
	r := s.owned[rapid.IntRange(0, len(s.owned)-1).Draw(s.t, "whose")]
	keep := rapid.SampledFrom([]int64{0, 0, 1, r.amount / 2, r.amount - 1, r.amount}).Draw(s.t, "keep")
	keep = min(max(keep, 0), r.amount)
	place, merged := s.b.Place(r.seq)
	if r.closed && merged {
		return // cannot be told; the caller must not do it
	}
	drained, drainedUnits := s.b.HeadDrained()
	before := encode(s.t, s.b)
	got, err := s.b.Return(r.seq, r.amount, keep)
	s.require(err == nil, "Return: %v", err)
	if r.closed {
		s.require(got == 0 && bytes.Equal(before, encode(s.t, s.b)), "a second return gave %d", got)
		return
	}
	units := s.m.remove(r.owner, r.amount-keep)
	s.m.close(r.owner)
	s.grown[r.admission].net.Sub(s.grown[r.admission].net, units)
	whole := new(big.Int).Div(units, tokenUnits).Int64()
	switch {
	case s.exact:
		s.require(got == whole, "returned %d, the model %d", got, whole)
	case place > 0:
		s.require(got == r.amount-keep, "behind the head %d of %d came back", got, r.amount-keep)
	case place == 0 && merged:
		want := max(0, (r.amount-drained)*60e6-drainedUnits) - max(0, (keep-drained)*60e6-drainedUnits)
		s.require(got == want/60e6, "the merged head gave %d, want %d", got, want/60e6)
	}
	r.closed, r.keep = true, keep
}

func (s *schedule) overrun() {
	s.t.Helper()
	extra := rapid.Int64Range(0, 15).Draw(s.t, "extra")
	s.require(s.b.Overrun(s.now, extra) == nil, "Overrun failed")
	s.m.join(0, s.now, extra)
	s.log = append(s.log, event{"overrun", 0, s.now, 0, extra})
}

func (s *schedule) see() {
	s.require(s.b.See(s.now, s.limit) == nil, "See failed")
	s.m.see(s.now, s.limit.PerMinute)
	s.grown = append(s.grown, admission{s.m.since, s.limit.PerMinute, true, new(big.Int)})
	s.log = append(s.log, event{"see", 0, s.now, s.limit.PerMinute, 0})
}

func (s *schedule) step() {
	s.t.Helper()
	if step := genStep(s.t); s.now < 1<<61 {
		s.now += step
	}
	switch rapid.IntRange(0, 12).Draw(s.t, "what") {
	case 0, 1, 2, 3:
		s.reserve(false)
	case 4, 5:
		s.reserve(true)
	case 6, 7, 8:
		s.giveBack()
	case 9, 10:
		s.overrun()
	case 11:
		s.limit = genLimit(s.t)
	case 12:
		s.see()
	}
}

// checkCounterfactual replays the history as if everybody had reserved only what they
// kept in the end. The bucket must not hold less.
func (s *schedule) checkCounterfactual() {
	s.t.Helper()
	kept := func(e event) int64 {
		if r := s.owned[e.owner-1]; r.closed {
			return r.keep
		}
		return e.extra
	}
	m := new(model)
	for _, e := range s.log {
		switch e.kind {
		case "admit":
			m.see(e.now, e.rate)
			m.add(e.owner, e.now, kept(e))
		case "raise":
			m.begin(e.now)
			if m.rate < 0 {
				m.rate = e.rate
			}
			m.join(e.owner, e.now, kept(e))
		case "overrun":
			m.join(0, e.now, e.extra)
		case "see":
			m.see(e.now, e.rate)
		case "reanchor":
			m.reanchor(e.now)
		}
	}
	for _, ahead := range [...]int64{0, 1, 999_999, 10_000_000} {
		got, _ := s.b.Debt(s.now+ahead, s.limit)
		want := m.peek(s.now+ahead, s.limit.PerMinute, s.limit.Burst, 0).debt
		s.require(got >= want, "%d µs ahead the bucket holds %d, but %d had nothing been given back", ahead, got, want)
	}
}

// On any schedule the bucket is the model, admits no more than the limit allows, and
// is never more permissive than if what was given back had not been reserved.
func TestPropertyBucketIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSchedule(t, true)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			s.step()
			s.recode()
			s.compare()
			s.checkCounterfactual()
		}
	})
}

// With segments merged early nothing behind the head is lost and nobody gains.
func TestPropertyMergedBucketIsConservative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSchedule(t, false)
		s.limit.Burst = 24
		bound := rapid.IntRange(3, 5).Draw(t, "bound")
		for range rapid.IntRange(10, 50).Draw(t, "steps") {
			s.step()
			behind := s.behind()
			s.b.Fit(bound, 1<<20)
			for _, r := range behind {
				place, _ := s.b.Place(r.seq)
				s.require(place > 0, "merging moved %d to place %d", r.seq, place)
			}
			s.require(s.b.Segments() <= bound, "%d segments", s.b.Segments())
			s.recode()
			s.compare()
			s.checkCounterfactual()
		}
	})
}

// behind lists the open reservations that are not in the head.
func (s *schedule) behind() (list []*reservation) {
	for _, r := range s.owned {
		if place, _ := s.b.Place(r.seq); place > 0 && !r.closed {
			list = append(list, r)
		}
	}
	return list
}

// Polling often refills as much as polling rarely.
func TestPropertyRefillDoesNotDependOnPolling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := genLimit(t)
		limit.Burst = 24
		var often, rarely ratelimit.Bucket
		now := int64(1_700_000_000_000_000)
		for _, b := range [...]*ratelimit.Bucket{&often, &rarely} {
			if _, v, err := b.Admit(now, limit, 20); err != nil || !v.OK {
				t.Fatalf("%+v, %v", v, err)
			}
		}
		for range rapid.IntRange(1, 50).Draw(t, "polls") {
			now += rapid.Int64Range(0, 100_000).Draw(t, "pause")
			if err := often.See(now, limit); err != nil {
				t.Fatal(err)
			}
		}
		a, _ := often.Debt(now, limit)
		b, _ := rarely.Debt(now, limit)
		if a != b {
			t.Fatalf("polled often %d, rarely %d", a, b)
		}
	})
}

// A clock whose history changes drains nothing and stops nothing.
func TestPropertyReanchor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSchedule(t, true)
		s.limit.Burst = 24
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			s.step()
			if rapid.IntRange(0, 5).Draw(t, "reanchor") == 0 {
				s.now += rapid.Int64Range(-50_000_000, 50_000_000).Draw(t, "jump")
				s.b.Reanchor(s.now)
				s.m.reanchor(s.now)
				s.log = append(s.log, event{kind: "reanchor", now: s.now})
				s.grown = nil // the stretches are no longer comparable
				for _, r := range s.owned {
					if !r.closed {
						r.admission = len(s.grown)
						s.grown = append(s.grown, admission{time: s.now, net: new(big.Int)})
					}
				}
				if s.m.started {
					s.grown = append(s.grown, admission{s.now, s.limit.PerMinute, true, new(big.Int)})
				}
			}
			s.recode()
			s.compare()
			s.checkCounterfactual()
		}
	})
}
