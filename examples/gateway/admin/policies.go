package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// maxPolicies is the size of a body with documents.
const maxPolicies = policy.MaxInputBytes + maxBody

// policies refuses where there are none, and edits of those that files hold.
func (a *api) policies(edit bool) (policy.Store, error) {
	switch {
	case a.Policies == nil:
		return nil, &Problem{Status: http.StatusNotFound, Type: "not_found", Message: "the policies of the profile local are in the files that the gateway's configuration names, not in its database"}
	case edit && a.Profile == policy.Node && a.Authority == nil:
		return nil, &Problem{Status: http.StatusConflict, Type: "policies_from_authority", Message: "the policies of the profile node are the authority's: edit them at a control plane, with `controlplane policies apply`"}
	case edit && a.PoliciesFromFiles:
		return nil, &Problem{Status: http.StatusConflict, Type: "policies_from_files", Message: "the policies of the profile local come from files: edit those, and send the gateway SIGHUP"}
	}
	return a.Policies, nil
}

func (a *api) enforced(s policy.Snapshot) report.Policies {
	return report.PoliciesOf(s.Mark, s.Set.Enforce(a.Profile, policy.Enforcing{}))
}

func (a *api) listPolicies(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	store, err := a.policies(false)
	if err != nil {
		return nil, err
	}
	now, err := store.Load(c.ctx)
	if err != nil {
		return nil, err
	}
	text, err := now.Set.MarshalJSON()
	return report.PolicySet{Policies: a.enforced(now), Documents: text}, err
}

// edit is the body of an edit.
type edit struct {
	documents []policy.Document
	names     []string
	replace   bool
	expect    policy.Generation

	actor, reason string
}

// edit reads an edit. The generation that it was decided on is required to make it.
func (c *call) edit(expects bool) (*edit, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var e edit
	var documents json.RawMessage
	var expect string
	targets := map[string]any{"documents": &documents, "delete": &e.names, "replace": &e.replace}
	if expects {
		targets["expect"], targets["actor"], targets["reason"] = &expect, &e.actor, &e.reason
	}
	if err := fields(data, targets); err != nil {
		return nil, err
	}
	switch {
	case documents == nil == (e.names == nil):
		return nil, invalid("documents", "say either documents, or delete with the names of some")
	case e.names != nil && e.replace:
		return nil, invalid("replace", "goes with documents")
	case expects && e.expect.UnmarshalText([]byte(expect)) != nil:
		return nil, invalid("expect", "must be the generation that the edit was decided on, as diff shows it")
	}
	if documents != nil {
		e.documents, err = policy.Decode(documents)
	}
	return &e, err
}

// prepared is what becomes of a set.
func (e *edit) prepared(on policy.Generation) (*policy.Edit, error) {
	switch {
	case e.names != nil:
		return policy.Delete{Names: e.names, Expect: on}.Prepare()
	case e.replace:
		return policy.Replace{Documents: e.documents, Expect: on}.Prepare()
	}
	return policy.Apply{Documents: e.documents, Expect: on}.Prepare()
}

// diffPolicies says what an edit would do, and changes nothing.
func (a *api) diffPolicies(c *call) (any, error) {
	store, err := a.policies(false)
	if err != nil {
		return nil, err
	}
	e, err := c.edit(false)
	if err != nil {
		return nil, err
	}
	now, err := store.Load(c.ctx)
	if err != nil {
		return nil, err
	}
	prepared, err := e.prepared(now.Generation)
	if err != nil {
		return nil, err
	}
	after, err := prepared.On(now)
	if err != nil {
		return nil, err
	}
	return report.PolicyDiff{
		Expect: now.Generation.String(), Changes: report.ChangesOf(policy.Diff(now.Set, after)),
		After: a.enforced(policy.Snapshot{Mark: policy.Mark{Generation: after.Generation()}, Set: after}),
	}, nil
}

// editPolicies makes an edit, if the set is still the one that it was decided on.
func (a *api) editPolicies(c *call) (any, error) {
	store, err := a.policies(true)
	if err != nil {
		return nil, err
	}
	e, err := c.edit(true)
	if err != nil {
		return nil, err
	}
	if err := a.intend(c, store, e); err != nil {
		return nil, err
	}
	var now policy.Snapshot
	switch {
	case e.names != nil:
		now, err = store.Delete(c.ctx, policy.Delete{Names: e.names, Expect: e.expect})
	case e.replace:
		now, err = store.Replace(c.ctx, policy.Replace{Documents: e.documents, Expect: e.expect})
	default:
		now, err = store.Apply(c.ctx, policy.Apply{Documents: e.documents, Expect: e.expect})
	}
	if err != nil {
		return nil, err
	}
	if err := a.note(c, e, "edited policies", "", now.Mark); err != nil {
		return nil, err
	}
	out := a.enforced(now)
	a.Logger.InfoContext(c.ctx, "admin: policies edited", "generation", now.Generation, "revision", now.Revision, "gates", len(out.Gates))
	return out, nil
}

// intend records an edit before it is made, so that none is in force of which nobody knows
// who made it. What would be refused is not recorded; a set that cannot be read is.
func (a *api) intend(c *call, store policy.Store, e *edit) error {
	prepared, err := e.prepared(e.expect)
	if err != nil {
		return err
	}
	now, err := store.Load(c.ctx)
	var damaged *policy.CorruptError
	var after *policy.Set
	switch {
	case errors.As(err, &damaged):
		now.Mark = damaged.Now
		after, err = prepared.Over(damaged)
	case err == nil:
		after, err = prepared.On(now)
	}
	if err != nil {
		return err
	}
	return a.note(c, e, "edit policies", describeMark(now.Mark), policy.Mark{Namespace: now.Namespace, Generation: after.Generation()})
}

func (a *api) note(c *call, e *edit, action, before string, after policy.Mark) error {
	return a.Governor.Note(c.ctx, governance.Note{Actor: e.actor, Action: action, Reason: e.reason, Before: before, After: describeMark(after)})
}

// describeMark is what a note says of a set: its revision is not known before it is stored.
func describeMark(m policy.Mark) string {
	if m.Revision == 0 {
		return fmt.Sprintf(`{"generation":%q}`, m.Generation)
	}
	return fmt.Sprintf(`{"generation":%q,"revision":%d}`, m.Generation, m.Revision)
}
