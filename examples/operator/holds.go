package operator

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
)

var holdCommands = map[string]operation{
	"list": {"", func(set *flag.FlagSet) *request {
		page := pageFlags(set)
		team := set.String("team", "", "only those of this `team`")
		key := set.String("key", "", "only those of this `key`")
		open := set.Bool("open", false, "only open permits, not uncertain ones")
		r := get(at("holds"), func(o *output, answer json.RawMessage) error {
			list, err := into[report.HoldPage](answer)
			holdTable(o, list.Holds...)
			more(o, list.Next)
			return err
		})
		r.query = func(q url.Values) error {
			setIf(q, "team_id", *team)
			setIf(q, "key_id", *key)
			if *open {
				q.Set("open", "true")
			}
			return page.query(q)
		}
		return r
	}},
	"resolve": {"PERMIT", func(set *flag.FlagSet) *request {
		notSent := set.Bool("not-sent", false, "it is proved that nothing was sent: return everything")
		var tokens, cost limit
		cost.money = true
		set.Var(&tokens, "tokens", "so many `tokens` were used")
		set.Var(&cost, "cost", "it cost so many `microUSD`, or dollars like $0.25")
		actor, reason := operatorFlags(set)
		return &request{method: http.MethodPost, path: under("holds/", "/resolve"), body: func(string) (any, error) {
			out := map[string]any{"actor": *actor, "reason": *reason}
			known := tokens.value != nil && cost.value != nil
			if *notSent == known || *notSent && (tokens.given || cost.given) {
				return nil, errors.New("say either -not-sent, or -tokens and -cost")
			}
			if *notSent {
				out["not_sent"] = true
			} else {
				out["used"] = report.Amount{Tokens: *tokens.value, CostMicroUSD: *cost.value}
			}
			return out, nil
		}, print: func(o *output, answer json.RawMessage) error {
			h, err := into[report.Hold](answer)
			holdTable(o, h)
			return err
		}}
	}},
	"frozen": {"", func(set *flag.FlagSet) *request {
		page := pageFlags(set)
		r := get(at("frozen"), func(o *output, answer json.RawMessage) error {
			list, err := into[report.FrozenPage](answer)
			o.row("CONSTRAINT", "WINDOW START", "KIND", "CONSUMED", "UNCERTAIN", "RESERVED")
			for _, f := range list.Frozen {
				o.row(f.Constraint, f.WindowStart.Format(time.RFC3339Nano), f.Kind, f.Consumed, f.Uncertain, f.Reserved)
			}
			more(o, list.Next)
			return err
		})
		r.query = page.query
		return r
	}},
	"release": {"CONSTRAINT", func(set *flag.FlagSet) *request {
		start := set.String("window-start", "", "the `time` that frozen prints")
		reconcile := set.Bool("reconcile", false, "set what it counts to what its permits add up to, where that differs")
		actor, reason := operatorFlags(set)
		r := &request{method: http.MethodPost, path: at("frozen/release"), print: func(o *output, _ json.RawMessage) error {
			o.row("released")
			return nil
		}}
		r.body = func(constraint string) (any, error) {
			return map[string]any{"constraint": constraint, "window_start": *start, "reconcile": *reconcile, "actor": *actor, "reason": *reason}, nil
		}
		return r
	}},
}

var verifyCommand = operation{"", func(set *flag.FlagSet) *request {
	full := set.Bool("full", false, "read everything that is still there, and check the checkpoints too")
	asked := questionFlags(set)
	return &request{method: http.MethodPost, path: at("verify"), query: func(q url.Values) error {
		if *full {
			q.Set("full", "true")
		}
		for name, value := range asked {
			if *value != "" {
				q.Set(name, *value)
			}
		}
		return nil
	}, print: func(o *output, answer json.RawMessage) error {
		v, err := into[report.Verification](answer)
		if err != nil {
			return err
		}
		for _, d := range v.Differences {
			o.row(d.Constraint, d.WindowStart.Format(time.RFC3339), d.Why)
		}
		if !v.Balanced {
			return fmt.Errorf("the books do not balance: %d differences in %d accounts", len(v.Differences), v.Accounts)
		}
		o.row(fmt.Sprintf("the books balance: %d accounts, %d reservations", v.Accounts, v.Reservations))
		return nil
	}}
}}

func operatorFlags(set *flag.FlagSet) (actor, reason *string) {
	return set.String("actor", "", "`who` decides; recorded, required"), set.String("reason", "", "`why`; recorded, required")
}

// questionFlags say who asks for what changes nothing, and why.
func questionFlags(set *flag.FlagSet) map[string]*string {
	return map[string]*string{
		"actor": set.String("actor", "", "`who` asks; recorded"), "reason": set.String("reason", "", "`why`; recorded"),
	}
}

func holdTable(o *output, holds ...report.Hold) {
	o.row("PERMIT", "STATE", "WHY", "TEAM", "KEY OR NODE", "MODEL OR BUDGET", "ADMITTED", "TOKENS HELD", "MONEY HELD")
	for _, h := range holds {
		why := strings.Join(h.Why, " ")
		if why == "" {
			why = "-"
		}
		who, what := h.KeyID, h.Model
		if g := h.Grant; g != nil {
			who, what = fmt.Sprintf("%s boot %d", g.Node, g.BootNumber), g.Policy+" "+g.Rule
		}
		o.row(h.ID, h.State, why, h.TeamID, who, what, h.At.Format(time.RFC3339), h.Bound.Tokens, dollars(h.Bound.CostMicroUSD))
	}
}
