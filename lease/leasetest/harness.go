// Package leasetest is the conformance suite of [lease.Leaser]. Every adapter, in or out of
// this module, runs the same cases:
//
//	func TestLeaser(t *testing.T) { leasetest.Run(t, leasetest.Harness{...}) }
//
// A case is named Method/Rule, and its failure says which rule was broken. Memory is a Leaser to
// test with what uses one.
package leasetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/lease"
)

// Features are what an adapter claims. Run shows that it is so.
type Features struct {
	Shared  bool // processes on other machines can use the same data
	Handles bool // other processes see the same data: needs Reopen
	Clock   bool // tests can move the store's clock: needs Advance
	Fence   bool // transactions can be fenced: needs Fence
	Rewind  bool // tests can set the data back: needs Rewind
}

// Harness makes leasers of one adapter for the suite.
type Harness struct {
	Features Features
	// New makes an empty, migrated leaser; once per case.
	New func(t testing.TB) lease.Leaser
	// Reopen makes a leaser on l's data as another process would, with a History of its own.
	Reopen func(t testing.TB, l lease.Leaser) lease.Leaser
	// Advance moves the clock of l's data forward, or does what comes to the same: every time in it back.
	Advance func(t testing.TB, l lease.Leaser, d time.Duration)
	// Fence begins a transaction, fences it, and commits it if that succeeded.
	Fence func(t testing.TB, l lease.Leaser, held lease.Lease) error
	// Rewind sets a name back to a generation, held by nobody, as a restored backup would; 0 removes the row.
	Rewind func(t testing.TB, l lease.Leaser, name string, to lease.Generation)
}

type suiteCase struct {
	name  string
	needs Features
	run   func(k *kit)
}

// Run runs every case whose features the adapter claims. It fails when a claimed feature lacks its hook.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, lacks := range []struct {
		is   bool
		what string
	}{
		{h.New == nil, "Harness.New"},
		{h.Features.Handles && h.Reopen == nil, "Harness.Reopen"},
		{h.Features.Clock && h.Advance == nil, "Harness.Advance"},
		{h.Features.Fence && h.Fence == nil, "Harness.Fence"},
		{h.Features.Rewind && h.Rewind == nil, "Harness.Rewind"},
	} {
		if lacks.is {
			t.Fatalf("leasetest: %s is missing", lacks.what)
		}
	}
	seen := map[string]bool{}
	for _, group := range [][]suiteCase{acquireCases, renewCases, releaseCases, lookCases, fenceCases, historyCases, raceCases, randomCases} {
		for _, c := range group {
			if seen[c.name] {
				t.Fatalf("leasetest: two cases are named %s", c.name)
			}
			seen[c.name] = true
			if !h.Features.cover(c.needs) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				c.run(&kit{T: t, h: h, l: h.New(t), ctx: t.Context()})
			})
		}
	}
}

func (f Features) cover(needs Features) bool {
	return (f.Handles || !needs.Handles) && (f.Clock || !needs.Clock) && (f.Fence || !needs.Fence) && (f.Rewind || !needs.Rewind)
}

// kit is what a case works with.
type kit struct {
	*testing.T
	h   Harness
	l   lease.Leaser
	ctx context.Context
}

const (
	name = "sweep"
	ttl  = 40 * time.Second // longer than any case
)

func claim(holder string) lease.Claim { return lease.Claim{Name: name, Holder: holder, TTL: ttl} }

func (k *kit) reopen() lease.Leaser {
	k.Helper()
	return k.h.Reopen(k, k.l)
}

// handles are two handles where the adapter has them, else the one twice.
func (k *kit) handles() [2]lease.Leaser {
	if k.h.Features.Handles {
		return [2]lease.Leaser{k.l, k.reopen()}
	}
	return [2]lease.Leaser{k.l, k.l}
}

func (k *kit) advance(d time.Duration) {
	k.Helper()
	k.h.Advance(k, k.l, d)
}

func (k *kit) acquire(holder string) lease.Lease {
	k.Helper()
	return must(k.l.Acquire(k.ctx, claim(holder)))(k)
}

func (k *kit) release(held lease.Lease) {
	k.Helper()
	k.succeeds(k.l.Release(k.ctx, held), "a release")
}

func (k *kit) look() lease.Row {
	k.Helper()
	return must(k.l.Look(k.ctx, name))(k)
}

func must[T any](v T, err error) func(*kit) T {
	return func(k *kit) T {
		k.Helper()
		if err != nil {
			k.Fatalf("unexpected error: %v", err)
		}
		return v
	}
}

// succeeds fails the case if there is an error.
func (k *kit) succeeds(err error, rule string) {
	k.Helper()
	if err != nil {
		k.Fatalf("%s: %v", rule, err)
	}
}

func (k *kit) equal(got, want any, rule string) {
	k.Helper()
	if got != want {
		k.Fatalf("%s: got %v, want %v", rule, got, want)
	}
}

var sentinels = []error{lease.ErrHeld, lease.ErrLost, lease.ErrHistoryRegressed, lease.ErrInvalid, lease.ErrUnavailable, lease.ErrUnknownOutcome}

// fails checks that err is want and none of the others.
func (k *kit) fails(err, want error, rule string) {
	k.Helper()
	for _, s := range sentinels {
		if errors.Is(err, s) != (s == want) {
			k.Fatalf("%s: got error %v, want %v", rule, err, want)
		}
	}
}

const racers = 12

// race runs try at once from both handles and returns the errors by racer.
func (k *kit) race(try func(i int, l lease.Leaser) error) []error {
	handles := k.handles()
	errs := make([]error, racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			<-start
			errs[i] = try(i, handles[i%2])
		})
	}
	close(start)
	wg.Wait()
	return errs
}

func holder(i int) string { return fmt.Sprintf("process-%d", i) }
