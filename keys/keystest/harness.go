// Package keystest is the conformance suite of [keys.Store]. Every adapter, in
// or out of this module, runs the same cases:
//
//	func TestStore(t *testing.T) { keystest.Run(t, keystest.Harness{...}) }
//
// A case is named Method/Rule, and its failure says which rule was broken.
package keystest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// Features are what an adapter claims. Run shows that it is so.
type Features struct {
	Handles bool // two handles see the same data, and it survives a restart: needs Reopen
	Clock   bool // tests can move the store's clock: needs Advance
	Formats bool // other token formats can be accepted: needs NewWith
	Rows    bool // the store is a keys.Importer; where it is a keys.Exporter as well, that too
	Events  bool // edits can be told in their transactions: needs Telling and Events
}

// Harness makes stores of one adapter for the suite.
type Harness struct {
	Features Features
	// New makes an empty, migrated store; once per case.
	New func(t testing.TB) keys.Store
	// NewWith is New with another token format.
	NewWith func(t testing.TB, f keys.Format) keys.Store
	// Reopen makes a second handle on s's data.
	Reopen func(t testing.TB, s keys.Store) keys.Store
	// Advance moves the clock of s and of every other handle on its data.
	Advance func(t testing.TB, s keys.Store, d time.Duration)
	// Telling is New with edits that are told. New's need not be.
	Telling func(t testing.TB) keys.Store
	// Events lists what was told of the data of a store that tells, by position.
	Events func(t testing.TB, s keys.Store) []keys.Event
}

type suiteCase struct {
	name  string
	needs Features
	told  bool // in the end what was told is held against what there is, where the adapter tells
	run   func(k *kit)
}

// Run runs every case whose features the adapter claims. It fails when a claimed
// feature lacks its hook.
func Run(t *testing.T, h Harness) {
	t.Helper()
	switch {
	case h.New == nil:
		t.Fatal("keystest: Harness.New is missing")
	case h.Features.Handles && h.Reopen == nil:
		t.Fatal("keystest: Features.Handles is claimed but Harness.Reopen is missing")
	case h.Features.Clock && h.Advance == nil:
		t.Fatal("keystest: Features.Clock is claimed but Harness.Advance is missing")
	case h.Features.Events && (h.Telling == nil || h.Events == nil):
		t.Fatal("keystest: Features.Events is claimed but Harness.Telling or Harness.Events is missing")
	case h.Features.Formats && h.NewWith == nil:
		t.Fatal("keystest: Features.Formats is claimed but Harness.NewWith is missing")
	}
	seen := make(map[string]bool)
	for _, group := range [][]suiteCase{
		teamCases, createKeyCases, editKeyCases, revokeCases, rotateCases, resolveCases, listCases,
		bootstrapCases, importCases, raceCases, storeCases, eventCases,
	} {
		for _, c := range group {
			if seen[c.name] {
				t.Fatalf("keystest: two cases are named %s", c.name)
			}
			seen[c.name] = true
			if !h.Features.cover(c.needs) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				k := &kit{T: t, h: h, ctx: t.Context()}
				if !h.Features.Events || !c.told && !c.needs.Events {
					k.s = h.New(t)
					c.run(k)
					return
				}
				k.s = h.Telling(t)
				c.run(k)
				k.audit()
			})
		}
	}
}

func (f Features) cover(needs Features) bool {
	return (f.Handles || !needs.Handles) && (f.Clock || !needs.Clock) && (f.Formats || !needs.Formats) && (f.Rows || !needs.Rows) && (f.Events || !needs.Events)
}

// kit is what a case works with.
type kit struct {
	*testing.T
	h   Harness
	s   keys.Store
	ctx context.Context
}

func (k *kit) reopen() keys.Store {
	k.Helper()
	return k.h.Reopen(k, k.s)
}

func (k *kit) advance(d time.Duration) {
	k.Helper()
	k.h.Advance(k, k.s, d)
}

// handles are two handles where the adapter has them, else the one twice.
func (k *kit) handles() [2]keys.Store {
	if k.h.Features.Handles {
		return [2]keys.Store{k.s, k.reopen()}
	}
	return [2]keys.Store{k.s, k.s}
}

func (k *kit) team(id string) keys.Team {
	k.Helper()
	return must(k.s.CreateTeam(k.ctx, keys.CreateTeam{ID: id, Name: "Team " + id}))(k)
}

func (k *kit) key(id, team string) keys.CreatedKey {
	k.Helper()
	return must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: id, TeamID: team}))(k)
}

// one makes team "red" with key "k".
func (k *kit) one() keys.CreatedKey {
	k.Helper()
	k.team("red")
	return k.key("k", "red")
}

func (k *kit) resolve(token keys.Token) keys.Principal {
	k.Helper()
	return must(k.s.Resolve(k.ctx, token.Reveal()))(k)
}

// must unwraps a result: must(s.Team(ctx, id))(k).
func must[T any](v T, err error) func(*kit) T {
	return func(k *kit) T {
		k.Helper()
		if err != nil {
			k.Fatalf("unexpected error: %v", err)
		}
		return v
	}
}

// fails checks that the error is want, and that nothing came back with it.
func fails[T any](v T, err error) func(k *kit, want error, rule string) {
	return func(k *kit, want error, rule string) {
		k.Helper()
		k.is(err, want, rule)
		var zero T
		same(k, v, zero, rule+": a result came with the error")
	}
}

var sentinels = []error{
	keys.ErrUnknown, keys.ErrRevoked, keys.ErrExpired, keys.ErrStale, keys.ErrConflict, keys.ErrExists,
	keys.ErrNotFound, keys.ErrInvalid, keys.ErrUnavailable, keys.ErrUnconfirmed,
}

// is checks that err is want and none of the other sentinels, but that a lost
// rotation is stale as well.
func (k *kit) is(err, want error, rule string) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Fatalf("%s: got error %v, want %v", rule, err, want)
	}
	for _, other := range sentinels {
		if errors.Is(err, other) && !errors.Is(want, other) && (want != keys.ErrConflict || other != keys.ErrStale) {
			k.Fatalf("%s: got error %v, which is %v and %v at once", rule, err, want, other)
		}
	}
}

// same compares by JSON, which tells nil lists from empty ones.
func same[T any](k *kit, got, want T, rule string) {
	k.Helper()
	g, errG := json.Marshal(got)
	w, errW := json.Marshal(want)
	if err := errors.Join(errG, errW); err != nil {
		k.Fatalf("%s: %v", rule, err)
	}
	if string(g) != string(w) {
		k.Fatalf("%s:\n got %s\nwant %s", rule, g, w)
	}
}

func (k *kit) truth(ok bool, rule string, args ...any) {
	k.Helper()
	if !ok {
		k.Fatalf(rule, args...)
	}
}

func ptr[T any](v T) *T { return &v }
