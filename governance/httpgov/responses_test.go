package httpgov_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/keys"
)

const (
	responsesPath = "/v1/responses"
	responseBody  = `{"model":"gpt-test","max_output_tokens":100,"input":"hello"}`
	responseReply = `{"id":"r1","object":"response","status":"completed","model":"gpt-test","output":[],` +
		`"usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":10},"output_tokens":7,"total_tokens":37}}`
)

func TestResponsesBounds(t *testing.T) {
	item := func(i string) string { return `{"model":"gpt-test","max_output_tokens":100,"input":[` + i + `]}` }
	const user = `{"role":"user","content":"hi"}`
	for name, c := range map[string]struct {
		body     string
		in, out  int64
		messages int
		tools    int
	}{
		"text":             {body: responseBody, out: 100},
		"no maximum":       {body: `{"model":"gpt-test","input":"hello"}`, out: longest},
		"instructions":     {body: with(responseBody, `"instructions":"x"`), out: 100, messages: 2},
		"message":          {body: item(user), out: 100},
		"parts":            {body: item(`{"type":"message","role":"user","content":[{"type":"input_text","text":"x"},{"type":"output_text","text":"y"},{"type":"refusal","refusal":"z"}]}`), out: 100},
		"function call":    {body: item(user + `,{"type":"function_call","id":"1","status":"completed","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}`), out: 100, messages: 3},
		"parts of a call":  {body: item(`{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_text","text":"x"}]}`), out: 100},
		"tools":            {body: with(responseBody, `"tools":[{"type":"function","name":"f"},{"type":"custom","name":"g"}]`), out: 100, tools: 2},
		"harmless":         {body: with(responseBody, `"reasoning":{"effort":"low"},"text":{"verbosity":"low"},"include":[],"store":false,"background":false,"stream_options":{"include_obfuscation":false}`), out: 100},
		"nothing earlier":  {body: with(responseBody, `"previous_response_id":null`), out: 100},
		"earlier response": {body: with(responseBody, `"previous_response_id":"r0"`), in: window, out: 100},
		"conversation":     {body: with(responseBody, `"conversation":"c"`), in: window, out: 100},
		"stored prompt":    {body: with(responseBody, `"prompt":{"id":"p"}`), in: window, out: 100},
		"reference":        {body: item(`{"type":"item_reference","id":"x"}`), in: window, out: 100},
		"reasoning":        {body: item(`{"type":"reasoning","summary":[],"encrypted_content":"x"}`), in: window, out: 100},
		"image":            {body: item(`{"role":"user","content":[{"type":"input_image","image_url":"https://x"}]}`), in: window, out: 100},
		"image of a call":  {body: item(`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]}`), in: window, out: 100},
		"unknown member":   {body: item(`{"role":"user","content":"x","attachment":"y"}`), in: window, out: 100},
		"a member of another item": {
			body: item(`{"type":"function_call","content":[{"type":"input_image"}]}`), in: window, out: 100,
		},
		"client's own tool": {body: with(responseBody, `"tools":[{"type":"local_shell"}]`), in: window, out: 100},
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, says(200, "application/json", responseReply), setup{})
			got := g.post(responsesPath, c.body)
			if got.StatusCode != 200 {
				t.Fatalf("answered %d: %s", got.StatusCode, got.body)
			}
			in := c.in
			if in == 0 {
				in = text(c.body, max(c.messages, 1), c.tools)
			}
			a := g.attempt()
			is(t, "tokens", int64(a.Bound.Tokens), in+c.out)
			is(t, "cost", int64(a.Bound.Cost), in*2+c.out*10)
			g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
		})
	}
}

func TestResponsesNotGovernable(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"background":         {with(responseBody, `"background":true`), 400},
		"background no flag": {with(responseBody, `"background":"no"`), 400},
		"no model":           {`{"input":"hello"}`, 400},
		"maximum of zero":    {`{"model":"gpt-test","max_output_tokens":0,"input":"x"}`, 400},
		"input a number":     {`{"model":"gpt-test","input":7}`, 400},
		"item a text":        {`{"model":"gpt-test","input":["x"]}`, 400},
		"web search":         {with(responseBody, `"tools":[{"type":"web_search"}]`), 403},
		"code interpreter":   {with(responseBody, `"tools":[{"type":"code_interpreter"}]`), 403},
		"hosted shell":       {with(responseBody, `"tools":[{"type":"shell"}]`), 403},
		"maximum of chat":    {with(responseBody, `"max_tokens":5`), 403},
		"unknown field":      {with(responseBody, `"turbo":true`), 403},
		"context management": {with(responseBody, `"context_management":[]`), 403},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", responseReply)
			g := open(t, upstream, setup{})
			got := g.post(responsesPath, c.body)
			is(t, "status", got.StatusCode, c.status)
			is(t, "x-should-retry", got.Header.Get("X-Should-Retry"), "false")
			is(t, "requests at the provider", len(upstream.requests()), 0)
			untouched(g)
		})
	}
	upstream := says(200, "application/json", responseReply)
	most := int64(70)
	g := open(t, upstream, setup{team: keys.CreateTeam{DefaultMaxTokens: &most}})
	is(t, "status", g.post(responsesPath, `{"model":"gpt-test","input":"hello"}`).StatusCode, 200)
	is(t, "maximum", upstream.only(t).body["max_output_tokens"], 70.0)
}

func TestResponsesStreams(t *testing.T) {
	const created = `data: {"type":"response.created","response":{"model":"gpt-test"}}` + "\n\n"
	const usage = `"usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":10},"output_tokens":7,"total_tokens":37}`
	ends := func(how, rest string) string {
		return `data: {"type":"response.` + how + `","response":{` + rest + `}}` + "\n\n"
	}
	const failure = `data: {"type":"error","code":"rate_limit_exceeded","message":"m"}` + "\n\n"
	for name, c := range map[string]struct {
		stream string
		state  string
	}{
		"completed":            {created + ends("completed", usage), "known"},
		"incomplete":           {created + ends("incomplete", usage), "known"},
		"failed, with usage":   {created + ends("failed", `"error":{"code":"server_error","message":"m"},`+usage), "known"},
		"failed, without":      {created + ends("failed", `"error":{"code":"server_error","message":"m"}`), "unknown"},
		"usage missing":        {created + ends("completed", `"usage":null`), "unknown"},
		"cut":                  {created, "unknown"},
		"throttled at once":    {failure, "nothing"},
		"throttled later":      {created + failure, "unknown"},
		"a chat's end instead": {created + doneChunk, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, pieces(c.stream, 7), setup{})
			body := strings.Replace(responseBody, `"input"`, `"stream":true,"input"`, 1)
			got := g.post(responsesPath, body)
			is(t, "status", got.StatusCode, http.StatusOK)
			is(t, "relayed", got.body, c.stream)
			bound := g.attempt().Bound
			switch c.state {
			case "known":
				g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
			case "nothing":
				g.spent(books{}, books{})
			default:
				g.spent(books{uncertain: int64(bound.Cost)}, books{uncertain: int64(bound.Tokens)})
			}
		})
	}
}
