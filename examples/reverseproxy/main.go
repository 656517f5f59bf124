// Command reverseproxy is an ordinary httputil.ReverseProxy that is governed by
// about thirty more lines: who calls, how fast, and for how much money, exactly,
// with everything in one SQLite file.
//
//	OPENAI_API_KEY=... go run ./examples/reverseproxy -upstream https://api.openai.com
//
// The first start makes a team with a small budget and prints its key once.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"time"

	_ "modernc.org/sqlite" // the driver; any that database/sql has will do

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/keys"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to listen on")
	upstream := flag.String("upstream", "https://api.openai.com", "the provider")
	file := flag.String("db", "tallystick.db", "the SQLite file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *upstream, *file, os.Getenv("OPENAI_API_KEY")); err != nil {
		fmt.Fprintln(os.Stderr, "reverseproxy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, upstream, file, providerKey string) error {
	target, err := url.Parse(upstream)
	if err != nil {
		return fmt.Errorf("-upstream: %w", err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}

	// From here on: what governs it.
	handle, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)")
	if err != nil {
		return err
	}
	defer func() { _ = handle.Close() }()
	st := governancesqlite.Open(handle, nil)
	defer func() { _ = st.Close() }()
	if err := st.Migrate(ctx); err != nil {
		return err
	}
	gov, err := governance.New(st, nil)
	if err != nil {
		return err
	}
	prices, err := pricing.Bundled()
	if err != nil {
		return err
	}
	transport := &httpgov.Transport{Governor: gov, Prices: prices, Credentials: func(r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+providerKey)
		return nil
	}}
	proxy.Transport = transport
	handler := httpgov.Middleware(proxy, st.Keys, nil)
	if err := firstKey(ctx, st.Keys); err != nil {
		return err
	}
	// That was all.

	server := &http.Server{Addr: listen, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(grace)
	}()
	fmt.Fprintf(os.Stderr, "listening on http://%s for %s\n", listen, upstream)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(transport.Shutdown(grace), gov.Close(grace))
}

// firstKey makes a team and a key when there are none yet.
func firstKey(ctx context.Context, store keys.Store) error {
	team, err := store.CreateTeam(ctx, keys.CreateTeam{ID: "first", Name: "first", Limits: keys.Limits{
		RequestsPerMinute: keys.Limit(60), CostPerMonth: keys.Cost(10 * amount.MicroUSD(1_000_000)),
	}})
	if errors.Is(err, keys.ErrExists) {
		return nil
	}
	if err != nil {
		return err
	}
	created, err := store.CreateKey(ctx, keys.CreateKey{TeamID: team.ID, Name: "first", Owner: "first"})
	if err != nil {
		return err
	}
	fmt.Printf("team %q may spend %s a month; its key, shown once: %s\n", team.ID, *team.Limits.CostPerMonth, created.Token.Reveal())
	return nil
}
