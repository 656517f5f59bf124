package prove

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// The rates of a team, in the places of limits and counts: what follows the clock has no place in the model.
const (
	requestRate = tokens
	tokenRate   = cost
)

// rates admits and keeps what it gets. The editor changes the team's rates in between.
func (c *client) rates(ctx context.Context) {
	team := c.order.Teams[0]
	for i := range c.order.Ops {
		if c.order.Editor && c.n == 0 && i%6 == 5 {
			c.editRates(ctx, team)
		}
		p := c.principal(ctx, team, 1)
		if p == nil {
			panic("nobody revokes this key")
		}
		asked := request{Verb: verbAdmit, Team: team, Key: 1, Tokens: 1 + c.rng.Int64N(9)}
		c.record(asked, func() answer {
			permit, err := c.gov.Admit(ctx, governance.Request{Principal: p, Model: "model", Bound: governance.Bound{Tokens: amount.Tokens(asked.Tokens)}})
			a := c.told(err)
			if err == nil {
				a.Permit = permit.ID().String()
			}
			return a
		})
	}
}

func (c *client) editRates(ctx context.Context, team string) {
	r := request{Verb: verbEditTeam, Team: team, Limits: limits{100 + c.rng.Int64N(300), 500 + c.rng.Int64N(1500), none}}
	c.record(r, func() answer {
		t, err := c.db.Keys.Team(ctx, team)
		if err == nil {
			t, err = c.db.Keys.UpdateTeam(ctx, keys.UpdateTeam{ID: team, IfRevision: t.Revision, Limits: keys.LimitsChange{
				RequestsPerMinute: keys.Set(keys.Limit(r.Limits[requestRate])), TokensPerMinute: keys.Set(keys.Limit(r.Limits[tokenRate])),
			}})
		}
		return c.edited(err, t.Limits, t.Revision)
	})
}

const minuteMicros = 60_000_000

// At no time, by the database's clock, is more admitted than the burst and what has drained under limits that can
// have been in force; and nobody is refused under a limit that cannot, or with room.
//
// Source: internal/docs/guarantees.md "Rates".
func TestRatesAcrossProcesses(t *testing.T) {
	f := muster(t, os.Args[0], 4, 3)
	o := f.order(1, 120)
	o.Rates = true
	team, first := o.Teams[0], limits{200, 1000, none}
	require.NoError(t, f.found(t.Context(), team, keys.Limits{RequestsPerMinute: keys.Limit(first[requestRate]), TokensPerMinute: keys.Limit(first[tokenRate])}, keys.Limits{}))
	f.command(t, o)
	edits := []*operation{{request: request{Limits: first}}}
	var admitted, refused []*operation
	for _, m := range f.members {
		require.NoError(t, m.await(t))
		for _, op := range m.seen.all() {
			switch {
			case op.Verb == verbEditTeam:
				require.Equal(t, saidOK, op.Said, op)
				edits = append(edits, op)
			case op.Verb == verbAdmit && op.Said == saidOK:
				admitted = append(admitted, op)
			case op.Said == saidRefused:
				refused = append(refused, op)
			}
		}
	}
	slices.SortFunc(edits, func(a, b *operation) int { return int(a.Call - b.Call) }) // one client's: one after another
	at := f.admissionTimes(t, team)
	require.Len(t, at, len(admitted), "what is held is what was received")
	slices.SortFunc(admitted, func(a, b *operation) int { return int(at[a.answer.Permit] - at[b.answer.Permit]) })
	t.Logf("%d admitted, %d refused, %d edits", len(admitted), len(refused), len(edits)-1)
	require.NotEmpty(t, refused)

	for _, kind := range []int{requestRate, tokenRate} {
		for j, last := range admitted {
			burst := slices.Max(possible(edits, last, kind))
			sum, drains := int64(0), burst
			for i := j; i >= 0; i-- {
				one := admitted[i]
				sum += one.amount(kind)
				drains = max(drains, slices.Max(possible(edits, one, kind)))
				passed := at[last.answer.Permit] - at[one.answer.Permit]
				if sum*minuteMicros > burst*minuteMicros+drains*passed {
					t.Fatalf("%d admitted in %d µs under at most %d with a burst of %d: %s .. %s", sum, passed, drains, burst, one, last)
				}
			}
		}
	}
	for _, op := range refused {
		for _, c := range op.Counts {
			if !slices.Contains(possible(edits, op, c.Kind), c.Limit) || c.Reserved+c.Need <= c.Limit {
				t.Fatalf("refused without a reason: %s", op)
			}
		}
	}
}

func (o *operation) amount(kind int) int64 {
	if kind == requestRate {
		return 1
	}
	return o.request.Tokens
}

// possible lists the limits that may have been in force for an operation: an edit is once it has returned, and may be once
// it has begun.
func possible(edits []*operation, o *operation, kind int) (list []int64) {
	for i, e := range edits {
		if e.Call <= o.Return && (i+1 == len(edits) || edits[i+1].Return >= o.Call) {
			list = append(list, e.request.Limits[kind])
		}
	}
	return list
}

// admissionTimes reads when each permit was admitted, by the store's clock.
func (f *fleet) admissionTimes(t *testing.T, team string) map[string]int64 {
	t.Helper()
	gov, err := governance.New(f.store, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, gov.Close(t.Context())) }()
	at := map[string]int64{}
	for q := (governance.HoldQuery{Team: team, Limit: 1000}); ; {
		page, err := gov.Holds(t.Context(), q)
		require.NoError(t, err)
		for _, h := range page {
			at[h.ID.String()], q.After = h.At, h.ID
		}
		if len(page) < q.Limit {
			return at
		}
	}
}
