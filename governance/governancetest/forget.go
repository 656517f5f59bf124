package governancetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/quota"
)

// forgetCases call Forget and Prune of the store itself.
func forgetCases() []scenario {
	return []scenario{
		{name: "HorizonOnlyRises", run: forgetHorizon},
		{name: "JudgeDecides", run: forgetJudge},
		{name: "OnlyOlderPermitsAreJudged", run: forgetYounger},
		{name: "WhatIsKeptGoesOn", run: forgetKept},
		{name: "TotalsAddUp", run: forgetTotals},
		{name: "EntriesEndBeforeWhatIsGone", run: forgetEntries},
		{name: "WaitsForOlderSteps", run: forgetBarrier},
		{name: "CancelledContext", run: forgetCancelled},
	}
}

const day = 24 * time.Hour

// horizon reads it.
func (e *env) horizon() int64 {
	e.Helper()
	l, err := e.store.View(e.ctx, &governance.Plan{})
	e.ok(err)
	var stepped int64
	e.ok(e.store.Step(e.ctx, e.plan(cid(1)), func(l *governance.Loaded) *governance.Changes { stepped = l.Horizon; return nil }))
	e.equal("horizon in a step", stepped, l.Horizon)
	return l.Horizon
}

// forget raises the horizon to some days ago. A store may round it down by some days.
func (e *env) forget(ago time.Duration) governance.Memory {
	e.Helper()
	before := e.now() - ago.Microseconds()
	before -= before % 1000
	m, err := e.store.Forget(e.ctx, before)
	e.ok(err)
	if m.Horizon > before || m.Horizon < before-(8*day).Microseconds() {
		e.Fatalf("the horizon is %d, asked for was %d", m.Horizon, before)
	}
	e.equal("horizon", e.horizon(), m.Horizon)
	return m
}

func forgetHorizon(e *env) {
	e.equal("horizon", e.horizon(), int64(0))
	first := e.forget(20 * day)
	m, err := e.store.Forget(e.ctx, first.Horizon-(10*day).Microseconds())
	e.ok(err)
	e.equal("horizon after an earlier one was asked for", m.Horizon, first.Horizon)
	m, err = e.store.Forget(e.ctx, 0)
	e.ok(err)
	e.equal("horizon", m.Horizon, first.Horizon)
	if m := e.forget(2 * day); m.Horizon <= first.Horizon {
		e.Fatalf("the horizon stays at %d", m.Horizon)
	}
}

// aged are permits of some batches, made twenty days ago: of each batch the first is
// of a kind, the second settled.
func (e *env) aged(n int) (first, second []governance.Record) {
	e.Helper()
	for i := range n {
		a, b := e.newRecord(governance.BatchID{}), e.newRecord(governance.BatchID{})
		e.admitted([]governance.Record{a, b})
		for _, id := range []governance.PermitID{a.ID, b.ID} {
			rec := e.record(id)
			if id == b.ID || i%3 == 1 {
				rec.State, rec.EndedAt, rec.Version, rec.Outcome = governance.StateSettled, e.now(), 2, governance.Used(3, 4)
				e.write(&governance.Changes{Permits: []governance.Record{rec}})
				rec = e.record(id)
			}
			if id == a.ID {
				first = append(first, rec)
			} else {
				second = append(second, rec)
			}
		}
	}
	e.advance(20 * day)
	return first, second
}

// remove lets go of those that are named.
func (e *env) remove(list []governance.Record) governance.Swept {
	e.Helper()
	done, err := e.store.Prune(e.ctx, func(rec *governance.Record) (governance.Pruned, bool) {
		i := slices.IndexFunc(list, func(other governance.Record) bool { return other.ID == rec.ID })
		if i < 0 {
			return governance.Pruned{}, false
		}
		if describeRecord(rec) != describeRecord(&list[i]) {
			e.Errorf("judged is %s, want %s", describeRecord(rec), describeRecord(&list[i]))
		}
		return governance.Pruned{Permits: 1, Tokens: 10, Cost: 100}, true
	})
	e.ok(err)
	return done
}

func forgetJudge(e *env) {
	e.tampered = true
	kept, gone := e.aged(9)
	before := e.snapshot()
	e.forget(10 * day)
	done := e.remove(nil)
	e.equal("swept", done, governance.Swept{Kept: 18})
	e.unchanged(before)
	e.equal("swept", e.remove(gone).Removed, governance.Pruned{Permits: 9, Tokens: 90, Cost: 900})
	slices.SortFunc(kept, func(a, b governance.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	e.sameRecords(e.everyPermit(governance.PermitQuery{}), kept)
	for i := range kept {
		e.equal("kept", describeRecord(pointer(e.record(kept[i].ID))), describeRecord(&kept[i]))
		e.equal("state of one that is gone", e.record(gone[i].ID).State, governance.State(0))
	}
	// Both in one plan, and the others by their state.
	plan := &governance.Plan{}
	for i := range kept {
		plan.Permits = append(plan.Permits, kept[i].ID, gone[i].ID)
	}
	slices.SortFunc(plan.Permits, comparePermitIDs)
	l, err := e.store.View(e.ctx, plan)
	e.ok(err)
	for i, id := range plan.Permits {
		there := slices.ContainsFunc(kept, func(rec governance.Record) bool { return rec.ID == id })
		e.equal("there", l.Permits[i].State != 0, there)
	}
	e.equal("settled", len(e.everyPermit(governance.PermitQuery{States: []governance.State{governance.StateSettled}})), 3)
	e.equal("swept", e.remove(gone), governance.Swept{Kept: 9, Total: governance.Pruned{Permits: 9, Tokens: 90, Cost: 900}})
	e.equal("swept", e.remove(kept).Removed.Permits, int64(3)) // whatever is open stays
	e.equal("permits", len(e.everyPermit(governance.PermitQuery{States: []governance.State{governance.StateOpen}})), 6)
	e.equal("permits", len(e.everyPermit(governance.PermitQuery{})), 6)
}

func forgetYounger(e *env) {
	e.tampered = true
	_, old := e.aged(3)
	var young []governance.Record
	for range 3 {
		rec := e.newRecord(governance.BatchID{})
		e.admitted([]governance.Record{rec})
		young = append(young, e.record(rec.ID))
	}
	e.equal("swept before the horizon rose", e.remove(old), governance.Swept{})
	e.forget(10 * day)
	done := e.remove(append(slices.Clone(old), young...))
	e.equal("removed", done.Removed.Permits, int64(3))
	e.equal("kept", done.Kept, int64(3))
	for i := range young {
		e.equal("young", describeRecord(pointer(e.record(young[i].ID))), describeRecord(&young[i]))
	}
}

// forgetKept: permits that were kept change, are compared by version, and are listed.
func forgetKept(e *env) {
	e.tampered = true
	kept, gone := e.aged(6)
	e.forget(10 * day)
	e.remove(gone)
	for i := range kept {
		rec := kept[i]
		if rec.State != governance.StateOpen {
			continue
		}
		lost := rec
		lost.Version = 3 // never read
		plan := &governance.Plan{Batch: e.batchID(), Permits: []governance.PermitID{rec.ID}}
		err := e.store.Step(e.ctx, plan, func(*governance.Loaded) *governance.Changes {
			return &governance.Changes{Permits: []governance.Record{lost}}
		})
		e.is(err, governance.ErrRetry)
		rec.Version, rec.State, rec.Flags, rec.Outcome, rec.EndedAt = 2, governance.StateSettled, governance.FlagOverrun, governance.Used(99, 98), e.now()
		e.write(&governance.Changes{Permits: []governance.Record{rec}})
		e.equal("kept", describeRecord(pointer(e.record(rec.ID))), describeRecord(&rec))
		kept[i] = rec
	}
	slices.SortFunc(kept, func(a, b governance.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	e.sameRecords(e.everyPermit(governance.PermitQuery{}), kept)
	e.equal("flagged", len(e.everyPermit(governance.PermitQuery{Flags: governance.FlagOverrun})), 4)
	// The id of one that was kept is still its own.
	rec := e.newRecord(governance.BatchID{})
	rec.ID = kept[0].ID
	plan := &governance.Plan{Batch: e.batchID(), Permits: []governance.PermitID{rec.ID}}
	e.ok(e.store.Step(e.ctx, plan, func(l *governance.Loaded) *governance.Changes {
		e.equal("state", l.Permits[0].State != 0, true)
		return nil
	}))
}

func forgetTotals(e *env) {
	e.tampered = true
	first, second := e.aged(7)
	e.equal("total", e.forget(10*day).Total, governance.Pruned{})
	e.equal("total", e.remove(second[:3]).Total, governance.Pruned{Permits: 3, Tokens: 30, Cost: 300})
	e.equal("total", e.forget(10*day).Total, governance.Pruned{Permits: 3, Tokens: 30, Cost: 300})
	done := e.remove(append(second[3:], first...))
	e.equal("swept", done, governance.Swept{Removed: governance.Pruned{Permits: 6, Tokens: 60, Cost: 600}, Kept: 5, Total: governance.Pruned{Permits: 9, Tokens: 90, Cost: 900}})
	e.equal("total", e.forget(10*day).Total, done.Total)
}

// forgetEntries removes a permit, or a whole batch, that an entry needs.
func forgetEntries(e *env) {
	e.tampered = true
	for key, whole := range map[byte]bool{1: false, 2: true} {
		cell := account(cid(key), e.today(), quota.Account{})
		var all [][]governance.Record
		for range 5 {
			a, b := e.newRecord(governance.BatchID{}), e.newRecord(governance.BatchID{})
			e.admitted([]governance.Record{a, b}, cell)
			cell.Entries++
			for _, rec := range []*governance.Record{&a, &b} {
				*rec = e.record(rec.ID)
				rec.State, rec.EndedAt, rec.Version, rec.Outcome = governance.StateSettled, e.now(), 2, governance.Used(3, 4)
			}
			e.write(&governance.Changes{Permits: []governance.Record{a, b}})
			all = append(all, []governance.Record{e.record(a.ID), e.record(b.ID)})
		}
		e.advance(20 * day)
		e.forget(10 * day)
		gone := all[3][1:]
		if whole {
			gone = all[3]
		}
		e.remove(gone)
		for after, want := range []int64{3, 3, 3, 3, 5} {
			numbers, read := e.readEntries(cell.Key, int64(after), 100)
			e.equal("entries read", read, want)
			e.equal("permits", int64(len(numbers)), 2*(want-int64(after)))
		}
	}
}

// forgetBarrier: a step that read the older horizon may admit an old id. Forget
// returns when there is none any more.
func forgetBarrier(e *env) {
	done := make(chan error, 1)
	e.during(e.plan(cid(1)), func(release func()) {
		go func() {
			_, err := e.store.Forget(e.ctx, e.h0())
			done <- err
		}()
		moment()
		select {
		case err := <-done:
			e.Fatalf("the horizon rose (%v) while a step that read the older one was running", err)
		default:
		}
		release()
		e.ok(<-done)
	})
	if e.horizon() == 0 {
		e.Fatal("the horizon did not rise")
	}
}

// h0 is an instant of the past that every clock of a suite has behind it.
func (e *env) h0() int64 { return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() }

func forgetCancelled(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err := e.store.Forget(ctx, e.h0())
	e.is(err, governance.ErrUnavailable)
	_, err = e.store.Prune(ctx, func(*governance.Record) (governance.Pruned, bool) { return governance.Pruned{}, false })
	if !errors.Is(err, governance.ErrUnavailable) {
		e.Fatalf("error is %v", err)
	}
	e.equal("horizon", e.horizon(), int64(0))
}
