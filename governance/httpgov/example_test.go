package httpgov_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/keys"
)

// An ordinary reverse proxy becomes a governed one: a Middleware before it, a
// Transport behind it.
func Example() {
	ctx := context.Background()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("the provider sees", r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":200,"completion_tokens":50,"total_tokens":250}}`)
	}))
	defer provider.Close()

	db, err := governancemem.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	gov, err := governance.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer gov.Close(ctx)
	prices, _, err := pricing.ParseLiteLLM(strings.NewReader(`{"demo": {"litellm_provider": "openai", "mode": "chat",
		"max_input_tokens": 8000, "max_output_tokens": 1000, "input_cost_per_token": 0.000001, "output_cost_per_token": 0.000004}}`), nil)
	if err != nil {
		log.Fatal(err)
	}

	upstream, err := url.Parse(provider.URL)
	if err != nil {
		log.Fatal(err)
	}
	transport := &httpgov.Transport{
		Governor: gov, Prices: prices,
		Credentials: func(r *http.Request) error { r.Header.Set("Authorization", "Bearer provider-key"); return nil },
	}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.Transport = transport
	gateway := httptest.NewServer(httpgov.Middleware(proxy, db.Keys, nil))
	defer gateway.Close()

	// A team with a thousandth of a dollar a day, and a key of it.
	if _, err := db.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "acme", Limits: keys.Limits{CostPerDay: keys.Cost(1000)}}); err != nil {
		log.Fatal(err)
	}
	key, err := db.Keys.CreateKey(ctx, keys.CreateKey{TeamID: "acme", Owner: "ada"})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway.URL+"/v1/chat/completions",
			strings.NewReader(`{"model":"demo","max_tokens":150,"messages":[{"role":"user","content":"Hello"}]}`))
		if err != nil {
			log.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key.Token.Reveal())
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		fmt.Printf("the client sees %s, x-should-retry %q\n", resp.Status, resp.Header.Get("X-Should-Retry"))
	}
	http.DefaultClient.CloseIdleConnections()
	transport.CloseIdleConnections()
	if err := transport.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	principal, err := db.Keys.Resolve(ctx, key.Token.Reveal())
	if err != nil {
		log.Fatal(err)
	}
	usage, err := gov.Usage(ctx, governance.UsageQuery{Principal: &principal})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("consumed", usage.Verdicts[0].Consumed, "of", usage.Verdicts[0].Limit, "microUSD")
	// Output:
	// the provider sees Bearer provider-key
	// the client sees 200 OK, x-should-retry ""
	// the client sees 402 Payment Required, x-should-retry "false"
	// consumed 400 of 1000 microUSD
}

// A fallback above the Transport moves on when a provider fails, and takes our own
// refusal for what it is: the answer.
func ExampleRefusalFrom() {
	fallback := func(next http.RoundTripper, attempts []*http.Request) (*http.Response, error) {
		var resp *http.Response
		var err error
		for _, r := range attempts {
			if resp != nil {
				_ = resp.Body.Close()
			}
			resp, err = next.RoundTrip(r)
			if err != nil {
				continue
			}
			if refused, ok := httpgov.RefusalFrom(resp); ok {
				fmt.Println("refused:", refused)
				return resp, nil
			}
			if resp.StatusCode < 500 {
				return resp, nil
			}
		}
		return resp, err
	}

	db, err := governancemem.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	gov, err := governance.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer gov.Close(context.Background())
	transport := &httpgov.Transport{Governor: gov, Credentials: func(*http.Request) error { return nil }}
	r := httptest.NewRequest(http.MethodPost, "http://provider.invalid/v1/chat/completions", nil)
	resp, err := fallback(transport, []*http.Request{r, r})
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output:
	// refused: httpgov: no principal: the request did not pass the Middleware
	// 401 Unauthorized
}
