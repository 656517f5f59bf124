package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// load is what callers repeat. op is called with the caller's number.
type load func(ctx context.Context, caller int) error

// sample is one round of one side.
type sample struct {
	ops, p50, p99, allocs, wal, syncs float64
	count                             int64
}

// drive runs the load with so many callers in a closed loop.
func drive(ctx context.Context, callers int, length time.Duration, op load) (sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	latencies := make([][]time.Duration, callers)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	end := start.Add(length)
	var wg sync.WaitGroup
	for i := range callers {
		latencies[i] = make([]time.Duration, 0, 1<<14)
		wg.Go(func() {
			for last := time.Now(); last.Before(end); {
				if err := op(ctx, i); err != nil {
					cancel(err)
					return
				}
				now := time.Now()
				latencies[i] = append(latencies[i], now.Sub(last))
				last = now
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if err := context.Cause(ctx); err != nil {
		return sample{}, err
	}
	all := slices.Concat(latencies...)
	if len(all) == 0 {
		return sample{}, fmt.Errorf("nothing finished within %s", length)
	}
	slices.Sort(all)
	micros := func(q float64) float64 {
		return float64(all[min(len(all)-1, int(q*float64(len(all))))]) / float64(time.Microsecond)
	}
	n := float64(len(all))
	return sample{
		ops: n / took.Seconds(), p50: micros(0.5), p99: micros(0.99),
		allocs: float64(after.Mallocs-before.Mallocs) / n, count: int64(len(all)),
	}, nil
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	if n := len(list); n%2 == 0 {
		return (list[n/2-1] + list[n/2]) / 2
	}
	return list[len(list)/2]
}

func pick(list []sample, field func(sample) float64) float64 {
	values := make([]float64, len(list))
	for i, s := range list {
		values[i] = field(s)
	}
	return median(values)
}
