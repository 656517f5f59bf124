package policytest

import (
	"strings"

	"github.com/tallystick-go/tallystick/governance/policy"
)

var removeCases = []suiteCase{
	{name: "Delete/RemovesByName", run: deleteRemoves},
	{name: "Delete/MissingIsNotFound", run: deleteMissing},
	{name: "Delete/GoneIsInForce", run: deleteGone},
	{name: "Delete/GoneInPartIsAConflict", run: deleteGoneInPart},
	{name: "Delete/AnotherGenerationIsAConflict", run: deleteConflict},
	{name: "Delete/ComingBackIsTheSameGeneration", run: deleteAndBack},
	{name: "Delete/InvalidChangesNothing", run: deleteInvalid},
	{name: "Replace/IsTheWholeSet", run: replaceWhole},
	{name: "Replace/ByNothing", run: replaceByNothing},
	{name: "Replace/InForceIsNoConflict", run: replaceInForce},
	{name: "Replace/AnotherGenerationIsAConflict", run: replaceConflict},
	{name: "Replace/InvalidChangesNothing", run: replaceInvalid},
}

func (k *kit) remove(expect policy.Generation, names ...string) (policy.Snapshot, error) {
	return k.s.Delete(k.ctx, policy.Delete{Names: names, Expect: expect})
}

func deleteRemoves(k *kit) {
	now := k.apply(doc("a", 1), doc("b", 1), doc("c", 1))
	next := k.sound(k.remove(now.Generation, "c", "a"))
	k.holds(next, doc("b", 1))
	k.truth(next.Revision == now.Revision+1, "a deletion is a change")
	k.holds(k.load(), doc("b", 1))
}

func deleteMissing(k *kit) {
	now := k.apply(doc("a", 1))
	s, err := k.remove(now.Generation, "b")
	k.fails(s, err, policy.ErrNotFound, "whoever looked at this set misspelled the name")
	s, err = k.remove(now.Generation, "a", "b")
	k.fails(s, err, policy.ErrNotFound, "one of two is missing")
	s, err = k.remove(now.Generation, "A")
	k.fails(s, err, policy.ErrNotFound, "another case is another name")
	k.unchanged(now)
}

func deleteGone(k *kit) {
	was := k.apply(doc("a", 1), doc("b", 1))
	done := k.sound(k.remove(was.Generation, "a"))
	again := k.sound(k.remove(was.Generation, "a"))
	k.truth(again.Mark == done.Mark, "the repeated deletion made %+v of %+v", again.Mark, done.Mark)
}

func deleteGoneInPart(k *kit) {
	was := k.apply(doc("a", 1), doc("b", 1))
	now := k.sound(k.remove(was.Generation, "a"))
	s, err := k.remove(was.Generation, "a", "b")
	k.conflict(s, err, now.Mark, "one of two is gone")
	k.unchanged(now)
}

func deleteConflict(k *kit) {
	was := k.apply(doc("a", 1))
	now := k.apply(doc("b", 1))
	s, err := k.remove(was.Generation, "a")
	k.conflict(s, err, now.Mark, "a deletion from an older set")
	k.unchanged(now)
}

func deleteAndBack(k *kit) {
	was := k.apply(doc("a", 1), rich("b"))
	gone := k.sound(k.remove(was.Generation, "b"))
	back := k.apply(rich("b"))
	k.truth(back.Generation == was.Generation, "the same documents are the same generation")
	k.truth(gone.Revision == was.Revision+1 && back.Revision == was.Revision+2, "revisions %d, %d, %d", was.Revision, gone.Revision, back.Revision)
}

func deleteInvalid(k *kit) {
	now := k.apply(doc("a", 1))
	s, err := k.remove(now.Generation)
	k.place(s, err, "names")
	s, err = k.remove(now.Generation, "a", "b", "a")
	k.place(s, err, "names[2]")
	s, err = k.remove(now.Generation, "a", "b c")
	k.place(s, err, "names[1]")
	s, err = k.remove(now.Generation, strings.Repeat("a", policy.MaxNameBytes+1))
	k.place(s, err, "names[0]")
	s, err = k.remove(policy.Generation{}, "a")
	k.place(s, err, "expect")
	k.unchanged(now)
}

func (k *kit) replace(expect policy.Generation, documents ...policy.Document) (policy.Snapshot, error) {
	return k.s.Replace(k.ctx, policy.Replace{Documents: documents, Expect: expect})
}

func replaceWhole(k *kit) {
	now := k.apply(doc("a", 1), doc("b", 1), doc("c", 1))
	next := k.sound(k.replace(now.Generation, doc("d", 1), doc("b", 2), doc("c", 1)))
	k.holds(next, doc("b", 2), doc("c", 1), doc("d", 1))
	k.truth(next.Revision == now.Revision+1, "one edit is one revision")
	k.holds(k.load(), doc("b", 2), doc("c", 1), doc("d", 1))
}

func replaceByNothing(k *kit) {
	empty := k.load()
	now := k.apply(doc("a", 1))
	next := k.sound(k.replace(now.Generation))
	k.holds(next)
	k.truth(next.Generation == empty.Generation, "nothing is one generation")
}

func replaceInForce(k *kit) {
	was := k.load()
	done := k.sound(k.replace(was.Generation, doc("b", 1), doc("a", 1)))
	again := k.sound(k.replace(was.Generation, doc("a", 1), doc("b", 1)))
	k.truth(again.Mark == done.Mark, "the repeated edit made %+v of %+v", again.Mark, done.Mark)
}

func replaceConflict(k *kit) {
	was := k.load()
	now := k.apply(doc("a", 1))
	s, err := k.replace(was.Generation, doc("b", 1))
	k.conflict(s, err, now.Mark, "an edit of an older set")
	k.unchanged(now)
}

func replaceInvalid(k *kit) {
	now := k.apply(doc("a", 1))
	s, err := k.replace(now.Generation, policy.Document{})
	k.place(s, err, "documents[0].metadata.name")
	s, err = k.replace(policy.Generation{}, doc("a", 1))
	k.place(s, err, "expect")
	k.unchanged(now)
}
