package admin_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance/policy"
)

const team = `{"apiVersion":"tallystick.dev/v1alpha1","kind":"GovernancePolicy","metadata":{"name":"team"},
	"spec":{"subject":{"team":"acme"},"rules":[{"name":"rate","failurePolicy":"FailOpen","rate":{"rpm":10}}]}}`

// withPolicies is a client of an API that has policies.
func withPolicies(w *world, o admin.Options) *admin.Client {
	o.Keys, o.Governor, o.Token, o.Logger = w.file.Keys, w.governor, token, slog.New(slog.DiscardHandler)
	return &admin.Client{Base: "http://localhost", Token: token, Transport: admin.Local(admin.Handler(o))}
}

func TestPolicies(t *testing.T) {
	w := newWorld(t)
	w.client = withPolicies(w, admin.Options{Policies: policy.NewMemory(), Profile: policy.Shared})
	documents := json.RawMessage("[" + team + "]")
	var diff report.PolicyDiff
	w.must(http.MethodPost, "policies/diff", object{"documents": documents}, &diff)
	require.Len(t, diff.Changes, 1)
	var now report.Policies
	first := object{"documents": documents, "expect": diff.Expect, "actor": "ops", "reason": "a new quarter"}
	w.must(http.MethodPost, "policies", first, &now)
	require.Equal(t, 1, now.Count)
	revision := now.Revision
	var notes report.NotePage
	w.must(http.MethodGet, "notes", nil, &notes)
	require.Len(t, notes.Notes, 2, "what was meant, and what is in force")
	for i, action := range []string{"edit policies", "edited policies"} {
		require.Equal(t, [3]string{"ops", action, "a new quarter"}, [3]string{notes.Notes[i].Actor, notes.Notes[i].Action, notes.Notes[i].Reason})
		require.Contains(t, string(notes.Notes[i].After), now.Generation)
	}
	require.Contains(t, string(notes.Notes[0].Before), diff.Expect)
	w.must(http.MethodPost, "policies", first, &now)
	require.Equal(t, revision, now.Revision, "what is in force already changes nothing")
	var list report.PolicySet
	w.must(http.MethodGet, "policies", nil, &list)
	read, err := policy.Decode(list.Documents)
	require.NoError(t, err)
	require.Equal(t, "team", read[0].Name)

	another := strings.Repeat("1", 64)
	for name, c := range map[string]struct {
		path   string
		body   object
		status int
		field  string
	}{
		"nothing":                  {"policies/diff", object{}, 400, "documents"},
		"both":                     {"policies/diff", object{"documents": documents, "delete": []string{"team"}}, 400, "documents"},
		"unknown field":            {"policies/diff", object{"document": documents}, 400, "document"},
		"expect is for edits":      {"policies/diff", object{"documents": documents, "expect": now.Generation}, 400, "expect"},
		"edit without expectation": {"policies", object{"documents": documents}, 400, "expect"},
		"nobody":                   {"policies", object{"documents": documents, "expect": now.Generation, "reason": "why"}, 400, "actor"},
		"no reason":                {"policies", object{"documents": documents, "expect": now.Generation, "actor": "ops"}, 400, "reason"},
		"no generation":            {"policies", object{"documents": documents, "expect": "7"}, 400, "expect"},
		"another generation":       {"policies", object{"documents": json.RawMessage("[]"), "replace": true, "expect": another}, 409, "expect"},
		"place of a mistake":       {"policies", object{"documents": json.RawMessage(strings.Replace("["+team+"]", "10", "-1", 1)), "expect": now.Generation}, 400, "documents[0].spec.rules[0].rate.rpm"},
		"names are texts":          {"policies", object{"delete": []int{1}, "expect": now.Generation}, 400, "delete"},
		"replaced and deleted":     {"policies", object{"delete": []string{"team"}, "replace": true, "expect": now.Generation}, 400, "replace"},
		"deleted twice":            {"policies", object{"delete": []string{"nobody"}, "expect": now.Generation}, 404, "delete"},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.problem(w.do(http.MethodPost, c.path, c.body, nil))
			require.Equal(t, c.status, p.Status, p.Message)
			require.Equal(t, c.field, p.Field)
		})
	}
	w.must(http.MethodPost, "policies", object{"documents": json.RawMessage("[]"), "replace": true, "expect": now.Generation, "actor": "ops", "reason": "the end"}, &now)
	require.Zero(t, now.Count)
	w.must(http.MethodGet, "notes", nil, &notes)
	require.Len(t, notes.Notes, 6, "what was refused is not among them")
}

// Where documents are in files, they are read here and not changed; a database of the
// profile local has none.
func TestPoliciesOfTheProfileLocal(t *testing.T) {
	w := newWorld(t)
	w.client = withPolicies(w, admin.Options{Policies: policy.NewMemory(), PoliciesFromFiles: true, Profile: policy.Local})
	w.must(http.MethodGet, "policies", nil, nil)
	p := w.problem(w.do(http.MethodPost, "policies", object{"documents": json.RawMessage("[" + team + "]"), "expect": strings.Repeat("0", 64)}, nil))
	require.Equal(t, [2]any{409, "policies_from_files"}, [2]any{p.Status, p.Type})
	w.client = withPolicies(w, admin.Options{})
	require.Equal(t, 404, w.problem(w.do(http.MethodGet, "policies", nil, nil)).Status)
	require.Equal(t, 404, w.problem(w.do(http.MethodGet, "status", nil, nil)).Status)
}
