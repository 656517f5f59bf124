package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/server"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

// Result is what came of all requests.
type Result struct {
	Profile     string
	Store       string
	Requests    int64
	Admitted    int64 // permits in the database
	Settled     int64
	Cancelled   int64
	Uncertain   int64
	Open        int64 // none, once the gateway was drained
	Consumed    int64 // microUSD
	Refused     []Refusal
	Teams       []Team
	Accounts    int64
	Differences int64
	Elapsed     time.Duration
}

// Refusal is why requests were refused, and how many.
type Refusal struct {
	Reason     string
	Status     int
	Count      int64
	RetryAfter time.Duration // the longest that was asked for
}

// Team is one team's side of it. Money is in microUSD, of the month.
type Team struct {
	ID        string
	Admitted  int64
	Refused   int64
	Consumed  int64
	Uncertain int64
	Reserved  int64
	Limit     int64
}

// read asks the books.
func (r *Result) read(ctx context.Context, s *server.Server, seen *ledger) error {
	for after := (governance.PermitID{}); ; {
		page, err := s.Storage.Store.Permits(ctx, governance.PermitQuery{After: after, Limit: 500})
		if err != nil {
			return err
		}
		for i := range page {
			after = page[i].ID
			r.count(&page[i])
		}
		if len(page) < 500 {
			break
		}
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, refusal := range seen.refused {
		r.Refused = append(r.Refused, *refusal)
	}
	slices.SortFunc(r.Refused, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Reason, b.Reason))
	})
	for _, key := range []string{"harbour-app", "lantern-app"} {
		team, err := readTeam(ctx, s, key)
		if err != nil {
			return err
		}
		if in := seen.teams[team.ID]; in != nil {
			team.Admitted, team.Refused = in.Admitted, in.Refused
		}
		r.Teams = append(r.Teams, team)
	}
	v, err := s.Governor.Verify(ctx, governance.VerifyQuery{})
	if err != nil {
		return err
	}
	r.Accounts, r.Differences = v.Accounts, int64(len(v.Differences))
	return nil
}

func (r *Result) count(rec *governance.Record) {
	r.Admitted++
	const uncertain = governance.FlagTokensUncertain | governance.FlagCostUncertain
	switch {
	case rec.State == governance.StateOpen:
		r.Open++
	case rec.State == governance.StateCancelled:
		r.Cancelled++
	case rec.Flags&uncertain != 0:
		r.Uncertain++
	default:
		r.Settled++
	}
	if rec.State == governance.StateSettled && rec.Flags&governance.FlagCostUncertain == 0 {
		r.Consumed += rec.Outcome.Cost.Value
	}
}

func readTeam(ctx context.Context, s *server.Server, key string) (Team, error) {
	p, err := s.Storage.Keys.Reload(ctx, keys.Principal{KeyID: key})
	if err != nil {
		return Team{}, err
	}
	usage, err := s.Governor.Usage(ctx, governance.UsageQuery{Principal: &p})
	if err != nil {
		return Team{}, err
	}
	for i := range usage.Verdicts {
		v := &usage.Verdicts[i]
		if v.Constraint.Scope == governance.ScopeTeam && v.Constraint.Rule == "cost_per_month" {
			return Team{ID: p.TeamID, Consumed: v.Consumed, Uncertain: v.Uncertain, Reserved: v.Reserved, Limit: v.Limit}, nil
		}
	}
	return Team{}, errors.New("demo: the team's budget is not among its limits")
}

// WriteJSON writes the one object that scripts read.
func (r *Result) WriteJSON(w io.Writer) error {
	refused := map[string]int64{}
	for _, refusal := range r.Refused {
		refused[refusal.Reason] = refusal.Count
	}
	return json.NewEncoder(w).Encode(struct {
		Profile     string           `json:"profile"`
		Store       string           `json:"store"`
		Requests    int64            `json:"requests"`
		Admitted    int64            `json:"admitted"`
		Settled     int64            `json:"settled"`
		Cancelled   int64            `json:"cancelled"`
		Uncertain   int64            `json:"uncertain"`
		Refused     map[string]int64 `json:"refused"`
		Consumed    int64            `json:"consumed_microusd"`
		Differences int64            `json:"verify_differences"`
	}{r.Profile, r.Store, r.Requests, r.Admitted, r.Settled, r.Cancelled, r.Uncertain, refused, r.Consumed, r.Differences})
}

// reasons are the reasons in words.
var reasons = map[string]string{
	"money":           "the budget does not cover what it may cost",
	"rate":            "too many in this minute",
	"quota":           "too few tokens left in this window",
	"concurrency":     "too many at the same time",
	"reserved":        "requests in flight hold what is left",
	"never_fits":      "larger than the limit itself",
	"model":           "the key may not use the model",
	"revoked_api_key": "the key was revoked",
	"unauthenticated": "the key was revoked",
	"queue_full":      "too many wait for a decision",
	"unavailable":     "the database did not answer",
}

// WriteText writes what a person wants to see.
func (r *Result) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	var refused int64
	for _, refusal := range r.Refused {
		refused += refusal.Count
	}
	line("%d requests through a gateway on loopback, keys and counters in SQLite (profile %s), %.1f s\n", r.Requests, r.Profile, r.Elapsed.Seconds())
	line("ADMITTED\t%d\t", r.Admitted)
	line("  settled\t%d\tthe provider said what was used", r.Settled)
	line("  cancelled\t%d\tnothing was sent: everything returned", r.Cancelled)
	line("  uncertain\t%d\tit is not known what was used: the bound is held", r.Uncertain)
	if r.Open > 0 {
		line("  open\t%d\tnot ended yet", r.Open)
	}
	line("REFUSED\t%d\tbefore anything was sent", refused)
	line("")
	_ = w.Flush()
	line("REFUSED BECAUSE\tHTTP\tREQUESTS\tRETRY AFTER")
	for _, refusal := range r.Refused {
		why := reasons[refusal.Reason]
		if why == "" {
			why = http.StatusText(refusal.Status)
		}
		again := "never"
		if refusal.RetryAfter > 0 {
			again = fmt.Sprintf("%d s at most", int64((refusal.RetryAfter+time.Second-1)/time.Second))
		}
		line("%s (%s)\t%d\t%d\t%s", why, refusal.Reason, refusal.Status, refusal.Count, again)
	}
	line("")
	_ = w.Flush()
	line("TEAM\tADMITTED\tREFUSED\tCOST\tHELD\tOF A MONTH'S")
	for _, t := range r.Teams {
		line("%s\t%d\t%d\t%s\t%s\t%s", t.ID, t.Admitted, t.Refused, dollars(t.Consumed), dollars(t.Uncertain+t.Reserved), dollars(t.Limit))
	}
	line("")
	if r.Differences == 0 {
		line("The books balance: %d accounts recomputed from their permits, no difference.", r.Accounts)
	} else {
		line("THE BOOKS DO NOT BALANCE: %d of %d accounts differ.", r.Differences, r.Accounts)
	}
	return w.Flush()
}

func dollars(micro int64) string { return fmt.Sprintf("$%d.%06d", micro/1_000_000, micro%1_000_000) }
