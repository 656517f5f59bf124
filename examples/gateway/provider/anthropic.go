package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

type messageRequest struct {
	Model    string  `json:"model"`
	System   content `json:"system"`
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	MaxTokens *int64 `json:"max_tokens"`
	Stream    bool   `json:"stream"`
	Version   string `json:"anthropic_version"` // Bedrock
	Tools     []struct {
		Name        string          `json:"name"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	ToolChoice *struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"tool_choice"`
}

// answersTool reports whether the last message brings a tool's result.
func answersTool(body []byte) bool {
	var q struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	var blocks []struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(body, &q) != nil || len(q.Messages) == 0 ||
		json.Unmarshal(q.Messages[len(q.Messages)-1].Content, &blocks) != nil {
		return false
	}
	for _, block := range blocks {
		if block.Type == "tool_result" {
			return true
		}
	}
	return false
}

// Fields that the protocol always sends and that are empty here.
type message struct {
	ID           string        `json:"id"`
	Type         string        `json:"type"`
	Role         string        `json:"role"`
	Model        string        `json:"model"`
	Content      []any         `json:"content"`
	Container    *struct{}     `json:"container"`
	Diagnostics  *struct{}     `json:"diagnostics"`
	StopReason   *string       `json:"stop_reason"`
	StopSequence *string       `json:"stop_sequence"`
	StopDetails  *struct{}     `json:"stop_details"`
	Usage        *messageUsage `json:"usage,omitempty"`
}

type messageUsage struct {
	InputTokens              int64         `json:"input_tokens"`
	CacheCreationInputTokens int64         `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int64         `json:"cache_read_input_tokens"`
	CacheCreation            cacheCreation `json:"cache_creation"`
	OutputTokens             int64         `json:"output_tokens"`
	OutputTokensDetails      *struct{}     `json:"output_tokens_details"`
	ServerToolUse            *struct{}     `json:"server_tool_use"`
	ServiceTier              string        `json:"service_tier"`
	InferenceGeo             string        `json:"inference_geo"`
	Speed                    string        `json:"speed"`
}

type cacheCreation struct {
	Ephemeral5m int64 `json:"ephemeral_5m_input_tokens"`
	Ephemeral1h int64 `json:"ephemeral_1h_input_tokens"`
}

type textBlock struct {
	Type      string    `json:"type"`
	Text      string    `json:"text"`
	Citations *struct{} `json:"citations"`
}

type toolUseBlock struct {
	Type   string          `json:"type"`
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Caller toolCaller      `json:"caller"`
}

type toolCaller struct {
	Type string `json:"type"`
}

// anthropic authenticates in Anthropic's way.
func (p *Provider) anthropic(next func(w http.ResponseWriter, r *http.Request, credential string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Request-Id", fmt.Sprintf("req_%016x", p.next()))
		w.Header().Set("Anthropic-Organization-Id", "6f1b1a52-5c2f-4a35-9a55-0d1cbb0a7a11")
		credential := r.Header.Get("X-Api-Key")
		switch {
		case !p.accepts(credential):
			p.refuseAnthropic(w, http.StatusUnauthorized, "invalid x-api-key")
		case r.Header.Get("Anthropic-Version") == "":
			p.refuseAnthropic(w, http.StatusBadRequest, "anthropic-version: header is required")
		default:
			next(w, r, credential)
		}
	}
}

// messageAnswer is what will be said, whole or in pieces.
type messageAnswer struct {
	id         string
	model      string
	directives Directives
	words      []string
	tool       *toolUseBlock
	stop       string
	prompt     int64
	output     int64
	bedrock    bool
}

// dialect is how Anthropic's messages are asked for: by its own API or by Bedrock's.
type dialect struct {
	model   string // Bedrock: as the path has it
	stream  bool   // Bedrock: as the path says
	bedrock bool
	refuse  func(w http.ResponseWriter, status int, message string)
	fail    func(w http.ResponseWriter, d Directives)
}

func (p *Provider) readMessages(w http.ResponseWriter, r *http.Request, credential string, d *dialect) (q messageRequest, model Model, prompt string, tokens int64, ok bool) {
	var raw json.RawMessage
	err := p.read(r, credential, &raw, func() (string, bool) {
		_ = json.Unmarshal(raw, &q)
		if d.bedrock {
			return d.model, d.stream
		}
		return q.Model, q.Stream
	})
	if err == nil && json.Unmarshal(raw, &q) != nil {
		err = errors.New("the body is not a valid request")
	}
	if err == nil && d.bedrock && (q.Model != "" || q.Stream || q.Version == "") {
		err = errors.New("malformed input request: anthropic_version is required; model and stream are not permitted")
	}
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errTooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		d.refuse(w, status, err.Error())
		return q, model, "", 0, false
	}
	if d.bedrock {
		q.Model, q.Stream = d.model, d.stream
	}
	model, known := p.models[q.Model]
	if !known || model.Embeddings {
		d.refuse(w, http.StatusNotFound, "model: "+q.Model)
		return q, model, "", 0, false
	}
	if len(q.Messages) == 0 {
		d.refuse(w, http.StatusBadRequest, "messages: at least one message is required")
		return q, model, "", 0, false
	}
	if answersTool(raw) {
		q.Tools = nil // the model has what it asked for
	}
	var b strings.Builder
	b.WriteString(string(q.System))
	for _, m := range q.Messages {
		b.WriteString(string(m.Content))
		tokens += perMessage
	}
	for _, t := range q.Tools {
		tokens += perTool + count(t.Name+string(t.InputSchema))
	}
	return q, model, b.String(), tokens + count(b.String()), true
}

// own is Anthropic's dialect.
func (p *Provider) own() *dialect { return &dialect{refuse: p.refuseAnthropic, fail: p.failAnthropic} }

func (p *Provider) countTokens(w http.ResponseWriter, r *http.Request, credential string) {
	_, model, prompt, tokens, ok := p.readMessages(w, r, credential, p.own())
	if !ok {
		return
	}
	d, err := parseDirectives(model.Directives, prompt)
	switch {
	case err != nil:
		p.refuseAnthropic(w, http.StatusBadRequest, err.Error())
	case p.delay(r.Context(), d) != nil:
	case d.Error != 0:
		p.failAnthropic(w, d)
	default:
		send(w, http.StatusOK, map[string]int64{"input_tokens": tokens}, -1)
	}
}

func (p *Provider) messages(w http.ResponseWriter, r *http.Request, credential string) {
	p.answerMessage(w, r, credential, p.own())
}

func (p *Provider) answerMessage(w http.ResponseWriter, r *http.Request, credential string, said *dialect) {
	q, model, prompt, tokens, ok := p.readMessages(w, r, credential, said)
	if !ok {
		return
	}
	if q.MaxTokens == nil || *q.MaxTokens < 1 {
		said.refuse(w, http.StatusBadRequest, "max_tokens: a value of at least 1 is required")
		return
	}
	d, err := parseDirectives(model.Directives, prompt)
	if err != nil {
		said.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if p.delay(r.Context(), d) != nil {
		return
	}
	if d.Error != 0 {
		said.fail(w, d)
		return
	}
	a := &messageAnswer{model: q.Model, bedrock: said.bedrock, directives: d, prompt: tokens, stop: "end_turn"}
	serial := p.next()
	a.id = fmt.Sprintf("msg_%016x", serial)
	if len(q.Tools) > 0 && (q.ToolChoice == nil || q.ToolChoice.Type != "none") {
		a.stop = "tool_use"
		chosen := q.Tools[0]
		for _, t := range q.Tools {
			if q.ToolChoice != nil && t.Name == q.ToolChoice.Name {
				chosen = t
			}
		}
		a.tool = &toolUseBlock{
			Type: "tool_use", ID: fmt.Sprintf("toolu_%016x", serial), Name: chosen.Name,
			Input: json.RawMessage(arguments(chosen.InputSchema)), Caller: toolCaller{"direct"},
		}
		a.output = count(chosen.Name + string(a.tool.Input))
	} else {
		a.output = d.Tokens
		if a.output > *q.MaxTokens {
			a.output, a.stop = *q.MaxTokens, "max_tokens"
		}
		a.words = write(prompt, a.output)
	}
	if q.Stream {
		p.streamMessage(w, r, a)
		return
	}
	m := a.message()
	m.StopReason, m.Usage = &a.stop, a.usage(a.output)
	if a.tool != nil {
		m.Content = []any{a.tool}
	} else {
		m.Content = []any{textBlock{Type: "text", Text: strings.Join(a.words, "")}}
	}
	if a.bedrock {
		a.invocationHeader(w.Header())
	}
	send(w, http.StatusOK, m, d.Cut)
}

func (a *messageAnswer) message() message {
	return message{ID: a.id, Type: "message", Role: "assistant", Model: a.model, Content: []any{}}
}

// usage reports the prompt in disjoint classes, as this protocol does.
func (a *messageAnswer) usage(output int64) *messageUsage {
	if a.directives.NoUsage {
		return nil
	}
	u := &messageUsage{OutputTokens: output, ServiceTier: "standard", InferenceGeo: "global", Speed: "standard"}
	left := a.prompt
	take := func(n int64) int64 {
		n = min(n, left)
		left -= n
		return n
	}
	u.CacheReadInputTokens = take(a.directives.Cached)
	u.CacheCreation.Ephemeral5m = take(a.directives.Write5m)
	u.CacheCreation.Ephemeral1h = take(a.directives.Write1h)
	u.CacheCreationInputTokens = u.CacheCreation.Ephemeral5m + u.CacheCreation.Ephemeral1h
	u.InputTokens = left
	if a.directives.Negative {
		u.OutputTokens = -1
	}
	return u
}

var anthropicErrors = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusPaymentRequired:       "billing_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusGatewayTimeout:        "timeout_error",
	529:                              "overloaded_error",
}

type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id"`
}

func newAnthropicError(status int, message, requestID string) anthropicError {
	e := anthropicError{Type: "error", RequestID: requestID}
	e.Error.Message = message
	e.Error.Type = anthropicErrors[status]
	if e.Error.Type == "" && status < 500 {
		e.Error.Type = "invalid_request_error"
	} else if e.Error.Type == "" {
		e.Error.Type = "api_error"
	}
	return e
}

func (p *Provider) refuseAnthropic(w http.ResponseWriter, status int, message string) {
	send(w, status, newAnthropicError(status, message, w.Header().Get("Request-Id")), -1)
}

// failAnthropic is the error that a directive asked for.
func (p *Provider) failAnthropic(w http.ResponseWriter, d Directives) {
	if d.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(d.RetryAfter))
	}
	message := "The built-in provider was asked to fail."
	if d.Error == 529 {
		message = "Overloaded"
	}
	p.refuseAnthropic(w, d.Error, message)
}
