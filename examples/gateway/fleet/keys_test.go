package fleet_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// everywhere calls every gateway at the same time.
func (f *fleet) everywhere(token, prompt string) []answer {
	f.Helper()
	answers := make([]answer, len(f.gateways))
	var wait sync.WaitGroup
	for i, g := range f.gateways {
		wait.Go(func() { answers[i] = g.call(f.Context(), token, prompt) })
	}
	wait.Wait()
	return answers
}

// TestOneKeyForAll: what one gateway was told of a key holds at all of them for the
// very next call, although each remembers whom it has seen.
func TestOneKeyForAll(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.start(4)
	status := func(token, prompt string, want int, code string) {
		t.Helper()
		for i, a := range f.everywhere(token, prompt) {
			require.Equal(t, fmt.Sprint(want, code), fmt.Sprint(a.status, a.code), "gateway %d", i)
		}
	}
	for round := range 4 {
		by := f.gateways[round]
		id := fmt.Sprintf("key-%d", round)
		token := by.key(id, keys.Limits{CostPerDay: keys.Cost(1_000_000)})
		status(token, says(id), http.StatusOK, "")
		by.do(http.MethodPatch, "keys/"+id, object{"if_revision": 1, "allowed_models": []string{"demo-large"}}, nil)
		status(token, says(id), http.StatusForbidden, "model")
		by.do(http.MethodPatch, "keys/"+id, object{"if_revision": 2, "allowed_models": []string{"demo-small"}}, nil)
		status(token, says(id), http.StatusOK, "")
		by.do(http.MethodPatch, "teams/team-"+id, object{"if_revision": 1, "limits": object{"cost_per_day_microusd": 1}}, nil)
		for i, a := range f.everywhere(token, says(id)) {
			require.Contains(t, []int{http.StatusPaymentRequired, http.StatusTooManyRequests}, a.status, "gateway %d", i)
		}
		by.do(http.MethodPost, "keys/"+id+"/revoke", nil, nil)
		status(token, says(id), http.StatusUnauthorized, "revoked_api_key")
		for _, path := range []string{"/v1/usage", "/v1/models"} {
			for _, g := range f.gateways {
				code, _ := g.get(path, token)
				require.Equal(t, http.StatusUnauthorized, code, path)
			}
		}
	}
	f.settled()
	f.balanced()
}

// TestRevokedUnderLoad: while callers call through every gateway, no call that begins
// after a revocation returned gets to the provider.
func TestRevokedUnderLoad(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.start(2)
	for round := range 5 {
		id := fmt.Sprintf("key-%d", round)
		token := f.gateways[0].key(id, keys.Limits{})
		type seen struct {
			began  time.Time
			status int
		}
		var mu sync.Mutex
		var all []seen
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		for i := range 8 {
			g := f.gateways[i%len(f.gateways)]
			wait.Go(func() {
				for ctx.Err() == nil {
					s := seen{began: time.Now()}
					s.status = g.call(t.Context(), token, says(id)).status
					mu.Lock()
					all = append(all, s)
					mu.Unlock()
				}
			})
		}
		count := func(status int) (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range all {
				if s.status == status {
					n++
				}
			}
			return n
		}
		require.Eventually(t, func() bool { return count(http.StatusOK) >= 30 }, patience, tick)
		f.gateways[round%2].do(http.MethodPost, "keys/"+id+"/revoke", nil, nil)
		returned := time.Now()
		require.Eventually(t, func() bool { return count(http.StatusUnauthorized) >= 30 }, patience, tick)
		stop()
		wait.Wait()
		for _, s := range all {
			require.Contains(t, []int{http.StatusOK, http.StatusUnauthorized}, s.status)
			if s.began.After(returned) {
				require.Equal(t, http.StatusUnauthorized, s.status)
			}
		}
	}
	f.settled()
	f.balanced()
}

// TestReplicasDeclareAlike: gateways that start at once bring in the same declarations
// once; one that declares the same id otherwise does not start.
func TestReplicasDeclareAlike(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	token, err := keys.Mint(nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.path("token"), []byte(token.Reveal()), 0o600))
	plain, err := os.ReadFile(f.path("gateway.yaml"))
	require.NoError(t, err)
	declare := func(model string) {
		f.write(string(plain) + fmt.Sprintf(`
bootstrap:
  teams: [{id: acme, limits: {cost_per_day_microusd: 1000000}}]
  keys: [{id: ci, team_id: acme, allowed_models: [%s], token: "file:token"}]
`, model))
	}
	declare("demo-small")
	f.start(3)
	for _, a := range f.everywhere(token.Reveal(), says("declared")) {
		require.Equal(t, http.StatusOK, a.status)
	}
	declare("demo-large")
	out, err := f.command("serve", "-config", f.path("gateway.yaml")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "key ci (allowed_models): was declared differently before")
	for _, a := range f.everywhere(token.Reveal(), says("declared")) {
		require.Equal(t, http.StatusOK, a.status)
	}
}
