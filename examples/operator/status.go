package operator

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
)

var statusCommand = operation{"", func(*flag.FlagSet) *request { return get(at("status"), printStatus) }}

func printStatus(o *output, answer json.RawMessage) error {
	s, err := into[report.Status](answer)
	o.row("PROFILE", s.Profile)
	o.row("STARTED", s.StartedAt.Format(time.RFC3339))
	for _, part := range slices.Sorted(maps.Keys(s.Parts)) {
		o.row("STORE", part, s.Parts[part])
	}
	if n := s.Node; n != nil {
		o.row("NODE", n.Name, "boot", n.BootNumber)
		last := "never"
		if n.LastSync != nil {
			last = n.LastSync.Format(time.RFC3339)
		}
		o.row("SYNCED", last, fmt.Sprintf("%d heartbeats since then were not answered", n.Failures), n.Why)
	}
	o.row("TOPOLOGY", s.Topology.Version, s.Topology.Digest)
	if s.Policies != nil {
		policiesTable(o, *s.Policies)
	}
	return err
}

var notesCommand = operation{"", func(set *flag.FlagSet) *request {
	after := set.Int64("after", 0, "only those behind this `number`")
	limit := set.Int("limit", 0, "at most so many `rows`; 0: 100, and never more than 1000")
	r := get(at("notes"), func(o *output, answer json.RawMessage) error {
		list, err := into[report.NotePage](answer)
		o.row("NUMBER", "AT", "ACTOR", "ACTION", "ABOUT", "REASON")
		for _, n := range list.Notes {
			about := n.Permit
			if n.Account != nil {
				about = n.Account.Constraint + " " + n.Account.WindowStart.Format(time.RFC3339)
			}
			o.row(n.Number, n.At.Format(time.RFC3339), n.Actor, n.Action, about, n.Reason)
		}
		if list.Next != 0 {
			more(o, strconv.FormatInt(list.Next, 10))
		}
		return err
	})
	r.query = func(q url.Values) error {
		if *after != 0 {
			q.Set("after", strconv.FormatInt(*after, 10))
		}
		if *limit != 0 {
			q.Set("limit", strconv.Itoa(*limit))
		}
		return nil
	}
	return r
}}

// explainKey asks what would become of a request, and reserves nothing.
var explainKey = operation{"KEY", func(set *flag.FlagSet) *request {
	model := set.String("model", "", "the `model` that would be asked for")
	region := set.String("region", "", "the `region` that it would be served from")
	free := set.Bool("free", false, "the model costs nothing")
	unpriced := set.Bool("unpriced", false, "nothing bounds what it costs")
	var tokens, cost limit
	cost.money = true
	set.Var(&tokens, "tokens", "the most `tokens` that it would use")
	set.Var(&cost, "cost", "the most `microUSD` that it would cost, or dollars like $0.25")
	asked := questionFlags(set)
	return &request{method: http.MethodPost, path: under("keys/", "/explain"), print: printExplanation, body: func(string) (any, error) {
		out := map[string]any{"model": *model, "region": *region, "free": *free, "unpriced": *unpriced}
		for name, l := range map[string]*limit{"tokens": &tokens, "cost_microusd": &cost} {
			if l.value != nil {
				out[name] = *l.value
			}
		}
		for name, value := range asked {
			if *value != "" {
				out[name] = *value
			}
		}
		return out, nil
	}}
}}

func printExplanation(o *output, answer json.RawMessage) error {
	e, err := into[report.Explanation](answer)
	switch r := e.Refusal; {
	case e.Admitted:
		o.row("would be admitted")
	case r == nil:
		o.row("would be refused")
	case r.Retryable:
		o.row("would be refused: " + r.Reason + ", may fit in " + (time.Duration(r.RetryAfterMS) * time.Millisecond).String())
	default:
		o.row("would be refused: " + r.Reason + ", and trying again does not help")
	}
	constraintTable(o, e.Constraints)
	return err
}
