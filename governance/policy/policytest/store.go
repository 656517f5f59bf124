package policytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/governance/policy"
)

var storeCases = []suiteCase{
	{name: "Store/CancelledContextChangesNothing", run: storeCancelled},
	{name: "Store/ErrorsGiveNothingAway", run: storeLeaks},
	{name: "Store/SurvivesARestart", needs: Features{Handles: true}, run: storeRestart},
	{name: "Store/NamespacesDiffer", run: storeNamespaces},
	{name: "Store/RandomOperations", run: storeRandom},
}

func storeCancelled(k *kit) {
	was := k.apply(doc("a", 1))
	gone, cancel := context.WithCancel(k.ctx)
	cancel()
	late, cancelLate := context.WithDeadline(k.ctx, time.Unix(0, 0))
	defer cancelLate()
	for ctx, cause := range map[context.Context]error{gone: context.Canceled, late: context.DeadlineExceeded} {
		calls := k.edits(was.Generation)
		calls["Load"] = func(ctx context.Context, s policy.Store) (policy.Snapshot, error) { return s.Load(ctx) }
		calls["Mark"] = func(ctx context.Context, s policy.Store) (policy.Snapshot, error) {
			m, err := s.Mark(ctx)
			return policy.Snapshot{Mark: m}, err
		}
		for method, call := range calls {
			s, err := call(ctx, k.s)
			k.truth(errors.Is(err, cause), "%s does not name the context's error: %v", method, err)
			k.fails(s, err, policy.ErrUnavailable, method+" must not look like a refusal")
		}
	}
	k.unchanged(was)
}

func storeLeaks(k *kit) {
	const marker = "NobodyShouldSeeThis"
	d := doc("a", 1)
	d.Subject.User = marker
	was := k.load()
	k.apply(d)
	d.Subject.User = marker + "\x00"
	_, bad := k.s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{d}, Expect: was.Generation})
	_, stale := k.s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("a", 2)}, Expect: was.Generation})
	for _, err := range []error{bad, stale} {
		k.truth(err != nil && !strings.Contains(err.Error(), marker), "an error shows what is in a document: %v", err)
	}
}

func storeRestart(k *kit) {
	k.apply(rich("a"), doc("b", 1))
	was := k.load()
	other := k.reopen()
	now := k.sound(other.Load(k.ctx))
	k.truth(now.Mark == was.Mark, "a second handle has %+v, not %+v", now.Mark, was.Mark)
	k.holds(now, rich("a"), doc("b", 1))
	k.marked(other, was.Mark)
	next := k.sound(other.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("b", 2)}, Expect: now.Generation}))
	k.unchanged(next)
	k.marked(other, next.Mark)
}

func storeNamespaces(k *kit) {
	other := k.sound(k.h.New(k).Load(k.ctx))
	k.truth(other.Namespace != k.load().Namespace, "two authorities have one namespace")
}

// storeRandom runs random edits against a map.
func storeRandom(k *kit) {
	seed := rand.Uint64()
	k.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	handles := k.handles()
	model := map[string]policy.Document{}
	now := k.load()
	marks := []policy.Mark{now.Mark}
	for step := range 120 {
		s := handles[r.IntN(2)]
		expect, next := marks[max(0, len(marks)-1-r.IntN(2))].Generation, maps.Clone(model)
		missing, gone := 0, 0
		var got policy.Snapshot
		var err error
		switch names := draw(r); r.IntN(4) {
		case 0:
			for _, name := range names {
				if _, ok := model[name]; !ok {
					missing++
				}
				delete(next, name)
			}
			gone = len(names)
			got, err = s.Delete(k.ctx, policy.Delete{Names: names, Expect: expect})
		case 1:
			next = map[string]policy.Document{}
			documents := versions(r, names, next)
			got, err = s.Replace(k.ctx, policy.Replace{Documents: documents, Expect: expect})
		default:
			documents := versions(r, names, next)
			got, err = s.Apply(k.ctx, policy.Apply{Documents: documents, Expect: expect})
		}
		want := k.set(next)
		same, expected := want.Generation() == now.Generation, expect == now.Generation
		switch {
		case gone > 0 && missing > 0 && expected:
			k.fails(got, err, policy.ErrNotFound, fmt.Sprintf("step %d", step))
			continue
		case (!same || (gone > 0 && missing < gone && missing > 0)) && !expected:
			k.conflict(got, err, now.Mark, fmt.Sprintf("step %d", step))
			continue
		}
		k.sound(got, err)
		if !same {
			now.Generation, now.Revision = want.Generation(), now.Revision+1
			marks = append(marks, now.Mark)
		}
		k.truth(got.Mark == now.Mark, "step %d made %+v, want %+v", step, got.Mark, now.Mark)
		model = next
		k.marked(handles[r.IntN(2)], now.Mark)
		k.holds(k.load(), k.set(model).Documents()...)
	}
}

// draw names up to three documents of five.
func draw(r *rand.Rand) []string {
	names := []string{"a", "b", "B", "c", "d"}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:1+r.IntN(3)]
}

func versions(r *rand.Rand, names []string, into map[string]policy.Document) []policy.Document {
	var out []policy.Document
	for _, name := range names {
		d := doc(name, r.Int64N(2))
		out = append(out, d)
		into[name] = d
	}
	return out
}

func (k *kit) set(model map[string]policy.Document) *policy.Set {
	k.Helper()
	set, err := policy.NewSet(slices.Collect(maps.Values(model)))
	if err != nil {
		k.Fatal(err)
	}
	return set
}
