package eventlogtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
)

var randomCases = []suiteCase{
	{name: "Random/AgreesWithASmallModel", run: random},
}

// model is a log as one would write it on paper.
type model struct {
	events   []string
	stream   map[string]int64
	appended []eventlog.Append
}

type follower struct {
	at     int // how many of the model's events it has had
	cursor eventlog.Cursor
}

// random appends, repeats, reads and prunes as it comes, and holds each answer against the model.
func random(k *kit) {
	seed := uint64(time.Now().UnixNano())
	k.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	m := model{stream: map[string]int64{}}
	followers := make([]follower, 4)
	kept := k.claim("kept", eventlog.Unknown, eventlog.Cursor{})
	keptAt, pruned := 0, 0
	for range 120 {
		switch r.IntN(9) {
		case 0, 1, 2:
			m.append(k, r)
		case 3:
			if len(m.appended) > 0 {
				a := m.appended[r.IntN(len(m.appended))]
				out, err := k.s.Append(k.ctx, []eventlog.Append{a})
				// Ids are remembered as long as their events are there.
				k.truth(pruned > 0 || err == nil && out[0].Replayed, "a repetition: %+v %v", out, err)
				if err == nil && !out[0].Replayed {
					m.events = append(m.events, ids(a)...)
					m.stream[a.Stream] += int64(len(a.Events))
				}
			}
		case 4, 5, 6:
			f := &followers[r.IntN(len(followers))]
			page, err := k.s.Read(k.ctx, eventlog.Read{Cursor: f.cursor, Limit: 1 + r.IntN(5)})
			disturbed := pruned > 0 && !f.cursor.Open().Empty() && errors.Is(err, eventlog.ErrPruned) // see kit.undisturbed
			if f.at < pruned || disturbed {
				k.is(err, eventlog.ErrPruned, "a follower that retention has passed")
				f.cursor, f.at = must(k.s.Head(k.ctx))(k), len(m.events)
				continue
			}
			k.ok(err)
			f.at += m.check(k, f.at, page)
			f.cursor = page.Next
		case 7:
			page := must(k.s.Read(k.ctx, eventlog.Read{Cursor: kept.Cursor, Limit: 1 + r.IntN(9), Registered: true}))(k)
			keptAt += m.check(k, keptAt, page)
			kept.Cursor = page.Next
			k.ok(k.s.Save(k.ctx, kept))
		case 8:
			out := must(k.s.Prune(k.ctx, eventlog.Prune{Before: k.later(), Limit: 1 + r.IntN(4)}))(k)
			pruned += int(out.Events)
			k.truth(pruned <= keptAt, "retention took %d events, the checkpoint has had %d", pruned, keptAt)
		}
	}
	for {
		page := must(k.s.Read(k.ctx, eventlog.Read{Cursor: kept.Cursor, Registered: true}))(k)
		keptAt += m.check(k, keptAt, page)
		if kept.Cursor = page.Next; !page.More {
			break
		}
	}
	k.truth(keptAt == len(m.events), "%d of %d events were delivered", keptAt, len(m.events))
}

func (m *model) check(k *kit, at int, page eventlog.Page) int {
	k.Helper()
	for i, e := range page.Events {
		k.truth(at+i < len(m.events) && e.ID == m.events[at+i], "event %d is %s", at+i, e.ID)
	}
	k.truth(page.More || at+len(page.Events) == len(m.events), "nothing more is said to come after %d of %d", at+len(page.Events), len(m.events))
	return len(page.Events)
}

func (m *model) append(k *kit, r *rand.Rand) {
	k.Helper()
	a := k.some(fmt.Sprint("s", r.IntN(3)), eventlog.Any, 1+r.IntN(4))
	switch at := m.stream[a.Stream]; r.IntN(4) {
	case 0:
		a.Expect = eventlog.Expect(at)
		if at == 0 {
			a.Expect = eventlog.Empty
		}
	case 1:
		a.Expect = eventlog.Expect(at + 1)
	}
	out, err := k.s.Append(k.ctx, []eventlog.Append{a})
	if want, exact := a.Expect.Version(); exact && want != m.stream[a.Stream] {
		var c *eventlog.ConflictError
		k.truth(errors.As(err, &c) && c.Actual == m.stream[a.Stream], "a stream at %d: %v", m.stream[a.Stream], err)
		return
	}
	k.ok(err)
	m.stream[a.Stream] += int64(len(a.Events))
	k.truth(out[0].Version == m.stream[a.Stream], "the stream is at %d, not %d", m.stream[a.Stream], out[0].Version)
	m.events = append(m.events, ids(a)...)
	m.appended = append(m.appended, a)
}
