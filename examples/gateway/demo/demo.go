// Package demo sends a few hundred requests through a whole gateway at once: real
// HTTP on loopback, an SQLite file in a temporary folder, a provider that needs no
// account. It counts what came of them by asking the books.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/examples/gateway/server"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/keys"
)

const document = `
profile: local
listen: 127.0.0.1:0
storage: {sqlite: gateway.db}
upstreams:
  - name: openai
    protocol: openai
    base_url: http://%[1]s
    credential: env:PROVIDER
    models: [demo-small, demo-large, demo-free, demo-embedding]
  - name: anthropic
    protocol: anthropic
    base_url: http://%[1]s
    credential: env:PROVIDER
    models: [claude-sonnet-4-5]
  - name: gone
    protocol: openai
    base_url: http://%[2]s
    credential: env:PROVIDER
    models: [gpt-4o-mini]
`

// credential is what only the gateway presents to the provider.
const credential = "sk-of-the-gateway-alone" //nolint:gosec // it opens nothing but the demo

// Run runs the demo. The result says whether the books balance.
func Run(ctx context.Context) (result *Result, err error) {
	began := time.Now()
	folder, err := os.MkdirTemp("", "tallystick-demo-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	upstream, err := startProvider(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, upstream.Close()) }()
	c, err := configure(ctx, folder, upstream.address)
	if err != nil {
		return nil, err
	}
	seen := &ledger{refused: map[string]*Refusal{}, teams: map[string]*Team{}}
	s, err := server.Open(ctx, c, &server.Options{Logger: slog.New(slog.DiscardHandler), Observe: seen.observe})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	tokens, err := people(ctx, s.Storage.Keys)
	if err != nil {
		return nil, err
	}

	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- s.Serve(serving) }()
	sent, sendErr := send(ctx, "http://"+s.Address(), tokens)
	stop()
	// Draining waits until every attempt is settled.
	if err := errors.Join(sendErr, <-served); err != nil {
		return nil, err
	}
	result = &Result{Profile: c.Profile, Store: "sqlite", Requests: sent}
	if err := result.read(ctx, s, seen); err != nil {
		return nil, err
	}
	result.Elapsed = time.Since(began)
	return result, nil
}

func configure(ctx context.Context, folder, upstream string) (*config.Config, error) {
	gone, err := unusedAddress(ctx)
	if err != nil {
		return nil, err
	}
	env := func(name string) (string, bool) { return credential, name == "PROVIDER" }
	return config.Parse(fmt.Appendf(nil, document, upstream, gone), filepath.Clean(folder), env)
}

// unusedAddress is one where nobody listens.
func unusedAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

type running struct {
	*http.Server
	address string
}

func startProvider(ctx context.Context) (*running, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &http.Server{
		Handler:           provider.New(&provider.Options{Credential: credential}),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	go func() { _ = s.Serve(l) }() // ends when it is closed
	return &running{s, l.Addr().String()}, nil
}

// people makes two teams and their keys, and returns the tokens by the keys' ids.
func people(ctx context.Context, store keys.Store) (map[string]string, error) {
	teams := []keys.CreateTeam{
		{ID: "harbour", Name: "Harbour", Limits: keys.Limits{
			RequestsPerMinute: keys.Limit(6000), TokensPerMinute: keys.Limit(2_000_000),
			CostPerDay: keys.Cost(5_000_000), CostPerMonth: keys.Cost(50_000_000),
		}},
		{ID: "lantern", Name: "Lantern", Limits: keys.Limits{
			RequestsPerMinute: keys.Limit(600), TokensPerDay: keys.Limit(100_000),
			CostPerDay: keys.Cost(20_000), CostPerMonth: keys.Cost(1_000_000),
		}},
	}
	for _, team := range teams {
		if _, err := store.CreateTeam(ctx, team); err != nil {
			return nil, err
		}
	}
	tokens := map[string]string{}
	for _, key := range []keys.CreateKey{
		{ID: "harbour-app", TeamID: "harbour", Owner: "ada"},
		{ID: "harbour-batch", TeamID: "harbour", Owner: "ada", Limits: keys.Limits{Concurrency: keys.Limit(4)}},
		{ID: "harbour-intern", TeamID: "harbour", Owner: "ben", AllowedModels: []string{"demo-small"},
			Limits: keys.Limits{RequestsPerMinute: keys.Limit(20)}},
		{ID: "lantern-app", TeamID: "lantern", Owner: "cleo"},
		{ID: "lantern-old", TeamID: "lantern", Owner: "cleo"},
	} {
		created, err := store.CreateKey(ctx, key)
		if err != nil {
			return nil, err
		}
		tokens[key.ID] = created.Token.Reveal()
	}
	_, err := store.RevokeKey(ctx, keys.RevokeKey{ID: "lantern-old"})
	return tokens, err
}

// ledger remembers what the gateway said of requests that it refused: a refusal
// leaves no trace in the books.
type ledger struct {
	mu      sync.Mutex
	refused map[string]*Refusal
	teams   map[string]*Team
}

func (l *ledger) observe(a httpgov.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	team := l.teams[a.Team]
	if team == nil {
		team = &Team{}
		l.teams[a.Team] = team
	}
	if a.Refusal == nil {
		team.Admitted++
		return
	}
	team.Refused++
	r := l.refused[a.Reason]
	if r == nil {
		r = &Refusal{Reason: a.Reason, Status: a.Status}
		l.refused[a.Reason] = r
	}
	r.Count++
	var refusal *governance.Refusal
	if errors.As(a.Refusal, &refusal) && refusal.Retryable {
		r.RetryAfter = max(r.RetryAfter, refusal.RetryAfter)
	}
}
