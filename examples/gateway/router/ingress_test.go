package router_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

const uncertain = governance.FlagTokensUncertain | governance.FlagCostUncertain

var roomy = keys.Limits{CostPerDay: keys.Cost(100_000_000), TokensPerDay: keys.Limit(100_000_000)}

// Every way in, whatever becomes of the request, and what the books say of it.
func TestEveryIngressSettles(t *testing.T) {
	for _, s := range storages {
		t.Run(s.name, func(t *testing.T) {
			g := newGateway(t, s, 10*time.Second)
			for i, in := range ingresses {
				c := &attempt{gateway: g, ingress: in, id: fmt.Sprint("app-", i)}
				t.Run(in.name, func(t *testing.T) { c.run(t) })
			}
			g.permits()
			g.balanced()
		})
	}
}

// attempt is one ingress under trial, with a fresh key for every case.
type attempt struct {
	*gateway
	ingress
	id    string
	cases int
	seen  map[governance.PermitID]bool
}

// case makes a key and a client of it.
func (a *attempt) fresh(t *testing.T, limits keys.Limits, retry bool) (token string, c *client) {
	a.gateway.T = t
	a.cases++
	token = a.key(fmt.Sprint(a.id, "-", a.cases), limits)
	return token, a.clientOf(token, retry)
}

// record returns the one permit that is new, once it has ended.
func (a *attempt) record(t *testing.T) governance.Record {
	t.Helper()
	rec := a.unseen(t, a.permits())
	a.seen[rec.ID] = true
	return rec
}

// unseen returns the one permit of the list that is new. Ids do not say which: those of
// one millisecond are in no order.
func (a *attempt) unseen(t *testing.T, list []governance.Record) governance.Record {
	t.Helper()
	var found []governance.Record
	for _, rec := range list {
		if !a.seen[rec.ID] {
			found = append(found, rec)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

func (a *attempt) run(t *testing.T) {
	outer := a.gateway.T
	defer func() { a.gateway.T = outer }()
	a.seen = map[governance.PermitID]bool{}
	for _, rec := range a.permits() {
		a.seen[rec.ID] = true
	}
	t.Run("complete", func(t *testing.T) {
		token, c := a.fresh(t, roomy, false)
		told, err := a.ask(t.Context(), c, directive("tokens=20"), 100)
		require.NoError(t, err)
		if a.texts {
			require.Equal(t, int64(20), told.out)
		}
		a.known(t, token, told)
	})
	t.Run("partial", func(t *testing.T) {
		if !a.texts {
			return // nothing cuts an embedding short
		}
		token, c := a.fresh(t, roomy, false)
		told, err := a.ask(t.Context(), c, directive("tokens=40"), 3)
		require.NoError(t, err)
		require.Equal(t, int64(3), told.out)
		a.known(t, token, told)
	})
	t.Run("usage missing", func(t *testing.T) {
		token, c := a.fresh(t, roomy, false)
		told, err := a.ask(t.Context(), c, directive("usage=none"), 100)
		require.NoError(t, err)
		require.Equal(t, said{}, told)
		a.unknown(t, token)
	})
	t.Run("cut", func(t *testing.T) {
		token, c := a.fresh(t, roomy, false)
		at := "cut=20"
		if a.stream {
			at = "cut=3"
		}
		_, err := a.ask(t.Context(), c, directive(at), 100)
		require.Error(t, err)
		a.unknown(t, token)
	})
	t.Run("cancelled", func(t *testing.T) {
		token, c := a.fresh(t, roomy, false)
		hold := fmt.Sprint(a.id, "-hold")
		a.leave(t, c, directive("tokens=20", "hold="+hold))
		defer a.provider.Release(hold)
		list, err := a.stores.Store.Permits(t.Context(), governance.PermitQuery{Limit: 1000})
		require.NoError(t, err)
		require.Equal(t, governance.StateOpen, a.unseen(t, list).State, "the provider is read on")
		a.provider.Release(hold)
		rec := a.record(t)
		require.Equal(t, governance.StateSettled, rec.State)
		require.Zero(t, rec.Flags, "what it used is known, though nobody waited for it")
		money, tokens := a.books(token)
		require.Equal(t, books{consumed: rec.Outcome.Cost.Value}, money)
		require.Equal(t, books{consumed: rec.Outcome.Tokens.Value}, tokens)
		require.Positive(t, money.consumed)
	})
	t.Run("refused", func(t *testing.T) { a.refused(t) })
	t.Run("failed", func(t *testing.T) {
		for status, flags := range map[string]governance.Flags{"400": 0, "429": 0, "500": uncertain, "503": uncertain} {
			token, c := a.fresh(t, roomy, false)
			_, err := a.ask(t.Context(), c, directive("error="+status), 100)
			got, _ := statusOf(err)
			require.Equal(t, status, fmt.Sprint(got))
			if flags == 0 {
				a.known(t, token, said{})
			} else {
				a.unknown(t, token)
			}
		}
	})
	drain(a.arrived)
}

func drain[T any](c <-chan T) {
	for len(c) > 0 {
		<-c
	}
}

// known checks that exactly what the client was told is in the books.
func (a *attempt) known(t *testing.T, token string, told said) {
	t.Helper()
	rec := a.record(t)
	cost := a.in(told.in) + told.out*a.out
	require.Equal(t, governance.StateSettled, rec.State)
	require.Zero(t, rec.Flags)
	require.Equal(t, governance.Used(amount.Tokens(told.in+told.out), amount.MicroUSD(cost)), rec.Outcome)
	require.GreaterOrEqual(t, rec.Tokens, told.in+told.out, "within the bound")
	require.GreaterOrEqual(t, rec.Cost, cost)
	money, tokens := a.books(token)
	require.Equal(t, books{consumed: cost}, money)
	require.Equal(t, books{consumed: told.in + told.out}, tokens)
}

// unknown checks that the whole bound is held, and what was seen is kept apart.
func (a *attempt) unknown(t *testing.T, token string) {
	t.Helper()
	rec := a.record(t)
	require.Equal(t, governance.StateSettled, rec.State)
	require.Equal(t, uncertain, rec.Flags)
	require.Positive(t, rec.Cost)
	for _, m := range []governance.Measure{rec.Outcome.Tokens, rec.Outcome.Cost} {
		require.Equal(t, governance.Uncertain, m.Certainty)
	}
	require.LessOrEqual(t, rec.Outcome.Tokens.Value, rec.Tokens)
	money, tokens := a.books(token)
	require.Equal(t, books{uncertain: rec.Cost}, money)
	require.Equal(t, books{uncertain: rec.Tokens}, tokens)
}

// leave sends a request and leaves once the provider has it.
func (a *attempt) leave(t *testing.T, c *client, prompt string) {
	t.Helper()
	drain(a.arrived)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := a.ask(ctx, c, prompt, 100)
		ended <- err
	}()
	<-a.arrived
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// refused asks for what no budget covers, with the SDK's own retries on.
func (a *attempt) refused(t *testing.T) {
	drain(a.arrived)
	check := func(token string, c *client, codes ...string) {
		t.Helper()
		before, beforeTokens := a.books(token)
		_, err := a.ask(t.Context(), c, "hello", 100)
		_, code := statusOf(err)
		require.Contains(t, codes, code, "%v", err)
		require.Equal(t, int64(1), c.sent.Load(), "the SDK does not repeat what cannot succeed")
		money, tokens := a.books(token)
		require.Equal(t, before, money)
		require.Equal(t, beforeTokens, tokens)
		a.nothingArrived()
	}
	token, c := a.fresh(t, keys.Limits{CostPerDay: keys.Cost(1)}, true)
	check(token, c, "never_fits", "rate_limit_error", "ServiceQuotaExceededException")

	token, c = a.fresh(t, keys.Limits{CostPerDay: keys.Cost(10_000)}, true)
	permit, err := a.governor.Admit(t.Context(), governance.Request{Principal: a.principal(token), Bound: governance.Bound{Tokens: 1, Cost: 10_000}})
	require.NoError(t, err)
	require.NoError(t, permit.Settle(t.Context(), governance.Used(1, 10_000)))
	a.record(t)
	check(token, c, "money", "billing_error", "ServiceQuotaExceededException")

	token, c = a.fresh(t, roomy, true)
	_, err = a.stores.Keys.RevokeKey(t.Context(), keys.RevokeKey{ID: strings.TrimPrefix(a.principal(token).TeamID, "team-")})
	require.NoError(t, err)
	_, err = a.ask(t.Context(), c, "hello", 100)
	status, _ := statusOf(err)
	require.Equal(t, 401, status)
	require.Equal(t, int64(1), c.sent.Load())
	a.nothingArrived()
}

// A provider that goes on for too long after its client left is cut. Nobody knows what
// it used: the bound is held.
func TestEveryIngressCutsAProviderThatNobodyWaitsFor(t *testing.T) {
	for _, s := range storages {
		t.Run(s.name, func(t *testing.T) {
			g := newGateway(t, s, 20*time.Millisecond)
			for i, in := range ingresses {
				t.Run(in.name, func(t *testing.T) {
					outer := g.T
					defer func() { g.T = outer }()
					a := &attempt{gateway: g, ingress: in, id: fmt.Sprint("app-", i), seen: map[governance.PermitID]bool{}}
					for _, rec := range g.permits() {
						a.seen[rec.ID] = true
					}
					token, c := a.fresh(t, roomy, false)
					a.leave(t, c, directive("hold=never"))
					a.unknown(t, token)
				})
			}
			g.balanced()
		})
	}
}
