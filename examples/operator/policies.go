package operator

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance/policy"
)

var policyCommands = map[string]operation{
	"list": {"", func(*flag.FlagSet) *request { return get(at("policies"), printPolicies) }},
}

func printPolicies(o *output, answer json.RawMessage) error {
	list, err := into[report.PolicySet](answer)
	if err != nil {
		return err
	}
	documents, err := policy.Decode(list.Documents)
	if err != nil {
		return err
	}
	o.row("POLICY", "SUBJECT", "RULES")
	for _, d := range documents {
		var rules []string
		for i := range d.Rules {
			rules = append(rules, d.Rules[i].Name+" ("+d.Rules[i].Kind().String()+")")
		}
		o.row(d.Name, d.Subject.Scope().String()+" "+d.Subject.String(), strings.Join(rules, ", "))
	}
	policiesTable(o, list.Policies)
	return nil
}

// policiesTable says which set it is, and whom it shuts out.
func policiesTable(o *output, p report.Policies) {
	if p.Namespace != "" {
		o.row("NAMESPACE", p.Namespace)
		o.row("REVISION", p.Revision)
	}
	o.row("GENERATION", p.Generation)
	for _, g := range p.Gates {
		o.row("GATED", g.Subject, "by "+g.Policy+": "+g.Reason)
	}
	for _, r := range p.Rejected {
		o.row("NOT ENFORCED", r.Policy+" "+r.Rule, r.Reason)
	}
}

// policyEdit are the flags of what changes policies, or says what it would change.
type policyEdit struct {
	over    connection
	files   many
	replace bool
	expect  string
	asJSON  bool

	actor, reason *string // of an edit
}

func policiesApply(ctx context.Context, p Process, args []string) error {
	return p.editPolicies(ctx, "policies apply", args, true)
}

func policiesDiff(ctx context.Context, p Process, args []string) error {
	return p.editPolicies(ctx, "policies diff", args, false)
}

func policiesDelete(ctx context.Context, p Process, args []string) error {
	set := p.Flags("policies delete", "NAME")
	var e policyEdit
	e.over.flags(set, p.Program, true)
	e.editFlags(set)
	e.actor, e.reason = operatorFlags(set)
	names, err := p.Parse(set, args, 1)
	if err != nil {
		return err
	}
	return e.run(ctx, p, map[string]any{"delete": names}, true)
}

func (e *policyEdit) editFlags(set *flag.FlagSet) {
	set.StringVar(&e.expect, "expect", "", "refuse unless this `generation` is in force, as diff and list print it; left out: the one that the difference is shown of")
	set.BoolVar(&e.asJSON, "json", false, "print what the API answered")
}

func (p Process) editPolicies(ctx context.Context, name string, args []string, apply bool) error {
	set := p.Flags(name, "")
	var e policyEdit
	e.over.flags(set, p.Program, true)
	set.Var(&e.files, "f", "a `file` of GovernancePolicy documents, YAML or JSON; may be repeated; required")
	set.BoolVar(&e.replace, "replace", false, "the files are the whole set: what they do not have is deleted")
	e.editFlags(set)
	if apply {
		e.actor, e.reason = operatorFlags(set)
	}
	if _, err := p.Parse(set, args, 0); err != nil {
		return err
	}
	documents, err := config.ReadPolicies(e.files.list)
	if err != nil {
		return err
	}
	if len(e.files.list) == 0 {
		return p.Misused("%s needs -f FILE", name)
	}
	return e.run(ctx, p, map[string]any{"documents": documents, "replace": e.replace}, apply)
}

// run shows what an edit does, and then makes it on that very set.
func (e *policyEdit) run(ctx context.Context, p Process, edit map[string]any, apply bool) (err error) {
	client, closer, err := e.over.open(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer()) }()
	var shown json.RawMessage
	failed := client.Do(ctx, http.MethodPost, "policies/diff", nil, edit, &shown)
	var damaged *admin.Problem
	if errors.As(failed, &damaged) && damaged.Type == "corrupt" && apply && e.replace && e.expect != "" {
		failed = nil // there is no difference to what cannot be read
	} else if failed != nil {
		return failed
	}
	expect := e.expect
	if shown != nil {
		diff, err := into[report.PolicyDiff](shown)
		if err != nil {
			return err
		}
		if expect == "" {
			expect = diff.Expect
		}
		if err := e.print(p, shown, func(o *output) { diffTable(o, diff) }, !apply); err != nil {
			return err
		}
	}
	if !apply {
		return failed
	}
	edit["expect"], edit["actor"], edit["reason"] = expect, *e.actor, *e.reason
	var answer json.RawMessage
	if err := client.Do(ctx, http.MethodPost, "policies", nil, edit, &answer); err != nil {
		return err
	}
	now, err := into[report.Policies](answer)
	if err != nil {
		return err
	}
	return e.print(p, answer, func(o *output) {
		o.row("in force at every gateway:")
		policiesTable(o, now)
	}, true)
}

// print prints a table, or the answer as it is where that is what was asked for.
func (e *policyEdit) print(p Process, answer json.RawMessage, table func(*output), last bool) error {
	if e.asJSON {
		if !last {
			return nil
		}
		_, err := p.Out.Write(append(answer, '\n'))
		return err
	}
	o := &output{tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)}
	table(o)
	return o.Flush()
}

func diffTable(o *output, d report.PolicyDiff) {
	if len(d.Changes) == 0 {
		o.row("no difference")
	}
	others := 0
	for _, c := range d.Changes {
		o.row(c.Text)
		if c.AnotherAccount {
			others++
		}
	}
	if others > 0 {
		o.row(fmt.Sprintf("%d of these rules begin to count at zero in another account; what was counted stays in the one that it is in", others))
	}
	for _, g := range d.After.Gates {
		o.row("GATED", g.Subject, "by "+g.Policy+": "+g.Reason)
	}
	o.row("decided on generation", d.Expect)
}
