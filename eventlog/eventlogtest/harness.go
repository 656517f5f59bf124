// Package eventlogtest is the conformance suite of [eventlog.Store]. Every adapter, in or out of
// this module, runs the same cases:
//
//	func TestStore(t *testing.T) { eventlogtest.Run(t, eventlogtest.Harness{...}) }
//
// A case is named Method/Rule, and its failure says which rule was broken.
package eventlogtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
)

// Features are what an adapter claims. Run shows that it is so.
type Features struct {
	Handles bool // two handles see the same log, and it survives a restart: needs Reopen
	Open    bool // several transactions can append at once and end in any order: needs Begin
}

// Tx is a transaction of the caller's.
type Tx interface {
	Append(ctx context.Context, appends ...eventlog.Append) ([]eventlog.Appended, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Harness makes stores of one adapter for the suite.
type Harness struct {
	Features Features
	// New makes an empty, migrated store; once per case.
	New func(t testing.TB) eventlog.Store
	// Reopen makes a second handle on s's log.
	Reopen func(t testing.TB, s eventlog.Store) eventlog.Store
	// Begin begins a transaction in which events can be appended; it takes its place among the others at once.
	Begin func(t testing.TB, s eventlog.Store) Tx
}

type suiteCase struct {
	name  string
	needs Features
	run   func(k *kit)
}

// Run runs every case whose features the adapter claims. It fails when a claimed feature lacks its hook.
func Run(t *testing.T, h Harness) {
	t.Helper()
	switch {
	case h.New == nil:
		t.Fatal("eventlogtest: Harness.New is missing")
	case h.Features.Handles && h.Reopen == nil:
		t.Fatal("eventlogtest: Features.Handles is claimed but Harness.Reopen is missing")
	case h.Features.Open && h.Begin == nil:
		t.Fatal("eventlogtest: Features.Open is claimed but Harness.Begin is missing")
	}
	seen := map[string]bool{}
	for _, group := range [][]suiteCase{appendCases, readCases, openCases, checkpointCases, pruneCases, logCases, randomCases} {
		for _, c := range group {
			if seen[c.name] {
				t.Fatalf("eventlogtest: two cases are named %s", c.name)
			}
			seen[c.name] = true
			if c.needs.Handles && !h.Features.Handles || c.needs.Open && !h.Features.Open {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				c.run(&kit{T: t, h: h, s: h.New(t), ctx: ctx})
			})
		}
	}
}

// patience is far above what any case needs on a busy machine.
const patience = 2 * time.Minute

// kit is what a case works with.
type kit struct {
	*testing.T
	h   Harness
	s   eventlog.Store
	ctx context.Context

	mu sync.Mutex
	n  int
}

func (k *kit) reopen() eventlog.Store {
	k.Helper()
	return k.h.Reopen(k, k.s)
}

// handles are two handles where the adapter has them, else the one twice.
func (k *kit) handles() [2]eventlog.Store {
	if k.h.Features.Handles {
		return [2]eventlog.Store{k.s, k.reopen()}
	}
	return [2]eventlog.Store{k.s, k.s}
}

// event makes an event with an id that was not used yet.
func (k *kit) event() eventlog.Event {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n++
	return eventlog.Event{ID: fmt.Sprintf("e%d", k.n), Type: "happened", Schema: 1, Data: fmt.Appendf(nil, "data %d", k.n)}
}

// some makes an append of so many events.
func (k *kit) some(stream string, expect eventlog.Expect, n int) eventlog.Append {
	a := eventlog.Append{Stream: stream, Expect: expect, Producer: "someone"}
	for range n {
		a.Events = append(a.Events, k.event())
	}
	return a
}

// put appends and must succeed.
func (k *kit) put(appends ...eventlog.Append) []eventlog.Appended {
	k.Helper()
	return must(k.s.Append(k.ctx, appends))(k)
}

// ids are those of appends, in order.
func ids(appends ...eventlog.Append) (out []string) {
	for _, a := range appends {
		for _, e := range a.Events {
			out = append(out, e.ID)
		}
	}
	return out
}

// drain reads all there is from c, a page of so many at a time.
func (k *kit) drain(c eventlog.Cursor, limit int) (events []eventlog.Recorded, next eventlog.Cursor) {
	k.Helper()
	for {
		page := must(k.s.Read(k.ctx, eventlog.Read{Cursor: c, Limit: limit}))(k)
		k.truth(len(page.Events) <= limit, "a page of at most %d has %d events", limit, len(page.Events))
		events = append(events, page.Events...)
		c = must(eventlog.ParseCursor(page.Next.String()))(k) // as it would be kept
		if !page.More {
			return events, c
		}
	}
}

// delivers checks what comes from c, in order, and returns where it ends.
func (k *kit) delivers(c eventlog.Cursor, want []string, rule string) eventlog.Cursor {
	k.Helper()
	events, next := k.drain(c, 3)
	got := []string{}
	for _, e := range events {
		got = append(got, e.ID)
	}
	if want == nil {
		want = []string{}
	}
	same(k, got, want, rule)
	return next
}

// must unwraps a result: must(s.Head(ctx))(k).
func must[T any](v T, err error) func(*kit) T {
	return func(k *kit) T {
		k.Helper()
		if err != nil {
			k.Fatalf("unexpected error: %v", err)
		}
		return v
	}
}

func (k *kit) ok(err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("unexpected error: %v", err)
	}
}

var sentinels = []error{
	eventlog.ErrInvalid, eventlog.ErrConflict, eventlog.ErrDuplicate, eventlog.ErrUnavailable, eventlog.ErrUnknownOutcome,
	eventlog.ErrResync, eventlog.ErrPruned, eventlog.ErrTaken, eventlog.ErrNotFound, eventlog.ErrMayNotAppend,
}

// is checks that err is want and none of the other sentinels.
func (k *kit) is(err, want error, rule string) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Fatalf("%s: got error %v, want %v", rule, err, want)
	}
	for _, other := range sentinels {
		if errors.Is(err, other) && other != want {
			k.Fatalf("%s: got error %v, which is %v and %v at once", rule, err, want, other)
		}
	}
}

// refused checks that an append fails with want and leaves nothing behind.
func (k *kit) refused(want error, rule string, appends ...eventlog.Append) error {
	k.Helper()
	before, _ := k.drain(eventlog.Cursor{}, 1000)
	out, err := k.s.Append(k.ctx, appends)
	k.is(err, want, rule)
	k.truth(out == nil, "%s: answers came with the error", rule)
	after, _ := k.drain(eventlog.Cursor{}, 1000)
	same(k, after, before, rule+": something was appended")
	return err
}

// same compares by JSON.
func same[T any](k *kit, got, want T, rule string) {
	k.Helper()
	g, errG := json.Marshal(got)
	w, errW := json.Marshal(want)
	if err := errors.Join(errG, errW); err != nil {
		k.Fatalf("%s: %v", rule, err)
	}
	if string(g) != string(w) {
		k.Fatalf("%s:\n got %s\nwant %s", rule, g, w)
	}
}

func (k *kit) truth(ok bool, rule string, args ...any) {
	k.Helper()
	if !ok {
		k.Fatalf(rule, args...)
	}
}

// undisturbed takes a cursor while nothing is open in the cluster: of one that waits for strangers' transactions, unregistered, a store
// may not know whether retention has removed what they brought, and refuses it.
func (k *kit) undisturbed(take func() (eventlog.Cursor, error)) (c eventlog.Cursor) {
	k.Helper()
	k.await("nothing is open elsewhere", func() bool {
		c = must(take())(k)
		return c.Open().Empty()
	})
	return c
}

// await looks until it is so.
func (k *kit) await(rule string, so func() bool) {
	k.Helper()
	for !so() {
		select {
		case <-k.ctx.Done():
			k.Fatalf("never came: %s", rule)
		case <-time.After(time.Millisecond):
		}
	}
}
