package governance_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/keys"
)

const (
	liveSegments = 150
	perMinute    = 2 * liveSegments // the buckets are half full
	perRequest   = 100              // tokens
)

// bench is a Governor in memory whose clock moves with the admissions: each
// bucket drains one reservation per admission and so keeps its segments.
type bench struct {
	gov   *governance.Governor
	keys  []*keys.Principal
	clock atomic.Int64
}

func newBench(b *testing.B, teams int) *bench {
	b.Helper()
	s := &bench{}
	s.clock.Store(time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC).UnixMicro())
	db, err := governancemem.New(&governancemem.Options{Now: func() time.Time { return time.UnixMicro(s.clock.Load()) }})
	if err != nil {
		b.Fatal(err)
	}
	if s.gov, err = governance.New(db, nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.gov.Close(context.Background()) })
	ctx := context.Background()
	for i := range teams {
		team := fmt.Sprint("team", i)
		if _, err := db.Keys.CreateTeam(ctx, keys.CreateTeam{ID: team, Limits: keys.Limits{
			RequestsPerMinute: keys.Limit(perMinute), TokensPerMinute: keys.Limit(perMinute * perRequest),
			TokensPerDay: keys.Limit(1 << 50), CostPerMonth: keys.Cost(1 << 50),
		}}); err != nil {
			b.Fatal(err)
		}
		made, err := db.Keys.CreateKey(ctx, keys.CreateKey{TeamID: team, Limits: keys.Limits{
			RequestsPerMinute: keys.Limit(perMinute), TokensPerMinute: keys.Limit(perMinute * perRequest), CostPerMonth: keys.Cost(1 << 50),
		}})
		if err != nil {
			b.Fatal(err)
		}
		p, err := db.Keys.Resolve(ctx, made.Token.Reveal())
		if err != nil {
			b.Fatal(err)
		}
		s.keys = append(s.keys, &p)
		for range liveSegments {
			s.admit(b, i)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	return s
}

func (s *bench) request(i int) governance.Request {
	return governance.Request{Principal: s.keys[i%len(s.keys)], Model: "small-1", Bound: governance.Bound{Tokens: perRequest, Cost: 50}}
}

func (s *bench) admit(b *testing.B, i int) *governance.Permit {
	permit, err := s.gov.Admit(context.Background(), s.request(i))
	if err != nil {
		b.Fatal(err)
	}
	return permit
}

// tick lets every bucket of a team drain one reservation.
func (s *bench) tick() { s.clock.Add(time.Minute.Microseconds() / perMinute) }

func BenchmarkAdmit(b *testing.B) {
	s := newBench(b, 1)
	for i := range b.N {
		s.tick()
		s.admit(b, i)
	}
}

func BenchmarkAdmitAndSettle(b *testing.B) {
	s := newBench(b, 1)
	ctx := context.Background()
	for i := range b.N {
		s.tick()
		if err := s.admit(b, i).Settle(ctx, governance.Used(perRequest/2, 20)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAdmitParallel(b *testing.B) {
	s := newBench(b, 1)
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.tick()
			s.admit(b, 0)
		}
	})
}

func BenchmarkAdmitParallelSpread(b *testing.B) {
	const teams = 100
	s := newBench(b, teams)
	var turn atomic.Int64
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := int(turn.Add(1))
			if i%teams == 0 {
				s.tick()
			}
			s.admit(b, i)
		}
	})
}

func BenchmarkRefuse(b *testing.B) {
	s := newBench(b, 1)
	r := s.request(0)
	r.Bound.Tokens = perMinute * perRequest
	for range b.N {
		if _, err := s.gov.Admit(context.Background(), r); err == nil {
			b.Fatal("admitted")
		}
	}
}
