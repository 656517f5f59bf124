package eventlogtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
)

var logCases = []suiteCase{
	{name: "Log/ProjectionsRunEverywhereEffectsWhereProduced", run: logKinds},
	{name: "Log/ProjectionsMayNotAppend", run: logMayNotAppend},
	{name: "Log/EffectsMayAppend", run: logEffectAppends},
	{name: "Log/PoisonIsSetAsideAndStopsNobody", run: logPoison},
	{name: "Log/DeclinedIsSetAsideAtOnce", run: logDeclines},
	{name: "Log/PanicsAreSetAside", run: logPanics},
	{name: "Log/OldEventsAreBroughtUp", run: logUpcasts},
	{name: "Log/DeadProducersAreAdopted", run: logAdopts},
	{name: "Log/AdoptionEndsWithTheLease", run: logLeaseLost},
	{name: "Log/SlowProducersTakeTheirOwnBack", run: logTakesBack},
	{name: "Log/ARestartRepeatsWhatWasNotSaved", run: logRepeats},
	{name: "Log/WhatAClosedProducerAppendsIsAdopted", run: logSweeps},
	{name: "Log/ClosesNothingBesideAnotherAdopter", run: logWaits},
	{name: "Log/SlowHandlersSayThatTheyLive", run: logBeats},
	{name: "Log/WhatComesAfterRunIsNotLost", run: logAfterRun},
	{name: "Log/WhatFailsAgainKeepsNobody", run: logRetries},
	{name: "Log/AProducerWhoseCheckpointIsGoneGoesOn", run: logGoesOn},
	{name: "Log/JoinsLateWithAState", run: logJoins},
	{name: "Log/SharedAppendsFailAlone", run: logShares},
	{name: "Log/StampedAppendsAreTheProcesss", needs: Features{Open: true}, run: logStamps},
}

// heard is what a handler was called with.
type heard struct {
	mu  sync.Mutex
	ids []string
	by  map[string]int
}

func (h *heard) note(e eventlog.Recorded) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids = append(h.ids, e.ID)
	if h.by == nil {
		h.by = map[string]int{}
	}
	h.by[e.ID]++
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.ids...)
}

func (h *heard) count(id string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[id]
}

func (h *heard) effect(name string) eventlog.Subscription {
	return eventlog.Effect(name, func(_ context.Context, e eventlog.Recorded, _ eventlog.Appender) error { h.note(e); return nil })
}

func (h *heard) projection(name string) eventlog.Subscription {
	return eventlog.Projection(name, func(_ context.Context, e eventlog.Recorded) error { h.note(e); return nil }, nil)
}

// log makes a log that polls often, since nothing else may tell it.
func (k *kit) log(s eventlog.Store, o eventlog.Options) *eventlog.Log {
	k.Helper()
	o.Poll, o.Pause = 2*time.Millisecond, time.Microsecond
	return must(eventlog.New(s, &o))(k)
}

// run runs a log until the returned function is called.
func (k *kit) run(l *eventlog.Log) (stop func()) {
	ctx, cancel := context.WithCancel(k.ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				k.Errorf("Run ended with %v", err)
			}
		})
	}
	k.Cleanup(stop)
	return stop
}

// events are so many appends' content, without a producer: a Log sets that.
func (k *kit) unstamped(stream string, n int) eventlog.Append {
	a := k.some(stream, eventlog.Any, n)
	a.Producer = eventlog.Unknown
	return a
}

func logKinds(k *kit) {
	k.put(k.some("before", eventlog.Any, 2)) // another's, from before
	handles := k.handles()
	var views, effects, locals [2]heard
	var logs [2]*eventlog.Log
	for i := range logs {
		local := &locals[i]
		logs[i] = k.log(handles[i], eventlog.Options{Label: fmt.Sprint("pod-", i), Subscriptions: []eventlog.Subscription{
			views[i].projection("view"), effects[i].effect("export"),
			eventlog.LocalView("mine", func(_ context.Context, e eventlog.Recorded) error { local.note(e); return nil }, nil),
		}})
		k.run(logs[i])
	}
	k.truth(logs[0].Producer() != logs[1].Producer() && strings.HasPrefix(string(logs[0].Producer()), "pod-0/"), "identities are minted: %s and %s", logs[0].Producer(), logs[1].Producer())
	var own [2][]string
	for n := range 20 {
		a := k.unstamped(fmt.Sprint("s", n%3), 1+n%2)
		must(logs[n%2].Append(k.ctx, a))(k)
		own[n%2] = append(own[n%2], ids(a)...)
	}
	for i := range logs {
		k.await("the projection has all", func() bool { return len(views[i].all()) == 2+len(own[0])+len(own[1]) })
		k.await("the effect has its own", func() bool { return len(effects[i].all()) >= len(own[i]) })
		k.await("the local view has its own", func() bool { return len(locals[i].all()) >= len(own[i]) })
		same(k, effects[i].all(), own[i], "an effect runs for what its process produced")
		same(k, locals[i].all(), own[i], "a local view follows what its process produced")
	}
	for _, s := range logs[0].Status().Subscriptions {
		k.await("its status says so", func() bool { return logs[0].Status().Subscriptions[0].Lag.Behind == 0 })
		k.truth(s.Kind != 0 && s.Aside == 0 && s.Err == "", "status: %+v", s)
	}
}

func logMayNotAppend(k *kit) {
	var l *eventlog.Log
	tried := make(chan error, 1)
	l = k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{eventlog.Projection("view", func(ctx context.Context, e eventlog.Recorded) error {
		_, err := l.Append(ctx, k.unstamped("echo", 1))
		if err == nil {
			_, err = l.Stamp(ctx, k.unstamped("echo", 1))
		}
		tried <- err
		return nil
	}, nil)}})
	k.put(k.some("a", eventlog.Any, 1))
	k.run(l)
	k.is(<-tried, eventlog.ErrMayNotAppend, "an append within a projection")
	k.truth(len(must(k.s.Stream(k.ctx, eventlog.ReadStream{Stream: "echo"}))(k)) == 0, "nothing was appended")
}

func logEffectAppends(k *kit) {
	l := k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{eventlog.Effect("answer", func(ctx context.Context, e eventlog.Recorded, a eventlog.Appender) error {
		if e.Stream != "asked" {
			return nil
		}
		_, err := a.Append(ctx, eventlog.Append{Stream: "answers", Events: []eventlog.Event{{ID: "answer to " + e.ID, Type: "answered", Data: []byte("x")}}})
		return err
	})}})
	k.run(l)
	must(l.Append(k.ctx, k.unstamped("asked", 2)))(k)
	k.await("the answers", func() bool {
		return len(must(k.s.Stream(k.ctx, eventlog.ReadStream{Stream: "answers"}))(k)) == 2
	})
}

// fails makes an effect that cannot deal with events of the stream "bad" while it is broken.
func (h *heard) fails(name string, broken *bool, mu *sync.Mutex, how func() error) eventlog.Subscription {
	return eventlog.Effect(name, func(_ context.Context, e eventlog.Recorded, _ eventlog.Appender) error {
		h.note(e)
		mu.Lock()
		defer mu.Unlock()
		if e.Stream == "bad" && *broken {
			return how()
		}
		return nil
	})
}

// aside runs an effect that fails on the first of three appends, and returns what was set aside.
func (k *kit) aside(how func() error) (h *heard, l *eventlog.Log, mend func(), list []eventlog.Aside) {
	h = &heard{}
	var mu sync.Mutex
	broken := true
	l = k.log(k.s, eventlog.Options{Attempts: 3, Subscriptions: []eventlog.Subscription{h.fails("export", &broken, &mu, how)}})
	stop := k.run(l)
	good := k.unstamped("good", 2)
	must(l.Append(k.ctx, k.unstamped("bad", 1), good))(k)
	k.await("those behind it", func() bool { return h.count(good.Events[1].ID) == 1 })
	stop()
	list = must(k.s.ListAside(k.ctx, eventlog.AsideQuery{Consumer: "export"}))(k)
	k.truth(len(list) == 1 && list[0].Event.Stream == "bad" && list[0].Runner == l.Producer(), "set aside: %+v", list)
	k.truth(l.Status().Subscriptions[0].Aside == 1, "its status says so: %+v", l.Status())
	return h, l, func() { mu.Lock(); defer mu.Unlock(); broken = false }, list
}

func logPoison(k *kit) {
	h, l, mend, list := k.aside(func() error { return errors.New("the other side says no") })
	bad := list[0].Event.ID
	k.truth(h.count(bad) == 3 && list[0].Attempts == 3 && strings.Contains(list[0].Reason, "says no") && !list[0].Declined, "it was tried three times: %+v", list[0])
	k.truth(must(l.Retry(k.ctx, "export", 0))(k) == 0, "it still fails")
	k.truth(must(k.s.ListAside(k.ctx, eventlog.AsideQuery{Consumer: "export"}))(k)[0].Attempts == 4, "which is counted")
	mend()
	k.truth(must(l.Retry(k.ctx, "export", 0))(k) == 1, "now it succeeds")
	k.truth(len(must(k.s.ListAside(k.ctx, eventlog.AsideQuery{Consumer: "export"}))(k)) == 0, "and is taken back")
	_, err := l.Retry(k.ctx, "nobody", 0)
	k.is(err, eventlog.ErrNotFound, "a subscription that is none")
}

// logRetries: several that fail for good, and one that would not, in turns of one.
func logRetries(k *kit) {
	var h heard
	var mended sync.Map
	l := k.log(k.s, eventlog.Options{Attempts: 1, Subscriptions: []eventlog.Subscription{eventlog.Effect("export", func(_ context.Context, e eventlog.Recorded, _ eventlog.Appender) error {
		h.note(e)
		if _, is := mended.Load(e.ID); is {
			return nil
		}
		return fmt.Errorf("failure %d", h.count(e.ID))
	})}})
	stop := k.run(l)
	a := k.unstamped("bad", 4)
	must(l.Append(k.ctx, a))(k)
	k.await("all are set aside", func() bool { return l.Status().Subscriptions[0].Aside == 4 })
	stop()
	mended.Store(a.Events[2].ID, true)
	done := 0
	for range 3 {
		done += must(l.Retry(k.ctx, "export", 1))(k)
	}
	k.truth(done == 1, "the third had its turn behind two that fail: %d", done)
	k.truth(must(l.Retry(k.ctx, "export", 0))(k) == 0, "a full turn tries each")
	for i, want := range []int{3, 3, 2, 2} {
		k.truth(h.count(a.Events[i].ID) == want, "event %d was tried %d times", i, h.count(a.Events[i].ID))
	}
	first := must(k.s.ListAside(k.ctx, eventlog.AsideQuery{Consumer: "export"}))(k)[0]
	k.truth(first.Reason == "failure 1" && first.Last == "failure 3", "the first reason and the last: %+v", first)
}

func logDeclines(k *kit) {
	h, _, _, list := k.aside(func() error { return fmt.Errorf("no record of it: %w", eventlog.ErrDeclined) })
	k.truth(h.count(list[0].Event.ID) == 1 && list[0].Declined && list[0].Attempts == 1, "declined once: %+v", list[0])
}

func logPanics(k *kit) {
	_, _, _, list := k.aside(func() error { panic("token-123") })
	k.truth(strings.Contains(list[0].Reason, "panic") && strings.Contains(list[0].Reason, "string") && !strings.Contains(list[0].Reason, "123") && list[0].Attempts == 1, "set aside: %+v", list[0])
}

func logUpcasts(k *kit) {
	up := must(eventlog.NewUpcasters(
		eventlog.Upcast{Type: "happened", From: 1, Up: func(d []byte) ([]byte, error) {
			if string(d) == "broken" {
				return nil, errors.New("no sense in it")
			}
			return append(d, " two"...), nil
		}},
		eventlog.Upcast{Type: "happened", From: 2, Up: func(d []byte) ([]byte, error) { return append(d, " three"...), nil }},
	))(k)
	got := make(chan eventlog.Recorded, 10)
	l := k.log(k.s, eventlog.Options{Upcasters: up, Subscriptions: []eventlog.Subscription{eventlog.Projection("view", func(_ context.Context, e eventlog.Recorded) error { got <- e; return nil }, nil)}})
	a := k.some("a", eventlog.Any, 4)
	a.Events[1].Data, a.Events[2].Schema, a.Events[3].Schema = []byte("broken"), 2, 9
	k.put(a)
	k.run(l)
	for _, want := range []string{"data 1 two three", "data 3 three", "data 4"} {
		e := <-got
		k.truth(string(e.Data) == want && (e.Schema == 3 || e.Schema == 9), "got %q of schema %d, want %q", e.Data, e.Schema, want)
	}
	k.await("what cannot be brought up", func() bool {
		return len(must(k.s.ListAside(k.ctx, eventlog.AsideQuery{Consumer: "view"}))(k)) == 1
	})
}

func logAdopts(k *kit) {
	handles := k.handles()
	var dead, alive heard
	gone := k.log(handles[0], eventlog.Options{Label: "gone", Subscriptions: []eventlog.Subscription{dead.effect("export"), dead.effect("alert")}})
	a := k.unstamped("a", 5)
	must(gone.Append(k.ctx, a))(k) // and it dies, before anything ran
	l := k.log(handles[1], eventlog.Options{Label: "alive", Subscriptions: []eventlog.Subscription{alive.effect("export")}})
	own := k.unstamped("b", 2)
	must(l.Append(k.ctx, own))(k)
	none := must(l.Adopt(k.ctx, eventlog.Adopt{Idle: time.Hour}))(k)
	k.truth(none.Producers == 0 && len(alive.all()) == 0, "who was there a moment ago is not dead: %+v", none)
	out := must(l.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
	k.truth(out.Producers == 1 && out.Events == 5, "adopted: %+v", out)
	same(k, alive.all(), ids(a), "what the dead one left is handled, in order, and nobody else's")
	k.await("its checkpoint is closed", func() bool {
		again := must(l.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
		k.truth(again.Events == 0, "nothing is left: %+v", again)
		k.put(k.some("c", eventlog.Any, 1))
		return k.checkpoint("export", gone.Producer()).Closed
	})
	k.truth(!k.checkpoint("export", l.Producer()).Closed, "its own is open")
	k.truth(len(must(k.s.Checkpoints(k.ctx, "alert"))(k)) == 1, "effects that this program does not know wait for one that does")
}

func logLeaseLost(k *kit) {
	var dead, alive heard
	gone := k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{dead.effect("export")}})
	a := k.unstamped("a", 4)
	must(gone.Append(k.ctx, a))(k)
	l := k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{alive.effect("export")}})
	asked := 0
	must(l.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond, Held: func() bool { asked++; return asked <= 3 }}))(k)
	same(k, alive.all(), ids(a)[:2], "it is asked before each event")
	next := k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{dead.effect("export")}})
	must(next.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
	same(k, dead.all(), ids(a), "the next holder begins with what was not saved")
}

func logTakesBack(k *kit) {
	handles := k.handles()
	var slow, quick heard
	hold, reached := make(chan struct{}), make(chan struct{})
	var once sync.Once
	owner := k.log(handles[0], eventlog.Options{Subscriptions: []eventlog.Subscription{eventlog.Effect("export", func(_ context.Context, e eventlog.Recorded, _ eventlog.Appender) error {
		once.Do(func() { close(reached); <-hold })
		slow.note(e)
		return nil
	})}})
	k.run(owner)
	a, b := k.unstamped("a", 3), k.unstamped("a", 2)
	must(owner.Append(k.ctx, a))(k)
	<-reached
	other := k.log(handles[1], eventlog.Options{Subscriptions: []eventlog.Subscription{quick.effect("export")}})
	out := must(other.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
	k.truth(out.Events == 3, "the slow one's were adopted: %+v", out)
	close(hold)
	must(owner.Append(k.ctx, b))(k)
	k.await("the slow one goes on with its own", func() bool { return slow.count(b.Events[1].ID) == 1 })
	for _, id := range ids(a) {
		k.truth(quick.count(id) == 1, "%s was adopted %d times", id, quick.count(id))
	}
	k.await("it has its checkpoint back", func() bool {
		c := k.checkpoint("export", owner.Producer())
		return c.Owner == owner.Producer() && !c.Closed
	})
}

func logRepeats(k *kit) {
	var h heard
	a := k.unstamped("a", 3)
	l := k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{h.effect("export")}})
	must(l.Append(k.ctx, a))(k)
	c := must(k.s.Checkpoints(k.ctx, "export"))(k)[0]
	page := must(k.s.Read(k.ctx, eventlog.Read{Cursor: c.Cursor, Registered: true}))(k)
	for _, e := range page.Events { // handled, and then the process is gone: nothing was saved
		h.note(e)
	}
	next := k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{h.effect("export")}})
	must(next.Adopt(k.ctx, eventlog.Adopt{Idle: time.Nanosecond}))(k)
	for _, id := range ids(a) {
		k.truth(h.count(id) == 2, "%s was handled %d times", id, h.count(id))
	}
}

func logJoins(k *kit) {
	k.put(k.some("a", eventlog.Any, 3))
	state := must(k.s.Head(k.ctx))(k) // what a peer's state covers
	b := k.some("b", eventlog.Any, 2)
	k.put(b)
	var h heard
	l := k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{
		eventlog.Projection("view", func(_ context.Context, e eventlog.Recorded) error { h.note(e); return nil },
			&eventlog.ViewOptions{From: func(context.Context) (eventlog.Cursor, error) { return state, nil }}),
	}})
	k.run(l)
	k.await("what came since", func() bool { return len(h.all()) == 2 })
	same(k, h.all(), ids(b), "a state and its cursor leave nothing out and repeat nothing")
}

func logShares(k *kit) {
	var plain []*eventlog.Log
	for _, s := range k.handles() {
		plain = append(plain, k.log(s, eventlog.Options{}))
	}
	k.put(k.some("taken", eventlog.Any, 1))
	const callers, each = 16, 10
	var wg sync.WaitGroup
	var mu sync.Mutex
	var done []string
	for i := range callers {
		wg.Go(func() {
			for n := range each {
				a := k.unstamped(fmt.Sprint("own", i), 2)
				want := error(nil)
				switch {
				case n%5 == 3:
					a.Stream, a.Expect, want = "taken", eventlog.Empty, eventlog.ErrConflict
				case n%5 == 4:
					a.Stream, want = "", eventlog.ErrInvalid
				case n > 0:
					a.Stream = "crowd"
				}
				_, err := plain[i%2].Append(k.ctx, a)
				if !errors.Is(err, want) {
					k.Errorf("append %d of caller %d: %v, want %v", n, i, err, want)
				}
				if err == nil {
					mu.Lock()
					done = append(done, ids(a)...)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	events, _ := k.drain(eventlog.Cursor{}, 50)
	there := map[string]int{}
	for _, e := range events {
		there[e.ID]++
	}
	k.truth(len(events) == len(done)+1, "%d events are there, callers were told of %d", len(events)-1, len(done))
	for _, id := range done {
		k.truth(there[id] == 1, "%s is there %d times", id, there[id])
	}
}

func logStamps(k *kit) {
	var h heard
	l := k.log(k.s, eventlog.Options{Subscriptions: []eventlog.Subscription{h.effect("export")}})
	stamped := must(l.Stamp(k.ctx, eventlog.Append{Stream: "a", Events: []eventlog.Event{{Type: "happened"}, {Type: "happened"}}}))(k)
	k.truth(stamped[0].Producer == l.Producer() && stamped[0].Events[0].ID != "" && stamped[0].Events[0].ID != stamped[0].Events[1].ID, "stamped: %+v", stamped)
	k.truth(len(must(k.s.Checkpoints(k.ctx, "export"))(k)) == 1, "its effects have their place before its first event")
	tx := k.begin()
	must(tx.Append(k.ctx, stamped...))(k)
	k.run(l)
	other := k.some("b", eventlog.Any, 1)
	k.put(other)
	k.ok(tx.Commit(k.ctx))
	l.Wake()
	k.await("its own", func() bool { return len(h.all()) == 2 })
	same(k, h.all(), ids(stamped...), "the effect has what was appended in a caller's transaction")
}
