// Package governancetest is the suite that every governance.Store must pass, ours
// and those of third parties: what the comments of governance.Store demand, and what
// a Governor on top of that store promises, down to the incidents that other systems
// had (cases named after a replay, an edge case or a primitive).
//
//	func TestStore(t *testing.T) {
//		governancetest.Run(t, governancetest.Harness{New: ..., Advance: ...})
//	}
//
// Case names are Method/Rule. Every case gets a store of its own and ends with
// Verify: whatever happened, the books must balance.
package governancetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/governance"
)

// Features is what an adapter claims. What it claims it must show; what it does
// not claim is skipped, and the test's output says so.
type Features struct {
	// Durable: the data outlives the handle. Needs Reopen.
	Durable bool
	// Shared: two live handles, as of two processes, may work on the same data. Needs Reopen.
	Shared bool
	// RowLocks: steps that have no constraint in common do not wait for each other.
	RowLocks bool
	// Snapshots: View, Permits and Accounts do not wait for a step.
	Snapshots bool
	// Policies: the backend keeps policies and answers Plan.Policies.
	Policies bool
	// Nodes: the backend keeps nodes and answers Plan.Node: an Authority can grant from it.
	Nodes bool
	// Journal: there is a backend of the profile policy.Node, which answers Plan.Journal. Needs
	// Node; where Durable is claimed too, Reopen takes one.
	Journal bool
	// Events: the store has a log, a node's too, and appends Changes.Events. Needs Events of the harness.
	Events bool
}

// Harness tells the suite how to make and handle stores.
type Harness struct {
	Features Features
	// Only, if set, is the one group of cases to run: for who works on that. What a store
	// does wrong elsewhere is not found.
	Only string
	// New returns an empty, migrated backend, once per case, and cleans it up with
	// t.Cleanup.
	New func(t testing.TB) governance.Backend
	// Reopen returns another handle on b's data while b stays usable (Shared), or one
	// on the same data after b was closed (Durable alone). It too cleans up by itself.
	Reopen func(t testing.TB, b governance.Backend) governance.Backend
	// Node returns an empty, migrated backend of the profile policy.Node, and cleans it up.
	Node func(t testing.TB) governance.Backend
	// Events lists the events in the log of b's data, in its order: what steps told, and whatever else is there.
	Events func(t testing.TB, b governance.Backend) []governance.Event
	// Advance moves the clock of b's data, as every handle sees it, by d. It may be
	// negative. The clock may also run by itself.
	Advance func(t testing.TB, b governance.Backend, d time.Duration)
}

// scenario is one leaf case.
type scenario struct {
	name  string
	also  string   // incidents that it replays beside the one it is named after
	needs Features // all that are true must be claimed
	run   func(e *env)
}

// group is the cases of one method.
type group struct {
	method string
	cases  []scenario
}

// storeGroups call the store directly.
func storeGroups() []group {
	return []group{
		{"Step", stepCases()}, {"View", viewCases()}, {"Permits", permitsCases()}, {"Accounts", accountsCases()}, {"Values", valuesCases()},
		{"Checkpoint", checkpointCases()}, {"Forget", forgetCases()}, {"Nodes", nodesCases()},
	}
}

// governorGroups hold a Governor on top of the store to its promises.
func governorGroups() []group {
	return []group{
		{"Admit", admitCases()}, {"Settle", settleCases()}, {"Cancel", cancelCases()}, {"Do", doCases()}, {"Raise", raiseCases()}, {"Renew", renewCases()},
		{"Window", windowCases()}, {"Holds", holdsCases()}, {"Resolve", resolveCases()}, {"Unfreeze", unfreezeCases()}, {"Notes", notesCases()},
		{"Policies", policiesCases()}, {"Events", eventsCases()}, {"Explain", explainCases()}, {"Usage", usageCases()}, {"Verify", slices.Concat(verifyCases(), booksCases())},
		{"Prune", pruneCases()}, {"Restart", restartCases()}, {"Authority", authorityCases()}, {"Node", nodeCases()},
		{"Random", randomCases()},
	}
}

// Run runs the suite. It fails when a claimed feature lacks its hook. While the store
// itself breaks a rule, the cases with a Governor on top are left out: they would
// fail for the same reason, and say it less well.
func Run(t *testing.T, h Harness) {
	if h.New == nil || h.Advance == nil {
		t.Fatal("the harness needs New and Advance: a store's clock must be injectable to be tested")
	}
	if (h.Features.Durable || h.Features.Shared) && h.Reopen == nil {
		t.Fatal("the harness claims Durable or Shared and has no Reopen")
	}
	if h.Features.Journal && h.Node == nil {
		t.Fatal("the harness claims Journal and has no Node")
	}
	if h.Features.Events && h.Events == nil {
		t.Fatal("the harness claims Events and has no Events")
	}
	if !h.all(t, storeGroups()) {
		t.Fatal("the store breaks rules of governance.Store; the cases with a Governor on top of it were left out")
	}
	h.all(t, governorGroups())
}

// all runs groups of cases and reports whether none failed.
func (h Harness) all(t *testing.T, groups []group) bool {
	ok := true
	for _, g := range groups {
		if h.Only != "" && h.Only != g.method {
			continue
		}
		ok = t.Run(g.method, func(t *testing.T) {
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) { h.one(t, c) })
			}
		}) && ok
	}
	return ok
}

func (h Harness) one(t *testing.T, c scenario) {
	if missing := c.needs.beyond(h.Features); missing != "" {
		t.Skipf("the store does not claim %s", missing)
	}
	e := newEnv(t, h)
	c.run(e)
	e.balance()
	for _, incident := range strings.Fields(c.also) {
		t.Run(incident, func(*testing.T) {}) // to be found by its name
	}
}

// beyond names a feature that is needed and not claimed.
func (f Features) beyond(claimed Features) string {
	switch {
	case f.Durable && !claimed.Durable:
		return "Durable"
	case f.Shared && !claimed.Shared:
		return "Shared"
	case f.RowLocks && !claimed.RowLocks:
		return "RowLocks"
	case f.Snapshots && !claimed.Snapshots:
		return "Snapshots"
	case f.Policies && !claimed.Policies:
		return "Policies"
	case f.Nodes && !claimed.Nodes:
		return "Nodes"
	case f.Journal && !claimed.Journal:
		return "Journal"
	case f.Events && !claimed.Events:
		return "Events"
	}
	return ""
}
