package operator

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
)

// systemCommand says what a gateway is among others.
var systemCommand = operation{"", func(*flag.FlagSet) *request {
	return get(at("system"), func(o *output, answer json.RawMessage) error {
		s, err := into[report.System](answer)
		o.row("INSTANCE", s.Instance)
		if s.HoldsAs != "" {
			o.row("HOLDS AS", s.HoldsAs)
		}
		o.row("PROFILE", s.Profile)
		o.row("COORDINATES", s.CoordinatesWithPeers)
		o.row("SHAREABLE", s.StorageIsShareable)
		o.row("MANAGES FLEET", s.ManagesFleet)
		for _, l := range s.Leases {
			tenure := (time.Duration(l.TenureInForceMS) * time.Millisecond).String()
			if l.Longer {
				tenure += ", here " + (time.Duration(l.TenureMS) * time.Millisecond).String()
			}
			o.row("LEASE", l.Name, l.State, l.Holder, fmt.Sprint("generation ", l.Generation), "tenure "+tenure, l.Error)
		}
		if s.Log != nil {
			o.row("LOG", "read", (time.Duration(s.Log.AgeMS)*time.Millisecond).String()+" ago", "may be "+(time.Duration(s.Log.StaleMS)*time.Millisecond).String())
			if s.Log.HeldBy != "" {
				o.row("LOG", "old events stay because of", s.Log.HeldBy, "gateway events drop "+s.Log.HeldBy+", if it is gone for good")
			}
			for _, sub := range s.Log.Subscriptions {
				o.row("LOG", sub.Name, sub.Kind, fmt.Sprint(sub.Behind, " behind"), fmt.Sprint(sub.Handled, " handled"), fmt.Sprint(sub.Aside, " set aside"), sub.Error)
			}
			if s.Log.Error != "" {
				o.row("LOG", "is not followed", s.Log.Error)
			}
		}
		o.row("LIMITS", "rates "+s.Limits.Rates, "quotas "+s.Limits.Quotas, "budgets "+s.Limits.Budgets)
		if s.History.Regressed {
			o.row("HISTORY", "went back", s.History.Why)
		}
		for _, what := range s.Local {
			o.row("LOCAL", what)
		}
		for _, what := range s.Shared {
			o.row("SHARED", what)
		}
		return err
	})
}}

var suspensionCommands = map[string]operation{
	"list": {"", func(*flag.FlagSet) *request {
		return get(at("suspensions"), func(o *output, answer json.RawMessage) error {
			list, err := into[admin.SuspensionPage](answer)
			o.row("KEY", "SESSION", "SINCE", "ACTOR", "REASON")
			for _, s := range list.Suspensions {
				o.row(s.Key, s.Session, s.At.Format(time.RFC3339), s.Actor, s.Reason)
			}
			return err
		})
	}},
	"begin": suspension("begin", "suspensions", "suspended on every gateway of the database, as soon as each has looked at the log"),
	"lift":  suspension("lift", "suspensions/lift", "served again"),
}

func suspension(verb, path, done string) operation {
	return operation{"KEY", func(set *flag.FlagSet) *request {
		session := set.String("session", "", "only the `session` of the key that calls itself so; left out: the key")
		actor, reason := operatorFlags(set)
		return &request{
			method: http.MethodPost, path: at(path),
			body: func(key string) (any, error) {
				if *actor == "" || *reason == "" {
					return nil, errors.New("suspensions " + verb + " needs -actor and -reason")
				}
				out := map[string]string{"key": key, "reason": *reason, "actor": *actor}
				if *session != "" {
					out["session"] = *session
				}
				return out, nil
			},
			print: func(o *output, _ json.RawMessage) error {
				o.row(done)
				return nil
			},
		}
	}}
}
