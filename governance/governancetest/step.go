package governancetest

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func stepCases() []scenario {
	return []scenario{
		{name: "DecidesExactlyOnce", run: stepDecidesOnce},
		{name: "AnswersInTheOrderOfThePlan", run: stepAligned},
		{name: "NewConstraintIsZero", run: stepNewConstraint},
		{name: "WritesWhatIsDecided", run: stepWrites},
		{name: "EmptyWritesNothing", run: stepEmpty},
		{name: "LoadedBelongsToDecide", run: stepOwnsLoaded},
		{name: "LocksSerialize", run: stepLocksSerialize},
		{name: "LocksSerializeAcrossHandles", needs: Features{Shared: true}, run: stepLocksSerializeShared},
		{name: "ClockIsReadAfterTheLocks", run: stepClockAfterLocks},
		{name: "ClockRuns", run: stepClockRuns},
		{name: "EditWaitsForOlderSteps", run: stepEditBarrier},
		{name: "SkipLockedTakesWhatIsFree", run: stepSkipLocked},
		{name: "SkipLockedLeavesOutWhatIsHeld", needs: Features{RowLocks: true}, run: stepSkipHeld},
		{name: "DisjointStepsDoNotWait", needs: Features{RowLocks: true}, run: stepDisjoint},
		{name: "PermitIDIsUnique", run: stepPermitUnique},
		{name: "BatchIDIsUnique", run: stepBatchUnique},
		{name: "VersionConflictWritesNothing", run: stepVersionConflict},
		{name: "MissingPermitWritesNothing", run: stepMissingPermit},
		{name: "CancelledContext", run: stepCancelled},
		{name: "ContextEndsDuringTheWait", run: stepContextEnds},
		{name: "EntriesArePagedByNumber", run: stepEntries},
		{name: "EntriesShowPermitsAsTheyAre", run: stepEntriesCurrent},
		{name: "ManyRows", run: stepManyRows},
	}
}

func stepDecidesOnce(e *env) {
	e.tampered = true
	calls := 0
	e.ok(e.store.Step(e.ctx, e.plan(cid(1)), func(*governance.Loaded) *governance.Changes { calls++; return nil }))
	e.equal("number of calls", calls, 1)
	e.ok(e.store.Step(e.ctx, e.plan(cid(1)), func(l *governance.Loaded) *governance.Changes {
		calls++
		return &governance.Changes{Cells: []governance.Cell{account(cid(1), quota.Window{End: 10}, quota.Account{Consumed: 1})}}
	}))
	e.equal("number of calls", calls, 2)
}

func stepAligned(e *env) {
	e.team("team-1", keys.Limits{})
	a, b := e.caller("team-1", keys.Limits{}), e.caller("team-1", keys.Limits{})
	w := e.today()
	older := quota.Window{Start: w.Start - w.End + w.Start, End: w.Start}
	recs := []governance.Record{e.newRecord(governance.BatchID{}), e.newRecord(governance.BatchID{}), e.newRecord(governance.BatchID{})}
	e.tampered = true
	e.admitted(recs)
	e.write(&governance.Changes{Cells: []governance.Cell{account(cid(7), older, quota.Account{Consumed: 71})}})
	e.write(&governance.Changes{Cells: []governance.Cell{
		account(cid(3), w, quota.Account{Consumed: 3}), account(cid(7), w, quota.Account{Consumed: 7}), account(cid(200), w, quota.Account{Consumed: 200}),
	}})
	plan := e.plan(cid(200), cid(3), cid(5), cid(7))
	for _, of := range []struct {
		id    byte
		start int64
	}{{3, w.Start}, {5, w.Start}, {7, older.Start}, {7, w.Start}} {
		plan.Accounts = append(plan.Accounts, governance.AccountKey{Constraint: cid(of.id), WindowStart: of.start})
	}
	plan.Keys = []string{a.id, b.id, "key_that_is_not_there"}
	if plan.Keys[0] > plan.Keys[1] {
		plan.Keys[0], plan.Keys[1] = plan.Keys[1], plan.Keys[0]
	}
	unknown := e.id()
	plan.Permits = []governance.PermitID{recs[0].ID, recs[1].ID, recs[2].ID, unknown}
	slices.SortFunc(plan.Permits, func(a, b governance.PermitID) int { return bytes.Compare(a[:], b[:]) })
	check := func(l *governance.Loaded, locked bool) {
		e.Helper()
		for i, want := range []int64{3, 0, 7, 200} {
			c := l.Current[i]
			if c.Cell.Account.Consumed != want || c.Locked != locked {
				e.Fatalf("current %d of the plan is %+v, want consumed %d, locked %v", i, c, want, locked)
			}
			if want != 0 && (c.Window != w || c.Cell.Key != (governance.AccountKey{Constraint: plan.Constraints[i], WindowStart: w.Start}) || c.Cell.End != w.End) {
				e.Fatalf("current %d is of window %v with key %v, want %v", i, c.Window, c.Cell.Key, w)
			}
		}
		for i, want := range []int64{3, 0, 71, 7} {
			c := l.Accounts[i]
			if c.Account.Consumed != want || (want == 0) != (c.Kind == 0) || (want != 0 && c.Key != plan.Accounts[i]) {
				e.Fatalf("account %d of the plan is %+v, want consumed %d", i, c, want)
			}
		}
		for i, d := range l.Definitions {
			if d.Found != (i < 2) {
				e.Fatalf("definition %d of the plan: found is %v", i, d.Found)
			}
		}
		for i, rec := range l.Permits {
			if (rec.State == 0) != (plan.Permits[i] == unknown) || (rec.State != 0 && rec.ID != plan.Permits[i]) {
				e.Fatalf("permit %d of the plan is %+v", i, rec)
			}
		}
	}
	e.ok(e.store.Step(e.ctx, plan, func(l *governance.Loaded) *governance.Changes { check(l, true); return nil }))
	l, err := e.store.View(e.ctx, plan)
	e.ok(err)
	check(l, l.Current[0].Locked)
}

func stepNewConstraint(e *env) {
	e.ok(e.store.Step(e.ctx, e.plan(cid(1)), func(l *governance.Loaded) *governance.Changes {
		c := l.Current[0]
		if !c.Locked || c.Window != (quota.Window{}) || c.Cell.Kind != 0 || c.Cell.Account != (quota.Account{}) || c.Cell.Entries != 0 {
			e.Fatalf("a constraint that was never used is %+v", c)
		}
		e.equal("horizon", l.Horizon, int64(0))
		return nil
	}))
}

func stepWrites(e *env) {
	e.tampered = true
	w := e.today()
	a := quota.Account{Consumed: 1, Uncertain: 2, Reserved: 3, Granted: 4, Observed: 5, Frozen: true}
	cell := account(cid(1), w, a)
	cell.Entries = 6
	e.write(&governance.Changes{Cells: []governance.Cell{cell}})
	l, err := e.store.View(e.ctx, e.plan(cid(1)))
	e.ok(err)
	e.equal("window", l.Current[0].Window, w)
	e.equal("cell", e.describeCell(&l.Current[0].Cell), e.describeCell(&cell))
	// A later state replaces the whole earlier one.
	cell = account(cid(1), w, quota.Account{Consumed: 9})
	cell.Kind = governance.KindMoney
	e.write(&governance.Changes{Cells: []governance.Cell{cell}})
	e.equal("cell", e.describeCell(pointer(e.cell(cell.Key))), e.describeCell(&cell))
}

func pointer[T any](v T) *T { return &v }

func stepEmpty(e *env) {
	e.tampered = true
	e.write(&governance.Changes{Cells: []governance.Cell{account(cid(1), e.today(), quota.Account{Consumed: 1})}})
	before := e.snapshot(cid(1), cid(2))
	plan := e.plan(cid(1), cid(2))
	for _, ch := range []*governance.Changes{nil, {}} {
		e.ok(e.store.Step(e.ctx, plan, func(l *governance.Loaded) *governance.Changes {
			l.Current[0].Cell.Account.Consumed = 99 // a decision that was given up
			return ch
		}))
		e.unchanged(before, cid(1), cid(2))
	}
	// The batch id was not used up.
	rec := e.newRecord(plan.Batch)
	e.ok(e.store.Step(e.ctx, plan, func(*governance.Loaded) *governance.Changes {
		return &governance.Changes{Batch: &governance.Batch{ID: plan.Batch, At: rec.At, Terms: [][]byte{{1}}, Permits: []governance.Record{rec}}}
	}))
}

func stepOwnsLoaded(e *env) {
	e.tampered = true
	w := e.today()
	cell := account(cid(1), w, quota.Account{Consumed: 1})
	slots := governance.Cell{Key: governance.AccountKey{Constraint: cid(2)}, End: 1<<63 - 1, Kind: governance.KindConcurrency,
		Slots: governance.Slots{Holders: []governance.SlotHolder{{Incarnation: 1, Count: 1, Expires: 5}}}}
	e.write(&governance.Changes{Cells: []governance.Cell{cell, slots}})
	before := e.snapshot(cid(1), cid(2))
	spoil := func(l *governance.Loaded) *governance.Changes {
		l.Current[0].Cell.Account.Consumed = 50
		l.Current[1].Cell.Slots.Holders[0].Count = 50
		return nil
	}
	e.ok(e.store.Step(e.ctx, e.plan(cid(1), cid(2)), spoil))
	l, err := e.store.View(e.ctx, e.plan(cid(1), cid(2)))
	e.ok(err)
	spoil(l)
	e.unchanged(before, cid(1), cid(2))
}

// count adds one to an account, n times, from many goroutines on several stores.
func (e *env) count(n int, stores ...governance.Store) {
	e.Helper()
	w := e.today()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ids := []governance.ConstraintID{cid(1), cid(2), cid(3)}
			plan := &governance.Plan{Batch: e.batchID(), Constraints: sorted(ids[i%2:])} // two sets that overlap
			for attempt := 0; ; attempt++ {
				err := stores[i%len(stores)].Step(e.ctx, plan, func(l *governance.Loaded) *governance.Changes {
					ch := &governance.Changes{}
					for j := range l.Current {
						c := account(plan.Constraints[j], w, quota.Account{Consumed: l.Current[j].Cell.Account.Consumed + 1})
						ch.Cells = append(ch.Cells, c)
						ch.Windows = append(ch.Windows, governance.WindowChange{Constraint: c.Key.Constraint, Window: w})
						runtime.Gosched()
					}
					return ch
				})
				if again := errors.Is(err, governance.ErrRetry) || errors.Is(err, governance.ErrLockTimeout); again && attempt < 50 {
					continue
				}
				if err != nil {
					e.Errorf("step %d: %v", i, err)
				}
				return
			}
		})
	}
	wg.Wait()
	for b, want := range map[byte]int64{1: int64(n+1) / 2, 2: int64(n), 3: int64(n)} {
		c := e.cell(governance.AccountKey{Constraint: cid(b), WindowStart: w.Start})
		e.equal("count", c.Account.Consumed, want)
	}
}

func stepLocksSerialize(e *env) {
	e.tampered = true
	e.count(200, e.store)
}

func stepLocksSerializeShared(e *env) {
	e.tampered = true
	other := e.h.Reopen(e, e.b).Backend().Store
	e.count(200, e.store, other)
}

// during runs f while a step holds the constraints, and returns once that step has
// ended. f gets a function that lets it end.
func (e *env) during(plan *governance.Plan, f func(release func())) {
	e.Helper()
	held, gate := make(chan struct{}), make(chan struct{})
	var entered, once sync.Once
	release := func() { once.Do(func() { close(gate) }) }
	done := make(chan error, 1)
	go func() {
		done <- e.store.Step(e.ctx, plan, func(*governance.Loaded) *governance.Changes {
			entered.Do(func() { close(held) })
			<-gate
			return nil
		})
	}()
	select {
	case <-held:
	case err := <-done:
		e.Fatalf("the step did not begin: %v", err)
	}
	defer func() {
		release()
		if err := <-done; err != nil {
			e.Errorf("the step that held the locks: %v", err)
		}
	}()
	f(release)
}

// moment gives other goroutines time to come to the point where they wait. The
// cases hold without it; it makes mistakes likelier to show.
func moment() { time.Sleep(20 * time.Millisecond) }

func stepClockAfterLocks(e *env) {
	var before, after int64
	before = e.now()
	result := make(chan error, 1)
	e.during(e.plan(cid(1)), func(release func()) {
		plan := e.plan(cid(1))
		go func() {
			result <- e.store.Step(e.ctx, plan, func(l *governance.Loaded) *governance.Changes { after = l.Now; return nil })
		}()
		moment()
		e.advance(time.Hour)
		release()
		e.ok(<-result)
	})
	if after < before+time.Hour.Microseconds() {
		e.Fatalf("the clock was read before the locks were held: %d, an hour after %d", after, before)
	}
}

func stepClockRuns(e *env) {
	first := e.now()
	e.advance(90 * time.Minute)
	var second int64
	e.ok(e.store.Step(e.ctx, e.plan(), func(l *governance.Loaded) *governance.Changes { second = l.Now; return nil }))
	if d := second - first; d < 90*time.Minute.Microseconds() || d > 120*time.Minute.Microseconds() {
		e.Fatalf("the clock moved by %d µs, want 90 minutes", d)
	}
}

func stepEditBarrier(e *env) {
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	plan := e.plan(cid(1))
	plan.Keys = []string{c.id}
	edited := make(chan error, 1)
	e.during(plan, func(release func()) {
		go func() {
			_, err := e.keys.RevokeKey(e.ctx, keys.RevokeKey{ID: c.id})
			edited <- err
		}()
		moment()
		select {
		case err := <-edited:
			e.Fatalf("an edit returned (%v) while a step that read the older definition was running", err)
		default:
		}
		release()
		e.ok(<-edited)
	})
	e.ok(e.store.Step(e.ctx, plan, func(l *governance.Loaded) *governance.Changes {
		if l.Definitions[0].RevokedAt == 0 {
			e.Errorf("a step that began after the edit read the older definition")
		}
		return nil
	}))
}

func stepSkipLocked(e *env) {
	plan := e.plan(cid(1), cid(2))
	plan.SkipLocked = true
	e.ok(e.store.Step(e.ctx, plan, func(l *governance.Loaded) *governance.Changes {
		if !l.Current[0].Locked || !l.Current[1].Locked {
			e.Errorf("rows that nobody holds were skipped")
		}
		return nil
	}))
}

func stepSkipHeld(e *env) {
	e.ok(e.store.Step(e.ctx, e.plan(cid(1), cid(2)), decideNothing))
	e.during(e.plan(cid(1)), func(func()) {
		plan := e.plan(cid(1), cid(2))
		plan.SkipLocked = true
		e.ok(e.store.Step(e.ctx, plan, func(l *governance.Loaded) *governance.Changes {
			if l.Current[0].Locked || !l.Current[1].Locked {
				e.Errorf("locked is %v and %v, want only the second", l.Current[0].Locked, l.Current[1].Locked)
			}
			return nil
		}))
	})
}

func stepDisjoint(e *env) {
	e.ok(e.store.Step(e.ctx, e.plan(cid(1), cid(2)), decideNothing))
	e.during(e.plan(cid(1)), func(func()) {
		e.ok(e.store.Step(e.ctx, e.plan(cid(2)), decideNothing))
	})
}

func stepCancelled(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	called := false
	err := e.store.Step(ctx, e.plan(cid(1)), func(*governance.Loaded) *governance.Changes { called = true; return nil })
	e.is(err, governance.ErrUnavailable)
	e.equal("decide was called", called, false)
}

func stepContextEnds(e *env) {
	e.tampered = true
	w := e.today()
	e.during(e.plan(cid(1)), func(release func()) {
		ctx, cancel := context.WithTimeout(e.ctx, 20*time.Millisecond)
		defer cancel()
		result := make(chan error, 1)
		go func() {
			plan := &governance.Plan{Batch: e.batchID(), Constraints: []governance.ConstraintID{cid(1)}}
			result <- e.store.Step(ctx, plan, func(*governance.Loaded) *governance.Changes {
				return &governance.Changes{Cells: []governance.Cell{account(cid(1), w, quota.Account{Consumed: 5})}}
			})
		}()
		<-ctx.Done()
		moment()
		release()
		// It may have begun in time or not; it must say which.
		err := <-result
		have := e.cell(governance.AccountKey{Constraint: cid(1), WindowStart: w.Start}).Account.Consumed
		switch {
		case err == nil:
			e.equal("consumed after success", have, int64(5))
		case errors.Is(err, governance.ErrUnavailable), errors.Is(err, governance.ErrLockTimeout), errors.Is(err, governance.ErrRetry):
			e.equal("consumed after an error", have, int64(0))
		case !errors.Is(err, governance.ErrUnknownOutcome):
			e.Fatalf("error is %v", err)
		}
	})
}
