package httpgov_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance/httpgov"
	"github.com/tallystick-go/tallystick/governance/usage"
	"github.com/tallystick-go/tallystick/keys"
)

const (
	conversePath  = "/model/claude-test/converse"
	invokePath    = "/model/claude-test/invoke"
	converseBody  = `{"messages":[{"role":"user","content":[{"text":"hello"}]}],"inferenceConfig":{"maxTokens":100}}`
	invokeBody    = `{"anthropic_version":"bedrock-2023-05-31","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`
	converseReply = `{"output":{"message":{"role":"assistant","content":[{"text":"hi"}]}},"stopReason":"end_turn","metrics":{"latencyMs":1},` +
		`"usage":{"inputTokens":30,"outputTokens":7,"totalTokens":47,"cacheReadInputTokens":10}}`
	// What converseReply and messageReply cost: 30 fresh, 10 cached, 7 out.
	bedrockCost   = 30*2 + 10*1 + 7*10
	bedrockTokens = 47
)

// frame is one in AWS's event-stream encoding.
func frame(kind, name, payload string) string {
	header := func(name, value string) string {
		return string([]byte{byte(len(name))}) + name + "\x07" + string(binary.BigEndian.AppendUint16(nil, uint16(len(value)))) + value
	}
	of := ":event-type"
	if kind == "exception" {
		of = ":exception-type"
	}
	headers := header(":message-type", kind) + header(of, name) + header(":content-type", "application/json")
	out := binary.BigEndian.AppendUint32(nil, uint32(16+len(headers)+len(payload)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(headers)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	out = append(append(out, headers...), payload...)
	return string(binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out)))
}

func event(name, payload string) string { return frame("event", name, payload) }

// chunk is a piece of Anthropic's stream as an invoke wraps it.
func chunk(data string) string {
	return event("chunk", `{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(data))+`"}`)
}

// framed answers with frames in pieces of a size.
func framed(text string, size int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
		for i := 0; i < len(text); i += size {
			_, _ = io.WriteString(w, text[i:min(i+size, len(text))])
			_ = http.NewResponseController(w).Flush()
		}
	})
}

func TestModelPath(t *testing.T) {
	for path, want := range map[string]string{
		"/model/m/converse": "m converse",
		"/model/us.anthropic.claude-x-v1%3A0/converse-stream":                                                 "us.anthropic.claude-x-v1:0 converse-stream",
		"/model/us.anthropic.claude-x-v1:0/invoke":                                                            "us.anthropic.claude-x-v1:0 invoke",
		"/proxy/bedrock/model/m/invoke":                                                                       "m invoke",
		"/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.anthropic.x/converse": "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.x converse",
		"/model/model/model":      "model model",
		"/model/m%252Fn/converse": "m%2Fn converse",
		"/model//converse":        "", "/model/m": "", "/model/m/": "", "/models/m/converse": "", "/model/a/b/converse": "",
		"//model/m/converse": "", "/x/../model/m/converse": "", "/%6dodel/m/converse": "", "/model/m/convers%65": "", "/x%2Fy/model/m/converse": "",
		"/model/../converse": "", "/model/%2E%2E/converse": "", "/model/a%2F..%2Fb/converse": "", "/model/a%2F%2Fb/converse": "", "/model/a%2F/converse": "",
	} {
		u, err := url.Parse("http://host" + path)
		check(t, err)
		model, action, ok := httpgov.ModelPath(u)
		is(t, path, strings.TrimSpace(model+" "+action), want)
		is(t, path, ok, want != "")
	}
}

// A path that is taken has one reading: put together again, it names the same model.
func FuzzModelPath(f *testing.F) {
	for _, path := range []string{"/model/m/converse", "/a/model/arn%3Aaws%3Abedrock%2Fx/invoke", "/model/%2e%2e/x", "//model/m/x", "/model/%zz/x", "/model/%25/x"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.Parse("http://host" + path)
		if err != nil {
			return
		}
		model, action, ok := httpgov.ModelPath(u)
		if !ok {
			is(t, "model and action", model+action, "")
			return
		}
		escaped := "/model/" + url.PathEscape(model) + "/" + action
		again, err := url.Parse("http://host" + escaped)
		check(t, err)
		m, a, ok := httpgov.ModelPath(again)
		if m != model || a != action || !ok || strings.Contains(action, "/") || strings.Contains("/"+model+"/", "/../") {
			t.Errorf("%q names %q and %q, put together again %q and %q", path, model, action, m, a)
		}
	})
}

func TestBedrockRoutes(t *testing.T) {
	for path, want := range map[string]httpgov.Route{
		"/model/m%3A0/converse":                    {Kind: httpgov.RouteGoverned, Protocol: usage.BedrockConverse},
		"/model/m%3A0/converse-stream":             {Kind: httpgov.RouteGoverned, Protocol: usage.BedrockConverse},
		"/model/m%3A0/invoke":                      {Kind: httpgov.RouteGoverned, Protocol: usage.BedrockInvoke},
		"/model/m%3A0/invoke-with-response-stream": {Kind: httpgov.RouteGoverned, Protocol: usage.BedrockInvoke},
		"/model/m/async-invoke":                    {Protocol: usage.BedrockConverse},
		"/model/m/count-tokens":                    {Protocol: usage.BedrockConverse},
		"/model/../v1/chat/completions":            {Protocol: usage.BedrockConverse},
		"/v1/responses":                            {Kind: httpgov.RouteGoverned, Protocol: usage.OpenAIResponses},
		"/v1/responses/compact":                    {Protocol: usage.OpenAIChat},
	} {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		is(t, path, httpgov.DefaultRoute(r), want)
		r.Method = http.MethodGet
		is(t, "GET "+path, httpgov.DefaultRoute(r).Kind, httpgov.RouteKind(0))
	}
}

func TestBedrockBounds(t *testing.T) {
	part := func(p string) string {
		return `{"messages":[{"role":"user","content":[{"text":"hi"},` + p + `]}],"inferenceConfig":{"maxTokens":100,"temperature":0.5,"topP":1,"stopSequences":[]}}`
	}
	for name, c := range map[string]struct {
		path, body string
		in, out    int64 // in 0: the text's length
		messages   int
		tools      int
	}{
		"text":                {body: converseBody, out: 100},
		"no maximum":          {body: `{"messages":[{"role":"user","content":[{"text":"hello"}]}]}`, out: longest},
		"null maximum":        {body: `{"messages":[{"role":"user","content":[{"text":"hello"}]}],"inferenceConfig":{"maxTokens":null}}`, out: longest},
		"system":              {body: with(converseBody, `"system":[{"text":"x"},{"cachePoint":{"type":"default"}}]`), out: 100, messages: 3},
		"tools":               {body: with(converseBody, `"toolConfig":{"tools":[{"toolSpec":{"name":"a"}},{"cachePoint":{}}],"toolChoice":{"auto":{}}}`), out: 100, tools: 2},
		"tool use and result": {body: part(`{"toolUse":{"name":"a","input":{}}},{"toolResult":{"toolUseId":"1","content":[{"text":"x"},{"json":{}}]}}`), out: 100},
		"harmless":            {body: with(converseBody, `"requestMetadata":{"a":"b"},"additionalModelResponseFieldPaths":["/x"],"additionalModelRequestFields":{"top_k":5,"thinking":{"type":"enabled"}},"serviceTier":{"type":"default"},"performanceConfig":{"latency":"standard"}`), out: 100},
		"image":               {body: part(`{"image":{"format":"png"}}`), in: window, out: 100},
		"document":            {body: part(`{"document":{}}`), in: window, out: 100},
		"reasoning":           {body: part(`{"reasoningContent":{}}`), in: window, out: 100},
		"image in a result":   {body: part(`{"toolResult":{"content":[{"image":{}}]}}`), in: window, out: 100},
		"stored prompt":       {body: with(converseBody, `"promptVariables":{"a":{"text":"b"}}`), in: window, out: 100},
		"invoke":              {path: invokePath, body: invokeBody, out: 100},
		"invoke by a beta":    {path: invokePath, body: with(invokeBody, `"anthropic_beta":["x"]`), out: 100},
		"invoke with system":  {path: invokePath, body: with(invokeBody, `"system":"x"`), out: 100, messages: 2},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path == "" {
				c.path = conversePath
			}
			g := open(t, says(200, "application/json", converseReply), setup{})
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
			is(t, "cost", int64(a.Bound.Cost), in*4+c.out*10)
			is(t, "model", a.Model, "claude-test")
		})
	}
}

func TestBedrockNoBoundInMoney(t *testing.T) {
	for name, c := range map[string]struct{ path, body, header string }{
		"model without a price":        {"/model/mystery/converse", converseBody, ""},
		"unknown field":                {conversePath, with(converseBody, `"turbo":true`), ""},
		"unknown field for the model":  {conversePath, with(converseBody, `"additionalModelRequestFields":{"anthropic_beta":["x"]}`), ""},
		"unknown inference":            {conversePath, strings.Replace(converseBody, `"maxTokens"`, `"reasoning":{},"maxTokens"`, 1), ""},
		"system tool":                  {conversePath, with(converseBody, `"toolConfig":{"tools":[{"systemTool":{"name":"x"}}]}`), ""},
		"the client's own guardrail":   {conversePath, with(converseBody, `"guardrailConfig":{"guardrailIdentifier":"mine","guardrailVersion":"1"}`), ""},
		"tier":                         {conversePath, with(converseBody, `"serviceTier":{"type":"reserved"}`), ""},
		"more than a tier":             {conversePath, with(converseBody, `"serviceTier":{"type":"default","x":1}`), ""},
		"latency":                      {conversePath, with(converseBody, `"performanceConfig":{"latency":"optimized"}`), ""},
		"invoke by another vendor":     {invokePath, `{"prompt":"hello","max_gen_len":5}`, ""},
		"model in the body of invoke":  {invokePath, with(invokeBody, `"model":"other"`), ""},
		"stream in the body of invoke": {invokePath, with(invokeBody, `"stream":true`), ""},
		"invoke's own guardrail":       {invokePath, invokeBody, "X-Amzn-Bedrock-GuardrailIdentifier: mine"},
		"invoke's tier":                {invokePath, invokeBody, "X-Amzn-Bedrock-Service-Tier: reserved"},
		"invoke's latency":             {invokePath, invokeBody, "X-Amzn-Bedrock-PerformanceConfig-Latency: optimized"},
	} {
		t.Run(name, func(t *testing.T) {
			request := func(g *gate) answer {
				r := g.request(t.Context(), c.path, c.body)
				if name, value, ok := strings.Cut(c.header, ": "); ok {
					r.Header.Set(name, value)
				}
				return g.do(r)
			}
			upstream := says(200, "application/json", converseReply)
			g := open(t, upstream, setup{})
			got := request(g)
			is(t, "status", got.StatusCode, http.StatusForbidden)
			is(t, "type", got.Header.Get("X-Amzn-Errortype"), "AccessDeniedException")
			is(t, "requests at the provider", len(upstream.requests()), 0)
			untouched(g)
			free := open(t, says(200, "application/json", converseReply), setup{limits: keys.Limits{TokensPerDay: keys.Limit(1_000_000)}})
			is(t, "status without a budget", request(free).StatusCode, 200)
		})
	}
}

func TestBedrockUnreadableRequests(t *testing.T) {
	for name, c := range map[string]struct{ path, body string }{
		"maximum in other letters":      {conversePath, `{"messages":[],"InferenceConfig":{"maxTokens":1}}`},
		"maximum of zero":               {conversePath, `{"messages":[],"inferenceConfig":{"maxTokens":0}}`},
		"maximum twice":                 {conversePath, `{"messages":[],"inferenceConfig":{"maxTokens":1,"maxTokens":2}}`},
		"inference no object":           {conversePath, `{"messages":[],"inferenceConfig":7}`},
		"content a text":                {conversePath, `{"messages":[{"content":"hi"}]}`},
		"block a text":                  {conversePath, `{"messages":[{"content":["hi"]}]}`},
		"tools an object":               {conversePath, `{"messages":[],"toolConfig":{"tools":{}}}`},
		"tier no object":                {conversePath, `{"messages":[],"serviceTier":"flex"}`},
		"endless model":                 {"/model/" + strings.Repeat("m", 300) + "/converse", converseBody},
		"control character in the path": {"/model/a%00b/converse", converseBody},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", converseReply)
			g := open(t, upstream, setup{limits: keys.Limits{TokensPerDay: keys.Limit(1_000_000)}})
			got := g.post(c.path, c.body)
			is(t, "status", got.StatusCode, http.StatusBadRequest)
			is(t, "type", got.Header.Get("X-Amzn-Errortype"), "ValidationException")
			is(t, "requests at the provider", len(upstream.requests()), 0)
		})
	}
	g := open(t, says(200, "application/json", converseReply), setup{})
	r := g.request(t.Context(), invokePath, invokeBody)
	r.Header["X-Amzn-Bedrock-Service-Tier"] = []string{"default", "priority"}
	is(t, "two tiers", g.do(r).StatusCode, http.StatusBadRequest)
}

// A default maximum is put where Bedrock reads it.
func TestBedrockDefaultMaxTokens(t *testing.T) {
	most := int64(70)
	for name, c := range map[string]struct{ path, body, want string }{
		"nothing":      {conversePath, `{"messages":[]}`, `{"inferenceConfig":{"maxTokens":70},"messages":[]}`},
		"null":         {conversePath, `{"messages":[],"inferenceConfig": null }`, `{"messages":[],"inferenceConfig": {"maxTokens":70} }`},
		"empty":        {conversePath, `{"messages":[],"inferenceConfig":{ }}`, `{"messages":[],"inferenceConfig":{"maxTokens":70 }}`},
		"others":       {conversePath, `{"messages":[],"inferenceConfig":{ "topP":1}}`, `{"messages":[],"inferenceConfig":{"maxTokens":70, "topP":1}}`},
		"null maximum": {conversePath, `{"messages":[],"inferenceConfig":{"maxTokens":null}}`, `{"messages":[],"inferenceConfig":{"maxTokens":70}}`},
		"empty body":   {conversePath, `{}`, `{"inferenceConfig":{"maxTokens":70}}`},
		"named":        {conversePath, converseBody, converseBody},
		"invoke":       {invokePath, `{"anthropic_version":"x","messages":[]}`, `{"max_tokens":70,"anthropic_version":"x","messages":[]}`},
		"not known":    {invokePath, `{"messages":[]}`, `{"messages":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", converseReply)
			g := open(t, upstream, setup{team: keys.CreateTeam{DefaultMaxTokens: &most}})
			is(t, "status", g.post(c.path, c.body).StatusCode, 200)
			is(t, "body", upstream.only(t).raw, c.want)
		})
	}
}

// The guardrail that routing chose takes the place of the client's.
func TestGuardrailIsRoutings(t *testing.T) {
	for name, c := range map[string]struct{ path, body, want string }{
		"none":         {conversePath, converseBody, with(converseBody, `"guardrailConfig":{"guardrailIdentifier":"g\"1","guardrailVersion":"7"}`)},
		"the client's": {conversePath, with(converseBody, `"guardrailConfig":{"guardrailIdentifier":"mine","guardrailVersion":"1","trace":"enabled"}`), with(converseBody, `"guardrailConfig":{"guardrailIdentifier":"g\"1","guardrailVersion":"7"}`)},
		"null":         {conversePath, with(converseBody, `"guardrailConfig":null`), with(converseBody, `"guardrailConfig":{"guardrailIdentifier":"g\"1","guardrailVersion":"7"}`)},
		"invoke":       {invokePath, invokeBody, invokeBody},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := says(200, "application/json", converseReply)
			g := open(t, upstream, setup{transport: &httpgov.Transport{Select: selectAs(httpgov.Selection{GuardrailID: `g"1`, GuardrailVersion: "7"})}})
			r := g.request(t.Context(), c.path, c.body)
			r.Header.Set("X-Amzn-Bedrock-GuardrailIdentifier", "mine")
			r.Header.Set("X-Amzn-Bedrock-Service-Tier", "default")
			is(t, "status", g.do(r).StatusCode, 200)
			got := upstream.only(t)
			is(t, "body", got.raw, c.want)
			id, tier := got.header.Get("X-Amzn-Bedrock-GuardrailIdentifier"), got.header.Get("X-Amzn-Bedrock-Service-Tier")
			if c.path == invokePath {
				is(t, "header", id+" "+got.header.Get("X-Amzn-Bedrock-GuardrailVersion")+" "+tier, `g"1 7 default`)
			} else {
				is(t, "header", id+tier, "") // Converse has them in the body
			}
		})
	}
}

func TestBedrockSettles(t *testing.T) {
	type counts = map[string]string
	const input, output = "X-Amzn-Bedrock-Input-Token-Count", "X-Amzn-Bedrock-Output-Token-Count"
	for name, c := range map[string]struct {
		path, body, reply string
		status            int
		header            counts
		known             bool
		cost, tokens      int64
	}{
		"converse":                  {conversePath, converseBody, converseReply, 200, nil, true, bedrockCost, bedrockTokens},
		"invoke":                    {invokePath, invokeBody, messageReply, 200, nil, true, bedrockCost, bedrockTokens},
		"invoke, counted in header": {invokePath, invokeBody, `{"content":[]}`, 200, counts{input: "30", output: "7"}, true, 30*2 + 7*10, 37},
		"invoke, twice the same":    {invokePath, invokeBody, messageReply, 200, counts{input: "30", output: "7"}, true, bedrockCost, bedrockTokens},
		"invoke, and they differ":   {invokePath, invokeBody, messageReply, 200, counts{input: "30", output: "8"}, false, 0, 0},
		"usage missing":             {conversePath, converseBody, `{"output":{}}`, 200, nil, false, 0, 0},
		"throttled":                 {conversePath, converseBody, `{"message":"slow down"}`, 429, counts{"X-Amzn-Errortype": "ThrottlingException:http://x/"}, true, 0, 0},
		"not valid":                 {invokePath, invokeBody, `{"message":"bad"}`, 400, counts{"X-Amzn-Errortype": "ValidationException"}, true, 0, 0},
		"a proxy's refusal":         {conversePath, converseBody, `{"message":"Forbidden"}`, 403, nil, false, 0, 0},
		"model error":               {conversePath, converseBody, `{"message":"bad"}`, 424, counts{"X-Amzn-Errortype": "ModelErrorException"}, false, 0, 0},
		"unavailable":               {conversePath, converseBody, `{"message":"bad"}`, 503, counts{"X-Amzn-Errortype": "ServiceUnavailableException"}, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, &provider{answer: func(w http.ResponseWriter, _ *http.Request, _ []byte) {
				w.Header().Set("Content-Type", "application/json")
				for name, value := range c.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.reply)
			}}, setup{})
			got := g.post(c.path, c.body)
			is(t, "status", got.StatusCode, c.status)
			is(t, "body", got.body, c.reply)
			bound := g.attempt().Bound
			if c.known {
				g.spent(books{consumed: c.cost}, books{consumed: c.tokens})
			} else {
				g.spent(books{uncertain: int64(bound.Cost)}, books{uncertain: int64(bound.Tokens)})
			}
		})
	}
}

func TestBedrockStreams(t *testing.T) {
	const path, invoke = conversePath + "-stream", invokePath + "-with-response-stream"
	content, stop := event("contentBlockDelta", `{"delta":{"text":"hi"}}`), event("messageStop", `{"stopReason":"end_turn"}`)
	metadata := event("metadata", `{"usage":{"inputTokens":30,"outputTokens":7,"totalTokens":47,"cacheReadInputTokens":10}}`)
	start := chunk(`{"type":"message_start","message":{"model":"claude-test","usage":{"input_tokens":30,"cache_read_input_tokens":10,"output_tokens":1}}}`)
	end := chunk(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}`) + chunk(`{"type":"message_stop"}`)
	for name, c := range map[string]struct {
		path, body, stream string
		known              bool
		cost, tokens       int64
	}{
		"converse":              {path, converseBody, content + stop + metadata, true, bedrockCost, bedrockTokens},
		"invoke":                {invoke, invokeBody, start + end, true, bedrockCost, bedrockTokens},
		"cut":                   {path, converseBody, content + stop, false, 0, 0},
		"cut in a frame":        {path, converseBody, content + stop + metadata[:50], false, 0, 0},
		"usage missing":         {path, converseBody, content + stop + event("metadata", `{}`), false, 0, 0},
		"frame that is none":    {path, converseBody, content + "rubbish, and more" + stop + metadata, false, 0, 0},
		"throttled at once":     {path, converseBody, frame("exception", "throttlingException", `{"message":"no"}`), true, 0, 0},
		"unavailable at once":   {path, converseBody, frame("exception", "serviceUnavailableException", `{"message":"no"}`), false, 0, 0},
		"throttled later":       {path, converseBody, content + frame("exception", "throttlingException", `{"message":"no"}`), false, 0, 0},
		"invoke, cut":           {invoke, invokeBody, start, false, 0, 0},
		"invoke, without usage": {invoke, invokeBody, chunk(`{"type":"message_start","message":{}}`) + chunk(`{"type":"message_stop"}`), false, 0, 0},
	} {
		for _, size := range []int{1, 13, 1 << 20} {
			t.Run(fmt.Sprint(name, "/", size), func(t *testing.T) {
				g := open(t, framed(c.stream, size), setup{})
				is(t, "relayed", g.post(c.path, c.body).body, c.stream)
				a := g.attempt()
				is(t, "stream", a.Stream, true)
				if c.known {
					g.spent(books{consumed: c.cost}, books{consumed: c.tokens})
				} else {
					g.spent(books{uncertain: int64(a.Bound.Cost)}, books{uncertain: int64(a.Bound.Tokens)})
				}
			})
		}
	}
}

// A signer can look at the body, which the transport below can send once only; what
// the client signed with does not go on.
func TestSignerSeesTheBody(t *testing.T) {
	upstream := says(200, "application/json", converseReply)
	var signed string
	s := setup{transport: &httpgov.Transport{Credentials: func(r *http.Request) error {
		body, err := r.GetBody()
		if err != nil {
			return err
		}
		text, err := io.ReadAll(body)
		signed = string(text)
		is(t, "path", r.URL.EscapedPath(), "/model/claude-test/converse")
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 the gateway's")
		return err
	}}}
	s.wrap = func(next http.RoundTripper) http.RoundTripper { return next }
	s.transport.Base = onceOnly{&http.Transport{DisableCompression: true}, t}
	g := open(t, upstream, s)
	r := g.request(t.Context(), conversePath, converseBody)
	for _, name := range []string{"X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256"} {
		r.Header.Set(name, "the client's")
	}
	is(t, "status", g.do(r).StatusCode, 200)
	got := upstream.only(t)
	is(t, "signed", signed, converseBody)
	is(t, "sent", got.raw, converseBody)
	is(t, "authorization", got.header.Get("Authorization"), "AWS4-HMAC-SHA256 the gateway's")
	is(t, "the client's", fmt.Sprint(got.header["X-Amz-Date"], got.header["X-Amz-Security-Token"], got.header["X-Amz-Content-Sha256"]), "[] [] []")
}

type onceOnly struct {
	*http.Transport
	t testing.TB
}

func (o onceOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	is(o.t, "GetBody is nil", r.GetBody == nil, true)
	return o.Transport.RoundTrip(r)
}
