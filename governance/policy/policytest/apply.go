package policytest

import (
	"fmt"

	"github.com/tallystick-go/tallystick/governance/policy"
)

var applyCases = []suiteCase{
	{name: "Load/EmptyStoreHasTheEmptySet", run: loadEmpty},
	{name: "Load/IsWhatTheEditReturned", run: loadIsWhatTheEditReturned},
	{name: "Apply/AddsAndReplacesByName", run: applyAddsAndReplaces},
	{name: "Apply/EverythingSurvives", run: applyEverythingSurvives},
	{name: "Apply/OrderIsThatOfTheBytesOfNames", run: applyOrder},
	{name: "Apply/NamesOfAnotherCaseAreOtherNames", run: applyCase},
	{name: "Apply/RevisionRisesByOne", run: applyRevision},
	{name: "Apply/AnotherGenerationIsAConflict", run: applyConflict},
	{name: "Apply/InForceIsNoConflict", run: applyInForce},
	{name: "Apply/InForceInPartIsAConflict", run: applyInForceInPart},
	{name: "Apply/AnOlderVersionIsAConflict", run: applyOlder},
	{name: "Apply/InvalidChangesNothing", run: applyInvalid},
	{name: "Apply/KeepsNothingOfTheCallers", run: applyCopies},
	{name: "Apply/ManyDocuments", run: applyMany},
}

func loadEmpty(k *kit) {
	s := k.load()
	k.holds(s)
	k.truth(s.Set.Len() == 0 && !s.Generation.IsZero(), "the empty set has a generation")
	k.unchanged(s)
}

func loadIsWhatTheEditReturned(k *kit) {
	edited := k.apply(doc("a", 1))
	loaded := k.load()
	k.truth(edited.Mark == loaded.Mark, "the edit returned %+v, Load %+v", edited.Mark, loaded.Mark)
	k.holds(loaded, doc("a", 1))
}

func applyAddsAndReplaces(k *kit) {
	k.apply(doc("b", 1), doc("d", 1))
	k.holds(k.apply(doc("c", 1), doc("b", 2)), doc("b", 2), doc("c", 1), doc("d", 1))
	k.holds(k.load(), doc("b", 2), doc("c", 1), doc("d", 1))
}

func applyEverythingSurvives(k *kit) {
	k.holds(k.apply(rich("r")), rich("r"))
	k.holds(k.load(), rich("r"))
}

func applyOrder(k *kit) {
	names := []string{"0", "10", "9", "A", "Z", "a", "a-b", "a.b", "a:b", "a_b", "ab", "z"}
	var want []policy.Document
	for _, name := range names {
		want = append(want, doc(name, 1))
	}
	for _, i := range []int{11, 5, 3, 0, 8, 2, 10, 1, 4, 9, 7, 6} {
		k.apply(want[i])
	}
	k.holds(k.load(), want...)
}

func applyCase(k *kit) {
	k.apply(doc("team", 1))
	k.holds(k.apply(doc("Team", 2)), doc("Team", 2), doc("team", 1))
	s := k.load()
	k.holds(k.sound(k.s.Delete(k.ctx, policy.Delete{Names: []string{"team"}, Expect: s.Generation})), doc("Team", 2))
}

func applyRevision(k *kit) {
	s := k.load()
	for n := range int64(4) {
		next := k.apply(doc("a", n))
		k.truth(next.Revision == s.Revision+1 && next.Namespace == s.Namespace && next.Generation != s.Generation,
			"after %+v came %+v", s.Mark, next.Mark)
		s = next
	}
	first := k.apply(doc("a", 0))
	k.truth(first.Revision == s.Revision+1, "a set that comes again has a revision of its own")
}

func applyConflict(k *kit) {
	was := k.load()
	now := k.apply(doc("a", 1))
	s, err := k.s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("b", 1)}, Expect: was.Generation})
	k.conflict(s, err, now.Mark, "an edit of an older set")
	s, err = k.s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("b", 1)}, Expect: policy.Generation{1}})
	k.conflict(s, err, now.Mark, "an edit of a set that never was")
	k.unchanged(now)
}

func applyInForce(k *kit) {
	was := k.load()
	edit := policy.Apply{Documents: []policy.Document{doc("a", 1), rich("b")}, Expect: was.Generation}
	done := k.sound(k.s.Apply(k.ctx, edit))
	again := k.sound(k.s.Apply(k.ctx, edit))
	k.truth(again.Mark == done.Mark, "the repeated edit made %+v of %+v", again.Mark, done.Mark)
	later := k.apply(doc("c", 1))
	again = k.sound(k.s.Apply(k.ctx, edit))
	k.truth(again.Mark == later.Mark, "an edit that is in force beside another changed %+v to %+v", later.Mark, again.Mark)
}

func applyInForceInPart(k *kit) {
	was := k.load()
	now := k.apply(doc("a", 1))
	s, err := k.s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("a", 1), doc("b", 1)}, Expect: was.Generation})
	k.conflict(s, err, now.Mark, "one of two documents is there")
	k.unchanged(now)
}

func applyOlder(k *kit) {
	was := k.load()
	edit := policy.Apply{Documents: []policy.Document{doc("a", 1)}, Expect: was.Generation}
	k.sound(k.s.Apply(k.ctx, edit))
	now := k.apply(doc("a", 2))
	s, err := k.s.Apply(k.ctx, edit)
	k.conflict(s, err, now.Mark, "a repetition does not undo what came after")
	k.unchanged(now)
}

func applyInvalid(k *kit) {
	now := k.apply(doc("a", 1))
	bad := doc("b", -1)
	s, err := k.s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("c", 1), bad}, Expect: now.Generation})
	k.place(s, err, "documents[1].spec.rules[0].rate.rpm")
	s, err = k.s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("c", 1), doc("d", 1), doc("c", 2)}, Expect: now.Generation})
	k.place(s, err, "documents[2].metadata.name")
	s, err = k.s.Apply(k.ctx, policy.Apply{Expect: now.Generation})
	k.place(s, err, "documents")
	s, err = k.s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("c", 1)}})
	k.place(s, err, "expect")
	k.unchanged(now)
}

func applyCopies(k *kit) {
	d := rich("a")
	s := k.apply(d)
	*d.Rules[3].Rate.RPM, d.Rules[7].Routing.Tiers[0].Substitutions["large"] = 7, "other"
	got := s.Set.Documents()
	got[0].Rules[0].Name, got[0].Subject.Team = "changed", "changed"
	k.holds(k.load(), rich("a"))
	k.holds(s, rich("a"))
}

func applyMany(k *kit) {
	var all []policy.Document
	for i := range 300 {
		all = append(all, doc(fmt.Sprintf("d%04d", i), int64(i)))
	}
	k.holds(k.apply(all...), all...)
	all[150] = doc("d0150", 7)
	k.holds(k.apply(all[150]), all...)
	k.holds(k.load(), all...)
}
