package operator

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
)

var pruneCommand = operation{"", func(set *flag.FlagSet) *request {
	before := set.String("before", "", "forget what is older than this `time`, such as 2026-01-31T00:00:00Z or 2026-01-31")
	older := set.Duration("older-than", 0, "or than this `duration`, such as 720h")
	actor, reason := operatorFlags(set)
	r := &request{method: http.MethodPost, path: at("prune")}
	r.body = func(string) (any, error) {
		out := map[string]any{"actor": *actor, "reason": *reason}
		switch {
		case (*before == "") == (*older == 0):
			return nil, errors.New("say either -before, or -older-than")
		case *older != 0:
			out["older_than"] = older.String()
			return out, nil
		}
		at, err := time.Parse(time.RFC3339, *before)
		if err != nil {
			if at, err = time.Parse(time.DateOnly, *before); err != nil {
				return nil, errors.New("-before must be a time such as 2026-01-31T00:00:00Z, or a day")
			}
		}
		out["before"] = at
		return out, nil
	}
	r.print = func(o *output, answer json.RawMessage) error {
		p, err := into[report.Pruning](answer)
		if err != nil {
			return err
		}
		o.row("HORIZON", "REMOVED", "TOKENS", "MONEY", "KEPT", "REMOVED EVER")
		o.row(p.Horizon.Format(time.RFC3339), p.Removed.Permits, p.Removed.Tokens, dollars(p.Removed.CostMicroUSD), p.Kept, p.RemovedEver.Permits)
		for _, d := range p.Differences {
			o.row(d.Constraint, d.WindowStart.Format(time.RFC3339), d.Why)
		}
		if len(p.Differences) > 0 {
			return fmt.Errorf("the books do not balance: of %d accounts nothing was removed", len(p.Differences))
		}
		return nil
	}
	return r
}}
