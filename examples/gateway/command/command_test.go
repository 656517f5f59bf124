package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/examples/gateway/storage"
	"github.com/tallystick-go/tallystick/keys"
)

// newFile makes an empty database.
func newFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.db")
	f, err := storage.Open(t.Context(), path, storage.Options{Serve: true})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return path
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"help"}, {"-h"}, {"--help"}} {
		status, out, errs := run(t, args...)
		require.Zero(t, status)
		require.Empty(t, errs)
		for _, name := range []string{"demo", "serve", "provider", "teams", "keys", "holds", "verify", "prune", "-sqlite"} {
			require.Contains(t, out, name)
		}
	}
	status, _, errs := run(t, "keys", "create", "-h")
	require.Zero(t, status)
	require.Contains(t, errs, "-cost-per-day")
}

func TestMisused(t *testing.T) {
	file := newFile(t)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no such command":      {[]string{"frobnicate"}, "no command"},
		"no such operation":    {[]string{"keys", "delete"}, "keys knows"},
		"no operation":         {[]string{"keys"}, "keys what?"},
		"unknown flag":         {[]string{"teams", "list", "-colour", "-sqlite", file}, "colour"},
		"nowhere":              {[]string{"teams", "list"}, "say where"},
		"two places":           {[]string{"teams", "list", "-sqlite", file, "-admin", "http://127.0.0.1:1"}, "say where"},
		"operand missing":      {[]string{"keys", "show", "-sqlite", file}, "usage"},
		"operand too many":     {[]string{"teams", "list", "x", "-sqlite", file}, "usage"},
		"serve without config": {[]string{"serve"}, "-config"},
		"negative limit":       {[]string{"teams", "create", "-rpm", "-5", "-sqlite", file}, "not negative"},
		"overflowing limit":    {[]string{"teams", "create", "-rpm", "9223372036854775808", "-sqlite", file}, "whole number"},
		"dollars for requests": {[]string{"teams", "create", "-rpm", "$5", "-sqlite", file}, "whole number"},
		"too exact":            {[]string{"teams", "create", "-cost-per-day", "$0.0000001", "-sqlite", file}, "six decimals"},
		"no amount":            {[]string{"teams", "create", "-cost-per-day", "$-1", "-sqlite", file}, "amount"},
		"huge amount":          {[]string{"teams", "create", "-cost-per-day", "$99999999999999", "-sqlite", file}, "amount"},
		"half a resolution":    {[]string{"holds", "resolve", "x", "-tokens", "5", "-sqlite", file}, "-not-sent"},
		"both resolutions":     {[]string{"holds", "resolve", "x", "-not-sent", "-tokens", "5", "-cost", "5", "-sqlite", file}, "-not-sent"},
		"import from nowhere":  {[]string{"keys", "import", "-sqlite", file}, "-from must be"},
		"import of nothing":    {[]string{"keys", "import", "-from", "litellm", "-sqlite", file}, "-keys FILE"},
		"import into nothing":  {[]string{"keys", "import", "-from", "litellm", "-keys", "x"}, "say where to"},
		"a fleet in a file":    {[]string{"fleet", "list", "-sqlite", file}, "not defined: -sqlite"},
		"a fleet nowhere":      {[]string{"fleet", "list"}, "exactly one of -config FILE and -admin URL"},
		"import into two":      {[]string{"keys", "import", "-from", "sqlite", "-source", "x", "-sqlite", file, "-postgres", "env:X"}, "say where to"},
		"dry run of a store":   {[]string{"keys", "import", "-from", "sqlite", "-source", "x", "-dry-run"}, "as it is"},
		"journal of nowhere":   {[]string{"journal", "readmit", "-heard", "3", "-actor", "a", "-reason", "r"}, "say which file"},
		"nobody starts anew":   {[]string{"journal", "start-anew", "-sqlite", file}, "-actor"},
		"readmitted after?":    {[]string{"journal", "readmit", "-sqlite", file, "-actor", "a", "-reason", "r"}, "-heard"},
		"half a second":        {[]string{"keys", "rotate", "x", "-grace", "500ms", "-sqlite", file}, "whole seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errs := run(t, c.args...)
			require.Equal(t, 2, status, errs)
			require.Empty(t, out)
			require.Contains(t, errs, c.says)
		})
	}
}

func TestFailed(t *testing.T) {
	file := newFile(t)
	folder := t.TempDir()
	bad := filepath.Join(folder, "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("upstream: []\n"), 0o600))
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"config that is gone":     {[]string{"serve", "-config", filepath.Join(folder, "gone.yaml")}, "no such file"},
		"unknown field":           {[]string{"serve", "-config", bad}, "upstream: unknown field"},
		"database that is gone":   {[]string{"verify", "-sqlite", filepath.Join(folder, "gone.db")}, "cannot be used"},
		"nobody listens":          {[]string{"verify", "-admin", "http://127.0.0.1:1", "-token", "env:ADMIN"}, "no answer"},
		"inline token":            {[]string{"verify", "-admin", "http://127.0.0.1:1", "-token", "hunter2"}, "env:NAME or file:/path"},
		"unknown team":            {[]string{"keys", "create", "-team", "none", "-sqlite", file}, "not_found"},
		"unknown key":             {[]string{"keys", "show", "none", "-sqlite", file}, "not_found"},
		"bad id":                  {[]string{"teams", "create", "-id", "a b", "-sqlite", file}, "id"},
		"no journal":              {[]string{"journal", "status", "-sqlite", file}, "only gateways of the profile node"},
		"update without revision": {[]string{"teams", "update", "none", "-name", "x", "-sqlite", file}, "if_revision"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errs := run(t, c.args...)
			require.Equal(t, 1, status, errs)
			require.Empty(t, out)
			require.Contains(t, errs, c.says)
			require.NotContains(t, errs, "hunter2")
		})
	}
}

// The whole life of a team and its keys, on the file.
func TestOnTheFile(t *testing.T) {
	over := []string{"-sqlite", newFile(t)}
	do := func(args ...string) string {
		t.Helper()
		status, out, errs := run(t, append(args, over...)...)
		require.Zero(t, status, errs)
		require.Contains(t, errs, "directly on the file", "it says what it works on")
		return out
	}
	out := do("teams", "create", "-id", "acme", "-name", "Acme", "-rpm", "60", "-cost-per-day", "$12.50", "-model", "demo-small", "-model", "demo,large")
	require.Contains(t, out, "$12.500000/day")
	team := operate[keys.Team](t, append([]string{"teams", "show", "acme"}, over...)...)
	require.Equal(t, int64(12_500_000), int64(*team.Limits.CostPerDay))
	require.Equal(t, []string{"demo-small", "demo,large"}, team.AllowedModels, "a comma is a part of a name")

	do("teams", "update", "acme", "-if-revision", "1", "-rpm", "none", "-model", "")
	team = operate[keys.Team](t, append([]string{"teams", "show", "acme"}, over...)...)
	require.Nil(t, team.Limits.RequestsPerMinute)
	require.NotNil(t, team.AllowedModels)
	require.Empty(t, team.AllowedModels)
	require.Equal(t, int64(2), team.Revision)

	out = do("keys", "create", "-team", "acme", "-id", "app", "-owner", "ada", "-concurrency", "0", "-expires", "2099-01-01T00:00:00Z")
	require.Contains(t, out, "token: tly_")
	require.Contains(t, out, "0 at once")
	rotated := operate[admin.NewKey](t, append([]string{"keys", "rotate", "app", "-rotation-id", "r1", "-if-revision", "1", "-grace", "1m"}, over...)...)
	require.NotEmpty(t, rotated.Token)
	do("keys", "update", "app", "-if-revision", "2", "-expires", "none", "-default-max-tokens", "100")
	key := operate[keys.Key](t, append([]string{"keys", "show", "app"}, over...)...)
	require.Nil(t, key.ExpiresAt)
	require.Equal(t, int64(100), *key.DefaultMaxTokens)
	require.Contains(t, do("keys", "usage", "app"), "cost_per_day")
	require.Contains(t, do("keys", "list", "-team", "acme", "-limit", "1"), "ada")
	do("keys", "revoke", "app", "-if-revision", "3")
	require.Contains(t, do("keys", "list"), "revoked")
	do("teams", "delete", "acme", "-if-revision", "2")
	require.Contains(t, do("teams", "list"), "deleted")
	require.Contains(t, do("holds", "list"), "PERMIT")
	require.Contains(t, do("holds", "frozen"), "CONSTRAINT")
	require.Contains(t, do("verify"), "the books balance")
	require.Contains(t, do("verify", "-full"), "the books balance")
	require.Contains(t, do("prune", "-older-than", "720h", "-actor", "ops", "-reason", "kept for long enough"), "HORIZON")
	require.Contains(t, do("prune", "-before", "2020-01-31", "-actor", "ops", "-reason", "kept for long enough"), "REMOVED")
	require.True(t, operate[report.Verification](t, append([]string{"verify"}, over...)...).Balanced)
}

func TestServeChecks(t *testing.T) {
	p := newPlace(t)
	t.Setenv("ADMIN", "a")
	t.Setenv("KEY", "b")
	status, out, errs := run(t, "serve", "-check", "-config", p.path("gateway.yaml"))
	require.Zero(t, status, errs)
	require.Contains(t, out, "can be used")
	_, err := os.Stat(p.path("gateway.db"))
	require.ErrorIs(t, err, os.ErrNotExist, "a check makes nothing")
}

func TestDemo(t *testing.T) {
	status, out, errs := run(t, "demo", "-json")
	require.Zero(t, status, errs)
	d := json.NewDecoder(strings.NewReader(out))
	var document struct {
		Requests    int64 `json:"requests"`
		Differences int64 `json:"verify_differences"`
	}
	require.NoError(t, d.Decode(&document))
	require.False(t, d.More(), "exactly one object")
	require.Greater(t, document.Requests, int64(200))
	require.Zero(t, document.Differences)
	status, out, errs = run(t, "demo")
	require.Zero(t, status, errs)
	require.Contains(t, out, "The books balance")
}
