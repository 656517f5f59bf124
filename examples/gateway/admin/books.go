package admin

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// principal reads a key as a caller, by its id.
func (a *api) principal(c *call) (*keys.Principal, error) {
	id := c.PathValue("id")
	if err := keys.ValidID(id); err != nil {
		return nil, err
	}
	p, err := a.Keys.Reload(c.ctx, keys.Principal{KeyID: id})
	return &p, err
}

func (a *api) usage(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	p, err := a.principal(c)
	if err != nil {
		return nil, err
	}
	usage, err := a.Governor.Usage(c.ctx, governance.UsageQuery{Principal: p})
	if err != nil {
		return nil, err
	}
	return report.UsageOf(p, usage.Verdicts), nil
}

func (a *api) explain(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var r governance.Request
	var tokens, cost int64
	asked := asking()
	if err := fields(data, map[string]any{
		"model": &r.Model, "region": &r.Region, "tokens": &tokens, "cost_microusd": &cost, "free": &r.Bound.Free, "unpriced": &r.Bound.Unpriced,
		"actor": &asked.actor, "reason": &asked.reason,
	}); err != nil {
		return nil, err
	}
	r.Bound.Tokens, r.Bound.Cost = amount.Tokens(tokens), amount.MicroUSD(cost)
	if r.Principal, err = a.principal(c); err != nil {
		return nil, err
	}
	e, err := a.Governor.Explain(c.ctx, r)
	if err != nil {
		return nil, err
	}
	return report.ExplanationOf(e), a.record(c, "explain", asked, map[string]any{
		"key": r.Principal.KeyID, "model": r.Model, "tokens": tokens, "cost_microusd": cost, "admitted": e.Refusal == nil,
	})
}

func (a *api) listHolds(c *call) (any, error) {
	var q governance.HoldQuery
	var after string
	if err := c.parameters(map[string]any{"after": &after, "limit": &q.Limit, "team_id": &q.Team, "key_id": &q.Key, "open": &q.Open}); err != nil {
		return nil, err
	}
	if after != "" {
		var err error
		if q.After, err = governance.ParsePermitID(after); err != nil {
			return nil, invalid("after", "must be the next of the page before")
		}
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	a.Logger.InfoContext(c.ctx, "admin: holds are listed", "team", q.Team, "key", q.Key, "open", q.Open)
	holds, err := a.Governor.Holds(c.ctx, q)
	if err != nil {
		return nil, err
	}
	page := report.HoldPage{Holds: []report.Hold{}}
	for i := range holds {
		page.Holds = append(page.Holds, report.HoldOf(&holds[i]))
	}
	if len(holds) == q.Limit {
		page.Next = holds[len(holds)-1].ID.String()
	}
	return page, nil
}

func (a *api) resolve(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var e governance.Evidence
	var notSent bool
	tokens, cost := int64(-1), int64(-1)
	if err := fields(data, map[string]any{
		"not_sent": &notSent, "used": map[string]any{"tokens": &tokens, "cost_microusd": &cost}, "actor": &e.Actor, "reason": &e.Reason,
	}); err != nil {
		return nil, err
	}
	if e.ID, err = governance.ParsePermitID(c.PathValue("id")); err != nil {
		return nil, err
	}
	switch {
	case notSent && tokens == -1 && cost == -1:
		e.Outcome = governance.NotSent()
	case !notSent && tokens >= 0 && cost >= 0:
		e.Outcome = governance.Used(amount.Tokens(tokens), amount.MicroUSD(cost))
	default:
		return nil, invalid("used", "say either not_sent: true, or used with tokens and cost_microusd, neither negative")
	}
	h, err := a.Governor.Resolve(c.ctx, e)
	if err != nil {
		return nil, err
	}
	return report.HoldOf(h), nil
}

func (a *api) listFrozen(c *call) (any, error) {
	limit, after := 100, ""
	if err := c.parameters(map[string]any{"after": &after, "limit": &limit}); err != nil {
		return nil, err
	}
	var key governance.AccountKey
	if after != "" {
		constraint, start, _ := strings.Cut(after, "@")
		at, err := time.Parse(time.RFC3339Nano, start)
		if err == nil {
			key.Constraint, err = governance.ParseConstraintID(constraint)
		}
		if err != nil {
			return nil, invalid("after", "must be the next of the page before")
		}
		key.WindowStart = at.UnixMicro()
	}
	cells, err := a.Governor.FrozenAccounts(c.ctx, governance.AccountQuery{After: key, Limit: limit})
	if err != nil {
		return nil, err
	}
	page := report.FrozenPage{Frozen: []report.Frozen{}}
	for i := range cells {
		page.Frozen = append(page.Frozen, report.FrozenOf(&cells[i]))
	}
	if len(cells) == limit {
		last := page.Frozen[limit-1]
		page.Next = last.Constraint + "@" + last.WindowStart.Format(time.RFC3339Nano)
	}
	return page, nil
}

func (a *api) release(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var r governance.Release
	var constraint string
	var start time.Time
	if err := fields(data, map[string]any{
		"constraint": &constraint, "window_start": &start, "reconcile": &r.Reconcile, "actor": &r.Actor, "reason": &r.Reason,
	}); err != nil {
		return nil, err
	}
	if r.Account.Constraint, err = governance.ParseConstraintID(constraint); err != nil {
		return nil, err
	}
	r.Account.WindowStart = start.UnixMicro()
	if err := a.Governor.Unfreeze(c.ctx, r); err != nil {
		return nil, err
	}
	return map[string]report.Account{"released": report.AccountOf(r.Account)}, nil
}

func (a *api) verify(c *call) (any, error) {
	var q governance.VerifyQuery
	asked := asking()
	if err := c.parameters(map[string]any{"full": &q.Full, "actor": &asked.actor, "reason": &asked.reason}); err != nil {
		return nil, err
	}
	if data, err := c.body(); err != nil {
		return nil, err
	} else if len(data) > 0 {
		return nil, invalid("", "this request has no body")
	}
	v, err := a.Governor.Verify(c.ctx, q)
	if err != nil {
		return nil, err
	}
	return report.VerificationOf(v), a.record(c, "verify", asked, map[string]any{
		"full": q.Full, "accounts": v.Accounts, "reservations": v.Permits, "differences": len(v.Differences),
	})
}

// question is who asks for what changes nothing, and why. Both may be left out.
type question struct{ actor, reason string }

func asking() question { return question{"admin", "none was given"} }

// record keeps that an audit was made and what it found.
func (a *api) record(c *call, action string, q question, found map[string]any) error {
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return a.Governor.Note(c.ctx, governance.Note{Actor: q.actor, Action: action, Reason: q.reason, After: string(text)})
}

func (a *api) prune(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var q governance.PruneQuery
	var older string
	if err := fields(data, map[string]any{"before": &q.Before, "older_than": &older, "actor": &q.Actor, "reason": &q.Reason}); err != nil {
		return nil, err
	}
	if older != "" {
		if q.OlderThan, err = time.ParseDuration(older); err != nil {
			return nil, invalid("older_than", "must be a duration such as 720h")
		}
	}
	done, err := a.Governor.Prune(c.ctx, q)
	if err != nil {
		return nil, err
	}
	return report.PruningOf(done), nil
}
