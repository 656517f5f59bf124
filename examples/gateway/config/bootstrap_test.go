package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/keys"
)

// withBootstrap is a configuration that declares something. TOKEN is a token.
func withBootstrap(t *testing.T, bootstrap string) (*config.Config, keys.Token, error) {
	t.Helper()
	token, err := keys.Mint(nil)
	require.NoError(t, err)
	c, err := config.Parse([]byte(`
storage: {sqlite: a.db}
keys: {foreign: [sk-]}
upstreams:
  - {name: one, protocol: openai, base_url: "https://api.example.com", credential: env:KEY, models: [m]}
bootstrap:
`+bootstrap), t.TempDir(), func(name string) (string, bool) {
		v, ok := map[string]string{"KEY": "x", "TOKEN": token.Reveal(), "FOREIGN": "sk-0123456789abcdef", "SHORT": "sk-1", "MASTER": "secret-master"}[name]
		return v, ok
	})
	return c, token, err
}

func TestBootstrap(t *testing.T) {
	c, token, err := withBootstrap(t, `
  teams:
    - {id: acme, name: Acme, guardrail: g, limits: {tokens_per_day: 9223372036854775807, cost_per_month_microusd: 0}, metadata: {a: b}, default_max_tokens: 5}
  keys:
    - {id: ci, team_id: acme, owner: ann, allowed_models: [], allowed_regions: [eu], expires_at: "2099-01-01T00:00:00+01:00", limits: {concurrency: 1}, token: env:TOKEN}
    - {id: old, team_id: elsewhere, token: env:FOREIGN}
`)
	require.NoError(t, err)
	d := c.Bootstrap.Declarations().Declarations
	require.Len(t, d, 3)
	require.Equal(t, int64(1<<63-1), *d[0].Team.Limits.TokensPerDay)
	require.Zero(t, *d[0].Team.Limits.CostPerMonth)
	require.Nil(t, d[0].Team.AllowedModels, "what is absent allows everything")
	require.NotNil(t, d[1].Key.AllowedModels, "an empty list allows nothing")
	require.Empty(t, d[1].Key.AllowedModels)
	require.Equal(t, "2098-12-31T23:00:00Z", d[1].Key.ExpiresAt.UTC().Format("2006-01-02T15:04:05Z07:00"))
	require.Equal(t, token.Reveal(), d[1].Key.Token.Reveal())
	require.Equal(t, "sk-0123456789abcdef", d[2].Key.Token.Reveal())
}

func TestBootstrapFaults(t *testing.T) {
	for text, want := range map[string]string{
		"  keys: [{id: ci, team_id: acme, token: tly_inline}]":                                              "bootstrap.keys[0].token: a secret does not stand in this file",
		"  keys: [{id: ci, team_id: acme}]":                                                                 "bootstrap.keys[0].token: is missing",
		"  keys: [{id: ci, team_id: acme, token: env:SHORT}]":                                               "bootstrap.keys[0].token: what it refers to is no token",
		"  keys: [{id: ci, team_id: acme, token: env:MASTER}]":                                              "bootstrap.keys[0].token: what it refers to is no token",
		"  keys: [{team_id: acme, token: env:TOKEN}]":                                                       "bootstrap.keys[0].id: must not be empty",
		"  keys: [{id: ci, token: env:TOKEN}]":                                                              "bootstrap.keys[0].team_id: must not be empty",
		"  keys: [{id: ci, team_id: acme, token: env:TOKEN, expires_at: soon}]":                             "bootstrap.keys[0].expires_at: must be an RFC 3339 time",
		"  keys: [{id: a, team_id: t, token: env:TOKEN}, {id: b, team_id: t, token: env:TOKEN}]":            "bootstrap.keys[1].token: must not be another declaration's",
		"  teams: [{id: a}]\n  keys: [{id: a, team_id: a, token: env:TOKEN, limits: {tokens_per_day: -1}}]": "bootstrap.keys[0].limits.tokens_per_day: must not be negative",
		"  teams: [{id: a}, {id: a}]":                                                                       "bootstrap.teams[1].id: must not be declared twice",
		"  teams: [{id: a, colour: red}]":                                                                   "colour: unknown field",
		"  teams: [{id: a, limits: {tokens_per_day: 1.5}}]":                                                 "bootstrap.teams[0].limits.tokens_per_day: must be a whole number",
		"  teams: [{id: a, limits: {concurrency: 9223372036854775808}}]":                                    "bootstrap.teams[0].limits.concurrency: must be a whole number",
		"  teams: [{id: a, default_max_tokens: many}]":                                                      "bootstrap.teams[0].default_max_tokens: must be a whole number",
		"  teams: [{id: a, allowed_models: [x, x]}]":                                                        "bootstrap.teams[0].allowed_models: must not name an entry twice",
	} {
		_, token, err := withBootstrap(t, text)
		require.ErrorIs(t, err, config.ErrConfig, text)
		require.Contains(t, err.Error(), want, text)
		for _, secret := range []string{token.Reveal(), "secret-master", "inline"} {
			require.False(t, strings.Contains(err.Error(), secret), "%s shows a secret", text)
		}
		var field *config.FieldError
		var missing *config.SecretError
		require.True(t, errors.As(err, &field) || errors.As(err, &missing))
	}
}
