package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/storage"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keysimport"
	"github.com/tallystick-go/tallystick/quota"
)

// dump is an export that the library is tested with.
func dump(name string) string { return filepath.Join("../../../keys/keysimport/testdata", name) }

func litellm(more ...string) []string {
	return append([]string{
		"keys", "import", "-from", "litellm", "-keys", dump("litellm-1.81/keys.jsonl"), "-teams", dump("litellm-1.81/teams.jsonl"),
		"-budgets", dump("litellm-1.81/budgets.jsonl"), "-deleted", dump("litellm-1.81/deleted.jsonl"),
	}, more...)
}

func TestKeysMint(t *testing.T) {
	status, out, errs := run(t, "keys", "mint")
	require.Zero(t, status, errs)
	_, err := keys.Parse(strings.TrimSpace(out))
	require.NoError(t, err)
}

func TestKeysImportSaysWhatItWouldDo(t *testing.T) {
	status, out, errs := run(t, litellm("-dry-run", "-json")...)
	require.Zero(t, status, errs)
	var report keysimport.Report
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(out, `"effect"`, `"-"`)), &report))
	require.Equal(t, 20, report.Carried.Keys)
	require.Nil(t, report.Imported)

	file := newFile(t)
	status, out, errs = run(t, litellm("-sqlite", file)...)
	require.Equal(t, 1, status, "some keys would be allowed more")
	require.Contains(t, out, "wider")
	require.Contains(t, errs, "-allow-wider")
	require.Empty(t, operate[keys.TeamPage](t, "teams", "list", "-sqlite", file).Teams, "nothing was imported")
}

// TestKeysImportFromLiteLLM lets a client of the other system call a gateway in a
// process of its own, before and after which the import is repeated.
func TestKeysImportFromLiteLLM(t *testing.T) {
	p := newPlace(t)
	p.append("keys: {foreign: [sk-]}\n")
	p.serve().stop()
	status, out, errs := run(t, litellm("-allow-wider", "-sqlite", p.path("gateway.db"))...)
	require.Zero(t, status, errs)
	require.Contains(t, out, "added: 5 teams, 20 keys")

	c := p.serve()
	for name, want := range map[string]int{"teamless": 429, "weekly": 403, "revoked": 401, "expired": 401, "deleted": 401, "shared": 403, "nobody": 401} {
		client := c.openai("sk-" + name + "-0123456789abcdef")
		_, err := client.Chat.Completions.New(t.Context(), chat("hello"))
		require.ErrorContains(t, err, fmt.Sprint(want), name)
	}
	status, out, errs = run(t, litellm("-allow-wider", "-sqlite", p.path("gateway.db"))...)
	require.Zero(t, status, errs)
	require.Contains(t, out, "added: 0 teams, 0 keys, 0 secrets, 0 declarations")
	require.Contains(t, errs, "foreign: [sk-]", "with -sqlite the gateway's prefixes are not known")
}

func TestKeysImportFromNewAPI(t *testing.T) {
	file := newFile(t)
	args := []string{"keys", "import", "-from", "new-api", "-tokens", dump("newapi-0.10/tokens.jsonl"), "-users", dump("newapi-0.10/users.jsonl"), "-allow-wider", "-sqlite", file}
	status, out, errs := run(t, args...)
	require.Zero(t, status, errs)
	require.Contains(t, out, "added: 3 teams, 14 keys")
	key := operate[keys.Key](t, "keys", "show", "newapi-2", "-sqlite", file)
	require.EqualValues(t, 2_500_000, *key.Limits.CostPerMonth)

	operate[keys.Key](t, "keys", "update", "newapi-2", "-if-revision", "1", "-cost-per-month", "$1", "-sqlite", file)
	status, _, errs = run(t, args...)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "key newapi-2 (cost_per_month_microusd, revision, updated_us)", "a later edit is not undone")
}

func TestKeysImportFromSQLiteIntoPostgres(t *testing.T) {
	db := pgtest.New(t)
	p := newPlace(t)
	dsn := p.path("dsn")
	require.NoError(t, os.WriteFile(dsn, []byte(db.DSN), 0o600))
	args := []string{"keys", "import", "-from", "sqlite", "-source", p.path("gateway.db"), "-postgres", "file:" + dsn, "-schema", db.Schema}

	c := p.serve()
	operate[keys.Team](t, append([]string{"teams", "create", "-id", "acme", "-cost-per-day", "$1"}, c.over()...)...)
	made := operate[struct{ Token string }](t, append([]string{"keys", "create", "-id", "one", "-team", "acme"}, c.over()...)...)
	operate[any](t, append([]string{"keys", "create", "-id", "two", "-team", "acme"}, c.over()...)...)
	operate[keys.Key](t, append([]string{"keys", "revoke", "two"}, c.over()...)...)
	client := c.openai(made.Token)
	_, err := client.Chat.Completions.New(t.Context(), chat("hello"))
	require.NoError(t, err)

	status, _, errs := run(t, args...)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "another gateway serves this file")
	c.stop()
	status, _, errs = run(t, args...)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "windows that are still open", "a day's budget would begin anew")
	status, out, errs := run(t, append(args, "-fresh-counters")...)
	require.Zero(t, status, errs)
	require.Contains(t, out, "added: 1 teams, 2 keys, 2 secrets")
	status, out, errs = run(t, append(args, "-fresh-counters")...)
	require.Zero(t, status, errs)
	require.Contains(t, out, "added: 0 teams, 0 keys")

	st, err := governancepg.Open(db.Pool, &governancepg.Options{Schema: db.Schema})
	require.NoError(t, err)
	who, err := st.Keys.Resolve(t.Context(), made.Token)
	require.NoError(t, err)
	require.Equal(t, "one", who.KeyID)
	two, err := st.Keys.Key(t.Context(), "two")
	require.NoError(t, err)
	require.NotNil(t, two.RevokedAt)

	require.NoError(t, os.WriteFile(dsn, []byte("postgres://user:hunter2@[::1"), 0o600))
	status, _, errs = run(t, args...)
	require.Equal(t, 1, status)
	require.NotContains(t, errs, "hunter2")
}

// Whatever still counts keeps a file from being left behind; rates alone do not.
func TestNoOpenCounterIsLeftBehind(t *testing.T) {
	day := policy.Rule{Name: "day", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{LimitMilliUSD: 1000, Calendar: quota.Calendar{Period: quota.Day}}}
	impossible := governance.Outcome{Cost: governance.Measure{Certainty: governance.Impossible}}
	const open, counted = "permits are open", "windows that are still open"
	for name, c := range map[string]struct {
		limits  keys.Limits
		policy  bool
		bound   governance.Bound
		outcome *governance.Outcome
		says    string
	}{
		"nothing is limited, and it is open": {bound: governance.Bound{Tokens: 1}, says: open},
		"tokens of a day":                    {limits: keys.Limits{TokensPerDay: keys.Limit(9)}, bound: governance.Bound{Tokens: 1}, outcome: of(governance.Used(1, 0)), says: counted},
		"money of a day":                     {limits: keys.Limits{CostPerDay: keys.Cost(9)}, bound: governance.Bound{Cost: 1}, outcome: of(governance.Used(0, 1)), says: counted},
		"money of a month":                   {limits: keys.Limits{CostPerMonth: keys.Cost(9)}, bound: governance.Bound{Cost: 1}, outcome: of(governance.Used(0, 1)), says: counted},
		"what is not known":                  {limits: keys.Limits{CostPerMonth: keys.Cost(9)}, bound: governance.Bound{Cost: 1}, outcome: of(governance.Unknown()), says: counted},
		"a meter of a policy":                {policy: true, bound: governance.Bound{Cost: 1}, outcome: of(governance.Used(0, 1)), says: counted},
		"frozen, and nothing else":           {limits: keys.Limits{CostPerMonth: keys.Cost(9)}, outcome: &impossible, says: counted},
		"rates": {
			limits: keys.Limits{RequestsPerMinute: keys.Limit(9), TokensPerMinute: keys.Limit(9), Concurrency: keys.Limit(9)},
			bound:  governance.Bound{Tokens: 1}, outcome: of(governance.Used(1, 0)),
		},
		"what was not sent": {limits: keys.Limits{CostPerDay: keys.Cost(9)}, bound: governance.Bound{Cost: 1}, outcome: of(governance.NotSent())},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, folder := t.Context(), t.TempDir()
			path := func(name string) string { return filepath.Join(folder, name) }
			from, err := storage.Open(ctx, path("from.db"), storage.Options{Serve: true})
			require.NoError(t, err)
			_, err = from.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "acme", Limits: c.limits})
			require.NoError(t, err)
			made, err := from.Keys.CreateKey(ctx, keys.CreateKey{TeamID: "acme"})
			require.NoError(t, err)
			if c.policy {
				policies := from.Backend().Policies
				now, err := policies.Load(ctx)
				require.NoError(t, err)
				_, err = policies.Replace(ctx, policy.Replace{Documents: []policy.Document{{Name: "p", Subject: policy.Subject{Team: "acme"}, Rules: []policy.Rule{day}}}, Expect: now.Generation})
				require.NoError(t, err)
			}
			who, err := from.Keys.Resolve(ctx, made.Token.Reveal())
			require.NoError(t, err)
			governor, err := governance.New(from, nil)
			require.NoError(t, err)
			permit, err := governor.Admit(ctx, governance.Request{Principal: &who, Bound: c.bound})
			require.NoError(t, err)
			if c.outcome != nil {
				require.NoError(t, permit.Settle(ctx, *c.outcome))
			}
			require.NoError(t, governor.Close(ctx))
			require.NoError(t, from.Close())
			status, out, errs := run(t, "keys", "import", "-from", "sqlite", "-source", path("from.db"), "-sqlite", newFile(t))
			if c.says != "" {
				require.Equal(t, 1, status)
				require.Contains(t, errs, c.says)
				return
			}
			require.Zero(t, status, errs)
			require.Contains(t, out, "added: 1 teams, 1 keys")
		})
	}
}

func of[T any](v T) *T { return &v }

// TestBootstrap starts a gateway whose configuration declares a team and a key.
func TestBootstrap(t *testing.T) {
	p := newPlace(t)
	declare := func(model string) {
		p.append(fmt.Sprintf(`
bootstrap:
  teams:
    - {id: acme, name: Acme, limits: {cost_per_day_microusd: 1000000}}
  keys:
    - {id: ci, team_id: acme, owner: ann, allowed_models: [%s], token: "file:token"}
`, model))
	}
	plain := p.document()
	declare("demo-small")
	token, err := keys.Mint(nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(p.path("token"), []byte(token.Reveal()), 0o600))

	call := func(c *child) error {
		client := c.openai(token.Reveal())
		_, err := client.Chat.Completions.New(t.Context(), chat("hello"))
		return err
	}
	c := p.serve()
	require.NoError(t, call(c))
	operate[keys.Team](t, append([]string{"teams", "update", "acme", "-if-revision", "1", "-name", "Edited"}, c.over()...)...)
	c.stop()
	c = p.serve()
	require.NoError(t, call(c))
	require.Equal(t, "Edited", operate[keys.Team](t, append([]string{"teams", "show", "acme"}, c.over()...)...).Name, "an edit outlives a restart")
	operate[keys.Key](t, append([]string{"keys", "revoke", "ci"}, c.over()...)...)
	c.stop()
	c = p.serve()
	require.ErrorContains(t, call(c), "401", "a declared key stays revoked")
	c.stop()

	p.write(plain)
	declare("demo-large")
	refused := exec.Command(os.Args[0], "serve", "-config", p.path("gateway.yaml"))
	refused.Env = append(os.Environ(), asChild+"=1", "ADMIN=admin-secret", "KEY=sk-provider")
	out, err := refused.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 1, refused.ProcessState.ExitCode())
	require.Contains(t, string(out), "key ci (allowed_models): was declared differently before")
	require.NotContains(t, string(out), token.Reveal())

	file, err := storage.Open(t.Context(), p.path("gateway.db"), storage.Options{Alone: true})
	require.NoError(t, err, "a refused start leaves nothing locked")
	key, err := file.Keys.Key(t.Context(), "ci")
	require.NoError(t, err)
	require.Equal(t, []string{"demo-small"}, key.AllowedModels, "and changes nothing")
	require.NoError(t, file.Close())
}
