package fleet_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// TestAStandbyThatLacksCommitsTakesOver: gateways that have seen what a standby lacks refuse to go by it and say what went back, of the
// leases and of the log. What an operator starts again takes the history as it is.
func TestAStandbyThatLacksCommitsTakesOver(t *testing.T) {
	primary := pgtest.Own(t)
	standby := pgtest.Standby(t, primary)
	f := newFleet(t, pgtest.EitherHost(t, primary, standby), "public")
	f.coordinate("")
	f.start(1)
	token := f.gateways[0].key("app", keys.Limits{})
	f.manager() // also where it is alone
	require.True(t, f.gateways[0].system().CoordinatesWithPeers)
	pgtest.Deafen(t, primary, standby)
	f.start(1)
	former, witness := f.gateways[0], f.gateways[1]
	former.stop()
	f.gateways = f.gateways[1:]
	require.Eventually(t, func() bool { // in a generation that the standby knows nothing of
		for _, l := range witness.system().Leases {
			if l.State != "holding" || l.Generation < 2 {
				return false
			}
		}
		return true
	}, patience, tick)
	witness.do(http.MethodPost, "suspensions", object{"key": "app", "session": "s-1", "reason": "goes in circles", "actor": "ann"}, nil)
	require.Equal(t, http.StatusOK, witness.call(t.Context(), token, says("before")).status)
	require.False(t, witness.system().History.Regressed)

	pgtest.TakeOver(t, primary, standby)
	require.Eventually(t, func() bool {
		h := witness.system().History
		return h.Regressed && h.Log && len(h.Leases) == 2
	}, patience, tick)
	s := witness.system()
	require.False(t, s.ManagesFleet)
	require.Contains(t, s.History.Why, "leases show less")
	require.Contains(t, s.Log.Error, "the log ends before what it has delivered")
	out, err := f.command("system", "-admin", witness.admin.Base, "-token", "env:ADMIN").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, `HISTORY +went back`, string(out))
	require.Equal(t, http.StatusServiceUnavailable, witness.call(t.Context(), token, says("after")).status, "it does not know what is suspended")

	f.start(1)
	next := f.gateways[1]
	require.False(t, next.system().History.Regressed)
	require.Equal(t, http.StatusOK, next.call(t.Context(), token, says("next")).status)
}
