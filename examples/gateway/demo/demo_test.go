package demo_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tallystick-go/tallystick/examples/gateway/demo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r, err := demo.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, r.Differences)
	require.Zero(t, r.Open)
	var refused int64
	for _, refusal := range r.Refused {
		refused += refusal.Count
	}
	require.Equal(t, r.Requests, r.Admitted+refused, "every request was either admitted or refused")
	require.Equal(t, r.Admitted, r.Settled+r.Cancelled+r.Uncertain)
	require.Equal(t, int64(5), r.Cancelled)
	require.Equal(t, int64(15), r.Uncertain)
	var consumed int64
	for _, team := range r.Teams {
		require.LessOrEqual(t, team.Consumed+team.Uncertain+team.Reserved, team.Limit)
		consumed += team.Consumed
	}
	require.Equal(t, r.Consumed, consumed, "what permits cost is what accounts say")

	var out bytes.Buffer
	require.NoError(t, r.WriteJSON(&out))
	var document map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &document))
	var names []string
	for name := range document {
		names = append(names, name)
	}
	require.ElementsMatch(t, []string{
		"profile", "store", "requests", "admitted", "settled", "cancelled", "uncertain", "refused",
		"consumed_microusd", "verify_differences",
	}, names)
	for _, reason := range []string{"money", "rate", "model", "concurrency", "never_fits", "revoked_api_key"} {
		require.Contains(t, document["refused"], reason)
	}
	out.Reset()
	require.NoError(t, r.WriteText(&out))
	require.Contains(t, out.String(), "The books balance")

	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left, "nothing stays behind")
}
