package policytest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tallystick-go/tallystick/governance/policy"
)

var eventCases = []suiteCase{
	{name: "Events/OneForEveryDocument", needs: Features{Events: true}, run: eventsOne},
	{name: "Events/NoneWhereNothingChanged", needs: Features{Events: true}, run: eventsNone},
	{name: "Events/RaceKeepsTheOrderOfRevisions", needs: Features{Events: true}, run: eventsRace},
}

// tells checks what was told since there were n events, and returns how many there are now.
func (k *kit) tells(n int, rule string, now policy.Mark, want ...string) int {
	k.Helper()
	events := k.h.Events(k, k.s)
	var got []string
	for _, e := range events[n:] {
		told, err := policy.ParseEvent(e.Type, e.Data)
		k.truth(err == nil, "%s: %v", rule, err)
		k.truth(told.Mark == now, "%s: the mark is %+v, and %+v was told", rule, now, told.Mark)
		k.truth(e.Stream == policy.EventStream && e.ID == fmt.Sprintf("policies/%d/%s", told.Revision, told.Name), "%s: the event is %s on %s", rule, e.ID, e.Stream)
		k.truth((told.Digest != "") == (e.Type == policy.EventApplied), "%s: the digest is %q", rule, told.Digest)
		got = append(got, e.Type+" "+told.Name)
	}
	k.truth(strings.Join(got, ", ") == strings.Join(want, ", "), "%s:\n got %v\nwant %v", rule, got, want)
	return len(events)
}

func eventsOne(k *kit) {
	now := k.apply(doc("b", 1), doc("a", 1))
	n := k.tells(0, "two new documents", now.Mark, "policy.applied a", "policy.applied b")
	now = k.apply(doc("a", 2), doc("b", 1))
	n = k.tells(n, "one of two is another", now.Mark, "policy.applied a")
	now = k.sound(k.s.Delete(k.ctx, policy.Delete{Names: []string{"b"}, Expect: now.Generation}))
	n = k.tells(n, "a removal", now.Mark, "policy.removed b")
	now = k.sound(k.s.Replace(k.ctx, policy.Replace{Documents: []policy.Document{doc("c", 1), rich("d")}, Expect: now.Generation}))
	n = k.tells(n, "another set", now.Mark, "policy.removed a", "policy.applied c", "policy.applied d")
	back := k.sound(k.s.Replace(k.ctx, policy.Replace{Expect: now.Generation}))
	n = k.tells(n, "no set", back.Mark, "policy.removed c", "policy.removed d")
	again := k.sound(k.s.Replace(k.ctx, policy.Replace{Documents: []policy.Document{doc("c", 1), rich("d")}, Expect: back.Generation}))
	k.truth(again.Generation == now.Generation, "the same set has the same generation")
	k.tells(n, "the same set again is told again", again.Mark, "policy.applied c", "policy.applied d")
}

func eventsNone(k *kit) {
	was := k.apply(doc("a", 1))
	n := k.tells(0, "a new document", was.Mark, "policy.applied a")
	k.apply(doc("a", 1))
	k.sound(k.s.Replace(k.ctx, policy.Replace{Documents: []policy.Document{doc("a", 1)}, Expect: policy.Generation{1}}))
	k.sound(k.s.Delete(k.ctx, policy.Delete{Names: []string{"never"}, Expect: policy.Generation{1}}))
	k.tells(n, "what is in force already is not told again", was.Mark)
	s, err := k.s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("a", 2)}, Expect: policy.Generation{1}})
	k.conflict(s, err, was.Mark, "a stale edit")
	s, err = k.s.Delete(k.ctx, policy.Delete{Names: []string{"never"}, Expect: was.Generation})
	k.fails(s, err, policy.ErrNotFound, "nothing to delete")
	s, err = k.s.Apply(k.ctx, policy.Apply{Expect: was.Generation})
	k.fails(s, err, policy.ErrInvalid, "no documents")
	k.tells(n, "what is refused is not told", was.Mark)
}

func eventsRace(k *kit) {
	for i, err := range k.race(func(i int, s policy.Store) error {
		for range 200 {
			now, err := s.Load(k.ctx)
			if err != nil {
				return err
			}
			_, err = s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc(fmt.Sprint("d", i), 1)}, Expect: now.Generation})
			if !errors.Is(err, policy.ErrConflict) {
				return err
			}
		}
		return policy.ErrConflict
	}) {
		k.truth(err == nil, "racer %d: %v", i, err)
	}
	events := k.h.Events(k, k.s)
	k.truth(len(events) == racers, "%d of %d edits were told", len(events), racers)
	last := int64(0)
	for _, e := range events {
		told, err := policy.ParseEvent(e.Type, e.Data)
		k.truth(err == nil && told.Revision == last+1 || last == 0, "revision %d was told after %d (%v)", told.Revision, last, err)
		last = told.Revision
	}
	k.truth(last == k.load().Revision, "the last that was told is in force")
}
