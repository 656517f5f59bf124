package eventlogtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
)

var checkpointCases = []suiteCase{
	{name: "Claim/BeginsWhereItIsTold", run: claimBegins},
	{name: "Claim/GoesOnWhereItWasSaved", run: claimGoesOn},
	{name: "Claim/FencesTheLastOwner", run: claimFences},
	{name: "Claim/RaceHasOneOwner", run: claimRace},
	{name: "Claim/RefusesWhatIsMalformed", run: claimMalformed},
	{name: "Claim/TakesOnlyWhatNobodyTouched", run: claimSeen},
	{name: "Claim/GenerationsNeverBeginAnew", run: claimNeverAnew},
	{name: "Checkpoints/SayWhoLags", run: checkpointsList},
	{name: "SetAside/WaitsForAnOperator", run: asideWaits},
	{name: "SetAside/IsListedInPages", run: asidePages},
}

func as[T error](err error, to *T) bool { return errors.As(err, to) }

func (k *kit) claim(consumer string, producer eventlog.Producer, from eventlog.Cursor) eventlog.Checkpoint {
	k.Helper()
	return must(k.s.Claim(k.ctx, eventlog.Claim{Consumer: consumer, Producer: producer, Owner: "me", From: from}))(k)
}

// later is an instant behind everything that the store has recorded.
func (k *kit) later() time.Time {
	k.Helper()
	page := must(k.s.Read(k.ctx, eventlog.Read{Cursor: must(k.s.Head(k.ctx))(k), Registered: true}))(k) // only its time is wanted: see undisturbed
	return time.UnixMicro(page.Now + 1)
}

func claimBegins(k *kit) {
	a := k.some("a", eventlog.Any, 3)
	k.put(a)
	all := k.claim("all", eventlog.Unknown, eventlog.Cursor{})
	k.truth(all.Generation == 1 && all.Owner == "me" && all.Consumer == "all", "a new checkpoint is %+v", all)
	k.delivers(all.Cursor, ids(a), "from the beginning")
	k.delivers(k.claim("none", eventlog.Unknown, must(k.s.Head(k.ctx))(k)).Cursor, nil, "from the head")
	other := k.h.New(k)
	_, err := other.Append(k.ctx, []eventlog.Append{k.some("a", eventlog.Any, 1)})
	k.ok(err)
	_, err = k.s.Claim(k.ctx, eventlog.Claim{Consumer: "foreign", Owner: "me", From: must(other.Head(k.ctx))(k)})
	k.is(err, eventlog.ErrResync, "from another log's cursor")
	k.truth(len(must(k.s.Checkpoints(k.ctx, "foreign"))(k)) == 0, "what was refused left nothing")
}

func claimGoesOn(k *kit) {
	a, b := k.some("a", eventlog.Any, 3), k.some("a", eventlog.Any, 2)
	k.put(a)
	c := k.claim("c", "p", eventlog.Cursor{})
	c.Cursor = k.delivers(c.Cursor, ids(a), "all")
	c.Left, c.Bound = true, 7
	k.ok(k.s.Save(k.ctx, c))
	k.put(b)
	if k.h.Features.Handles {
		k.s = k.reopen()
	}
	listed := must(k.s.Checkpoints(k.ctx, "c"))(k)
	k.truth(len(listed) == 1 && listed[0].Left && listed[0].Bound == 7 && listed[0].Behind == 2, "it is listed as %+v", listed)
	again := must(k.s.Claim(k.ctx, eventlog.Claim{Consumer: "c", Producer: "p", Owner: "other"}))(k)
	k.truth(again.Generation == 2 && again.Bound == 7 && !again.Left && again.Owner == "other", "claimed again it is %+v", again)
	k.delivers(again.Cursor, ids(b), "from where it was saved")
	back := must(k.s.Claim(k.ctx, eventlog.Claim{Consumer: "c", Producer: "p", Owner: "p"}))(k)
	k.truth(back.Bound == 0, "its producer lives: nothing bounds what it brings")
	k.truth(k.claim("c", "q", eventlog.Cursor{}).Generation == 1, "another producer's is another")
}

func claimFences(k *kit) {
	k.put(k.some("a", eventlog.Any, 1))
	old := k.claim("c", eventlog.Unknown, eventlog.Cursor{})
	fresh := must(k.s.Claim(k.ctx, eventlog.Claim{Consumer: "c", Owner: "other"}))(k)
	old.Cursor = must(k.s.Head(k.ctx))(k)
	k.is(k.s.Save(k.ctx, old), eventlog.ErrTaken, "a save of who was fenced")
	k.is(k.s.Drop(k.ctx, old), eventlog.ErrTaken, "a drop of who was fenced")
	k.ok(k.s.Save(k.ctx, fresh))
	k.truth(must(k.s.Checkpoints(k.ctx, "c"))(k)[0].Behind == 1, "nothing of it was written")
	k.ok(k.s.Drop(k.ctx, fresh))
	k.is(k.s.Save(k.ctx, fresh), eventlog.ErrTaken, "a save of what was dropped")
	k.is(k.s.Drop(k.ctx, fresh), eventlog.ErrTaken, "a second drop")
	k.ok(k.s.Drop(k.ctx, eventlog.Checkpoint{Consumer: "c"}))
}

func claimRace(k *kit) {
	claims := make([]eventlog.Checkpoint, racers)
	errs := k.race(func(i int, s eventlog.Store) (err error) {
		claims[i], err = s.Claim(k.ctx, eventlog.Claim{Consumer: "c", Owner: eventlog.Producer(fmt.Sprint("o", i))})
		return err
	})
	seen := map[int64]bool{}
	owners := 0
	for i, err := range errs {
		k.ok(err)
		k.truth(!seen[claims[i].Generation], "two claims have generation %d", claims[i].Generation)
		seen[claims[i].Generation] = true
		if err := k.s.Save(k.ctx, claims[i]); err == nil {
			owners++
		} else {
			k.is(err, eventlog.ErrTaken, "who was fenced")
		}
	}
	k.truth(owners == 1, "%d owners can save", owners)
}

func claimSeen(k *kit) {
	k.put(k.some("a", eventlog.Any, 1))
	own := k.claim("c", "p", eventlog.Cursor{})
	take := func(seen eventlog.Checkpoint) (eventlog.Checkpoint, error) {
		return k.s.Claim(k.ctx, eventlog.Claim{Consumer: "c", Producer: "p", Owner: "other", Seen: &seen})
	}
	seen := must(k.s.Checkpoints(k.ctx, "c"))(k)[0]
	k.ok(k.s.Save(k.ctx, own)) // it lives
	_, err := take(seen)
	k.is(err, eventlog.ErrTaken, "what was saved since it was seen")
	seen = must(k.s.Checkpoints(k.ctx, "c"))(k)[0]
	own = must(k.s.Claim(k.ctx, eventlog.Claim{Consumer: "c", Producer: "p", Owner: "p"}))(k)
	_, err = take(seen)
	k.is(err, eventlog.ErrTaken, "what was claimed since it was seen")
	k.ok(k.s.Save(k.ctx, own))
	got := must(take(must(k.s.Checkpoints(k.ctx, "c"))(k)[0]))(k)
	k.truth(got.Owner == "other" && got.Generation == own.Generation+1, "what nobody touched: %+v", got)
	k.is(k.s.Save(k.ctx, own), eventlog.ErrTaken, "the last owner")
	seen = must(k.s.Checkpoints(k.ctx, "c"))(k)[0]
	k.ok(k.s.Drop(k.ctx, got))
	_, err = take(seen)
	k.is(err, eventlog.ErrTaken, "what is gone")
	k.truth(len(must(k.s.Checkpoints(k.ctx, "c"))(k)) == 0, "and is not made")
}

func claimNeverAnew(k *kit) {
	k.put(k.some("a", eventlog.Any, 1))
	slept := k.claim("c", eventlog.Unknown, eventlog.Cursor{})
	slept.Cursor = must(k.s.Head(k.ctx))(k)
	k.ok(k.s.Drop(k.ctx, eventlog.Checkpoint{Consumer: "c"}))
	k.claim("c", eventlog.Unknown, eventlog.Cursor{})
	k.is(k.s.Save(k.ctx, slept), eventlog.ErrTaken, "a save of who slept through a drop and a claim")
	k.truth(must(k.s.Checkpoints(k.ctx, "c"))(k)[0].Behind == 1, "nothing of it was written")
}

func claimMalformed(k *kit) {
	for name, c := range map[string]eventlog.Claim{
		"no consumer": {Owner: "me"}, "no owner": {Consumer: "c"}, "a long consumer": {Consumer: strings.Repeat("c", 201), Owner: "me"},
		"a control": {Consumer: "c", Producer: "a\nb", Owner: "me"},
	} {
		_, err := k.s.Claim(k.ctx, c)
		k.is(err, eventlog.ErrInvalid, name)
	}
}

func checkpointsList(k *kit) {
	k.put(k.some("a", eventlog.Any, 3))
	for _, name := range []string{"b", "a"} {
		for _, of := range []eventlog.Producer{"q", "p"} {
			k.claim(name, of, eventlog.Cursor{})
		}
	}
	var got []string
	for _, c := range must(k.s.Checkpoints(k.ctx, ""))(k) {
		got = append(got, c.Consumer+"/"+string(c.Producer))
		k.truth(c.Behind == 3 && c.Idle >= 0 && c.Idle < patience, "it is listed as %+v", c)
	}
	same(k, got, []string{"a/p", "a/q", "b/p", "b/q"}, "by consumer and producer")
	k.truth(len(must(k.s.Checkpoints(k.ctx, "a"))(k)) == 2, "one consumer's alone")
}

func asideWaits(k *kit) {
	k.put(k.some("a", eventlog.Any, 1))
	events, _ := k.drain(eventlog.Cursor{}, 1)
	a := eventlog.Aside{Consumer: "c", Runner: "p", Event: events[0], Reason: "why\x00 \xff" + strings.Repeat("é", 2000), Attempts: 3, Declined: true}
	k.ok(k.s.SetAside(k.ctx, a))
	list := must(k.s.ListAside(k.ctx, eventlog.AsideQuery{Consumer: "c"}))(k)
	k.truth(len(list) == 1 && list[0].Attempts == 3 && list[0].Last == "" && list[0].Declined && list[0].Runner == "p", "it is listed as %+v", list)
	k.truth(strings.HasPrefix(list[0].Reason, "why ?é") && len(list[0].Reason) <= 2000, "its reason is kept as far as it goes: %.20q", list[0].Reason)
	same(k, list[0].Event, events[0], "the event is kept whole")
	a.Reason, a.Attempts, a.Declined = "again", 1, false
	k.ok(k.s.SetAside(k.ctx, a))
	list = must(k.s.ListAside(k.ctx, eventlog.AsideQuery{Consumer: "c"}))(k)
	k.truth(len(list) == 1 && list[0].Attempts == 4 && list[0].Last == "again" && !list[0].Declined, "a repetition counts: %+v", list)
	k.truth(strings.HasPrefix(list[0].Reason, "why ?é"), "and leaves the first reason: %.20q", list[0].Reason)
	must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k)
	k.truth(len(must(k.s.ListAside(k.ctx, eventlog.AsideQuery{Consumer: "c"}))(k)) == 1, "retention does not touch it")
	k.is(k.s.TakeBack(k.ctx, "c", "q", events[0].ID), eventlog.ErrNotFound, "another's")
	k.ok(k.s.TakeBack(k.ctx, "c", "p", events[0].ID))
	k.is(k.s.TakeBack(k.ctx, "c", "p", events[0].ID), eventlog.ErrNotFound, "a second time")
	k.truth(len(must(k.s.ListAside(k.ctx, eventlog.AsideQuery{Consumer: "c"}))(k)) == 0, "it is gone")
	k.is(k.s.SetAside(k.ctx, eventlog.Aside{Runner: "p", Event: events[0]}), eventlog.ErrInvalid, "no consumer")
}

func asidePages(k *kit) {
	k.put(k.some("a", eventlog.Any, 3))
	events, _ := k.drain(eventlog.Cursor{}, 10)
	for _, e := range events {
		for _, runner := range []eventlog.Producer{"r2", "r1"} {
			k.ok(k.s.SetAside(k.ctx, eventlog.Aside{Consumer: "c", Runner: runner, Event: e, Reason: "x"}))
			k.ok(k.s.SetAside(k.ctx, eventlog.Aside{Consumer: "d", Runner: runner, Event: e, Reason: "x"}))
		}
	}
	q := eventlog.AsideQuery{Consumer: "c", Limit: 1}
	var got []string
	for {
		list := must(k.s.ListAside(k.ctx, q))(k)
		if len(list) == 0 {
			break
		}
		got = append(got, list[0].Event.ID+"/"+string(list[0].Runner))
		q.After, q.AfterRunner = list[0].Event.Position, list[0].Runner
	}
	same(k, got, []string{"e1/r1", "e1/r2", "e2/r1", "e2/r2", "e3/r1", "e3/r2"}, "by position and runner, each once")
}

var pruneCases = []suiteCase{
	{name: "Prune/TakesTheOldAndNoOthers", run: pruneOld},
	{name: "Prune/OvertakesNoCheckpoint", run: pruneCheckpoint},
	{name: "Prune/IsNotHeldByClosedOnes", run: pruneClosed},
	{name: "Prune/TellsWhoComesTooLate", run: pruneTells},
	{name: "Prune/StreamsGoOnWhereTheyWere", run: pruneStreams},
	{name: "Prune/StopsWhereItIsTold", run: pruneLimit},
}

func pruneOld(k *kit) {
	k.put(k.some("a", eventlog.Any, 3))
	limit := k.later()
	k.await("time goes on", func() bool { return k.later().After(limit.Add(time.Microsecond)) })
	b := k.some("b", eventlog.Any, 2)
	k.put(b)
	out := must(k.s.Prune(k.ctx, eventlog.Prune{Before: limit}))(k)
	k.truth(out.Events == 3 && out.Through == 3 && out.HeldBy == "", "what went: %+v", out)
	k.delivers(must(k.s.At(k.ctx, out.Through))(k), ids(b), "the younger are there")
	k.truth(must(k.s.Prune(k.ctx, eventlog.Prune{Before: limit}))(k).Events == 0, "a repetition finds nothing")
	_, err := k.s.Prune(k.ctx, eventlog.Prune{})
	k.is(err, eventlog.ErrInvalid, "no instant")
}

func pruneCheckpoint(k *kit) {
	a := k.some("a", eventlog.Any, 5)
	k.put(a)
	c := k.claim("slow", eventlog.Unknown, eventlog.Cursor{})
	k.claim("fast", eventlog.Unknown, must(k.s.Head(k.ctx))(k))
	page := must(k.s.Read(k.ctx, eventlog.Read{Cursor: c.Cursor, Limit: 2}))(k)
	c.Cursor = page.Next
	k.ok(k.s.Save(k.ctx, c))
	out := must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k)
	k.truth(out.Events == 2 && out.HeldBy == "slow", "what went: %+v", out)
	c = k.claim("slow", eventlog.Unknown, eventlog.Cursor{})
	got := must(k.s.Read(k.ctx, eventlog.Read{Cursor: c.Cursor, Registered: true}))(k)
	k.truth(len(got.Events) == 3 && got.Events[0].ID == a.Events[2].ID, "what it has to deliver is there")
	k.ok(k.s.Drop(k.ctx, c))
	out = must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k)
	k.truth(out.Events == 3 && out.HeldBy == "", "what went without it: %+v", out)
}

func pruneClosed(k *kit) {
	k.put(k.some("a", eventlog.Any, 3))
	c := k.claim("c", "p", eventlog.Cursor{})
	c.Left, c.Closed, c.Bound = true, true, 9
	k.ok(k.s.Save(k.ctx, c))
	young := must(k.s.Checkpoints(k.ctx, "c"))(k)[0]
	k.truth(young.Closed && young.Left && young.Generation == c.Generation, "it is listed as %+v", young)
	k.await("the events are old", func() bool { return k.later().After(young.SeenAt.Add(time.Microsecond)) })
	k.ok(k.s.Save(k.ctx, c)) // it is younger than they are
	seen := must(k.s.Checkpoints(k.ctx, "c"))(k)[0].SeenAt
	out := must(k.s.Prune(k.ctx, eventlog.Prune{Before: seen}))(k)
	k.truth(out.Events == 3 && out.HeldBy == "", "what went: %+v", out)
	other := must(k.s.Claim(k.ctx, eventlog.Claim{Consumer: "c", Producer: "p", Owner: "other"}))(k)
	k.truth(other.Closed && other.Skipped == 3, "another's claim does not open it, and says what it has not delivered: %+v", other)
	back := must(k.s.Claim(k.ctx, eventlog.Claim{Consumer: "c", Producer: "p", Owner: "p"}))(k)
	k.truth(!back.Closed && back.Bound == 0 && back.Skipped == 0, "its producer's does: %+v", back)
	b := k.some("b", eventlog.Any, 2)
	k.put(b)
	got := must(k.s.Read(k.ctx, eventlog.Read{Cursor: back.Cursor, Registered: true}))(k)
	k.truth(len(got.Events) == 2 && got.Events[0].ID == b.Events[0].ID, "and goes on with what is left")
	back.Closed = true
	k.ok(k.s.Save(k.ctx, back))
	sweep := k.claim("c", eventlog.Unknown, must(k.s.Head(k.ctx))(k))
	must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k)
	k.truth(len(must(k.s.Checkpoints(k.ctx, "c"))(k)) == 2, "it is remembered while the sweep stands still")
	k.ok(k.s.Drop(k.ctx, sweep))
	must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k)
	k.truth(len(must(k.s.Checkpoints(k.ctx, "c"))(k)) == 0, "it is forgotten when it is as old as what goes")
	k.truth(k.claim("c", "p", must(k.s.Head(k.ctx))(k)).Generation > back.Generation, "and never made anew as it was")
}

func pruneTells(k *kit) {
	k.put(k.some("a", eventlog.Any, 4))
	middle := must(k.s.At(k.ctx, 2))(k)
	end := k.undisturbed(func() (eventlog.Cursor, error) { return k.s.Head(k.ctx) })
	must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k)
	for name, c := range map[string]eventlog.Cursor{"the beginning": {}, "the middle": middle} {
		_, err := k.s.Read(k.ctx, eventlog.Read{Cursor: c})
		k.is(err, eventlog.ErrPruned, name)
		var p *eventlog.PrunedError
		k.truth(errors.As(err, &p) && p.Pruned == 4 && p.Through == c.Through(), "the error says %+v", p)
		_, err = k.s.Claim(k.ctx, eventlog.Claim{Consumer: "new", Owner: "me", From: c})
		k.is(err, eventlog.ErrPruned, "a checkpoint from "+name)
	}
	_, err := k.s.At(k.ctx, 3)
	k.is(err, eventlog.ErrPruned, "a position that is gone")
	k.delivers(end, nil, "who had delivered all goes on")
	k.delivers(k.undisturbed(func() (eventlog.Cursor, error) { return k.s.At(k.ctx, 4) }), nil, "what is left begins behind them")
	b := k.some("b", eventlog.Any, 1)
	k.put(b)
	k.delivers(end, ids(b), "and finds what is new")
}

func pruneStreams(k *kit) {
	k.put(k.some("a", eventlog.Any, 3), k.some("b", eventlog.Any, 1))
	must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k)
	k.refused1(eventlog.ErrConflict, k.some("a", eventlog.Empty, 1))
	out := k.put(k.some("a", 3, 2), k.some("b", eventlog.Any, 1))
	k.truth(out[0].Version == 5 && out[1].Version == 2, "versions go on: %+v", out)
	must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k)
	k.truth(k.put(k.some("a", 5, 1))[0].Version == 6, "and on")
	k.truth(k.put(k.some("c", eventlog.Empty, 1))[0].Position > out[1].Position, "positions too")
}

// refused1 is refused for a log that was pruned.
func (k *kit) refused1(want error, a eventlog.Append) {
	k.Helper()
	_, err := k.s.Append(k.ctx, []eventlog.Append{a})
	k.is(err, want, "an append")
}

func pruneLimit(k *kit) {
	k.put(k.some("a", eventlog.Any, 5))
	out := must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later(), Limit: 2}))(k)
	k.truth(out.Events == 2 && out.Through == 2, "what went: %+v", out)
	k.truth(len(must(k.s.Stream(k.ctx, eventlog.ReadStream{Stream: "a"}))(k)) == 3, "the rest is there")
}
