package prove

import (
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// seeded is a stream of bytes that follows from a name.
func seeded(name string) io.Reader { return rand.NewChaCha8(sha256.Sum256([]byte(name))) }

// client is one caller in a gateway process, and at times an administrator.
type client struct {
	*worker
	n     int
	order order
	after governance.PermitID // before the round
	rng   *rand.Rand
}

func (c *client) record(r request, ask func() answer) answer { return c.scribe.record(c.n, r, ask) }

// one does one thing, mostly. An edit is followed by a look or an admission of the same client: what
// the edit's return promises is seen there first.
func (c *client) one(ctx context.Context) {
	team := c.order.Teams[c.rng.IntN(len(c.order.Teams))]
	key := c.key(team)
	switch n := c.rng.IntN(100); {
	case n < 34:
		c.admit(ctx, team, key)
	case n < 54:
		c.settle(ctx, team)
	case n < 62:
		c.usage(ctx, team, key)
	case n < 66:
		c.holds(ctx, team)
	case n < 71:
		c.resolve(ctx, team, key)
	case n < 78:
		c.raise(ctx, team)
	case n < 82:
		c.find(ctx, team)
	case n < 88:
		c.edit(ctx, team, key, key)
	case n < 94:
		c.edit(ctx, team, 0, key)
	case n < 96 && c.rng.IntN(2) == 0:
		c.revoke(ctx, team, key)
		c.probe(ctx, team, key)
	case n < 99 || c.rng.IntN(20) > 0:
		c.create(ctx, team)
	default:
		c.delete(ctx, team)
	}
}

func (c *client) probe(ctx context.Context, team string, key int) {
	switch c.rng.IntN(3) {
	case 0:
		c.holds(ctx, team)
	case 1:
		c.usage(ctx, team, key)
	case 2:
		c.admit(ctx, team, key)
	}
}

// key picks a key: mostly one that is good as far as this process knows, at times one that is not, or not there yet.
func (c *client) key(team string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.teams[team]
	for range 6 {
		if i := 1 + c.rng.IntN(min(k.top+1, maxKeys)); !k.dead[i] && (i <= k.top || c.rng.IntN(3) == 0) {
			return i
		}
	}
	return 1 + c.rng.IntN(maxKeys)
}

// with calls f with what the process knows of the team.
func (c *client) with(team string, f func(*known)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.teams[team])
}

// principal is the one that the process remembers, however old it is, or else is asked for.
func (c *client) principal(ctx context.Context, team string, key int) (p *keys.Principal) {
	c.with(team, func(k *known) { p = k.principals[key] })
	if p != nil {
		return p
	}
	return c.resolve(ctx, team, key)
}

func (c *client) resolve(ctx context.Context, team string, key int) (p *keys.Principal) {
	token := tokenOf(team, key).Reveal()
	c.record(request{Verb: verbResolve, Team: team, Key: key}, func() answer {
		found, err := c.db.Keys.Resolve(ctx, token)
		a := c.told(err)
		if err == nil {
			p = &found
			a.Revision, a.TeamRevision = found.Key.Revision, found.Team.Revision
			a.Limits, a.TeamLimits = limitsOf(found.Key.Limits), limitsOf(found.Team.Limits)
		}
		return a
	})
	c.with(team, func(k *known) {
		k.principals[key] = p
		k.dead[key] = p == nil && key <= k.top
		if p != nil {
			k.top = max(k.top, key)
			k.revisions[0], k.revisions[key] = p.Team.Revision, p.Key.Revision
		}
	})
	return p
}

func (c *client) bound() governance.Bound {
	return governance.Bound{Tokens: amount.Tokens(c.rng.Int64N(6)), Cost: amount.MicroUSD(c.rng.Int64N(6))}
}

func (c *client) admit(ctx context.Context, team string, key int) {
	p := c.principal(ctx, team, key)
	if p == nil {
		return
	}
	r := governance.Request{Principal: p, Model: "model", Bound: c.bound()}
	asked := request{Verb: verbAdmit, Team: team, Key: key, Tokens: int64(r.Bound.Tokens), Cost: int64(r.Bound.Cost)}
	if c.order.Rough || c.rng.IntN(2) == 0 {
		r.ID = governance.NewPermitID(time.Now().Add(c.Ahead))
		asked.Permit = r.ID.String()
	}
	var permit *governance.Permit
	a := c.record(asked, func() answer {
		var err error
		permit, err = c.gov.Admit(ctx, r)
		a := c.told(err)
		if err == nil && r.ID.IsZero() {
			a.Permit = permit.ID().String()
		}
		return a
	})
	c.with(team, func(k *known) {
		if permit != nil {
			k.permits = append(k.permits, permit)
		}
		k.dead[key] = k.dead[key] || a.Said == saidUnauth
		k.hear(key, a.Counts)
	})
}

// hear remembers what was consumed, so that new limits lie close to it.
func (k *known) hear(key int, list []count) {
	for _, n := range list {
		k.heard[place(n.Of, key)][n.Kind] = n.Consumed + n.Uncertain
	}
}

// take removes a permit of this process's at random.
func (c *client) take(team string, remove bool) (p *governance.Permit) {
	c.with(team, func(k *known) {
		if len(k.permits) == 0 {
			return
		}
		i := c.rng.IntN(len(k.permits))
		if p = k.permits[i]; remove {
			k.permits[i] = k.permits[len(k.permits)-1]
			k.permits = k.permits[:len(k.permits)-1]
		}
	})
	return p
}

func (c *client) settle(ctx context.Context, team string) {
	p := c.take(team, true)
	if p == nil {
		return
	}
	bound := p.Bound()
	// Mostly less than the bound, at times more.
	used := request{Verb: verbSettle, Team: team, Permit: p.ID().String(), Tokens: c.rng.Int64N(int64(bound.Tokens) + 2), Cost: c.rng.Int64N(int64(bound.Cost) + 2)}
	o := governance.Used(amount.Tokens(used.Tokens), amount.MicroUSD(used.Cost))
	switch c.rng.IntN(8) {
	case 0, 1, 2:
		used.Unsent, used.Tokens, used.Cost = true, 0, 0
		o = governance.NotSent()
	case 3:
		used.BlurTokens, used.BlurCost = true, true
		o = governance.Observed(1, 1)
	case 4:
		used.BlurCost = true
		o.Cost = governance.Measure{}
	}
	c.record(used, func() answer { return c.told(p.Settle(ctx, o)) })
}

func (c *client) raise(ctx context.Context, team string) {
	p := c.take(team, false)
	if p == nil {
		return
	}
	to := p.Bound()
	to.Tokens += amount.Tokens(c.rng.Int64N(4))
	to.Cost += amount.MicroUSD(c.rng.Int64N(4))
	c.record(request{Verb: verbRaise, Team: team, Permit: p.ID().String(), Tokens: int64(to.Tokens), Cost: int64(to.Cost)}, func() answer {
		return c.told(p.Raise(ctx, to))
	})
}

// find decides about a permit that some process left uncertain, or has open.
func (c *client) find(ctx context.Context, team string) {
	var id string
	c.with(team, func(k *known) {
		if len(k.blurred) > 0 {
			id = k.blurred[c.rng.IntN(len(k.blurred))]
		}
	})
	if id == "" {
		c.holds(ctx, team)
		return
	}
	permit, err := governance.ParsePermitID(id)
	if err != nil {
		panic(err)
	}
	found := request{Verb: verbFind, Team: team, Permit: id, Tokens: c.rng.Int64N(3), Cost: c.rng.Int64N(3)}
	c.record(found, func() answer {
		_, err := c.gov.Resolve(ctx, governance.Evidence{ID: permit, Outcome: governance.Used(amount.Tokens(found.Tokens), amount.MicroUSD(found.Cost)), Actor: "operator", Reason: "found"})
		return c.told(err)
	})
}

func (c *client) usage(ctx context.Context, team string, key int) {
	p := c.principal(ctx, team, key)
	if p == nil {
		return
	}
	a := c.record(request{Verb: verbUsage, Team: team, Key: key}, func() answer {
		usage, err := c.gov.Usage(ctx, governance.UsageQuery{Principal: p})
		a := c.told(err)
		a.Counts = counts(usage.Verdicts, false)
		if err == nil && !limited(a.Counts, p) {
			c.scribe.write(line{Broken: "Usage does not list the principal's own limits"})
		}
		return a
	})
	c.with(team, func(k *known) { k.hear(key, a.Counts) })
}

// limited reports whether the counts are those of the principal's limits, each once.
func limited(list []count, p *keys.Principal) bool {
	want := [2]limits{limitsOf(p.Team.Limits), limitsOf(p.Key.Limits)}
	for _, n := range list {
		if want[n.Of][n.Kind] != n.Limit || n.Limit == none {
			return false
		}
		want[n.Of][n.Kind] = none
	}
	return want == [2]limits{{none, none, none}, {none, none, none}}
}

func (c *client) holds(ctx context.Context, team string) {
	a := c.record(request{Verb: verbHolds, Team: team}, func() answer {
		list, err := c.gov.Holds(ctx, governance.HoldQuery{Team: team, After: c.after, Limit: 1000})
		a := c.told(err)
		for _, h := range list {
			a.Holds = append(a.Holds, held{
				Permit: h.ID.String(), Open: h.State == governance.StateOpen,
				BlurTokens: h.Flags&governance.FlagTokensUncertain != 0, BlurCost: h.Flags&governance.FlagCostUncertain != 0,
				Tokens: int64(h.Bound.Tokens), Cost: int64(h.Bound.Cost),
			})
		}
		return a
	})
	if a.Said != saidOK {
		return
	}
	c.with(team, func(k *known) {
		k.blurred = k.blurred[:0]
		for _, h := range a.Holds {
			if !h.Open || c.rng.IntN(6) == 0 {
				k.blurred = append(k.blurred, h.Permit)
			}
		}
	})
}

// limits leave little beside what is used up already, or nothing: many admissions are near one.
func (c *client) limits(team string, of int) (l limits) {
	c.with(team, func(k *known) {
		for kind := range kinds {
			switch {
			case kind == places:
				l[kind] = c.rng.Int64N(12)
			default:
				l[kind] = max(0, k.heard[of][kind]+c.rng.Int64N(80)-8)
			}
			// A team's tokens are always limited: every admission passes that row.
			if (of > 0 || kind != tokens) && c.rng.IntN(4) == 0 {
				l[kind] = none
			}
		}
	})
	return l
}

// edit gives a team (0) or key other limits, and looks at what came of it for some key.
func (c *client) edit(ctx context.Context, team string, i, key int) {
	r := request{Verb: verbEditKey, Team: team, Key: i, Limits: c.limits(team, i)}
	if i == 0 {
		r.Verb = verbEditTeam
	}
	c.with(team, func(k *known) {
		r.IfRevision = max(1, k.revisions[i])
	})
	if c.rng.IntN(2) > 0 {
		c.change(ctx, r, i)
		c.probe(ctx, team, key)
		return
	}
	// Two administrators who want the same: the second finds it done, and in force when it is told so.
	twin := *c
	twin.n, twin.rng = c.n+50, rand.New(rand.NewPCG(c.rng.Uint64(), 0))
	var both sync.WaitGroup
	for _, c := range []*client{c, &twin} {
		both.Go(func() {
			c.change(ctx, r, i)
			c.probe(ctx, team, key)
		})
	}
	both.Wait()
}

// change makes the edit of a team (0) or key.
func (c *client) change(ctx context.Context, r request, i int) {
	team := r.Team
	a := c.record(r, func() answer {
		var l keys.Limits
		var revision int64
		var err error
		if i == 0 {
			var t keys.Team
			t, err = c.db.Keys.UpdateTeam(ctx, keys.UpdateTeam{ID: team, IfRevision: r.IfRevision, Limits: changeOf(r.Limits)})
			l, revision = t.Limits, t.Revision
		} else {
			var k keys.Key
			k, err = c.db.Keys.UpdateKey(ctx, keys.UpdateKey{ID: keyName(team, i), IfRevision: r.IfRevision, Limits: changeOf(r.Limits)})
			l, revision = k.Limits, k.Revision
		}
		return c.edited(err, l, revision)
	})
	c.with(team, func(k *known) {
		if a.Said == saidOK {
			k.revisions[i] = max(k.revisions[i], a.Revision)
		} else { // nobody knows: the next one asks
			k.principals[max(i, 1)] = nil
		}
	})
}

func (c *client) edited(err error, l keys.Limits, revision int64) answer {
	a := c.told(err)
	if err == nil {
		a.Revision, a.Limits = revision, limitsOf(l)
	}
	return a
}

func (c *client) revoke(ctx context.Context, team string, key int) {
	c.record(request{Verb: verbRevoke, Team: team, Key: key}, func() answer {
		k, err := c.db.Keys.RevokeKey(ctx, keys.RevokeKey{ID: keyName(team, key)})
		return c.edited(err, k.Limits, k.Revision)
	})
	// The process keeps its principal: a revoked key is to be refused by the store.
}

func (c *client) delete(ctx context.Context, team string) {
	c.record(request{Verb: verbDelete, Team: team}, func() answer {
		t, err := c.db.Keys.DeleteTeam(ctx, keys.DeleteTeam{ID: team})
		return c.edited(err, t.Limits, t.Revision)
	})
}

// create makes the team's next key, which all processes know the token of.
func (c *client) create(ctx context.Context, team string) {
	var key int
	c.with(team, func(k *known) { key = min(k.top+1, maxKeys) })
	r := request{Verb: verbCreate, Team: team, Key: key, Limits: c.limits(team, key)}
	a := c.record(r, func() answer {
		_, err := c.db.Keys.CreateKey(ctx, keys.CreateKey{ID: keyName(team, key), TeamID: team, Owner: "user", Limits: keyLimits(r.Limits), Token: tokenOf(team, key)})
		return c.told(err)
	})
	c.with(team, func(k *known) {
		if a.Said == saidOK || a.Said == saidExists {
			k.top, k.dead[key] = max(k.top, key), false
		}
	})
}
