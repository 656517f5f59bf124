package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// Bootstrap declares teams and keys that are there from the first start on. What
// administrators change of them later stays; another declaration under the same id
// keeps the gateway from starting.
type Bootstrap struct {
	Teams []Team `yaml:"teams"`
	Keys  []Key  `yaml:"keys"`

	prepared keys.Bootstrap
}

// Team is a declared team. The names are those of the admin API.
type Team struct {
	ID               string            `yaml:"id"`
	Name             string            `yaml:"name"`
	Limits           Limits            `yaml:"limits"`
	AllowedModels    []string          `yaml:"allowed_models"`
	AllowedRegions   []string          `yaml:"allowed_regions"`
	Guardrail        string            `yaml:"guardrail"`
	Metadata         map[string]string `yaml:"metadata"`
	DefaultMaxTokens *int64            `yaml:"default_max_tokens"`
}

// Key is a declared key. Its token is a reference, as every secret.
type Key struct {
	ID               string            `yaml:"id"`
	TeamID           string            `yaml:"team_id"`
	Owner            string            `yaml:"owner"`
	Name             string            `yaml:"name"`
	Limits           Limits            `yaml:"limits"`
	AllowedModels    []string          `yaml:"allowed_models"`
	AllowedRegions   []string          `yaml:"allowed_regions"`
	Metadata         map[string]string `yaml:"metadata"`
	DefaultMaxTokens *int64            `yaml:"default_max_tokens"`
	ExpiresAt        string            `yaml:"expires_at"`
	Token            Secret            `yaml:"token"`
}

// Limits are those of a team or key; what is absent is unlimited.
type Limits struct {
	RequestsPerMinute *int64 `yaml:"requests_per_minute"`
	TokensPerMinute   *int64 `yaml:"tokens_per_minute"`
	TokensPerDay      *int64 `yaml:"tokens_per_day"`
	Concurrency       *int64 `yaml:"concurrency"`
	CostPerDay        *int64 `yaml:"cost_per_day_microusd"`
	CostPerMonth      *int64 `yaml:"cost_per_month_microusd"`
}

func (l Limits) core() keys.Limits {
	return keys.Limits{
		RequestsPerMinute: l.RequestsPerMinute, TokensPerMinute: l.TokensPerMinute, TokensPerDay: l.TokensPerDay, Concurrency: l.Concurrency,
		CostPerDay: (*amount.MicroUSD)(l.CostPerDay), CostPerMonth: (*amount.MicroUSD)(l.CostPerMonth),
	}
}

// Declarations are what a key store brings in at a start.
func (b Bootstrap) Declarations() keys.Bootstrap { return b.prepared }

// checkBootstrap reads the declared tokens and checks everything that can be
// checked without a store. An operator's tool needs none of it.
func (c *Config) checkBootstrap(k *checker) {
	if k.blind {
		return
	}
	b := &c.Bootstrap
	var paths []string
	faults := len(k.faults)
	declare := func(path string, d keys.Declaration) {
		paths = append(paths, path)
		b.prepared.Declarations = append(b.prepared.Declarations, d)
	}
	for i, t := range b.Teams {
		declare(fmt.Sprintf("bootstrap.teams[%d]", i), keys.Declaration{Team: &keys.CreateTeam{
			ID: t.ID, Name: t.Name, Limits: t.Limits.core(), AllowedModels: t.AllowedModels, AllowedRegions: t.AllowedRegions,
			Guardrail: t.Guardrail, Metadata: t.Metadata, DefaultMaxTokens: t.DefaultMaxTokens,
		}})
	}
	for i := range b.Keys {
		key := &b.Keys[i]
		path := fmt.Sprintf("bootstrap.keys[%d]", i)
		out := &keys.CreateKey{
			ID: key.ID, TeamID: key.TeamID, Owner: key.Owner, Name: key.Name, Limits: key.Limits.core(), AllowedModels: key.AllowedModels,
			AllowedRegions: key.AllowedRegions, Metadata: key.Metadata, DefaultMaxTokens: key.DefaultMaxTokens,
		}
		if key.ExpiresAt != "" {
			at, err := time.Parse(time.RFC3339, key.ExpiresAt)
			if err != nil {
				k.fault(path+".expires_at", "must be an RFC 3339 time, such as 2030-01-31T12:00:00Z")
			}
			out.ExpiresAt = &at
		}
		k.secret(path+".token", &key.Token)
		if plain := key.Token.Reveal(); plain != "" {
			token, err := c.Keys.Format().Parse(plain)
			if err != nil {
				k.fault(path+".token", "what it refers to is no token that this gateway accepts: `gateway keys mint` makes one")
			}
			out.Token = token
		}
		declare(path, keys.Declaration{Key: out})
	}
	if len(k.faults) > faults {
		return
	}
	_, err := b.prepared.Prepare(c.Keys.Format())
	var field *keys.FieldError
	if !errors.As(err, &field) {
		return
	}
	at, name, place := "bootstrap", field.Field, 0
	if n, _ := fmt.Sscanf(name, "declarations[%d]", &place); n == 1 && place < len(paths) {
		_, name, _ = strings.Cut(name, "]")
		at += strings.TrimPrefix(paths[place], "bootstrap") + name
	}
	k.fault(at, "%s", field.Why)
}
