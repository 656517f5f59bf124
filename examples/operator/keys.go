package operator

import (
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/keys"
)

var teamCommands = map[string]operation{
	"list": {"", func(set *flag.FlagSet) *request {
		page := pageFlags(set)
		r := get(at("teams"), func(o *output, answer json.RawMessage) error {
			list, err := into[keys.TeamPage](answer)
			teamTable(o, list.Teams...)
			more(o, list.Next)
			return err
		})
		r.query = page.query
		return r
	}},
	"show": {"TEAM", func(*flag.FlagSet) *request { return get(under("teams/", ""), printTeam) }},
	"create": {"", func(set *flag.FlagSet) *request {
		var d definition
		d.teamFlags(set)
		set.Var(&d.id, "id", "its `id`; made up when left out")
		return &request{method: http.MethodPost, path: at("teams"), body: d.document, print: printTeam}
	}},
	"update": {"TEAM", func(set *flag.FlagSet) *request {
		var d definition
		d.teamFlags(set)
		d.revisionFlag(set)
		return &request{method: http.MethodPatch, path: under("teams/", ""), body: d.document, print: printTeam}
	}},
	"delete": {"TEAM", func(set *flag.FlagSet) *request {
		var d definition
		d.revisionFlag(set)
		return &request{method: http.MethodDelete, path: under("teams/", ""), print: printTeam, query: func(q url.Values) error {
			if d.ifRevision != 0 {
				q.Set("if_revision", strconv.FormatInt(d.ifRevision, 10))
			}
			return nil
		}}
	}},
}

var keyCommands = map[string]operation{
	"list": {"", func(set *flag.FlagSet) *request {
		page := pageFlags(set)
		team := set.String("team", "", "only those of this `team`")
		owner := set.String("owner", "", "only those of this `user`")
		r := get(at("keys"), func(o *output, answer json.RawMessage) error {
			list, err := into[keys.KeyPage](answer)
			keyTable(o, list.Keys...)
			more(o, list.Next)
			return err
		})
		r.query = func(q url.Values) error {
			setIf(q, "team_id", *team)
			setIf(q, "owner", *owner)
			return page.query(q)
		}
		return r
	}},
	"show": {"KEY", func(*flag.FlagSet) *request { return get(under("keys/", ""), printKey) }},
	"create": {"", func(set *flag.FlagSet) *request {
		var d definition
		d.keyFlags(set)
		set.Var(&d.id, "id", "its `id`; made up when left out")
		set.Var(&d.team, "team", "the `team` that it belongs to; required")
		return &request{method: http.MethodPost, path: at("keys"), body: d.document, print: printNewKey}
	}},
	"update": {"KEY", func(set *flag.FlagSet) *request {
		var d definition
		d.keyFlags(set)
		d.revisionFlag(set)
		return &request{method: http.MethodPatch, path: under("keys/", ""), body: d.document, print: printKey}
	}},
	"revoke": {"KEY", func(set *flag.FlagSet) *request {
		var d definition
		d.revisionFlag(set)
		return &request{method: http.MethodPost, path: under("keys/", "/revoke"), body: d.document, print: printKey}
	}},
	"rotate": {"KEY", func(set *flag.FlagSet) *request {
		var d definition
		d.revisionFlag(set)
		id := set.String("rotation-id", "", "an `id` of your choice for this rotation, so that it can be repeated; required")
		grace := set.Duration("grace", 0, "how long the old token is still accepted, in whole seconds; 0: not at all")
		return &request{method: http.MethodPost, path: under("keys/", "/rotate"), print: printNewKey, body: func(string) (any, error) {
			if *grace%time.Second != 0 {
				return nil, errors.New("-grace must be whole seconds")
			}
			return map[string]any{"rotation_id": *id, "if_revision": d.ifRevision, "grace_seconds": int64(*grace / time.Second)}, nil
		}}
	}},
	"usage":   {"KEY", func(*flag.FlagSet) *request { return get(under("keys/", "/usage"), printUsage) }},
	"explain": explainKey,
}

// page are the flags of a list.
type page struct {
	after string
	limit int
}

func pageFlags(set *flag.FlagSet) *page {
	p := &page{}
	set.StringVar(&p.after, "after", "", "what the page before printed as `next`")
	set.IntVar(&p.limit, "limit", 0, "at most so many `rows`; 0: 100, and never more than 1000")
	return p
}

func (p *page) query(q url.Values) error {
	setIf(q, "after", p.after)
	if p.limit != 0 {
		q.Set("limit", strconv.Itoa(p.limit))
	}
	return nil
}

func setIf(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func more(o *output, next string) {
	if next != "" {
		o.row("there is more: -after " + next)
	}
}

func teamTable(o *output, teams ...keys.Team) {
	o.row("TEAM", "NAME", "REVISION", "STATE", "MODELS", "LIMITS")
	for _, t := range teams {
		state := "active"
		if t.DeletedAt != nil {
			state = "deleted " + t.DeletedAt.Format(time.RFC3339)
		}
		o.row(t.ID, t.Name, t.Revision, state, listText(t.AllowedModels), limitsText(t.Limits))
	}
}

func keyTable(o *output, list ...keys.Key) {
	o.row("KEY", "TEAM", "OWNER", "NAME", "REVISION", "STATE", "MODELS", "LIMITS")
	for _, k := range list {
		state := "active"
		switch {
		case k.RevokedAt != nil:
			state = "revoked " + k.RevokedAt.Format(time.RFC3339)
		case k.ExpiresAt != nil:
			state = "expires " + k.ExpiresAt.Format(time.RFC3339)
		}
		o.row(k.ID, k.TeamID, k.Owner, k.Name, k.Revision, state, listText(k.AllowedModels), limitsText(k.Limits))
	}
}

// listText tells everything (nil) from nothing (empty).
func listText(list []string) string {
	switch {
	case list == nil:
		return "all"
	case len(list) == 0:
		return "none"
	}
	return strings.Join(list, " ")
}

func printTeam(o *output, answer json.RawMessage) error {
	t, err := into[keys.Team](answer)
	teamTable(o, t)
	return err
}

func printKey(o *output, answer json.RawMessage) error {
	k, err := into[keys.Key](answer)
	keyTable(o, k)
	return err
}

func printNewKey(o *output, answer json.RawMessage) error {
	k, err := into[admin.NewKey](answer)
	keyTable(o, k.Key)
	switch {
	case k.Token != "":
		o.row("token: " + k.Token)
		o.row("It is shown this once; only its hash is kept.")
	case k.Replayed:
		o.row("This rotation was done before; its token cannot be shown again.")
	}
	return err
}

func printUsage(o *output, answer json.RawMessage) error {
	u, err := into[report.Usage](answer)
	constraintTable(o, u.Constraints)
	return err
}

func constraintTable(o *output, list []report.Constraint) {
	o.row("LIMIT", "OF", "UNIT", "LIMIT", "CONSUMED", "UNCERTAIN", "RESERVED", "GRANTED", "REMAINING", "RESETS")
	for _, c := range list {
		resets := "continuously"
		if c.ResetsAt != nil {
			resets = c.ResetsAt.Format(time.RFC3339)
		}
		if c.Frozen {
			resets = "FROZEN"
		}
		rule := c.Rule
		if c.Policy != "" {
			rule = c.Policy + "/" + c.Rule
		}
		o.row(rule, c.Scope+" "+c.Subject, c.Unit, c.Limit, c.Consumed, c.Uncertain, c.Reserved, c.Granted, c.Remaining, resets)
	}
}
