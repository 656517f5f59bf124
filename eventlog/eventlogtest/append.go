package eventlogtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
)

var appendCases = []suiteCase{
	{name: "Append/KeepsWhatItWasGiven", run: appendKeeps},
	{name: "Append/VersionsAndPositionsAscend", run: appendAscends},
	{name: "Append/AtTheExpectedVersionOnly", run: appendExpected},
	{name: "Append/ExpectationsOfOneCallFollowOneAnother", run: appendChain},
	{name: "Append/AllOrNone", run: appendAllOrNone},
	{name: "Append/RepeatedChangesNothing", run: appendReplay},
	{name: "Append/AnIDIsOneEvent", run: appendDuplicate},
	{name: "Append/RefusesWhatIsMalformed", run: appendMalformed},
	{name: "Append/TakesTheLargest", run: appendLargest},
	{name: "Append/RaceForAVersionHasOneWinner", run: appendRace},
	{name: "Append/RaceWithoutExpectationsLosesNobody", run: appendCrowd},
	{name: "Append/RaceOfOneAppendIsOneAppend", run: appendTwins},
	{name: "Append/LeftByItsCallerSaysSo", run: appendLeft},
}

func appendKeeps(k *kit) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	a := eventlog.Append{Stream: "Strom/ß 'x' \"y\" {z}", Producer: "pod-1/ab,c", Events: []eventlog.Event{
		{ID: "id 'one' {2,3}", Type: "naïve", Schema: 7, Data: every}, {ID: "ID 'one' {2,3}", Type: `back\slash`, Schema: 1, Data: []byte{}},
	}}
	before := time.Now().Add(-24 * time.Hour)
	k.put(a)
	events, _ := k.drain(eventlog.Cursor{}, 10)
	k.truth(len(events) == 2, "two events were appended, %d came", len(events))
	for i, e := range events {
		k.truth(e.ID == a.Events[i].ID && e.Type == a.Events[i].Type && e.Schema == a.Events[i].Schema, "event %d is %+v", i, e)
		k.truth(bytes.Equal(e.Data, a.Events[i].Data) && e.Data != nil, "data of event %d is %q", i, e.Data)
		k.truth(e.Stream == a.Stream && e.Producer == a.Producer && e.Version == int64(i+1), "event %d is %+v", i, e)
		k.truth(e.At.After(before) && e.At.Location() == time.UTC, "event %d is of %v", i, e.At)
	}
	again := must(k.s.Stream(k.ctx, eventlog.ReadStream{Stream: a.Stream}))(k)
	same(k, again, events, "the stream tells the same")
}

func appendAscends(k *kit) {
	last := int64(0)
	for n := range 5 {
		out := k.put(k.some("a", eventlog.Any, 2), k.some("b", eventlog.Any, 1))
		k.truth(out[0].Version == int64(2*n+2) && out[1].Version == int64(n+1), "versions are %+v", out)
		k.truth(out[0].Position > last && out[1].Position > out[0].Position, "positions are %+v after %d", out, last)
		last = out[1].Position
	}
	events, _ := k.drain(eventlog.Cursor{}, 4)
	versions := map[string]int64{}
	for i, e := range events {
		k.truth(i == 0 || e.Position > events[i-1].Position, "position %d comes after %d", e.Position, events[max(i-1, 0)].Position)
		k.truth(e.Version == versions[e.Stream]+1, "version %d of %s comes after %d", e.Version, e.Stream, versions[e.Stream])
		versions[e.Stream] = e.Version
	}
	page := must(k.s.Stream(k.ctx, eventlog.ReadStream{Stream: "a", After: 3, Limit: 4}))(k)
	k.truth(len(page) == 4 && page[0].Version == 4 && page[3].Version == 7, "a page of a stream begins behind After and ends at Limit")
}

func appendExpected(k *kit) {
	k.put(k.some("a", eventlog.Empty, 1))
	k.put(k.some("a", 1, 2))
	for _, wrong := range []eventlog.Expect{eventlog.Empty, 1, 2, 4, 1 << 40} {
		err := k.refused(eventlog.ErrConflict, fmt.Sprintf("expecting %d of a stream at 3", wrong), k.some("a", wrong, 1))
		var c *eventlog.ConflictError
		want, _ := wrong.Version()
		k.truth(errors.As(err, &c) && c.Index == 0 && c.Expected == want && c.Actual == 3, "the error says %+v", c)
	}
	k.refused(eventlog.ErrConflict, "a version of a stream that is empty", k.some("b", 1, 1))
	err := k.refused(eventlog.ErrConflict, "the second of two", k.some("c", eventlog.Empty, 1), k.some("a", 2, 1))
	var c *eventlog.ConflictError
	k.truth(errors.As(err, &c) && c.Index == 1, "it is named: %+v", c)
	k.put(k.some("a", 3, 1))
}

func appendChain(k *kit) {
	out := k.put(k.some("a", eventlog.Any, 2), k.some("a", 2, 1), k.some("b", eventlog.Empty, 1), k.some("a", 3, 1), k.some("a", eventlog.Any, 1))
	k.truth(out[0].Version == 2 && out[1].Version == 3 && out[3].Version == 4 && out[4].Version == 5, "versions are %+v", out)
	k.refused(eventlog.ErrConflict, "two that expect the same", k.some("a", 5, 1), k.some("a", 5, 1))
	k.refused(eventlog.ErrConflict, "one that cannot follow", k.some("a", eventlog.Any, 2), k.some("a", 6, 1))
	k.put(k.some("a", eventlog.Any, 2), k.some("a", 7, 1))
}

func appendAllOrNone(k *kit) {
	k.put(k.some("a", eventlog.Empty, 1))
	k.refused(eventlog.ErrConflict, "one of three", k.some("x", eventlog.Any, 3), k.some("a", eventlog.Empty, 1), k.some("y", eventlog.Any, 1))
	k.truth(len(must(k.s.Stream(k.ctx, eventlog.ReadStream{Stream: "x"}))(k)) == 0, "nothing of the others is there")
}

func appendReplay(k *kit) {
	appends := []eventlog.Append{k.some("a", eventlog.Any, 2), k.some("b", eventlog.Empty, 1)}
	first := k.put(appends...)
	k.put(k.some("a", eventlog.Any, 1))
	again := k.put(appends...)
	for i := range first {
		k.truth(!first[i].Replayed && again[i].Replayed, "a repetition says so: %+v %+v", first[i], again[i])
		again[i].Replayed = false
	}
	same(k, again, first, "a repetition is answered as the first time")
	appends[0].Producer = "another process"
	k.put(appends...)
	events, _ := k.drain(eventlog.Cursor{}, 100)
	k.truth(len(events) == 4 && events[0].Producer == "someone", "a repetition changed something: %+v", events)
}

func appendDuplicate(k *kit) {
	a := k.some("a", eventlog.Any, 2)
	k.put(a)
	mixed := k.some("a", eventlog.Any, 1)
	mixed.Events = append(mixed.Events, a.Events[1])
	k.refused(eventlog.ErrDuplicate, "an old and a new one", mixed)
	for name, change := range map[string]func(*eventlog.Append){
		"stream": func(a *eventlog.Append) { a.Stream = "b" },
		"type":   func(a *eventlog.Append) { a.Events[1].Type = "other" },
		"schema": func(a *eventlog.Append) { a.Events[1].Schema = 2 },
		"data":   func(a *eventlog.Append) { a.Events[1].Data = []byte("other") },
		"order":  func(a *eventlog.Append) { a.Events[0], a.Events[1] = a.Events[1], a.Events[0] },
		"place":  func(a *eventlog.Append) { a.Expect = 2 },
	} {
		other := a
		other.Events = append([]eventlog.Event{}, a.Events...)
		change(&other)
		k.refused(eventlog.ErrDuplicate, "the ids with another "+name, other)
	}
	twice := k.some("c", eventlog.Any, 1)
	twice.Events = append(twice.Events, twice.Events[0])
	k.refused(eventlog.ErrDuplicate, "one id twice in a call", twice)
}

func appendMalformed(k *kit) {
	for name, change := range map[string]func(*eventlog.Append){
		"no stream":         func(a *eventlog.Append) { a.Stream = "" },
		"a long stream":     func(a *eventlog.Append) { a.Stream = strings.Repeat("x", 201) },
		"a control":         func(a *eventlog.Append) { a.Stream = "a\x00b" },
		"no UTF-8":          func(a *eventlog.Append) { a.Stream = "\xff" },
		"no producer":       func(a *eventlog.Append) { a.Producer = eventlog.Unknown },
		"an expectation":    func(a *eventlog.Append) { a.Expect = -2 },
		"no events":         func(a *eventlog.Append) { a.Events = nil },
		"no id":             func(a *eventlog.Append) { a.Events[0].ID = "" },
		"no type":           func(a *eventlog.Append) { a.Events[0].Type = "" },
		"no schema":         func(a *eventlog.Append) { a.Events[0].Schema = 0 },
		"data of 1 MiB + 1": func(a *eventlog.Append) { a.Events[0].Data = make([]byte, eventlog.MaxData+1) },
	} {
		a := k.some("a", eventlog.Any, 1)
		change(&a)
		k.refused(eventlog.ErrInvalid, name, a)
	}
	k.refused(eventlog.ErrInvalid, "nothing")
	k.refused(eventlog.ErrInvalid, "too many", k.some("a", eventlog.Any, eventlog.MaxEvents+1))
}

func appendLargest(k *kit) {
	big := k.some(strings.Repeat("s", 200), eventlog.Any, 1)
	big.Events[0].ID, big.Events[0].Type = strings.Repeat("i", 200), strings.Repeat("t", 200)
	big.Events[0].Data = bytes.Repeat([]byte{0, 255, '\'', '\\'}, eventlog.MaxData/4)
	k.put(big)
	many := k.some("many", eventlog.Empty, eventlog.MaxEvents)
	out := k.put(many)
	k.truth(out[0].Version == eventlog.MaxEvents, "the stream is at %d", out[0].Version)
	events, _ := k.drain(eventlog.Cursor{}, eventlog.MaxPage)
	k.truth(len(events) == eventlog.MaxEvents+1 && bytes.Equal(events[0].Data, big.Events[0].Data), "all of it comes back")
	for i, e := range events[1:] {
		k.truth(e.ID == many.Events[i].ID && e.Version == int64(i+1), "event %d of a large append is at version %d", i, e.Version)
	}
}

const racers = 12

// race runs try at once from both handles and returns the errors by racer.
func (k *kit) race(try func(i int, s eventlog.Store) error) []error {
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

func appendRace(k *kit) {
	k.put(k.some("a", eventlog.Empty, 1))
	errs := k.race(func(_ int, s eventlog.Store) error {
		_, err := s.Append(k.ctx, []eventlog.Append{k.some("a", 1, 2)})
		return err
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		k.is(err, eventlog.ErrConflict, "who lost")
	}
	k.truth(won == 1, "%d of %d appends at one version went in", won, racers)
	k.truth(len(must(k.s.Stream(k.ctx, eventlog.ReadStream{Stream: "a"}))(k)) == 3, "the winner's events are there, and no other's")
}

func appendCrowd(k *kit) {
	const each = 8
	errs := k.race(func(i int, s eventlog.Store) error {
		for n := range each {
			stream := "all"
			if n%4 == 3 {
				stream = fmt.Sprint("own", i)
			}
			if _, err := s.Append(k.ctx, []eventlog.Append{k.some(stream, eventlog.Any, 1)}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, err := range errs {
		k.ok(err)
	}
	events, _ := k.drain(eventlog.Cursor{}, 7)
	versions := map[string]int64{}
	for _, e := range events {
		k.truth(e.Version == versions[e.Stream]+1, "version %d of %s after %d", e.Version, e.Stream, versions[e.Stream])
		versions[e.Stream]++
	}
	k.truth(len(events) == racers*each, "%d of %d events came", len(events), racers*each)
}

func appendTwins(k *kit) {
	a := k.some("a", eventlog.Any, 2)
	firsts := make([]bool, racers)
	errs := k.race(func(i int, s eventlog.Store) error {
		out, err := s.Append(k.ctx, []eventlog.Append{a})
		firsts[i] = err == nil && !out[0].Replayed
		return err
	})
	n := 0
	for i, err := range errs {
		k.ok(err)
		if firsts[i] {
			n++
		}
	}
	k.truth(n == 1, "%d of %d equal appends say that they were the first", n, racers)
	k.delivers(eventlog.Cursor{}, ids(a), "they are there once")
}

func appendLeft(k *kit) {
	gone, leave := context.WithCancel(k.ctx)
	leave()
	_, err := k.s.Append(gone, []eventlog.Append{k.some("a", eventlog.Any, 1)})
	k.truth(errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnknownOutcome), "who had left is told %v", err)
	k.truth(errors.Is(err, context.Canceled), "and why: %v", err)
}
