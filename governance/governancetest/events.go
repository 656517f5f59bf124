package governancetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
)

// eventsCases hold a store that has a log to what Changes.Events demands, and a Governor on it to what it tells.
func eventsCases() []scenario {
	told, ruled, granting := Features{Events: true}, Features{Events: true, Policies: true}, Features{Events: true, Policies: true, Nodes: true}
	return []scenario{
		{name: "AppendedInOrderWithTheChange", needs: told, run: eventsAppended},
		{name: "NoneOfWhatIsNotWritten", needs: told, run: eventsRefused},
		{name: "ThresholdOncePerWindowHoweverManyRace", needs: ruled, also: "ReplayD8ThresholdsInTheTransaction", run: eventsRace},
		{name: "ThresholdsOfOneStepRise", needs: ruled, run: eventsSeveral},
		{name: "ThresholdNotAgainInItsWindow", needs: ruled, also: "EdgeThresholdBetweenDebitAndReading", run: eventsLatched},
		{name: "ThresholdByOverrunAndUncertainty", needs: ruled, run: eventsSettled},
		{name: "ThresholdsThatEditsMove", needs: ruled, run: eventsEdited},
		{name: "ThresholdSeenByARefusal", needs: ruled, run: eventsSeen},
		{name: "ThresholdsOfGrants", needs: granting, run: eventsGranted},
		{name: "HoldsOfGrants", needs: granting, run: eventsBurned},
		{name: "LostAnswersTellOnce", needs: ruled, run: eventsDoubt},
		{name: "HoldsOpenAndClose", needs: told, run: eventsHolds},
		{name: "NotesAreTold", needs: told, run: eventsNotes},
		{name: "CallsAreNotTold", needs: told, run: eventsQuiet},
	}
}

// toldTypes are what a Governor and an Authority tell, and testType what cases of the store itself do. The
// store may tell of keys and policies too.
var toldTypes = []string{
	governance.EventThreshold, governance.EventHoldOpened, governance.EventHoldResolved, governance.EventOverrun, governance.EventNote, testType,
}

const testType = "test"

// told lists the events of some types, or of all of toldTypes, in the order of the log.
func (e *env) told(types ...string) (list []governance.Event) {
	e.Helper()
	seen := map[string]bool{}
	for _, ev := range e.h.Events(e, e.b) {
		if seen[ev.ID] {
			e.Fatalf("event %s is there twice", ev.ID)
		}
		seen[ev.ID] = true
		if ev.Schema < 1 || len(ev.Data) == 0 || len(ev.Data) > governance.MaxEventData || ev.Stream == "" {
			e.Fatalf("event %s is %+v", ev.ID, ev)
		}
		if slices.Contains(toldTypes, ev.Type) && (len(types) == 0 || slices.Contains(types, ev.Type)) {
			list = append(list, ev)
		}
	}
	return list
}

// types lists what was told, in order.
func (e *env) types() (list []string) {
	e.Helper()
	for _, ev := range e.told() {
		list = append(list, ev.Type)
	}
	return list
}

// wantTold checks all that was told since the case began.
func (e *env) wantTold(types ...string) {
	e.Helper()
	if have := e.types(); !slices.Equal(have, types) {
		e.Fatalf("told %v, want %v", have, types)
	}
}

// thresholds are those that were told, in order.
func (e *env) thresholds() (list []governance.ThresholdEvent) {
	e.Helper()
	for _, ev := range e.told(governance.EventThreshold) {
		var data governance.ThresholdEvent
		e.ok(json.Unmarshal(ev.Data, &data))
		e.equal("stream", ev.Stream, "account/"+data.Constraint.String())
		list = append(list, data)
	}
	return list
}

func (e *env) wantThresholds(want ...policy.Percent) {
	e.Helper()
	var have []policy.Percent
	for _, t := range e.thresholds() {
		have = append(have, t.Threshold)
	}
	if !slices.Equal(have, want) {
		e.Fatalf("told of the thresholds %v, want %v", have, want)
	}
}

// noticing is a budget of a month with tiers.
func noticing(milliUSD int64, hard bool, shares ...policy.Percent) policy.Rule {
	r := budget("month", milliUSD, hard)
	for _, share := range shares {
		r.Budget.Tiers = append(r.Budget.Tiers, policy.Tier{Threshold: share})
	}
	return r
}

// watched is a caller of a team with one budget that notices shares.
func (e *env) watched(milliUSD int64, hard bool, shares ...policy.Percent) *caller {
	e.Helper()
	e.team("team-1", keys.Limits{})
	c := e.caller("team-1", keys.Limits{})
	e.policies(document("p", team1, noticing(milliUSD, hard, shares...)))
	return c
}

// telling is a change that tells, of nothing that anybody else knows.
func telling(ids ...string) *governance.Changes {
	ch := &governance.Changes{Notes: []governance.Note{{At: 1, Actor: "ops", Action: "test", Reason: "a test"}}}
	for _, id := range ids {
		stream, _, _ := strings.Cut(id, ".")
		ch.Events = append(ch.Events, governance.Event{ID: id, Stream: stream, Type: testType, Schema: 3, Data: []byte(`{"id":"` + id + `"}`)})
	}
	return ch
}

func eventsAppended(e *env) {
	for _, ids := range [][]string{{"a.1", "b.1", "a.2"}, {"b.2"}, {"a.2", "b.3", "a.3"}} { // a.2 is there by then
		e.ok(e.store.Step(e.ctx, e.plan(), func(*governance.Loaded) *governance.Changes { return telling(ids...) }))
	}
	var have []string
	for _, ev := range e.told() {
		have = append(have, ev.ID)
		stream, _, _ := strings.Cut(ev.ID, ".")
		if ev.Stream != stream || ev.Type != testType || ev.Schema != 3 || string(ev.Data) != `{"id":"`+ev.ID+`"}` {
			e.Fatalf("event %+v", ev)
		}
	}
	if want := []string{"a.1", "b.1", "a.2", "b.2", "b.3", "a.3"}; !slices.Equal(have, want) {
		e.Fatalf("the log has %v, want %v", have, want)
	}
}

// eventsRefused: events of a step that fails, or decides nothing, are not there.
func eventsRefused(e *env) {
	e.tampered = true
	rec := e.newRecord(governance.BatchID{})
	rec.Version = 7 // nobody has stored the sixth
	plan := e.plan()
	plan.Permits = []governance.PermitID{rec.ID}
	err := e.store.Step(e.ctx, plan, func(*governance.Loaded) *governance.Changes {
		ch := telling("a.1")
		ch.Permits = []governance.Record{rec}
		return ch
	})
	e.is(err, governance.ErrRetry)
	e.ok(e.store.Step(e.ctx, e.plan(), func(*governance.Loaded) *governance.Changes { return nil }))
	e.wantTold()
}

// eventsRace: callers of several Governors cross three thresholds at once, in this window and in the next.
func eventsRace(e *env) {
	c := e.watched(32, true, 50, 80, 100)
	govs := []*governance.Governor{e.g, e.governor(e.replica(), nil), e.governor(e.replica(), nil)}
	for window := range 2 {
		out := e.flood(40, func(i int) (*governance.Permit, error) {
			return govs[i%len(govs)].Admit(e.ctx, request(c, dollars(milli)))
		})
		e.wantAdmitted(out, 32)
		var wg sync.WaitGroup
		for _, p := range out.permits {
			wg.Go(func() { e.background(p.Settle(e.ctx, governance.Used(0, milli))) })
		}
		wg.Wait()
		list := e.thresholds()
		if len(list) != 3*(window+1) {
			e.Fatalf("%d thresholds in %d windows: %+v", len(list), window+1, list)
		}
		for i, t := range list[3*window:] {
			want := []policy.Percent{50, 80, 100}[i]
			if t.Threshold != want || t.WindowStart > e.now() || e.now() >= t.WindowEnd || (t.Consumed+t.Reserved)*100 < int64(want)*t.Limit {
				e.Fatalf("threshold %d of window %d is %+v", i, window, t)
			}
		}
		e.advance(31 * 24 * time.Hour)
	}
}

func eventsSeveral(e *env) {
	c := e.watched(10, true, 50, 80, 100)
	p := e.admit(c, dollars(9*milli))
	e.wantThresholds(50, 80)
	e.ok(p.Raise(e.ctx, dollars(10*milli)))
	e.wantThresholds(50, 80, 100)
	v := e.verdict(c, governance.ScopeTeam, "month")
	want := governance.ThresholdEvent{
		Constraint:  v.Constraint.ID,
		Label:       governance.Label{Scope: governance.ScopeTeam, Subject: "team-1", Kind: governance.KindMoney, Policy: "p", Rule: "month", Period: v.Constraint.Calendar.Period},
		WindowStart: v.Window.Start, WindowEnd: v.Window.End, Threshold: 80, Limit: 10 * milli, Hard: true, Reserved: 9 * milli,
	}
	have := e.thresholds()[1]
	have.At = 0
	e.equal("what was told", have, want)
	e.advance(31 * 24 * time.Hour) // the step that enters the next window tells of that
	e.admit(c, dollars(8*milli))
	e.wantThresholds(50, 80, 100, 50, 80)
	e.settle(p, governance.Used(0, 11*milli)) // and a late one of its own window, which has told everything
	e.wantThresholds(50, 80, 100, 50, 80)
}

// eventsLatched: what was reached stays reached, whatever is given back, edited or restarted.
func eventsLatched(e *env) {
	c := e.watched(10, true, 50, 80)
	e.ok(e.admit(c, dollars(6*milli)).Cancel(e.ctx))
	e.wantThresholds(50)
	e.settle(e.admit(c, dollars(6*milli)), governance.Used(0, 1*milli))
	e.policies(document("p", team1, noticing(100, true, 50, 80)))
	e.ok(e.admit(c, dollars(70*milli)).Cancel(e.ctx))
	e.wantThresholds(50)
	if e.h.Features.Durable {
		e.reopen()
		e.policies(document("p", team1, noticing(100, true, 50, 80)))
		e.resolve(c)
	}
	e.ok(e.admit(c, dollars(70*milli)).Cancel(e.ctx))
	e.wantThresholds(50)
	e.admit(c, dollars(90*milli))
	e.wantThresholds(50, 80)
}

// eventsSettled: a meter goes by what was used or may have been, which settlements say.
func eventsSettled(e *env) {
	c := e.watched(10, false, 50, 80, 100)
	open := e.admit(c, dollars(9*milli))
	e.wantThresholds()
	e.settle(e.admit(c, dollars(1*milli)), governance.Used(0, 5*milli))
	e.wantThresholds(50)
	e.settle(open, governance.Unknown())
	e.wantThresholds(50, 80, 100)
	e.wantTold(governance.EventOverrun, governance.EventThreshold, governance.EventHoldOpened, governance.EventThreshold, governance.EventThreshold)
	if last := e.thresholds()[2]; last.Consumed != 5*milli || last.Uncertain != 9*milli || last.Reserved != 0 || last.Hard {
		e.Fatalf("told %+v", last)
	}
}

// eventsEdited: a new threshold that is passed already is told at the next step; one below what was told is not.
func eventsEdited(e *env) {
	c := e.watched(10, true, 50)
	e.admit(c, dollars(7*milli))
	e.policies(document("p", team1, noticing(10, true, 30, 50, 60, 90)))
	e.wantThresholds(50)
	e.admit(c, dollars(1))
	e.wantThresholds(50, 60)
	e.policies(document("p", team1, noticing(8, true, 30, 50, 60, 80)))
	e.admit(c, dollars(1))
	e.wantThresholds(50, 60, 80)
}

// eventsSeen: where nothing fits any more, the next request tells what a settlement could not, though it is refused.
func eventsSeen(e *env) {
	c := e.watched(10, true, 50, 100)
	p := e.admit(c, dollars(6*milli))
	e.policies(document("p", team1, noticing(10, true, 50, 100)), document("q", policy.Subject{Team: "team-2"}, budget("month", 1, true)))
	e.settle(p, governance.Used(0, 11*milli))
	e.wantThresholds(50)
	for range 2 {
		_, err := e.g.Admit(e.ctx, request(c, dollars(1)))
		e.refusal(err, governance.ReasonMoney)
		e.wantThresholds(50, 100)
	}
	e.held(c, governance.ScopeTeam, "month", 11*milli, 0, 0)
}

func eventsGranted(e *env) {
	e.policies(document("p", team1, noticing(10, true, 50, 80, 100)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 8*milli)
	e.wantThresholds(50, 80)
	n.report(escrow.Report{Grant: g.ID, Consumed: 1 * milli, Ending: escrow.Closed})
	g = n.granted("month", 8*milli)
	e.wantThresholds(50, 80)
	n.report(escrow.Report{Grant: g.ID, Consumed: 9 * milli})
	e.wantTold(governance.EventThreshold, governance.EventThreshold, governance.EventOverrun, governance.EventThreshold)
	n.report(escrow.Report{Grant: g.ID, Consumed: 10 * milli, Ending: escrow.Closed})
	e.wantThresholds(50, 80, 100)
	if last := e.thresholds()[2]; last.Consumed != 10*milli || last.Granted != 0 {
		e.Fatalf("told %+v", last)
	}
}

func eventsBurned(e *env) {
	e.policies(document("p", team1, budget("month", 20, true)))
	n := e.speaker(e.authority(e.b), "node-1")
	g := n.granted("month", 10*milli)
	next := n.reboot()
	next.hello()
	for range 2 { // a heartbeat that repeats itself tells nothing again
		next.report(escrow.Report{Grant: g.ID, Consumed: 3 * milli, Ending: escrow.Burned})
	}
	e.wantTold(governance.EventHoldOpened)
	ev := e.told()[0]
	var opened governance.HoldEvent
	e.ok(json.Unmarshal(ev.Data, &opened))
	id := governance.PermitID(g.ID)
	if opened.Permit != id || opened.Node != "node-1" || opened.Cost != (governance.HeldAmount{Bound: 10 * milli, Consumed: 3 * milli, Uncertain: 7 * milli}) || ev.Stream != "permit/"+id.String() {
		e.Fatalf("told %s in %s", ev.Data, ev.Stream)
	}
	for range 2 {
		_, err := e.g.Resolve(e.ctx, governance.Evidence{ID: id, Outcome: governance.Used(0, 4*milli), Actor: "ops", Reason: "the bill"})
		e.ok(err)
	}
	e.wantTold(governance.EventHoldOpened, governance.EventHoldResolved, governance.EventNote)
}

// eventsDoubt: an answer that is lost, before the commit or behind it, neither loses an event nor doubles one.
func eventsDoubt(e *env) {
	c := e.watched(10, false, 50)
	for i, lose := range []func(commit func() error) error{
		func(func() error) error { return governance.ErrRetry },
		func(func() error) error { return unknown() },
		func(commit func() error) error { return errors.Join(commit(), unknown()) },
	} {
		var armed atomic.Bool
		g := e.governor(governance.Stores{
			Keys: e.keys, Policies: e.b.Backend().Policies, Profile: e.b.Backend().Profile,
			Store: &faulty{e.store, func(_ context.Context, _ *governance.Plan, commit func() error) error {
				if armed.Swap(false) {
					return lose(commit)
				}
				return commit()
			}},
		}, nil)
		p, err := g.Admit(e.ctx, request(c, dollars(5*milli)))
		e.ok(err)
		armed.Store(true)
		e.ok(p.Settle(e.ctx, governance.Unknown()))
		e.wantThresholds(50)
		e.equal("holds that were told", len(e.told(governance.EventHoldOpened)), i+1)
	}
}

func eventsHolds(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", keys.Limits{})
	p := e.admit(c, both(100, 70))
	for range 2 {
		e.settle(p, governance.Observed(20, 10))
	}
	e.wantTold(governance.EventHoldOpened)
	for range 2 {
		_, err := e.g.Resolve(e.ctx, governance.Evidence{ID: p.ID(), Outcome: governance.Used(30, 12), Actor: "ops", Reason: "the bill"})
		e.ok(err)
	}
	e.wantTold(governance.EventHoldOpened, governance.EventHoldResolved, governance.EventNote)
	list := e.told()
	for _, ev := range list {
		e.equal("stream", ev.Stream, "permit/"+p.ID().String())
	}
	var opened, resolved governance.HoldEvent
	e.ok(json.Unmarshal(list[0].Data, &opened))
	e.ok(json.Unmarshal(list[1].Data, &resolved))
	if opened.State != governance.StateSettled || opened.Key != c.id || opened.Team != "team-1" ||
		opened.Tokens != (governance.HeldAmount{Bound: 100, Uncertain: 100, Observed: 20}) || !slices.Equal(opened.Flags, []string{"tokens_uncertain", "cost_uncertain"}) {
		e.Fatalf("opened %s", list[0].Data)
	}
	if resolved.State != governance.StateResolved || len(resolved.Flags) > 0 || resolved.Cost != (governance.HeldAmount{Bound: 70, Consumed: 12, Observed: 10}) {
		e.Fatalf("resolved %s", list[1].Data)
	}
	// What an operator says of an open permit is told too; what nobody has to look at is not.
	open := e.admit(c, both(100, 70))
	_, err := e.g.Resolve(e.ctx, governance.Evidence{ID: open.ID(), Outcome: governance.NotSent(), Actor: "ops", Reason: "it was never sent"})
	e.ok(err)
	e.equal("holds that were resolved", len(e.told(governance.EventHoldResolved)), 2)
	p = e.admit(c, both(100, 70))
	e.settle(p, governance.Outcome{Tokens: governance.Measure{Certainty: governance.Known, Value: 200}})
	_, err = e.g.Resolve(e.ctx, governance.Evidence{ID: p.ID(), Outcome: governance.Used(200, 70), Actor: "ops", Reason: "the bill"})
	e.ok(err)
	e.equal("overruns", len(e.told(governance.EventOverrun)), 1)
}

func eventsNotes(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1000)})
	c := e.caller("team-1", keys.Limits{})
	p := e.admit(c, tokens(10))
	e.settle(p, governance.Outcome{Tokens: governance.Measure{Certainty: governance.Impossible}})
	account := e.account(c, governance.ScopeTeam, "tokens_per_day")
	for range 2 {
		e.ok(e.g.Unfreeze(e.ctx, governance.Release{Account: account, Actor: "ops", Reason: "corrected"}))
	}
	e.ok(e.g.Note(e.ctx, governance.Note{Actor: "ops", Action: "edit policies", Reason: "a new quarter", Before: `{"revision":1}`, After: `{"revision":2}`}))
	_, err := e.g.Prune(e.ctx, governance.PruneQuery{OlderThan: 2 * time.Hour, Actor: "ops", Reason: "the books are kept elsewhere"})
	e.ok(err)
	_, err = e.g.Resolve(e.ctx, governance.Evidence{ID: p.ID(), Outcome: governance.Used(1, 0), Actor: "ops", Reason: "the bill"})
	e.ok(err)
	notes, err := e.g.Notes(e.ctx, governance.NoteQuery{Limit: 100})
	e.ok(err)
	list := e.told(governance.EventNote)
	e.equal("notes that were told", len(list), len(notes))
	var actions []string
	for i, n := range notes {
		var data governance.NoteEvent
		e.ok(json.Unmarshal(list[i].Data, &data))
		actions = append(actions, n.Action)
		same := fmt.Sprint(data.At, data.Actor, data.Action, data.Reason, data.Permit, data.Constraint, data.WindowStart, string(data.Before), string(data.After))
		want := fmt.Sprint(n.At, n.Actor, n.Action, n.Reason, n.Permit, n.Account.Constraint, n.Account.WindowStart, n.Before, n.After)
		e.equal("note", same, want)
		stream := "note/"
		switch {
		case n.Permit == p.ID():
			stream = "permit/" + p.ID().String()
		case n.Account == account:
			stream = "account/" + account.Constraint.String()
		}
		if !strings.HasPrefix(list[i].Stream, stream) {
			e.Fatalf("note %d is told in %s, want %s", i, list[i].Stream, stream)
		}
	}
	if want := []string{"unfreeze", "edit policies", "prune", "resolve"}; !slices.Equal(actions, want) {
		e.Fatalf("the notes are %v, want %v", actions, want)
	}
}

// eventsQuiet: whatever comes and goes as it should, or is refused, is no event.
func eventsQuiet(e *env) {
	e.team("team-1", everyLimit())
	c := e.caller("team-1", everyLimit())
	p := e.admit(c, both(10, 10))
	e.ok(p.Raise(e.ctx, both(20, 20)))
	e.ok(p.Renew(e.ctx))
	e.settle(p, governance.Used(15, 15))
	e.ok(e.admit(c, both(10, 10)).Cancel(e.ctx))
	_, err := e.g.Admit(e.ctx, request(c, both(1_000_000_000, 10)))
	var refused *governance.Refusal
	if !errors.As(err, &refused) {
		e.Fatalf("error is %v, want a refusal", err)
	}
	e.wantTold()
}
