package eventlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/eventlog"
)

// TestPropertyPlanIsOneAfterAnother compares a plan with appends that go in one by one.
func TestPropertyPlanIsOneAfterAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := map[string]int64{"a": rapid.Int64Range(0, 3).Draw(t, "a"), "b": rapid.Int64Range(0, 3).Draw(t, "b")}
		var appends []eventlog.Append
		for i := range rapid.IntRange(1, 5).Draw(t, "appends") {
			a := eventlog.Append{Stream: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "stream"), Producer: "p", Expect: eventlog.Expect(rapid.Int64Range(-1, 7).Draw(t, "expect"))}
			for n := range rapid.IntRange(1, 3).Draw(t, "events") {
				a.Events = append(a.Events, eventlog.Event{ID: fmt.Sprint(i, "/", n), Type: "t", Schema: 1})
			}
			appends = append(appends, a)
		}
		now := map[string]int64{"a": at["a"], "b": at["b"]}
		var want []int64
		fails := -1
		for i, a := range appends {
			if version, exact := a.Expect.Version(); exact && version != now[a.Stream] {
				fails = i
				break
			}
			for range a.Events {
				now[a.Stream]++
				want = append(want, now[a.Stream])
			}
		}
		conflict := eventlog.Conflict(appends, at)
		if (conflict == nil) != (fails < 0) || conflict != nil && conflict.Index != fails {
			t.Fatalf("append %d cannot go in, Conflict says %v", fails, conflict)
		}
		rows, err := eventlog.Plan(appends)
		if err != nil {
			if fails < 0 || !errors.Is(err, eventlog.ErrConflict) {
				t.Fatalf("all of them can go in, Plan says %v", err)
			}
			return
		}
		met := true
		for i, r := range rows {
			met = met && (r.Base < 0 || r.Base == at[r.Stream])
			if fails < 0 && at[r.Stream]+r.Offset != want[i] {
				t.Fatalf("row %d goes to version %d, not %d", i, at[r.Stream]+r.Offset, want[i])
			}
		}
		if met != (fails < 0) {
			t.Fatalf("append %d cannot go in, the plan's bases are met: %v", fails, met)
		}
	})
}

func TestReplay(t *testing.T) {
	rows := []eventlog.Row{
		{Event: eventlog.Event{ID: "1", Type: "t", Schema: 1, Data: []byte("x")}, Stream: "a", Base: -1, Offset: 1},
		{Event: eventlog.Event{ID: "2", Type: "t", Schema: 1}, Stream: "a", Base: -1, Offset: 2},
		{Event: eventlog.Event{ID: "3", Type: "t", Schema: 1}, Stream: "b", Append: 1, Base: 4, Offset: 1},
		{Event: eventlog.Event{ID: "4"}, Stream: "c", Append: 2, Base: -1, Offset: 1},
	}
	found := []eventlog.Recorded{{Event: rows[2].Event, Stream: "b", Version: 5, Position: 12}, {Event: rows[0].Event, Stream: "a", Version: 7, Position: 10}, {Event: rows[1].Event, Stream: "a", Version: 8, Position: 11}, {Event: rows[3].Event, Stream: "c", Version: 1, Position: 13}}
	out, err := eventlog.Replay(rows, 3, nil)
	require.True(t, out == nil && err == nil, "nothing is there")
	out, err = eventlog.Replay(rows, 3, found)
	require.NoError(t, err)
	require.Equal(t, []eventlog.Appended{{Version: 8, Position: 11, Replayed: true}, {Version: 5, Position: 12, Replayed: true}, {Version: 1, Position: 13, Replayed: true}}, out)
	for name, change := range map[string]func(f []eventlog.Recorded) []eventlog.Recorded{
		"one is missing":       func(f []eventlog.Recorded) []eventlog.Recorded { return f[:3] },
		"another stream":       func(f []eventlog.Recorded) []eventlog.Recorded { f[1].Stream = "b"; return f },
		"another type":         func(f []eventlog.Recorded) []eventlog.Recorded { f[1].Type = "u"; return f },
		"another schema":       func(f []eventlog.Recorded) []eventlog.Recorded { f[1].Schema = 2; return f },
		"other data":           func(f []eventlog.Recorded) []eventlog.Recorded { f[1].Data = nil; return f },
		"not one behind other": func(f []eventlog.Recorded) []eventlog.Recorded { f[2].Version = 9; return f },
		"not at its version":   func(f []eventlog.Recorded) []eventlog.Recorded { f[0].Version = 6; return f },
	} {
		_, err := eventlog.Replay(rows, 3, change(append([]eventlog.Recorded{}, found...)))
		require.ErrorIs(t, err, eventlog.ErrDuplicate, name)
	}
}

func TestProducers(t *testing.T) {
	a, err := eventlog.MintProducer("pod")
	require.NoError(t, err)
	b, err := eventlog.MintProducer("pod")
	require.NoError(t, err)
	require.NotEqual(t, a, b, "one label for all replicas, as a ConfigMap gives it")
	require.True(t, strings.HasPrefix(string(a), "pod/"))
	_, err = eventlog.MintProducer("")
	require.NoError(t, err)
	for _, bad := range []string{strings.Repeat("x", 167), "a\nb", "\xff"} {
		_, err = eventlog.MintProducer(bad)
		require.ErrorIs(t, err, eventlog.ErrInvalid)
	}
}

func TestUpcasters(t *testing.T) {
	up := func(d []byte) ([]byte, error) { d = append(d, '+'); return d, nil }
	for name, steps := range map[string][]eventlog.Upcast{
		"twice":       {{Type: "a", From: 1, Up: up}, {Type: "a", From: 1, Up: up}},
		"a gap":       {{Type: "a", From: 1, Up: up}, {Type: "a", From: 3, Up: up}},
		"not from 1":  {{Type: "a", From: 2, Up: up}},
		"no function": {{Type: "a", From: 1}},
		"no type":     {{From: 1, Up: up}},
		"from 0":      {{Type: "a", From: 0, Up: up}},
	} {
		_, err := eventlog.NewUpcasters(steps...)
		require.ErrorIs(t, err, eventlog.ErrInvalid, name)
	}
	u, err := eventlog.NewUpcasters(eventlog.Upcast{Type: "a", From: 2, Up: up}, eventlog.Upcast{Type: "a", From: 1, Up: up})
	require.NoError(t, err)
	old := make([]byte, 1, 10)
	old[0] = 'x'
	got, err := u.Apply(eventlog.Recorded{Event: eventlog.Event{Type: "a", Schema: 1, Data: old}})
	require.NoError(t, err)
	require.Equal(t, "x++ 3", fmt.Sprintf("%s %d", got.Data, got.Schema))
	require.Equal(t, "x", string(old[:1]))
	require.Zero(t, old[:2][1], "the caller's array is not written to")
	for _, other := range []eventlog.Event{{Type: "b", Schema: 1}, {Type: "a", Schema: 3}, {Type: "a", Schema: 9}} {
		same, err := u.Apply(eventlog.Recorded{Event: other})
		require.NoError(t, err)
		require.Equal(t, other, same.Event)
	}
	var none *eventlog.Upcasters
	same, err := none.Apply(got)
	require.NoError(t, err)
	require.Equal(t, got, same)
}

func TestSubscriptionsSayWhatTheyAre(t *testing.T) {
	ok := eventlog.Effect("x", func(_ ctx, _ eventlog.Recorded, _ eventlog.Appender) error { return nil })
	for name, list := range map[string][]eventlog.Subscription{
		"no kind": {{}}, "no handler": {eventlog.Effect("x", nil)}, "no projection": {eventlog.Projection("x", nil, nil)},
		"no name": {eventlog.LocalView("", func(ctx, eventlog.Recorded) error { return nil }, nil)}, "twice": {ok, ok},
	} {
		_, err := eventlog.New(nil, &eventlog.Options{Subscriptions: list})
		require.ErrorIs(t, err, eventlog.ErrInvalid, name)
	}
	require.Equal(t, "x is an effect", ok.Name()+" is an "+ok.Kind().String())
}

type ctx = context.Context

func FuzzRecorded(f *testing.F) {
	f.Add([]byte(`{"id":"1","type":"t","schema":1,"data":"AA==","position":3,"stream":"s","version":2,"producer":"p","at_us":5}`))
	f.Add([]byte(`{"id":"1","type":"t","schema":1,"position":3,"stream":"s","version":2,"at_us":-5,"later":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r eventlog.Recorded
		if json.Unmarshal(text, &r) != nil {
			require.Equal(t, eventlog.Recorded{}, r)
			return
		}
		out, err := json.Marshal(r)
		require.NoError(t, err)
		var again eventlog.Recorded
		require.NoError(t, json.Unmarshal(out, &again))
		require.True(t, again.At.Equal(r.At) && again.At.Location() == time.UTC && bytes.Equal(again.Data, r.Data))
		require.Equal(t, r, again)
	})
}
