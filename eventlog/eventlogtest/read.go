package eventlogtest

import (
	"fmt"

	"github.com/tallystick-go/tallystick/eventlog"
)

var readCases = []suiteCase{
	{name: "Read/EachOnceInPagesOfAnySize", run: readPages},
	{name: "Read/ChangesNothing", run: readTwice},
	{name: "Read/GoesOnWhereItWas", run: readOn},
	{name: "Read/RefusesACursorOfAnotherLog", run: readForeign},
	{name: "Read/AtAPosition", run: readAt},
	{name: "Read/TakesSensibleLimitsOnly", run: readLimits},
	{name: "Read/SurvivesARestart", needs: Features{Handles: true}, run: readRestart},
	{name: "Head/IsBehindEverything", run: head},
}

func readPages(k *kit) {
	appends := []eventlog.Append{k.some("a", eventlog.Any, 7), k.some("b", eventlog.Any, 1), k.some("a", eventlog.Any, 3)}
	for _, a := range appends {
		k.put(a)
	}
	for limit := 1; limit <= 12; limit++ {
		events, end := k.drain(eventlog.Cursor{}, limit)
		k.truth(len(events) == 11, "pages of %d bring %d of 11 events", limit, len(events))
		for i, e := range events {
			k.truth(e.ID == ids(appends...)[i], "in pages of %d event %d is %s", limit, i, e.ID)
		}
		k.delivers(end, nil, "nothing comes behind the end")
	}
}

func readTwice(k *kit) {
	k.put(k.some("a", eventlog.Any, 5))
	r := eventlog.Read{Limit: 2}
	first := must(k.s.Read(k.ctx, r))(k)
	second := must(k.s.Read(k.ctx, r))(k)
	same(k, second.Events, first.Events, "the same cursor brings the same")
	k.truth(first.More && len(first.Events) == 2 && first.Head == 5, "a full page says that there may be more, and where the log ends: %+v", first)
}

func readOn(k *kit) {
	var c eventlog.Cursor
	for range 4 {
		a := k.some("a", eventlog.Any, 2)
		k.put(a)
		c = k.delivers(c, ids(a), "what is new comes")
		c = k.delivers(c, nil, "and nothing else")
	}
}

func readForeign(k *kit) {
	k.put(k.some("a", eventlog.Any, 1))
	other := k.h.New(k)
	_, err := other.Append(k.ctx, []eventlog.Append{k.some("a", eventlog.Any, 3)})
	k.ok(err)
	c := must(k.s.Head(k.ctx))(k)
	_, err = other.Read(k.ctx, eventlog.Read{Cursor: c})
	k.is(err, eventlog.ErrResync, "a cursor of another log")
	var why *eventlog.ResyncError
	k.truth(asResync(err, &why) && why.Reason == eventlog.ForeignLog && why.Through == 1 && why.Head == 3, "the error says %+v", why)
	again := must(other.At(k.ctx, 1))(k)
	page := must(other.Read(k.ctx, eventlog.Read{Cursor: again}))(k)
	k.truth(len(page.Events) == 2, "a cursor at a position goes on behind it")
}

func readAt(k *kit) {
	a := k.some("a", eventlog.Any, 4)
	k.put(a)
	events, _ := k.drain(eventlog.Cursor{}, 10)
	for i, e := range events {
		k.delivers(must(k.s.At(k.ctx, e.Position))(k), ids(a)[i+1:], "what lies behind the position comes")
	}
	k.delivers(must(k.s.At(k.ctx, 0))(k), ids(a), "zero is before everything")
	for _, wrong := range []int64{-1, events[3].Position + 1} {
		_, err := k.s.At(k.ctx, wrong)
		k.is(err, eventlog.ErrInvalid, fmt.Sprintf("position %d", wrong))
	}
}

func readLimits(k *kit) {
	for _, wrong := range []int{-1, eventlog.MaxPage + 1} {
		_, err := k.s.Read(k.ctx, eventlog.Read{Limit: wrong})
		k.is(err, eventlog.ErrInvalid, fmt.Sprintf("a page of %d", wrong))
		_, err = k.s.Stream(k.ctx, eventlog.ReadStream{Stream: "a", Limit: wrong})
		k.is(err, eventlog.ErrInvalid, fmt.Sprintf("a page of %d of a stream", wrong))
	}
	_, err := k.s.Stream(k.ctx, eventlog.ReadStream{})
	k.is(err, eventlog.ErrInvalid, "no stream")
}

func readRestart(k *kit) {
	a, b := k.some("a", eventlog.Any, 3), k.some("a", 3, 2)
	k.put(a)
	c := k.delivers(eventlog.Cursor{}, ids(a), "all")
	k.s = k.reopen()
	k.put(b)
	k.delivers(c, ids(b), "a kept cursor goes on after a restart")
	k.put(a)
	k.delivers(c, ids(b), "and ids are remembered")
}

func head(k *kit) {
	first := must(k.s.Head(k.ctx))(k)
	a := k.some("a", eventlog.Any, 2)
	k.put(a)
	k.delivers(first, ids(a), "the head of an empty log is before its first event")
	k.delivers(must(k.s.Head(k.ctx))(k), nil, "the head is behind what is there")
}

var openCases = []suiteCase{
	{name: "Read/LateAtAnEarlyPosition", needs: Features{Open: true}, run: openLate},
	{name: "Read/WaitsForNobody", needs: Features{Open: true}, run: openWaits},
	{name: "Read/RolledBackWasNever", needs: Features{Open: true}, run: openRollback},
	{name: "Read/LateInPagesOfAnySize", needs: Features{Open: true}, run: openPages},
	{name: "Read/StreamsKeepTheirOrder", needs: Features{Open: true}, run: openOrder},
	{name: "AppendTx/RefusalLeavesTheTransactionUsable", needs: Features{Open: true}, run: openRefusal},
	{name: "Prune/KeepsWhatIsLate", needs: Features{Open: true, Handles: true}, run: openPrune},
}

func (k *kit) begin() Tx {
	k.Helper()
	return k.h.Begin(k, k.s)
}

// openLate has the three kinds of open transactions: of the lowest id, of one between, and of the highest.
func openLate(k *kit) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}} {
		c := must(k.s.Head(k.ctx))(k)
		txs := []Tx{k.begin(), k.begin(), k.begin()}
		appends := make([]eventlog.Append, 3)
		for _, i := range []int{1, 2, 0} { // positions are in yet another order
			appends[i] = k.some(fmt.Sprintf("s%d", i), eventlog.Any, 2)
			must(txs[i].Append(k.ctx, appends[i]))(k)
		}
		for _, i := range order {
			k.ok(txs[i].Commit(k.ctx))
			c = k.delivers(c, ids(appends[i]), fmt.Sprintf("transaction %d of %v comes when it commits", i, order))
		}
		k.delivers(c, nil, "each once")
	}
}

func openWaits(k *kit) {
	held := k.begin()
	late := k.some("held", eventlog.Any, 1)
	must(held.Append(k.ctx, late))(k)
	var c eventlog.Cursor
	for range 5 {
		a := k.some("a", eventlog.Any, 3)
		k.put(a)
		c = k.delivers(c, ids(a), "others are delivered while one is open")
	}
	k.ok(held.Commit(k.ctx))
	b := k.some("b", eventlog.Any, 1)
	k.put(b)
	c = k.delivers(c, append(ids(late), ids(b)...), "the late one comes, before what is newer")
	k.delivers(c, nil, "once")
}

func openRollback(k *kit) {
	gone, stays := k.begin(), k.begin()
	must(gone.Append(k.ctx, k.some("a", eventlog.Any, 2)))(k)
	kept := k.some("b", eventlog.Any, 1)
	must(stays.Append(k.ctx, kept))(k)
	c := k.delivers(eventlog.Cursor{}, nil, "nothing is committed")
	k.ok(gone.Rollback(k.ctx))
	k.ok(stays.Commit(k.ctx))
	c = k.delivers(c, ids(kept), "what was rolled back does not come")
	again := k.some("a", eventlog.Empty, 1)
	k.put(again)
	k.delivers(c, ids(again), "its versions are free")
}

func openPages(k *kit) {
	for limit := 1; limit <= 6; limit++ {
		c := must(k.s.Head(k.ctx))(k)
		late, later := k.begin(), k.begin()
		first, second := k.some(fmt.Sprint("late", limit), eventlog.Any, 7), k.some(fmt.Sprint("later", limit), eventlog.Any, 4)
		must(late.Append(k.ctx, first))(k)
		must(later.Append(k.ctx, second))(k)
		fresh := k.some(fmt.Sprint("fresh", limit), eventlog.Any, 3)
		k.put(fresh)
		_, c = k.drain(c, limit)
		k.ok(late.Commit(k.ctx))
		var got []string
		take := func() eventlog.Page {
			page := must(k.s.Read(k.ctx, eventlog.Read{Cursor: c, Limit: limit}))(k)
			for _, e := range page.Events {
				got = append(got, e.ID)
			}
			c = must(eventlog.ParseCursor(page.Next.String()))(k)
			return page
		}
		take()
		k.ok(later.Commit(k.ctx)) // between two pages of the one before
		newest := k.some(fmt.Sprint("newest", limit), eventlog.Any, 2)
		k.put(newest)
		for take().More {
		}
		k.truth(len(got) == 7+4+2, "in pages of %d came %v", limit, got)
		seen := map[string]int{}
		for i, id := range got {
			seen[id] = i + 1
		}
		for _, a := range []eventlog.Append{first, second, newest} {
			for i, e := range a.Events {
				k.truth(seen[e.ID] > 0 && (i == 0 || seen[e.ID] > seen[a.Events[i-1].ID]), "in pages of %d came %v", limit, got)
			}
		}
		k.delivers(c, nil, "each once")
	}
}

// openOrder: a stream is written by transactions that begin before the one they follow.
func openOrder(k *kit) {
	outer := k.begin()
	must(outer.Append(k.ctx, k.some("other", eventlog.Any, 1)))(k)
	k.put(k.some("a", eventlog.Empty, 1))
	c := must(k.s.Head(k.ctx))(k)
	first := k.some("a", 1, 1)
	must(outer.Append(k.ctx, first))(k)
	k.put(k.some("b", eventlog.Any, 1)) // a higher position, delivered before
	_, c = k.drain(c, 10)
	k.ok(outer.Commit(k.ctx))
	second := k.some("a", 2, 1)
	k.put(second)
	events, _ := k.drain(c, 1)
	last := int64(0)
	for _, e := range events {
		if e.Stream == "a" {
			k.truth(e.Version > last, "version %d of a stream comes after %d", e.Version, last)
			last = e.Version
		}
	}
	k.truth(last == 3, "the stream is delivered to %d", last)
}

func openRefusal(k *kit) {
	old := k.some("a", eventlog.Any, 2)
	k.put(old)
	tx := k.begin()
	_, err := tx.Append(k.ctx, k.some("b", eventlog.Any, 1), k.some("a", eventlog.Empty, 1))
	k.is(err, eventlog.ErrConflict, "another version")
	mixed := k.some("c", eventlog.Any, 1)
	mixed.Events = append(mixed.Events, old.Events[0])
	_, err = tx.Append(k.ctx, mixed)
	k.is(err, eventlog.ErrDuplicate, "an id that is taken")
	out := must(tx.Append(k.ctx, old))(k)
	k.truth(out[0].Replayed, "a repetition is known")
	good := k.some("a", 2, 1)
	must(tx.Append(k.ctx, good))(k)
	k.ok(tx.Commit(k.ctx))
	k.delivers(eventlog.Cursor{}, append(ids(old), ids(good)...), "what was refused left nothing")
}

func openPrune(k *kit) {
	late := k.begin()
	appended := k.some("late", eventlog.Any, 2)
	must(late.Append(k.ctx, appended))(k)
	k.put(k.some("a", eventlog.Any, 5))
	kept := k.claim("kept", eventlog.Unknown, eventlog.Cursor{})
	_, kept.Cursor = k.drain(eventlog.Cursor{}, 100)
	k.ok(k.s.Save(k.ctx, kept))
	outside := kept.Cursor
	k.ok(late.Commit(k.ctx))
	out := must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k)
	k.truth(out.Events == 5, "%d of 5 delivered events went, and of 2 late ones none: %+v", out.Events, out)
	kept = must(k.s.Claim(k.ctx, eventlog.Claim{Consumer: "kept", Owner: "me"}))(k)
	page := must(k.s.Read(k.ctx, eventlog.Read{Cursor: kept.Cursor, Registered: true}))(k)
	k.truth(len(page.Events) == 2 && page.Events[0].ID == appended.Events[0].ID, "retention took what a checkpoint waits for: %+v", page.Events)
	k.ok(k.s.Drop(k.ctx, kept))
	k.truth(must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k).Events == 2, "without a checkpoint they go")
	_, err := k.s.Read(k.ctx, eventlog.Read{Cursor: outside})
	k.is(err, eventlog.ErrPruned, "a cursor that nobody registered, and that missed them")
}

func asResync(err error, to **eventlog.ResyncError) bool {
	return as(err, to)
}
