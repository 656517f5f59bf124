package governancetest

import (
	"bytes"
	"context"
	"math"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func viewCases() []scenario {
	return []scenario{
		{name: "CreatesNothing", run: viewCreatesNothing},
		{name: "TakesNoLocks", needs: Features{Snapshots: true}, run: viewTakesNoLocks},
		{name: "SeesWhatIsCommitted", run: viewCommitted},
		{name: "SeesEditsOfDefinitions", run: viewDefinitions},
		{name: "CancelledContext", run: viewCancelled},
	}
}

func viewCreatesNothing(e *env) {
	plan := e.plan(cid(1), cid(2))
	plan.Accounts = []governance.AccountKey{{Constraint: cid(1), WindowStart: 5}}
	plan.Keys = []string{"key_that_is_not_there"}
	plan.Permits = []governance.PermitID{e.id()}
	plan.Entries = &governance.EntryQuery{Account: governance.AccountKey{Constraint: cid(1)}, Limit: 10}
	for range 2 {
		l, err := e.store.View(e.ctx, plan)
		e.ok(err)
		if len(l.Current) != 2 || len(l.Accounts) != 1 || len(l.Definitions) != 1 || len(l.Permits) != 1 || len(l.Entries) != 0 {
			e.Fatalf("an empty store answers %+v", l)
		}
		if l.Current[0].Window != (quota.Window{}) || l.Current[0].Cell.Kind != 0 || l.Accounts[0].Kind != 0 || l.Definitions[0].Found || l.Permits[0].State != 0 {
			e.Fatalf("an empty store has %+v", l)
		}
	}
	e.equal("accounts", len(e.everyAccount()), 0)
	e.equal("permits", len(e.everyPermit(governance.PermitQuery{})), 0)
}

func viewTakesNoLocks(e *env) {
	e.tampered = true
	w := e.today()
	e.write(&governance.Changes{Cells: []governance.Cell{account(cid(1), w, quota.Account{Consumed: 4})}})
	e.during(e.plan(cid(1)), func(func()) {
		key := governance.AccountKey{Constraint: cid(1), WindowStart: w.Start}
		e.equal("consumed", e.cell(key).Account.Consumed, int64(4))
		e.equal("accounts", len(e.everyAccount()), 1)
		e.equal("permits", len(e.everyPermit(governance.PermitQuery{})), 0)
	})
}

func viewCommitted(e *env) {
	e.tampered = true
	w := e.today()
	key := governance.AccountKey{Constraint: cid(1), WindowStart: w.Start}
	for n := range int64(20) {
		e.write(&governance.Changes{Cells: []governance.Cell{account(cid(1), w, quota.Account{Consumed: n})}})
		e.equal("consumed", e.cell(key).Account.Consumed, n)
	}
}

func viewDefinitions(e *env) {
	team := e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	look := func() keys.Definition {
		e.Helper()
		l, err := e.store.View(e.ctx, &governance.Plan{Keys: []string{c.id}})
		e.ok(err)
		return l.Definitions[0]
	}
	d := look()
	e.equal("definition", d, keys.Definition{Found: true, KeyRevision: 1, TeamRevision: 1})
	e.limitKey(c.id, keys.LimitsChange{Concurrency: keys.Set(keys.Limit(3))})
	e.equal("key revision", look().KeyRevision, int64(2))
	e.limitTeam(team.ID, keys.LimitsChange{Concurrency: keys.Set(keys.Limit(3))})
	e.equal("team revision", look().TeamRevision, int64(2))
	expiry := time.UnixMicro(e.now()).Add(time.Hour).UTC()
	_, err := e.keys.UpdateKey(e.ctx, keys.UpdateKey{ID: c.id, IfRevision: 2, ExpiresAt: keys.Set(&expiry)})
	e.ok(err)
	e.equal("expiry", look().ExpiresAt, expiry.UnixMicro())
	_, err = e.keys.DeleteTeam(e.ctx, keys.DeleteTeam{ID: team.ID})
	e.ok(err)
	e.equal("team deleted", look().TeamDeleted, true)
	_, err = e.keys.RevokeKey(e.ctx, keys.RevokeKey{ID: c.id})
	e.ok(err)
	if look().RevokedAt <= 0 {
		e.Fatalf("a revoked key has the definition %+v", look())
	}
}

func viewCancelled(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err := e.store.View(ctx, e.plan(cid(1)))
	e.is(err, governance.ErrUnavailable)
	_, err = e.store.Permits(ctx, governance.PermitQuery{Limit: 1})
	e.is(err, governance.ErrUnavailable)
	_, err = e.store.Accounts(ctx, governance.AccountQuery{Limit: 1})
	e.is(err, governance.ErrUnavailable)
	_, err = e.store.Notes(ctx, governance.NoteQuery{Limit: 1})
	e.is(err, governance.ErrUnavailable)
}

func permitsCases() []scenario {
	return []scenario{
		{name: "InTheOrderOfTheirIDs", run: permitsOrder},
		{name: "SelectedByStateOrFlag", run: permitsSelect},
		{name: "PagesDoNotOverlap", run: permitsPages},
	}
}

// severalPermits writes permits in all states and with all flags, in batches whose
// order is not that of the ids.
func (e *env) severalPermits() []governance.Record {
	e.Helper()
	now := time.UnixMicro(e.now())
	var all []governance.Record
	states := []governance.State{governance.StateOpen, governance.StateSettled, governance.StateCancelled, governance.StateResolved}
	for i := range 36 {
		rec := e.newRecord(governance.BatchID{})
		rec.ID = governance.NewPermitID(now.Add(time.Duration(i*7%36-18) * time.Second))
		if i >= 24 { // as they were admitted
			rec.Flags = governance.FlagFree * governance.Flags(i%2)
			e.admitted([]governance.Record{rec})
			all = append(all, e.record(rec.ID))
			continue
		}
		e.admitted([]governance.Record{rec})
		rec = e.record(rec.ID)
		rec.State, rec.Flags, rec.Version = states[i%4], governance.Flags(1)<<(i/4)&31, 2
		e.write(&governance.Changes{Permits: []governance.Record{rec}})
		all = append(all, rec)
	}
	slices.SortFunc(all, func(a, b governance.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return all
}

func (e *env) sameRecords(have, want []governance.Record) {
	e.Helper()
	if len(have) != len(want) {
		e.Fatalf("%d permits, want %d", len(have), len(want))
	}
	for i := range want {
		e.equal("permit", describeRecord(&have[i]), describeRecord(&want[i]))
	}
}

func permitsOrder(e *env) {
	want := e.severalPermits()
	have, err := e.store.Permits(e.ctx, governance.PermitQuery{Limit: 100})
	e.ok(err)
	e.sameRecords(have, want)
}

func permitsSelect(e *env) {
	all := e.severalPermits()
	open := []governance.State{governance.StateOpen}
	for _, q := range []governance.PermitQuery{
		{}, {States: open}, {States: []governance.State{governance.StateSettled, governance.StateResolved}},
		{Flags: governance.FlagOverrun}, {Flags: governance.FlagTokensUncertain | governance.FlagInvalid},
		{States: open, Flags: governance.FlagTokensUncertain | governance.FlagCostUncertain | governance.FlagInvalid},
		{Flags: governance.FlagFree}, {States: []governance.State{governance.StateSettled}, Flags: governance.FlagFree},
		{States: open, Flags: governance.FlagOverrun}, {States: []governance.State{governance.StateCancelled}, Flags: governance.FlagFree | governance.FlagOverrun},
	} {
		for _, limit := range []int{1, 3, 8, 100} {
			for _, after := range []governance.PermitID{{}, all[0].ID, all[11].ID, all[23].ID, all[35].ID} {
				q.After, q.Limit = after, limit
				var want []governance.Record
				for i := range all {
					if bytes.Compare(all[i].ID[:], after[:]) > 0 && q.Matches(&all[i]) && len(want) < limit {
						want = append(want, all[i])
					}
				}
				have, err := e.store.Permits(e.ctx, q)
				e.ok(err)
				e.sameRecords(have, want)
			}
		}
	}
}

func permitsPages(e *env) {
	want := e.severalPermits()
	e.sameRecords(e.everyPermit(governance.PermitQuery{}), want)
}

func accountsCases() []scenario {
	return []scenario{
		{name: "InTheOrderOfTheirKeys", run: accountsOrder},
		{name: "OnlyAccounts", run: accountsOnly},
		{name: "OnlyFrozen", run: accountsFrozen},
	}
}

func accountsOrder(e *env) {
	e.tampered = true
	// Bytes above 127 and windows before 1970 show comparisons that are signed, or are not.
	var want []governance.Cell
	for _, b := range []byte{0, 1, 127, 128, 255} {
		for _, start := range []int64{-86_400_000_000, -1, 0, 1, 255, 256, 1 << 40} {
			c := account(cid(b), quota.Window{Start: start, End: start + 1}, quota.Account{Consumed: int64(b)})
			want = append(want, c)
		}
	}
	for i := range want {
		e.write(&governance.Changes{Cells: []governance.Cell{want[i*11%len(want)]}})
	}
	for _, limit := range []int{1, 4, len(want), len(want) + 1} {
		rest := want
		q := governance.AccountQuery{Limit: limit, After: governance.AccountKey{WindowStart: math.MinInt64}}
		for len(rest) > 0 {
			page, err := e.store.Accounts(e.ctx, q)
			e.ok(err)
			e.equal("accounts of a page", len(page), min(limit, len(rest)))
			for i := range page {
				e.equal("account", e.describeCell(&page[i]), e.describeCell(&rest[i]))
			}
			rest = rest[len(page):]
			q.After = page[len(page)-1].Key
		}
		page, err := e.store.Accounts(e.ctx, q)
		e.ok(err)
		e.equal("accounts behind the last", len(page), 0)
	}
}

func accountsOnly(e *env) {
	e.tampered = true
	w := e.today()
	quotaCell, money := account(cid(1), w, quota.Account{Consumed: 1}), account(cid(2), w, quota.Account{Consumed: 2})
	money.Kind = governance.KindMoney
	always := quota.Window{End: 1<<63 - 1}
	requests, rate, slots := account(cid(3), always, quota.Account{}), account(cid(4), always, quota.Account{}), account(cid(5), always, quota.Account{})
	requests.Kind, rate.Kind, slots.Kind = governance.KindRequestRate, governance.KindTokenRate, governance.KindConcurrency
	e.write(&governance.Changes{Cells: []governance.Cell{quotaCell, money, requests, rate, slots}})
	have := e.everyAccount()
	if len(have) != 2 || have[0].Kind != governance.KindTokenQuota || have[1].Kind != governance.KindMoney {
		e.Fatalf("accounts are %+v, want the token quota and the money", have)
	}
}

func accountsFrozen(e *env) {
	e.tampered = true
	w := e.today()
	for b := range byte(9) {
		e.write(&governance.Changes{Cells: []governance.Cell{account(cid(b), w, quota.Account{Consumed: int64(b), Frozen: b%3 == 1})}})
	}
	have, err := e.store.Accounts(e.ctx, governance.AccountQuery{Limit: 10, Frozen: true})
	e.ok(err)
	if len(have) != 3 || have[0].Account.Consumed != 1 || have[1].Account.Consumed != 4 || have[2].Account.Consumed != 7 {
		e.Fatalf("frozen accounts are %+v", have)
	}
	have, err = e.store.Accounts(e.ctx, governance.AccountQuery{After: have[0].Key, Limit: 1, Frozen: true})
	e.ok(err)
	if len(have) != 1 || have[0].Account.Consumed != 4 {
		e.Fatalf("frozen accounts behind the first are %+v", have)
	}
	// Unfrozen ones leave the list.
	e.write(&governance.Changes{Cells: []governance.Cell{account(cid(4), w, quota.Account{})}})
	have, err = e.store.Accounts(e.ctx, governance.AccountQuery{Limit: 10, Frozen: true})
	e.ok(err)
	e.equal("frozen accounts", len(have), 2)
}
