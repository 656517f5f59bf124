package policytest

import (
	"context"
	"runtime"
	"time"

	"github.com/tallystick-go/tallystick/governance/policy"
)

var barrierCases = []suiteCase{
	{name: "Apply/ReturnsAfterTheLastOldAdmission", needs: Features{Barrier: true}, run: barrierWaits},
	{name: "Apply/UnconfirmedWhileOldAdmissionsRun", needs: Features{Barrier: true}, run: barrierUnconfirmed},
	{name: "Apply/ARefusedEditDoesNotWait", needs: Features{Barrier: true}, run: barrierRefused},
	{name: "Load/DoesNotWait", needs: Features{Barrier: true}, run: barrierLoad},
}

// edits are one of each kind, all of which change the set {a: 1}.
func (k *kit) edits(expect policy.Generation) map[string]func(context.Context, policy.Store) (policy.Snapshot, error) {
	return map[string]func(context.Context, policy.Store) (policy.Snapshot, error){
		"Apply": func(ctx context.Context, s policy.Store) (policy.Snapshot, error) {
			return s.Apply(ctx, policy.Apply{Documents: []policy.Document{doc("a", 2)}, Expect: expect})
		},
		"Delete": func(ctx context.Context, s policy.Store) (policy.Snapshot, error) {
			return s.Delete(ctx, policy.Delete{Names: []string{"a"}, Expect: expect})
		},
		"Replace": func(ctx context.Context, s policy.Store) (policy.Snapshot, error) {
			return s.Replace(ctx, policy.Replace{Documents: []policy.Document{doc("b", 1)}, Expect: expect})
		},
	}
}

// each runs do once per kind of edit, on a store of its own that has {a: 1}.
func (k *kit) each(do func(k *kit, was policy.Snapshot, edit func(context.Context, policy.Store) (policy.Snapshot, error))) {
	for _, kind := range []string{"Apply", "Delete", "Replace"} {
		one := &kit{T: k.T, h: k.h, s: k.h.New(k), ctx: k.ctx}
		was := one.apply(doc("a", 1))
		do(one, was, one.edits(was.Generation)[kind])
	}
}

func barrierWaits(k *kit) {
	k.each(func(k *kit, was policy.Snapshot, edit func(context.Context, policy.Store) (policy.Snapshot, error)) {
		release := k.h.Hold(k, k.s)
		type answer struct {
			s   policy.Snapshot
			err error
		}
		done := make(chan answer, 1)
		go func() {
			s, err := edit(k.ctx, k.s)
			done <- answer{s, err}
		}()
		for k.load().Mark == was.Mark { // until it is committed
			runtime.Gosched()
		}
		select {
		case a := <-done:
			k.Fatalf("the edit returned (%v) while an admission that read the older set was running", a.err)
		default:
		}
		release()
		a := <-done
		k.sound(a.s, a.err)
		k.truth(a.s.Revision == was.Revision+1, "the edit returned %+v after %+v", a.s.Mark, was.Mark)
	})
}

func barrierUnconfirmed(k *kit) {
	k.each(func(k *kit, was policy.Snapshot, edit func(context.Context, policy.Store) (policy.Snapshot, error)) {
		release := k.h.Hold(k, k.s)
		hurried := func(rule string) policy.Snapshot {
			ctx, cancel := context.WithTimeout(k.ctx, 300*time.Millisecond)
			defer cancel()
			s, err := edit(ctx, k.s)
			k.is(err, policy.ErrUnconfirmed, rule)
			return k.sound(s, nil) // it is in force whatever became of the wait
		}
		first := hurried("an admission that read the older set is running")
		k.truth(first.Mark == k.load().Mark && first.Revision == was.Revision+1, "the edit is in force")
		again := hurried("the repeated edit waits again")
		k.truth(again.Mark == first.Mark, "the repeated edit made %+v of %+v", again.Mark, first.Mark)
		release()
		k.truth(k.sound(edit(k.ctx, k.s)).Mark == first.Mark, "the edit is confirmed in the end")
	})
}

func barrierRefused(k *kit) {
	was := k.load()
	now := k.apply(doc("a", 1))
	defer k.h.Hold(k, k.s)()
	s, err := k.s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("b", 1)}, Expect: was.Generation})
	k.conflict(s, err, now.Mark, "nothing changed that anybody could have missed")
	s, err = k.remove(now.Generation, "b")
	k.fails(s, err, policy.ErrNotFound, "nor here")
}

func barrierLoad(k *kit) {
	defer k.h.Hold(k, k.s)()
	k.marked(k.s, k.load().Mark)
}
