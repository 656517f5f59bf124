package eventlogtest

import (
	"context"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
)

// checkpoint is the one of a consumer for a producer, or none.
func (k *kit) checkpoint(consumer string, producer eventlog.Producer) eventlog.Checkpoint {
	k.Helper()
	for _, c := range must(k.s.Checkpoints(k.ctx, consumer))(k) {
		if c.Producer == producer {
			return c
		}
	}
	return eventlog.Checkpoint{}
}

// close adopts until the producer's checkpoint is closed.
func (k *kit) close(by *eventlog.Log, consumer string, producer eventlog.Producer) {
	k.Helper()
	k.await("its checkpoint is closed", func() bool {
		must(by.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
		return k.checkpoint(consumer, producer).Closed
	})
}

// logSweeps: a process that was stopped for so long that its checkpoint was closed appends before it notices, and dies.
func logSweeps(k *kit) {
	handles := k.handles()
	var slow, alive, next heard
	gone := k.log(handles[0], eventlog.Options{Subscriptions: []eventlog.Subscription{slow.effect("export")}})
	a, b, c := k.unstamped("a", 2), k.unstamped("a", 2), k.unstamped("a", 1)
	must(gone.Append(k.ctx, a))(k)
	l := k.log(handles[1], eventlog.Options{Beat: time.Nanosecond, Subscriptions: []eventlog.Subscription{alive.effect("export")}})
	k.close(l, "export", gone.Producer())
	must(gone.Append(k.ctx, b))(k) // it has noticed nothing
	k.put(k.some("b", eventlog.Any, 1))
	before := k.checkpoint("export", gone.Producer()).SeenAt
	must(l.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
	same(k, alive.all(), append(ids(a), ids(b)...), "what it appended is handled all the same, and nobody else's")
	k.truth(k.checkpoint("export", gone.Producer()).SeenAt.After(before), "and it is remembered for longer")
	must(l.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
	k.truth(len(alive.all()) == 4, "once")

	must(gone.Append(k.ctx, c))(k)
	other := k.log(handles[1], eventlog.Options{Subscriptions: []eventlog.Subscription{next.effect("export")}})
	must(other.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
	same(k, next.all(), ids(c), "the next adopter goes on where the last one was")

	k.run(gone) // and then it lives after all
	d := k.unstamped("a", 1)
	must(gone.Append(k.ctx, d))(k)
	k.await("it has its own again", func() bool { return slow.count(d.Events[0].ID) >= 1 })
	k.await("its checkpoint is open", func() bool { return !k.checkpoint("export", gone.Producer()).Closed })
	must(other.Adopt(k.ctx, eventlog.Adopt{Idle: time.Hour}))(k)
	k.truth(next.count(d.Events[0].ID) == 0, "and nobody adopts it")
}

// logBeats: a page whose events take longer than anybody is waited for is still its producer's.
func logBeats(k *kit) {
	handles := k.handles()
	var slow, quick heard
	hold, reached := make(chan struct{}), make(chan struct{})
	owner := k.log(handles[0], eventlog.Options{Beat: time.Millisecond, Subscriptions: []eventlog.Subscription{eventlog.Effect("export", func(_ context.Context, e eventlog.Recorded, _ eventlog.Appender) error {
		if len(slow.all()) == 0 {
			close(reached)
			<-hold
		}
		slow.note(e)
		return nil
	})}})
	k.run(owner)
	a := k.unstamped("a", 2)
	must(owner.Append(k.ctx, a))(k)
	<-reached
	began := k.checkpoint("export", owner.Producer()).SeenAt
	k.await("it says that it lives", func() bool {
		return k.checkpoint("export", owner.Producer()).SeenAt.After(began.Add(5 * time.Millisecond))
	})
	k.truth(k.checkpoint("export", owner.Producer()).Behind == 2, "and not that it is further than it is")

	// Another takes it all the same: what comes behind what it is busy with is left to that one.
	other := k.log(handles[1], eventlog.Options{Subscriptions: []eventlog.Subscription{quick.effect("export")}})
	k.await("it was adopted between two beats", func() bool {
		must(other.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
		return len(quick.all()) == 2
	})
	k.await("it notices", func() bool { return owner.Status().Subscriptions[0].Err != "" })
	close(hold)
	k.await("it takes its own back", func() bool { return k.checkpoint("export", owner.Producer()).Owner == owner.Producer() })
	same(k, slow.all(), ids(a)[:1], "the second was left to who adopted")
}

func logAfterRun(k *kit) {
	handles := k.handles()
	var h, alive heard
	l := k.log(handles[0], eventlog.Options{Subscriptions: []eventlog.Subscription{h.effect("export")}})
	other := k.log(handles[1], eventlog.Options{Subscriptions: []eventlog.Subscription{alive.effect("export")}})
	a, b, c := k.unstamped("a", 1), k.unstamped("a", 1), k.unstamped("a", 1)
	stop := k.run(l)
	must(l.Append(k.ctx, a))(k)
	k.await("the first", func() bool { return h.count(a.Events[0].ID) == 1 })
	k.is(l.Run(k.ctx), eventlog.ErrInvalid, "a second one beside it")
	stop()
	k.truth(k.checkpoint("export", l.Producer()).Left, "it says that it left")
	must(other.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
	must(l.Append(k.ctx, b))(k)
	k.truth(!k.checkpoint("export", l.Producer()).Left && k.checkpoint("export", l.Producer()).Owner == l.Producer(), "who appends again registers again")
	stop = k.run(l)
	k.await("a later Run has it", func() bool { return h.count(b.Events[0].ID) == 1 })
	stop()
	same(k, h.all(), append(ids(a), ids(b)...), "and nothing twice")
	must(l.Append(k.ctx, c))(k)
	must(other.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
	same(k, alive.all(), ids(c), "or who adopts has it")
}

// logWaits: while another adopter may be about to close what the sweep has passed by, nothing is closed.
func logWaits(k *kit) {
	var h, alive heard
	gone := k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{h.effect("export")}})
	l := k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{alive.effect("export")}})
	must(l.Adopt(k.ctx, eventlog.Adopt{Idle: time.Hour}))(k)
	a := k.unstamped("a", 2)
	stop := k.run(gone)
	must(gone.Append(k.ctx, a))(k)
	k.await("its own", func() bool { return len(h.all()) == 2 })
	stop()
	k.claim("export", "x", eventlog.Cursor{})
	busy := must(k.s.Claim(k.ctx, eventlog.Claim{Consumer: "export", Producer: "x", Owner: "another adopter"}))(k)
	for range 3 {
		out := must(l.Adopt(k.ctx, eventlog.Adopt{Idle: time.Hour}))(k)
		k.truth(out.Closed == 0 && !k.checkpoint("export", gone.Producer()).Closed, "nothing is closed meanwhile: %+v", out)
	}
	busy.Left, busy.Closed = true, true
	k.ok(k.s.Save(k.ctx, busy))
	k.close(l, "export", gone.Producer())
	k.truth(len(alive.all()) == 0, "and nothing comes again: %v", alive.all())
}

// logGoesOn: a process whose checkpoint is no more, and whose cursor nobody can go on from, goes on all the same.
func logGoesOn(k *kit) {
	var h heard
	l := k.log(k.s, eventlog.Options{Beat: time.Millisecond, Subscriptions: []eventlog.Subscription{h.effect("export")}})
	for _, slept := range []bool{false, true} {
		stop := k.run(l)
		a, b := k.unstamped("a", 1), k.unstamped("a", 1)
		must(l.Append(k.ctx, a))(k)
		k.await("the first", func() bool { return h.count(a.Events[0].ID) == 1 })
		if slept {
			stop()
		}
		k.put(k.some("b", eventlog.Any, 2)) // it finds that it was dropped, and that retention has passed
		k.ok(k.s.Drop(k.ctx, eventlog.Checkpoint{Consumer: "export", Producer: l.Producer()}))
		must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later()}))(k)
		must(l.Append(k.ctx, b))(k)
		if slept {
			stop = k.run(l)
		}
		k.await("what came then", func() bool { return h.count(b.Events[0].ID) >= 1 })
		k.await("it is there again", func() bool { return k.checkpoint("export", l.Producer()).Generation > 0 })
		stop()
	}
}
