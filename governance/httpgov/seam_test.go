package httpgov_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/pricing"
)

func TestPlainChat(t *testing.T) {
	upstream := says(200, "application/json", chatReply)
	g := open(t, upstream, setup{})
	got := g.post(chatPath, chatBody)
	is(t, "status", got.StatusCode, http.StatusOK)
	is(t, "body", got.body, chatReply)
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
	a := g.attempt()
	is(t, "permit header", got.Header.Get("X-Tallystick-Permit"), a.Permit.String())
	is(t, "bound of tokens", int64(a.Bound.Tokens), chatTokens)
	is(t, "bound of cost", int64(a.Bound.Cost), chatCost)

	sent := upstream.only(t)
	is(t, "forwarded body", sent.raw, chatBody)
	is(t, "key", sent.header.Get("Authorization"), providerKey)
	is(t, "encoding", sent.header.Get("Accept-Encoding"), "identity")
}

func TestStreamedChat(t *testing.T) {
	const chunks = `data: {"id":"c1","model":"gpt-test","choices":[{"index":0,"delta":{"content":"h"}}],"usage":null}` + "\n\n" +
		`data: {"id":"c1","model":"gpt-test","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` + "\n\n"
	const usage = `data: {"id":"c1","model":"gpt-test","choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":37,"prompt_tokens_details":{"cached_tokens":10}}}` + "\n\n"
	const done = "data: [DONE]\n\n"
	upstream := says(200, "text/event-stream", chunks+usage+done)
	g := open(t, upstream, setup{})

	got := g.post(chatPath, chatStream)
	is(t, "body without the chunk that was not asked for", got.body, chunks+done)
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
	sent := upstream.requests()[0]
	is(t, "forwarded body", sent.raw, strings.Replace(chatStream, "{", `{"stream_options":{"include_usage":true},`, 1))

	asked := strings.Replace(chatStream, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1)
	got = g.post(chatPath, asked)
	is(t, "body with the chunk that was asked for", got.body, chunks+usage+done)
	is(t, "forwarded body", upstream.requests()[1].raw, asked)
	g.spent(books{consumed: 2 * replyCost}, books{consumed: 2 * replyTokens})
}

func TestPlainMessages(t *testing.T) {
	upstream := says(200, "application/json", messageReply)
	g := open(t, upstream, setup{})
	r := g.request(t.Context(), messagesPath, messageBody)
	r.Header.Del("Authorization")
	r.Header.Set("X-Api-Key", g.token)
	got := g.do(r)
	is(t, "body", got.body, messageReply)
	// Anthropic counts the cached tokens beside the input.
	g.spent(books{consumed: 30*2 + 10*1 + 7*10}, books{consumed: 47})
	is(t, "client's key", upstream.only(t).header.Get("X-Api-Key"), "")
}

func TestStreamedMessages(t *testing.T) {
	const events = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-test\",\"usage\":{\"input_tokens\":30,\"output_tokens\":1,\"cache_read_input_tokens\":10}}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	upstream := says(200, "text/event-stream", events)
	g := open(t, upstream, setup{})
	got := g.post(messagesPath, messageSteam)
	is(t, "body", got.body, events)
	is(t, "forwarded body", upstream.only(t).raw, messageSteam)
	g.spent(books{consumed: 30*2 + 10*1 + 7*10}, books{consumed: 47})
}

func TestEmbeddings(t *testing.T) {
	upstream := says(200, "application/json", `{"object":"list","data":[{"embedding":[0.1]}],"model":"embed-test","usage":{"prompt_tokens":5,"total_tokens":5}}`)
	g := open(t, upstream, setup{})
	g.post(embedPath, `{"model":"embed-test","input":["a b c","d e"]}`)
	g.spent(books{consumed: 5}, books{consumed: 5})
	a := g.attempt()
	is(t, "bound", int64(a.Bound.Tokens), int64(len(`"a b c"`)+16+len(`"d e"`)+16))
}

// A provider that does not say in which tier it served did as it was asked; one
// that says so is believed.
func TestServiceTier(t *testing.T) {
	body := with(strings.Replace(chatBody, "gpt-test", "tier-test", 1), `"service_tier":"priority"`)
	reply := `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":37}}`
	for name, c := range map[string]struct {
		reply string
		cost  int64
	}{
		"not said": {reply, 30*4 + 7*20},
		"standard": {with(reply, `"service_tier":"default"`), 30*2 + 7*10},
		"priority": {with(reply, `"service_tier":"priority"`), 30*4 + 7*20},
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, says(200, "application/json", c.reply), setup{})
			is(t, "status", g.post(chatPath, body).StatusCode, 200)
			is(t, "bound", int64(g.attempt().Bound.Cost), text(body, 1, 0)*4+100*20)
			g.spent(books{consumed: c.cost}, books{consumed: replyTokens})
		})
	}
}

// A reload of prices between admission and settlement changes nothing for a
// permit that is open.
func TestCapturedPrice(t *testing.T) {
	upstream := newSlow(true)
	g := open(t, upstream, setup{})
	done := make(chan answer)
	go func() { done <- g.post(chatPath, chatStream) }()
	<-upstream.arrived
	held, err := g.gov.Holds(t.Context(), governance.HoldQuery{})
	check(t, err)
	var row pricing.Row
	check(t, row.UnmarshalBinary(held[0].Price))
	want, err := prices(t, nil).Price("gpt-test")
	check(t, err)
	is(t, "captured", row.Equal(want), true)
	close(upstream.rest)
	<-done
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
}
