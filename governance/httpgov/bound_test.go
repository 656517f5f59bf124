package httpgov_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/pricing"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// Of the test models.
const (
	window  = 5000
	longest = 400
)

// with puts members in front of a request.
func with(body, members string) string { return strings.Replace(body, "{", "{"+members+",", 1) }

// text is the bound of a body that is nothing but text.
func text(body string, messages, tools int) int64 {
	return pricing.InputBound([]byte(body), messages, tools)
}

func TestBounds(t *testing.T) {
	bare := `{"model":"gpt-test","messages":[{"role":"user","content":"hello"}]}`
	bareMessage := `{"model":"claude-test","messages":[{"role":"user","content":"hello"}]}`
	part := func(p string) string {
		return `{"model":"gpt-test","max_tokens":100,"messages":[{"role":"user","content":[{"type":"text","text":"hi"},` + p + `]}]}`
	}
	block := func(p string) string {
		return `{"model":"claude-test","max_tokens":100,"messages":[{"role":"user","content":[{"type":"text","text":"hi"},` + p + `]}]}`
	}
	cases := map[string]struct {
		path, body string
		in, out    int64 // in 0: the text's length
		messages   int
		tools      int
	}{
		"maximum":                      {body: chatBody, out: 100},
		"newer maximum":                {body: with(bare, `"max_completion_tokens":50`), out: 50},
		"two maxima":                   {body: with(bare, `"max_completion_tokens":50,"max_tokens":60`), out: 60},
		"two maxima, the larger first": {body: with(bare, `"max_tokens":60,"max_completion_tokens":50`), out: 60},
		"above the model's own":        {body: with(bare, `"max_tokens":4000`), out: 4000},
		"none: the model's own":        {body: bare, out: longest},
		"null: the model's own":        {body: with(bare, `"max_tokens":null,"n":null`), out: longest},
		"several answers":              {body: with(chatBody, `"n":3`), out: 300},
		"prediction":                   {body: with(chatBody, `"prediction":{"type":"content","content":"abc"}`), out: 100 + int64(len(`{"type":"content","content":"abc"}`))},
		"two messages": {
			body: `{"model":"gpt-test","max_tokens":100,"messages":[{"role":"system","content":"x"},{"role":"user","content":null}]}`,
			out:  100, messages: 2,
		},
		"functions and tools": {
			body: with(chatBody, `"tools":[{"type":"function","function":{"name":"a","parameters":{}}},{"type":"custom","custom":{}}],"functions":[{}]`),
			out:  100, tools: 3,
		},
		"text in parts": {body: part(`{"type":"text","text":"x"},{"type":"refusal","refusal":"x"}`), out: 100},
		"tool calls": {
			body: `{"model":"gpt-test","max_tokens":100,"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"a","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]}`,
			out:  100, messages: 2,
		},
		"image":           {body: part(`{"type":"image_url","image_url":{"url":"https://x"}}`), in: window, out: 100},
		"audio":           {body: part(`{"type":"input_audio","input_audio":{}}`), in: window, out: 100},
		"file":            {body: part(`{"type":"file","file":{"file_id":"x"}}`), in: window, out: 100},
		"part of no type": {body: part(`{"text":"x"}`), in: window, out: 100},
		"stored audio":    {body: `{"model":"gpt-test","max_tokens":100,"messages":[{"role":"assistant","audio":{"id":"x"}}]}`, in: window, out: 100},
		"unknown in a message": {
			body: `{"model":"gpt-test","max_tokens":100,"messages":[{"role":"user","content":"x","attachment":"y"}]}`, in: window, out: 100,
		},
		"anthropic maximum":     {path: messagesPath, body: messageBody, out: 100},
		"anthropic without one": {path: messagesPath, body: bareMessage, out: longest},
		"system":                {path: messagesPath, body: with(messageBody, `"system":[{"type":"text","text":"x"}]`), out: 100, messages: 2},
		"tool use and result": {path: messagesPath, out: 100, tools: 1, body: with(block(`{"type":"tool_use","id":"1","name":"a","input":{}},{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"x"}]}`),
			`"tools":[{"name":"a","input_schema":{}}]`)},
		"image in a result": {path: messagesPath, in: window, out: 100, body: block(`{"type":"tool_result","tool_use_id":"1","content":[{"type":"image","source":{}}]}`)},
		"anthropic image":   {path: messagesPath, in: window, out: 100, body: block(`{"type":"image","source":{"type":"base64","data":"AA=="}}`)},
		"document":          {path: messagesPath, in: window, out: 100, body: block(`{"type":"document","source":{"type":"url","url":"https://x"}}`)},
		"thinking":          {path: messagesPath, in: window, out: 100, body: block(`{"type":"thinking","thinking":"short","signature":"x"}`)},
		"client's own tool": {path: messagesPath, in: window, out: 100, body: with(messageBody, `"tools":[{"type":"bash_20250124","name":"bash"}]`)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.path == "" {
				c.path = chatPath
			}
			g := open(t, says(200, "application/json", chatReply), setup{})
			got := g.post(c.path, c.body)
			if got.StatusCode != 200 {
				t.Fatalf("answered %d: %s", got.StatusCode, got.body)
			}
			in := c.in
			if in == 0 {
				in = text(c.body, max(c.messages, 1), c.tools)
			}
			a := g.attempt()
			is(t, "tokens", int64(a.Bound.Tokens), in+c.out)
			price := int64(2)
			if c.path == messagesPath {
				price = 4 // the dearest that an input token can be: written to a cache for an hour
			}
			is(t, "cost", int64(a.Bound.Cost), in*price+c.out*10)
		})
	}
}

func TestEmbeddingBounds(t *testing.T) {
	long := `"` + strings.Repeat("x", 3000) + `"`
	for name, c := range map[string]struct {
		input  string
		tokens int64
	}{
		"one text":                   {`"abc"`, 5 + 16},
		"several":                    {`["abc","de"]`, 5 + 16 + 4 + 16},
		"tokens":                     {`[1,22,333]`, 10 + 16},
		"several of tokens":          {`[[1],[22]]`, 3 + 16 + 4 + 16},
		"each cut off at the window": {`[` + long + `,` + long + `,"abc"]`, 1000 + 1000 + 5 + 16},
		"not text":                   {`[{"image":"x"},"abc"]`, 2000},
		"nothing":                    {`[]`, int64(len(`{"model":"embed-test","input":[]}`)) + 64},
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, says(200, "application/json", `{"data":[],"usage":{"prompt_tokens":5,"total_tokens":5}}`), setup{})
			is(t, "status", g.post(embedPath, `{"model":"embed-test","input":`+c.input+`}`).StatusCode, 200)
			is(t, "tokens", int64(g.attempt().Bound.Tokens), c.tokens)
		})
	}
}

// A default maximum is put into the request, so that it binds the provider too.
func TestDefaultMaxTokens(t *testing.T) {
	bare := `{"model":"gpt-test","messages":[]}`
	for name, c := range map[string]struct {
		path, body string
		team, key  int64
		selection  httpgov.Selection
		out        int64
		field      string
		want       any
	}{
		"of the team":               {chatPath, bare, 70, 0, httpgov.Selection{}, 70, "max_completion_tokens", 70.0},
		"of the key":                {chatPath, bare, 70, 30, httpgov.Selection{}, 30, "max_completion_tokens", 30.0},
		"in place of null":          {chatPath, with(bare, `"max_completion_tokens": null`), 70, 0, httpgov.Selection{}, 70, "max_completion_tokens", 70.0},
		"by another name":           {chatPath, bare, 70, 0, httpgov.Selection{OutputField: "max_tokens"}, 70, "max_tokens", 70.0},
		"not above the model's own": {chatPath, bare, 7000, 0, httpgov.Selection{}, longest, "max_completion_tokens", float64(longest)},
		"not where one is named":    {chatPath, with(bare, `"max_tokens":90`), 70, 0, httpgov.Selection{}, 90, "max_completion_tokens", nil},
		"not beside a prediction":   {chatPath, with(bare, `"prediction":1`), 70, 0, httpgov.Selection{}, longest + 1, "max_completion_tokens", nil},
		"anthropic":                 {messagesPath, `{"model":"claude-test","messages":[]}`, 70, 0, httpgov.Selection{}, 70, "max_tokens", 70.0},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", chatReply)
			s := setup{team: keys.CreateTeam{DefaultMaxTokens: &c.team}, transport: &httpgov.Transport{}}
			s.transport.Select = selectAs(c.selection)
			g := open(t, upstream, s)
			if c.key > 0 {
				g.token = g.key(keys.CreateKey{DefaultMaxTokens: &c.key})
			}
			is(t, "status", g.post(c.path, c.body).StatusCode, 200)
			is(t, "output bound", int64(g.attempt().Bound.Tokens)-text(c.body, 0, 0), c.out)
			is(t, c.field, upstream.only(t).body[c.field], c.want)
		})
	}
}

// What has no bound in money is refused under a budget, before anything is sent,
// and passes without one.
func TestNoBoundInMoney(t *testing.T) {
	for name, c := range map[string]struct{ path, body string }{
		"model without a price": {chatPath, strings.Replace(chatBody, "gpt-test", "mystery", 1)},
		"unknown field":         {chatPath, with(chatBody, `"turbo":true`)},
		"stored conversation":   {chatPath, with(chatBody, `"previous_response_id":"x"`)},
		"web search":            {chatPath, with(chatBody, `"web_search_options":{}`)},
		"hosted tool":           {chatPath, with(chatBody, `"tools":[{"type":"web_search"}]`)},
		"tool without a type":   {chatPath, with(chatBody, `"tools":[{}]`)},
		"unpriced tier":         {chatPath, with(chatBody, `"service_tier":"priority"`)},
		"unknown tier":          {chatPath, with(chatBody, `"service_tier":"gold"`)},
		"anthropic web search":  {messagesPath, with(messageBody, `"tools":[{"type":"web_search_20250305","name":"web_search"}]`)},
		"unknown tool":          {messagesPath, with(messageBody, `"tools":[{"type":"teleport_20300101"}]`)},
		"mcp servers":           {messagesPath, with(messageBody, `"mcp_servers":[]`)},
		"container":             {messagesPath, with(messageBody, `"container":"c"`)},
		"context management":    {messagesPath, with(messageBody, `"context_management":{}`)},
		"fast mode":             {messagesPath, with(messageBody, `"speed":"fast"`)},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", chatReply)
			g := open(t, upstream, setup{})
			got := g.post(c.path, c.body)
			is(t, "status", got.StatusCode, http.StatusForbidden)
			is(t, "x-should-retry", got.Header.Get("X-Should-Retry"), "false")
			is(t, "requests at the provider", len(upstream.requests()), 0)
			untouched(g)

			free := open(t, says(200, "application/json", chatReply), setup{limits: keys.Limits{TokensPerDay: keys.Limit(1_000_000)}})
			is(t, "status without a budget", free.post(c.path, c.body).StatusCode, 200)
			// A budget that an edit brings meanwhile must refuse it after all.
			is(t, "unpriced", free.attempt().Bound.Unpriced, true)
			free.balanced()
		})
	}
}

// A policy's budget counts like any other, a meter too: what it should count is not known.
func TestNoBoundUnderPolicies(t *testing.T) {
	mystery := strings.Replace(chatBody, "gpt-test", "mystery", 1)
	for name, hard := range map[string]bool{"hard": true, "meter": false} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", chatReply)
			g := open(t, upstream, setup{limits: keys.Limits{TokensPerDay: keys.Limit(1_000_000)}})
			is(t, "status before", g.post(chatPath, mystery).StatusCode, 200)
			day := policy.Rule{Name: "day", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{
				LimitMilliUSD: 1000, HardCap: hard, Calendar: quota.Calendar{Period: quota.Day},
			}}
			now, err := g.db.Policies.Load(t.Context())
			check(t, err)
			_, err = g.db.Policies.Replace(t.Context(), policy.Replace{
				Documents: []policy.Document{{Name: "p", Subject: policy.Subject{Team: "team"}, Rules: []policy.Rule{day}}}, Expect: now.Generation,
			})
			check(t, err)
			for _, c := range []struct{ body, why string }{
				{mystery, "model: has no price here"},
				{with(chatBody, `"turbo":true`), "a member that this gateway has no price for"},
				{with(chatBody, `"tools":[{"type":"web_search"}]`), "tools: include one"},
				{with(chatBody, `"service_tier":"gold"`), "no price here"},
			} {
				got := g.post(chatPath, c.body)
				is(t, "status of "+c.body, got.StatusCode, http.StatusForbidden)
				if !strings.Contains(got.body, c.why) {
					t.Errorf("answered %s, want it to say %q", got.body, c.why)
				}
			}
			is(t, "requests at the provider", len(upstream.requests()), 1)
			is(t, "status of what has a price", g.post(chatPath, chatBody).StatusCode, 200)
			is(t, "money", g.books(governance.KindMoney), books{consumed: replyCost})
			g.balanced()
		})
	}
}

func TestAllowed(t *testing.T) {
	s := setup{transport: &httpgov.Transport{}}
	s.transport.AllowFields = []string{"turbo", "mcp_servers"}
	s.transport.AllowTools = []string{"web_search_20250305", "web_search_options"}
	g := open(t, says(200, "application/json", messageReply), s)
	for body, tokens := range map[string]int64{
		with(messageBody, `"turbo":true`):                                                 0,
		with(messageBody, `"mcp_servers":[]`):                                             0,
		with(messageBody, `"tools":[{"type":"web_search_20250305","name":"web_search"}]`): window + 100,
	} {
		got := g.post(messagesPath, body)
		is(t, "status", got.StatusCode, 200)
		if tokens == 0 {
			tokens = text(body, 1, 0) + 100
		}
		is(t, "bound", int64(g.attempt().Bound.Tokens), tokens)
	}
	is(t, "another tool", g.post(messagesPath, with(messageBody, `"tools":[{"type":"web_search_20990101"}]`)).StatusCode, http.StatusForbidden)
	is(t, "another field", g.post(messagesPath, with(messageBody, `"turbo2":1`)).StatusCode, http.StatusForbidden)
}

// Explicitly free skips money, also an exhausted budget, and keeps tokens.
func TestFreeModel(t *testing.T) {
	g := open(t, says(200, "application/json", chatReply), setup{limits: keys.Limits{CostPerDay: keys.Cost(amount.MicroUSD(chatCost)), TokensPerDay: keys.Limit(1000)}})
	g.post(chatPath, chatBody)
	g.attempt()
	is(t, "priced", g.post(chatPath, chatBody).StatusCode, http.StatusPaymentRequired)
	g.attempt()
	body := strings.Replace(chatBody, "gpt-test", "free-test", 1)
	is(t, "free", g.post(chatPath, body).StatusCode, 200)
	is(t, "bound", g.attempt().Bound.Free, true)
	g.spent(books{consumed: replyCost}, books{consumed: 2 * replyTokens})
}

// The window bounds whatever a model is configured for.
func TestBoundByContext(t *testing.T) {
	g := open(t, says(200, "application/json", chatReply), setup{pricing: &pricing.Options{Bound: map[string]pricing.BoundBy{"gpt-test": pricing.BoundByContext}}})
	g.post(chatPath, chatBody)
	is(t, "tokens", int64(g.attempt().Bound.Tokens), int64(window+100))
}

func TestUnreadableRequests(t *testing.T) {
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	for name, body := range map[string]string{
		"empty":                 ``,
		"no JSON":               `hello`,
		"cut":                   chatBody[:len(chatBody)-1],
		"two objects":           chatBody + chatBody,
		"array":                 `[` + chatBody + `]`,
		"not UTF-8":             strings.Replace(chatBody, "hello", "h\xffllo", 1),
		"too deep":              with(chatBody, `"metadata":`+deep),
		"no model":              `{"messages":[]}`,
		"null model":            `{"model":null,"messages":[]}`,
		"empty model":           `{"model":""}`,
		"model no string":       `{"model":7}`,
		"endless model":         `{"model":"` + strings.Repeat("m", 300) + `"}`,
		"control characters":    `{"model":"a\u0007b","max_tokens":1}`,
		"member twice":          with(chatBody, `"max_tokens":1`),
		"member twice, escaped": with(chatBody, `"max\u005ftokens":1`),
		"member in capitals":    with(chatBody, `"MAX_TOKENS":100000`),
		"long s":                `{"model":"gpt-test","me` + "\u017f" + `sages":[]}`,
		"part twice":            `{"model":"gpt-test","messages":[{"role":"user","content":[{"type":"text","type":"image_url"}]}]}`,
		"type in capitals":      `{"model":"gpt-test","messages":[{"role":"user","content":[{"type":"text","Type":"image_url"}]}]}`,
		"negative maximum":      with(chatBody[:0]+`{"model":"gpt-test"}`, `"max_tokens":-1`),
		"zero maximum":          with(`{"model":"gpt-test"}`, `"max_tokens":0`),
		"half a token":          with(`{"model":"gpt-test"}`, `"max_tokens":1.5`),
		"maximum as text":       with(`{"model":"gpt-test"}`, `"max_tokens":"100"`),
		"maximum in science":    with(`{"model":"gpt-test"}`, `"max_tokens":1e3`),
		"beyond 63 bits":        with(`{"model":"gpt-test"}`, `"max_tokens":9223372036854775808`),
		"overflow with n":       with(`{"model":"gpt-test"}`, `"max_tokens":1000000000000,"n":1000`),
		"n of zero":             with(chatBody, `"n":0`),
		"negative n":            with(chatBody, `"n":-1`),
		"n of millions":         with(chatBody, `"n":10000000`),
		"stream no boolean":     with(chatBody, `"stream":"true"`),
		"stream options a list": with(chatBody, `"stream_options":[]`),
		"include_usage 1":       with(chatBody, `"stream_options":{"include_usage":1}`),
		"messages an object":    `{"model":"gpt-test","messages":{}}`,
		"message a string":      `{"model":"gpt-test","messages":["hi"]}`,
		"content a number":      `{"model":"gpt-test","messages":[{"content":7}]}`,
		"part a string":         `{"model":"gpt-test","messages":[{"content":["hi"]}]}`,
		"tools an object":       with(chatBody, `"tools":{}`),
		"tier no string":        with(chatBody, `"service_tier":1`),
	} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", chatReply)
			// Without a budget, so that nothing else than being unreadable refuses it.
			g := open(t, upstream, setup{limits: keys.Limits{TokensPerDay: keys.Limit(1_000_000)}})
			got := g.post(chatPath, body)
			is(t, "status", got.StatusCode, http.StatusBadRequest)
			var envelope struct{ Error struct{ Message string } }
			check(t, json.Unmarshal([]byte(got.body), &envelope))
			if envelope.Error.Message == "" {
				t.Error("nothing says what to do")
			}
			is(t, "requests at the provider", len(upstream.requests()), 0)
			g.balanced()
		})
	}
}

// What routing selected is what is governed and priced.
func TestSelect(t *testing.T) {
	s := setup{transport: &httpgov.Transport{}, team: keys.CreateTeam{AllowedModels: []string{"fast"}, AllowedRegions: []string{"eu"}}}
	selected := httpgov.Selection{Model: "fast", Price: "gpt-test", Region: "eu"}
	var fail error
	s.transport.Select = func(_ *http.Request, model string) (httpgov.Selection, error) {
		is(t, "model", model, "gpt-test")
		return selected, fail
	}
	g := open(t, says(200, "application/json", chatReply), s)
	is(t, "status", g.post(chatPath, chatBody).StatusCode, 200)
	a := g.attempt()
	is(t, "model", a.Model, "fast")
	is(t, "bound", int64(a.Bound.Cost), chatCost)

	selected.Region = "us"
	is(t, "another region", g.post(chatPath, chatBody).StatusCode, http.StatusForbidden)
	selected.Model, selected.Region = "slow", "eu"
	is(t, "another model", g.post(chatPath, chatBody).StatusCode, http.StatusForbidden)
	fail = fmt.Errorf("routing: %w", &httpgov.RequestError{Status: 400, Field: "model", Why: "is not routed"})
	is(t, "a refusal of routing", g.post(chatPath, chatBody).StatusCode, 400)
	fail = fmt.Errorf("routing is broken")
	is(t, "a failure of routing", g.post(chatPath, chatBody).StatusCode, http.StatusBadGateway)
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
}

// A node answers each request once, and bounds it by what fits into the model.
func TestBoundsOfANode(t *testing.T) {
	g := open(t, says(200, "application/json", chatReply), setup{transport: &httpgov.Transport{OneAnswer: true, ContextBound: true}})
	got := g.post(chatPath, with(chatBody, `"n":2`))
	is(t, "status", got.StatusCode, 400)
	if !strings.Contains(got.body, "must be 1 here") {
		t.Fatalf("answered %s", got.body)
	}
	is(t, "refused", int64(g.attempt().Bound.Tokens), int64(0))
	for _, body := range []string{chatBody, with(chatBody, `"n":1`)} {
		is(t, "status", g.post(chatPath, body).StatusCode, 200)
		is(t, "tokens", int64(g.attempt().Bound.Tokens), int64(window+100))
	}
}
