package config

import (
	"errors"
	"fmt"
	"math"
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
	DefaultMaxTokens Whole             `yaml:"default_max_tokens"`
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
	DefaultMaxTokens Whole             `yaml:"default_max_tokens"`
	ExpiresAt        string            `yaml:"expires_at"`
	Token            Secret            `yaml:"token"`
}

// Limits are those of a team or key; what is absent is unlimited.
type Limits struct {
	RequestsPerMinute Whole `yaml:"requests_per_minute"`
	TokensPerMinute   Whole `yaml:"tokens_per_minute"`
	TokensPerDay      Whole `yaml:"tokens_per_day"`
	Concurrency       Whole `yaml:"concurrency"`
	CostPerDay        Whole `yaml:"cost_per_day_microusd"`
	CostPerMonth      Whole `yaml:"cost_per_month_microusd"`
}

// Whole is a whole number, or absent. The YAML library would cut a fraction off.
type Whole struct {
	n   *int64
	bad bool
}

// UnmarshalYAML reads a number. What is none is refused by the check, with its path.
func (w *Whole) UnmarshalYAML(decode func(any) error) error {
	var v any
	if err := decode(&v); err != nil {
		return err
	}
	*w = Whole{}
	switch v := v.(type) {
	case nil:
	case int64:
		w.n = &v
	case uint64:
		n := int64(v & math.MaxInt64)
		w.n, w.bad = &n, v > math.MaxInt64
	default:
		w.bad = true
	}
	return nil
}

func (k *checker) whole(path string, w Whole) *int64 {
	if w.bad {
		k.fault(path, "must be a whole number that fits 64 bits")
	}
	return w.n
}

func (k *checker) limits(path string, l Limits) keys.Limits {
	return keys.Limits{
		RequestsPerMinute: k.whole(path+".requests_per_minute", l.RequestsPerMinute),
		TokensPerMinute:   k.whole(path+".tokens_per_minute", l.TokensPerMinute),
		TokensPerDay:      k.whole(path+".tokens_per_day", l.TokensPerDay),
		Concurrency:       k.whole(path+".concurrency", l.Concurrency),
		CostPerDay:        (*amount.MicroUSD)(k.whole(path+".cost_per_day_microusd", l.CostPerDay)),
		CostPerMonth:      (*amount.MicroUSD)(k.whole(path+".cost_per_month_microusd", l.CostPerMonth)),
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
		path := fmt.Sprintf("bootstrap.teams[%d]", i)
		declare(path, keys.Declaration{Team: &keys.CreateTeam{
			ID: t.ID, Name: t.Name, Limits: k.limits(path+".limits", t.Limits), AllowedModels: t.AllowedModels, AllowedRegions: t.AllowedRegions,
			Guardrail: t.Guardrail, Metadata: t.Metadata, DefaultMaxTokens: k.whole(path+".default_max_tokens", t.DefaultMaxTokens),
		}})
	}
	for i := range b.Keys {
		key := &b.Keys[i]
		path := fmt.Sprintf("bootstrap.keys[%d]", i)
		out := &keys.CreateKey{
			ID: key.ID, TeamID: key.TeamID, Owner: key.Owner, Name: key.Name, Limits: k.limits(path+".limits", key.Limits), AllowedModels: key.AllowedModels,
			AllowedRegions: key.AllowedRegions, Metadata: key.Metadata, DefaultMaxTokens: k.whole(path+".default_max_tokens", key.DefaultMaxTokens),
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
