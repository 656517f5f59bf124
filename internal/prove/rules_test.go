package prove

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// A model that allows everything proves nothing: each line is a history that must be refused, or one that must not.
func TestTheModelSaysNo(t *testing.T) {
	team, key := limits{10, none, none}, limits{none, none, none}
	admit := func(call, until int64, id string, n int64) *operation {
		return &operation{request: request{Verb: verbAdmit, Key: 1, Permit: id, Tokens: n}, answer: answer{Said: saidOK}, Call: call, Return: until}
	}
	refuse := func(call, until, n int64, c count) *operation {
		c.Need = n
		return &operation{request: request{Verb: verbAdmit, Key: 1, Tokens: n}, answer: answer{Said: saidRefused, Counts: []count{c}}, Call: call, Return: until}
	}
	usage := func(call, until, consumed, uncertain, reserved int64) *operation {
		c := []count{{Kind: tokens, Limit: 10, Consumed: consumed, Uncertain: uncertain, Reserved: reserved}}
		return &operation{request: request{Verb: verbUsage, Key: 1}, answer: answer{Said: saidOK, Counts: c}, Call: call, Return: until}
	}
	holds := func(call, until int64, list ...held) *operation {
		return &operation{request: request{Verb: verbHolds}, answer: answer{Said: saidOK, Holds: list}, Call: call, Return: until}
	}
	lower := func(call, until int64) *operation {
		to := limits{2, none, none}
		return &operation{request: request{Verb: verbEditTeam, Limits: to, IfRevision: 1}, answer: answer{Said: saidOK, Revision: 2, Limits: to}, Call: call, Return: until}
	}
	revoke := func(call, until int64) *operation {
		return &operation{request: request{Verb: verbRevoke, Key: 1}, answer: answer{Said: saidOK, Revision: 2, Limits: key}, Call: call, Return: until}
	}
	resolve := func(call, until int64, team limits, revision int64) *operation {
		return &operation{request: request{Verb: verbResolve, Key: 1}, answer: answer{Said: saidOK, Revision: 1, TeamRevision: revision, Limits: key, TeamLimits: team}, Call: call, Return: until}
	}
	settle := func(call, until int64, id string, used int64) *operation {
		return &operation{request: request{Verb: verbSettle, Permit: id, Tokens: used}, answer: answer{Said: saidOK}, Call: call, Return: until}
	}
	lost := func(o *operation) *operation {
		o.Said, o.Return = saidLost, never
		return o
	}
	open := func(id string, n int64) held { return held{Permit: id, Open: true, Tokens: n} }

	for _, c := range []struct {
		name string
		ok   bool
		list []*operation
	}{
		{"up to the limit", true, []*operation{admit(1, 2, "a", 6), admit(3, 4, "b", 4), usage(5, 6, 0, 0, 10)}},
		{"above the limit", false, []*operation{admit(1, 2, "a", 6), admit(3, 4, "b", 5)}},
		{"two at once above the limit", false, []*operation{admit(1, 9, "a", 6), admit(1, 9, "b", 5)}},
		{"refused though there was room", false, []*operation{admit(1, 2, "a", 4), refuse(3, 4, 5, count{Limit: 10, Reserved: 6, Reason: "reserved"})}},
		{"refused with the right numbers", true, []*operation{admit(1, 2, "a", 6), refuse(3, 4, 5, count{Limit: 10, Reserved: 6, Reason: "reserved"})}},
		{"refused with another reason", false, []*operation{admit(1, 2, "a", 6), refuse(3, 4, 5, count{Limit: 10, Reserved: 6, Reason: "quota"})}},
		{"refused with numbers of before", false, []*operation{admit(1, 2, "a", 6), admit(3, 4, "b", 1), refuse(5, 6, 5, count{Limit: 10, Reserved: 6, Reason: "reserved"})}},
		{"usage of one moment", true, []*operation{admit(1, 4, "a", 6), usage(2, 3, 0, 0, 0), settle(5, 6, "a", 2), usage(7, 8, 2, 0, 0)}},
		{"usage that goes back", false, []*operation{admit(1, 9, "a", 6), usage(2, 3, 0, 0, 6), usage(4, 5, 0, 0, 0)}},
		{"a settled permit is no hold", false, []*operation{admit(1, 2, "a", 6), settle(3, 4, "a", 2), holds(5, 6, open("a", 6))}},
		{"an open permit is one", false, []*operation{admit(1, 2, "a", 6), holds(5, 6)}},
		{"holds", true, []*operation{admit(1, 2, "a", 6), admit(3, 9, "b", 1), holds(5, 6, open("a", 6))}},
		{"admitted after a revocation returned", false, []*operation{revoke(1, 2), admit(3, 4, "a", 1)}},
		{"admitted during a revocation", true, []*operation{revoke(1, 3), admit(2, 4, "a", 1)}},
		{"admitted after a lower limit returned", false, []*operation{lower(1, 2), admit(3, 4, "a", 3)}},
		{"admitted before a lower limit is in force, though it can be read", true, []*operation{lower(1, 6), resolve(2, 3, limits{2, none, none}, 2), admit(2, 5, "a", 3), usage(3, 4, 0, 0, 0)}},
		{"read as it was after an edit returned", false, []*operation{lower(1, 2), resolve(3, 4, team, 1)}},
		{"committed by the old limit after the edit returned", false, []*operation{lower(1, 2), admit(1, 7, "a", 3), usage(3, 4, 0, 0, 0), usage(8, 9, 0, 0, 3)}},
		{"committed by the old limit after a repeated edit returned", false, []*operation{lower(1, 9), lower(2, 3), admit(1, 7, "a", 3), usage(4, 5, 0, 0, 0)}},
		{"the old limit after the new one was used", false, []*operation{lower(1, 9), refuse(2, 3, 3, count{Limit: 2, Reason: "never_fits"}), admit(4, 5, "a", 3)}},
		{"a lost admission that happened", true, []*operation{lost(admit(1, 0, "a", 6)), holds(5, 6, open("a", 6)), usage(7, 8, 0, 0, 6)}},
		{"a lost admission that did not happen yet", true, []*operation{lost(admit(1, 0, "a", 6)), usage(2, 3, 0, 0, 0), usage(7, 8, 0, 0, 6)}},
		{"a lost admission that happened and was cancelled", true, []*operation{lost(admit(1, 0, "a", 6)), usage(2, 3, 0, 0, 6), usage(7, 8, 0, 0, 0)}},
		{"a lost admission that happened twice", false, []*operation{lost(admit(1, 0, "a", 4)), usage(2, 3, 0, 0, 4), usage(4, 5, 0, 0, 0), usage(7, 8, 0, 0, 4)}},
		{"a lost edit that may hold for some", true, []*operation{lost(lower(1, 0)), admit(2, 3, "a", 3), refuse(4, 5, 1, count{Limit: 2, Reserved: 3, Reason: "reserved"})}},
		{"a lost edit that is taken back", false, []*operation{lost(lower(1, 0)), refuse(2, 3, 3, count{Limit: 2, Reason: "never_fits"}), admit(4, 5, "a", 3)}},
	} {
		h := &history{Limits: team, Keys: []limits{key}, operations: c.list}
		want := porcupine.Illegal
		if c.ok {
			want = porcupine.Ok
		}
		for range 2 {
			result, err := h.check(time.Minute)
			require.NoError(t, err, c.name)
			require.Equal(t, want, result, c.name)
			slices.Reverse(c.list) // however it was written down
		}
	}
}
