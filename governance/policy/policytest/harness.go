// Package policytest is the conformance suite of [policy.Store]. Every adapter, in
// or out of this module, runs the same cases:
//
//	func TestStore(t *testing.T) { policytest.Run(t, policytest.Harness{...}) }
//
// A case is named Method/Rule, and its failure says which rule was broken.
package policytest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

// Features are what an adapter claims. Run shows that it is so.
type Features struct {
	Handles bool // two handles see the same data, and it survives a restart: needs Reopen
	Barrier bool // tests can stand for a running admission: needs Hold
	Events  bool // edits can be told in their transactions: needs Telling and Events
}

// Harness makes stores of one adapter for the suite.
type Harness struct {
	Features Features
	// New makes an empty, migrated store; once per case.
	New func(t testing.TB) policy.Store
	// Reopen makes a second handle on s's data.
	Reopen func(t testing.TB, s policy.Store) policy.Store
	// Hold does to s what an admission does that has read the set and has not ended; release
	// ends it.
	Hold func(t testing.TB, s policy.Store) (release func())
	// Telling is New with edits that are told. New's need not be.
	Telling func(t testing.TB) policy.Store
	// Events lists what was told of the data of a store that tells, by position.
	Events func(t testing.TB, s policy.Store) []policy.Event
}

type suiteCase struct {
	name  string
	needs Features
	run   func(k *kit)
}

// Run runs every case whose features the adapter claims. It fails when a claimed
// feature lacks its hook.
func Run(t *testing.T, h Harness) {
	t.Helper()
	switch {
	case h.New == nil:
		t.Fatal("policytest: Harness.New is missing")
	case h.Features.Handles && h.Reopen == nil:
		t.Fatal("policytest: Features.Handles is claimed but Harness.Reopen is missing")
	case h.Features.Barrier && h.Hold == nil:
		t.Fatal("policytest: Features.Barrier is claimed but Harness.Hold is missing")
	case h.Features.Events && (h.Telling == nil || h.Events == nil):
		t.Fatal("policytest: Features.Events is claimed but Harness.Telling or Harness.Events is missing")
	}
	seen := make(map[string]bool)
	for _, group := range [][]suiteCase{applyCases, removeCases, raceCases, barrierCases, storeCases, eventCases} {
		for _, c := range group {
			if seen[c.name] {
				t.Fatalf("policytest: two cases are named %s", c.name)
			}
			seen[c.name] = true
			if (c.needs.Handles && !h.Features.Handles) || (c.needs.Barrier && !h.Features.Barrier) || (c.needs.Events && !h.Features.Events) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				open := h.New
				if c.needs.Events {
					open = h.Telling
				}
				c.run(&kit{T: t, h: h, s: open(t), ctx: t.Context()})
			})
		}
	}
}

// kit is what a case works with.
type kit struct {
	*testing.T
	h   Harness
	s   policy.Store
	ctx context.Context
}

func (k *kit) reopen() policy.Store {
	k.Helper()
	return k.h.Reopen(k, k.s)
}

// handles are two handles where the adapter has them, else the one twice.
func (k *kit) handles() [2]policy.Store {
	if k.h.Features.Handles {
		return [2]policy.Store{k.s, k.reopen()}
	}
	return [2]policy.Store{k.s, k.s}
}

// doc is a document about the team "red" with one rate; n tells two versions of it apart.
func doc(name string, n int64) policy.Document {
	return policy.Document{Name: name, Subject: policy.Subject{Team: "red"}, Rules: []policy.Rule{
		{Name: "pace", FailurePolicy: policy.FailOpen, Rate: &policy.Rate{RPM: &n}},
	}}
}

// rich is a document that has something of everything.
func rich(name string) policy.Document {
	rpm, tpm := int64(0), int64(1<<63-1)
	return policy.Document{Name: name, Subject: policy.Subject{Team: "Red.1", User: `ann "o'hara" \ %s; drop table x -- é 漢 😀@example.com`}, Rules: []policy.Rule{
		{Name: "soft", FailurePolicy: policy.FailOpen, Budget: &policy.Budget{
			LimitMilliUSD: policy.MaxMilliUSD, Calendar: quota.Calendar{Period: quota.Week, WeekStart: 7, ResetHour: 23},
			Lease: &policy.Lease{GrantMilliUSD: 1}, Tiers: []policy.Tier{{Threshold: 80}, {Threshold: 1000}}, AdminContact: "<ops> & co"}},
		{Name: "cap", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{HardCap: true, Calendar: quota.Calendar{Period: quota.Month, MonthDay: 31}}},
		{Name: "free", FailurePolicy: policy.FailOpen, Budget: &policy.Budget{Unlimited: true}},
		{Name: "pace", FailurePolicy: policy.FailClosed, Rate: &policy.Rate{RPM: &rpm, TPM: &tpm}},
		{Name: "tokens", FailurePolicy: policy.FailClosed, TokenQuota: &policy.TokenQuota{LimitTokens: 1<<63 - 1, Calendar: quota.Calendar{Period: quota.Day}}},
		{Name: "models", FailurePolicy: policy.FailClosed, ModelAccess: &policy.ModelAccess{Allow: []string{"meta/llama:3.1", "Meta/Llama:3.1"}}},
		{Name: "slots", FailurePolicy: policy.FailOpen, Concurrency: &policy.Concurrency{}},
		{Name: "thrift", FailurePolicy: policy.FailOpen, Routing: &policy.Routing{Budget: "soft", Tiers: []policy.RoutingTier{
			{Threshold: 90, Strict: true, Substitutions: map[string]string{"large": "small", `odd "name"`: "small"}}}}},
	}}
}

func (k *kit) load() policy.Snapshot {
	k.Helper()
	return k.sound(k.s.Load(k.ctx))
}

// apply puts documents into the set as it is now.
func (k *kit) apply(documents ...policy.Document) policy.Snapshot {
	k.Helper()
	return k.sound(k.s.Apply(k.ctx, policy.Apply{Documents: documents, Expect: k.load().Generation}))
}

// sound checks a snapshot that came without an error.
func (k *kit) sound(s policy.Snapshot, err error) policy.Snapshot {
	k.Helper()
	if err != nil {
		k.Fatalf("unexpected error: %v", err)
	}
	switch {
	case s.Set == nil:
		k.Fatal("a snapshot without a set")
	case s.Set.Generation() != s.Generation:
		k.Fatalf("the mark says generation %s, the set is %s", s.Generation, s.Set.Generation())
	case s.Namespace.IsZero():
		k.Fatal("a snapshot of no namespace")
	case s.Revision < 1:
		k.Fatalf("revision %d", s.Revision)
	}
	return s
}

// holds checks that the set has exactly these documents, in this order.
func (k *kit) holds(s policy.Snapshot, want ...policy.Document) {
	k.Helper()
	set, err := policy.NewSet(want)
	if err != nil {
		k.Fatal(err)
	}
	got, wanted := k.json(s.Set.Documents()), k.json(append([]policy.Document{}, want...))
	if s.Generation != set.Generation() || got != wanted {
		k.Fatalf("the set is\n%s\nwant\n%s", got, wanted)
	}
}

func (k *kit) json(v any) string {
	k.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		k.Fatal(err)
	}
	return string(out)
}

// unchanged checks that the store is as it was.
func (k *kit) unchanged(was policy.Snapshot) {
	k.Helper()
	if now := k.load(); now.Mark != was.Mark {
		k.Fatalf("the set changed from %+v to %+v", was.Mark, now.Mark)
	}
	k.marked(k.s, was.Mark)
}

// marked checks what a handle says is in force.
func (k *kit) marked(s policy.Store, want policy.Mark) {
	k.Helper()
	if now, err := s.Mark(k.ctx); err != nil || now != want {
		k.Fatalf("the mark is %+v (%v), want %+v", now, err, want)
	}
}

var sentinels = []error{
	policy.ErrInvalid, policy.ErrConflict, policy.ErrNotFound, policy.ErrUnavailable, policy.ErrUnconfirmed, policy.ErrCorrupt,
}

// fails checks that the error is want and no other sentinel, and that nothing came back
// with it.
func (k *kit) fails(s policy.Snapshot, err, want error, rule string) {
	k.Helper()
	k.is(err, want, rule)
	if s.Set != nil || s.Mark != (policy.Mark{}) {
		k.Fatalf("%s: a snapshot came with the error", rule)
	}
}

func (k *kit) is(err, want error, rule string) {
	k.Helper()
	for _, one := range sentinels {
		if errors.Is(err, one) != (one == want) {
			k.Fatalf("%s: got error %v, want %v", rule, err, want)
		}
	}
}

// conflict checks that an edit was refused for the state that is in force.
func (k *kit) conflict(s policy.Snapshot, err error, now policy.Mark, rule string) {
	k.Helper()
	k.fails(s, err, policy.ErrConflict, rule)
	var c *policy.ConflictError
	if !errors.As(err, &c) || c.Now != now {
		k.Fatalf("%s: the error is %v, and %+v is in force", rule, err, now)
	}
}

// place checks that an edit was refused as invalid, and where.
func (k *kit) place(s policy.Snapshot, err error, path string) {
	k.Helper()
	k.fails(s, err, policy.ErrInvalid, path)
	var e *policy.Error
	if !errors.As(err, &e) || e.Path != path {
		k.Fatalf("the error is %v, want one about %s", err, path)
	}
}

func (k *kit) truth(ok bool, rule string, args ...any) {
	k.Helper()
	if !ok {
		k.Fatalf(rule, args...)
	}
}
