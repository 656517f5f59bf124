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
	handler, end, err := govern(ctx, proxy, file, providerKey)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	drained := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		drained <- errors.Join(server.Shutdown(grace), end(grace))
	}()
	fmt.Fprintf(os.Stderr, "listening on http://%s for %s\n", listen, upstream)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained
}

// govern is all that the proxy gains: it says who calls, reserves before every
// attempt, and settles by what came back. end records what is still under way.
func govern(ctx context.Context, proxy *httputil.ReverseProxy, file, providerKey string) (handler http.Handler, end func(context.Context) error, err error) {
	handle, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, nil, err
	}
	st := governancesqlite.Open(handle, nil)
	if err := st.Migrate(ctx); err != nil {
		return nil, nil, err
	}
	gov, err := governance.New(st, nil)
	if err != nil {
		return nil, nil, err
	}
	prices, err := pricing.Bundled()
	if err != nil {
		return nil, nil, err
	}
	transport := &httpgov.Transport{Governor: gov, Prices: prices, Credentials: func(r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+providerKey)
		return nil
	}}
	proxy.Transport = transport
	end = func(ctx context.Context) error {
		return errors.Join(transport.Shutdown(ctx), gov.Close(ctx), st.Close(), handle.Close())
	}
	return httpgov.Middleware(proxy, st.Keys, nil), end, firstKey(ctx, st.Keys)
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
