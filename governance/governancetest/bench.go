package governancetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// workload is one benchmark: callers share teams, and each call is one operation.
type workload struct {
	name    string
	callers int
	teams   int
	call    func(ctx context.Context, g *governance.Governor, r governance.Request) error
}

var errNotRefused = errors.New("the benchmark's request was admitted")

func benchAdmit(ctx context.Context, g *governance.Governor, r governance.Request) error {
	_, err := g.Admit(ctx, r)
	return err
}

func benchCycle(ctx context.Context, g *governance.Governor, r governance.Request) error {
	p, err := g.Admit(ctx, r)
	if err != nil {
		return err
	}
	return p.Settle(ctx, governance.Used(r.Bound.Tokens/2, r.Bound.Cost/2))
}

func benchRefuse(ctx context.Context, g *governance.Governor, r governance.Request) error {
	r.Bound.Cost = governance.MaxCost
	_, err := g.Admit(ctx, r)
	var refusal *governance.Refusal
	switch {
	case err == nil:
		return errNotRefused
	case errors.As(err, &refusal):
		return nil
	}
	return err
}

// Bench runs the same workloads for every adapter: seven constraints per request,
// on one team (hot) or a hundred (spread). The books are verified afterwards.
func Bench(b *testing.B, h Harness) {
	var list []workload
	for _, callers := range []int{1, 32} {
		list = append(list,
			workload{"Admit/Hot", callers, 1, benchAdmit}, workload{"Admit/Spread", callers, 100, benchAdmit},
			workload{"Cycle/Hot", callers, 1, benchCycle}, workload{"Refuse/Hot", callers, 1, benchRefuse},
		)
	}
	for _, w := range list {
		b.Run(fmt.Sprintf("%s/Callers%d", w.name, w.callers), func(b *testing.B) { w.run(b, h) })
	}
}

func (w *workload) run(b *testing.B, h Harness) {
	e := newEnv(b, h)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	e.ctx = ctx
	rates := keys.Limits{RequestsPerMinute: keys.Limit(1 << 40), TokensPerMinute: keys.Limit(1 << 40)}
	team := rates
	team.TokensPerDay, team.CostPerDay, team.CostPerMonth = keys.Limit(1<<50), keys.Cost(1<<49), keys.Cost(1<<49)
	var requests []governance.Request
	for i := range w.teams {
		id := fmt.Sprintf("team-%d", i)
		e.team(id, team)
		for range 8 {
			requests = append(requests, request(e.caller(id, rates), both(amount.Tokens(100), amount.MicroUSD(100))))
		}
	}
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range w.callers {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				if err := w.call(ctx, e.g, requests[n*7919%int64(len(requests))]); err != nil {
					failed.Add(1)
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	if failed.Load() == 0 {
		e.wantDifferences(0)
	}
}
