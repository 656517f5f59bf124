package provider

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

type chatRequest struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	MaxTokens           *int64 `json:"max_tokens"`
	MaxCompletionTokens *int64 `json:"max_completion_tokens"`
	N                   *int64 `json:"n"`
	Stream              bool   `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools []struct {
		Type     string `json:"type"`
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`
}

type chatCompletion struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"`
	Created           int64        `json:"created"`
	Model             string       `json:"model"`
	Choices           []chatChoice `json:"choices"`
	Usage             *chatUsage   `json:"usage,omitempty"`
	ServiceTier       string       `json:"service_tier"`
	SystemFingerprint string       `json:"system_fingerprint"`
}

type chatChoice struct {
	Index        int64       `json:"index"`
	Message      chatMessage `json:"message"`
	Logprobs     *struct{}   `json:"logprobs"`
	FinishReason string      `json:"finish_reason"`
}

type chatMessage struct {
	Role        string         `json:"role"`
	Content     *string        `json:"content"`
	Refusal     *string        `json:"refusal"`
	Annotations []struct{}     `json:"annotations"`
	ToolCalls   []chatToolCall `json:"tool_calls,omitempty"`
}

type chatToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type chatUsage struct {
	PromptTokens        int64 `json:"prompt_tokens"`
	CompletionTokens    int64 `json:"completion_tokens"`
	TotalTokens         int64 `json:"total_tokens"`
	PromptTokensDetails struct {
		CachedTokens int64 `json:"cached_tokens"`
		AudioTokens  int64 `json:"audio_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails struct {
		ReasoningTokens          int64 `json:"reasoning_tokens"`
		AudioTokens              int64 `json:"audio_tokens"`
		AcceptedPredictionTokens int64 `json:"accepted_prediction_tokens"`
		RejectedPredictionTokens int64 `json:"rejected_prediction_tokens"`
	} `json:"completion_tokens_details"`
}

// openai authenticates in OpenAI's way.
func (p *Provider) openai(next func(w http.ResponseWriter, r *http.Request, credential string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", fmt.Sprintf("req_%016x", p.next()))
		w.Header().Set("Openai-Version", "2020-10-01")
		w.Header().Set("Openai-Organization", "the-gateways-own")
		w.Header().Set("Set-Cookie", "session=the-gateways-own")
		credential := bearer(r)
		if !p.accepts(credential) {
			p.refuseOpenAI(w, http.StatusUnauthorized, "Incorrect API key provided.", "", "invalid_api_key")
			return
		}
		next(w, r, credential)
	}
}

// asked reads a request for text and has it planned, and does what its directives say comes
// before an answer. It reports whether there is to be one.
func (p *Provider) asked(w http.ResponseWriter, r *http.Request, credential string, q any, names func() (model string, stream bool), plan func(Model) (Directives, error)) bool {
	if err := p.read(r, credential, q, names); err != nil {
		p.refuseBodyOpenAI(w, err)
		return false
	}
	name, _ := names()
	model, known := p.models[name]
	if !known || model.Embeddings {
		p.refuseModelOpenAI(w, name)
		return false
	}
	d, err := plan(model)
	switch {
	case err != nil:
		p.refuseOpenAI(w, http.StatusBadRequest, err.Error(), "", "")
	case p.delay(r.Context(), d) != nil:
	case d.Error != 0:
		p.failOpenAI(w, d)
	default:
		return true
	}
	return false
}

func (p *Provider) chat(w http.ResponseWriter, r *http.Request, credential string) {
	var q chatRequest
	var a *chatAnswer
	if !p.asked(w, r, credential, &q, func() (string, bool) { return q.Model, q.Stream }, func(m Model) (d Directives, err error) {
		if a, err = p.plan(&q, m); err == nil {
			d = a.directives
		}
		return d, err
	}) {
		return
	}
	w.Header().Set("Openai-Processing-Ms", "7")
	if q.Stream {
		p.streamChat(w, r, a, q.StreamOptions != nil && q.StreamOptions.IncludeUsage)
		return
	}
	send(w, http.StatusOK, a.completion(), a.directives.Cut)
}

// chatAnswer is what will be said, whole or in pieces.
type chatAnswer struct {
	id         string
	created    int64
	model      string
	directives Directives
	n          int64
	words      []string
	tool       *chatToolCall
	finish     string
	prompt     int64
	output     int64 // of all choices
}

func (p *Provider) plan(q *chatRequest, model Model) (*chatAnswer, error) {
	if len(q.Messages) == 0 {
		return nil, errors.New("invalid 'messages': expected at least one")
	}
	var prompt strings.Builder
	a := &chatAnswer{model: q.Model, n: 1, created: p.options.Now().Unix()}
	for _, m := range q.Messages {
		prompt.WriteString(string(m.Content))
		a.prompt += perMessage
	}
	a.prompt += count(prompt.String())
	for _, t := range q.Tools {
		a.prompt += perTool + count(string(t.Function.Parameters)+t.Function.Name)
	}
	var err error
	if a.directives, err = parseDirectives(model.Directives, prompt.String()); err != nil {
		return nil, err
	}
	if a.directives.Prompt > 0 {
		a.prompt = a.directives.Prompt
	}
	if q.N != nil {
		if a.n = *q.N; a.n < 1 || a.n > 128 {
			return nil, errors.New("invalid 'n': expected a value from 1 to 128")
		}
	}
	serial := p.next()
	a.id = fmt.Sprintf("chatcmpl-%016x", serial)
	last := q.Messages[len(q.Messages)-1].Role
	if name, forced := toolChoice(q.ToolChoice); len(q.Tools) > 0 && name != "none" && (forced || last != "tool") {
		a.finish = "tool_calls"
		chosen := q.Tools[0].Function
		for _, t := range q.Tools {
			if t.Function.Name == name {
				chosen = t.Function
			}
		}
		a.tool = &chatToolCall{
			ID: fmt.Sprintf("call_%016x", serial), Type: "function",
			Function: chatFunction{Name: chosen.Name, Arguments: arguments(chosen.Parameters)},
		}
		a.output = a.n * count(chosen.Name+a.tool.Function.Arguments)
		return a, nil
	}
	length := a.directives.Tokens
	a.finish = "stop"
	for _, most := range []*int64{q.MaxCompletionTokens, q.MaxTokens} {
		if most == nil {
			continue
		}
		if *most < 1 {
			return nil, errors.New("invalid 'max_tokens': expected a value of at least 1")
		}
		if length > *most {
			length, a.finish = *most, "length"
		}
		break
	}
	a.output = length * a.n
	a.words = write(prompt.String(), length)
	return a, nil
}

// toolChoice reads "none", "auto", "required" or a named function.
func toolChoice(raw json.RawMessage) (name string, forced bool) {
	if json.Unmarshal(raw, &name) == nil {
		return name, name == "required"
	}
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &named) == nil && named.Function.Name != "" {
		return named.Function.Name, true
	}
	return "auto", false
}

func (a *chatAnswer) usage() *chatUsage {
	if a.directives.NoUsage {
		return nil
	}
	u := &chatUsage{PromptTokens: a.prompt, CompletionTokens: a.output, TotalTokens: a.prompt + a.output}
	u.PromptTokensDetails.CachedTokens = min(a.directives.Cached, a.prompt)
	u.CompletionTokensDetails.ReasoningTokens = min(a.directives.Reasoning, a.output)
	if a.directives.Negative {
		u.CompletionTokens = -1
	}
	return u
}

func (a *chatAnswer) completion() chatCompletion {
	c := chatCompletion{
		ID: a.id, Object: "chat.completion", Created: a.created, Model: a.model,
		Usage: a.usage(), ServiceTier: "default", SystemFingerprint: "fp_tally",
	}
	for i := range a.n {
		m := chatMessage{Role: "assistant", Annotations: []struct{}{}}
		if a.tool != nil {
			m.ToolCalls = []chatToolCall{*a.tool}
		} else {
			text := strings.Join(a.words, "")
			m.Content = &text
		}
		c.Choices = append(c.Choices, chatChoice{Index: i, Message: m, FinishReason: a.finish})
	}
	return c
}

type openaiModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// modelsSince is when all models were made, as far as anyone is told.
const modelsSince = 1735689600

func (p *Provider) listModels(w http.ResponseWriter, r *http.Request) {
	if !p.accepts(bearer(r)) {
		p.refuseOpenAI(w, http.StatusUnauthorized, "Incorrect API key provided.", "", "invalid_api_key")
		return
	}
	data := []openaiModel{}
	for _, m := range p.options.Models {
		data = append(data, openaiModel{m.Name, "model", modelsSince, "tallystick"})
	}
	send(w, http.StatusOK, map[string]any{"object": "list", "data": data}, -1)
}

func (p *Provider) oneModel(w http.ResponseWriter, r *http.Request) {
	m, known := p.models[r.PathValue("model")]
	if !known {
		p.refuseModelOpenAI(w, r.PathValue("model"))
		return
	}
	send(w, http.StatusOK, openaiModel{m.Name, "model", modelsSince, "tallystick"}, -1)
}

type embeddingRequest struct {
	Model          string          `json:"model"`
	Input          json.RawMessage `json:"input"`
	EncodingFormat string          `json:"encoding_format"`
	Dimensions     *int64          `json:"dimensions"`
}

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

func (p *Provider) embeddings(w http.ResponseWriter, r *http.Request, credential string) {
	var q embeddingRequest
	if err := p.read(r, credential, &q, func() (string, bool) { return q.Model, false }); err != nil {
		p.refuseBodyOpenAI(w, err)
		return
	}
	model, known := p.models[q.Model]
	if !known || !model.Embeddings {
		p.refuseModelOpenAI(w, q.Model)
		return
	}
	inputs, tokens := embeddingInputs(q.Input)
	if len(inputs) == 0 {
		p.refuseOpenAI(w, http.StatusBadRequest, "'$.input' is invalid.", "input", "")
		return
	}
	size := int64(8)
	if q.Dimensions != nil {
		if size = *q.Dimensions; size < 1 || size > 3072 {
			p.refuseOpenAI(w, http.StatusBadRequest, "'$.dimensions' is invalid.", "dimensions", "")
			return
		}
	}
	d, err := parseDirectives(append([]string{model.Directives}, inputs...)...)
	if err != nil {
		p.refuseOpenAI(w, http.StatusBadRequest, err.Error(), "", "")
		return
	}
	if p.delay(r.Context(), d) != nil {
		return
	}
	if d.Error != 0 {
		p.failOpenAI(w, d)
		return
	}
	data := make([]embedding, len(inputs))
	for i, text := range inputs {
		data[i] = embedding{"embedding", i, vector(text, int(size), q.EncodingFormat)}
	}
	answer := map[string]any{"object": "list", "data": data, "model": q.Model}
	if !d.NoUsage {
		answer["usage"] = map[string]int64{"prompt_tokens": tokens, "total_tokens": tokens}
	}
	send(w, http.StatusOK, answer, d.Cut)
}

// embeddingInputs reads a text, texts, tokens, or lists of tokens.
func embeddingInputs(raw json.RawMessage) (texts []string, tokens int64) {
	var one string
	var many []string
	var ids []int64
	var lists [][]int64
	switch {
	case json.Unmarshal(raw, &one) == nil && one != "":
		many = []string{one}
	case json.Unmarshal(raw, &many) == nil:
	case json.Unmarshal(raw, &ids) == nil:
		return []string{fmt.Sprint(ids)}, int64(len(ids))
	case json.Unmarshal(raw, &lists) == nil:
		for _, ids := range lists {
			texts, tokens = append(texts, fmt.Sprint(ids)), tokens+int64(len(ids))
		}
		return texts, tokens
	}
	for _, text := range many {
		tokens += count(text)
	}
	return many, tokens
}

// vector is a unit vector that depends on the text.
func vector(text string, size int, format string) any {
	out := make([]float32, size)
	for i, word := range write(text, int64(size)) {
		out[i] = float32(len(word)%5+1) / float32(4*math.Sqrt(float64(size)))
	}
	if format != "base64" {
		return out
	}
	var raw []byte
	for _, x := range out {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

type openaiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func newOpenAIError(status int, message, param, code string) map[string]openaiError {
	e := openaiError{Message: message, Type: "invalid_request_error"}
	switch {
	case status == http.StatusTooManyRequests:
		e.Type = "requests"
	case status >= 500:
		e.Type = "server_error"
	}
	if param != "" {
		e.Param = &param
	}
	if code != "" {
		e.Code = &code
	}
	return map[string]openaiError{"error": e}
}

func (p *Provider) refuseOpenAI(w http.ResponseWriter, status int, message, param, code string) {
	send(w, status, newOpenAIError(status, message, param, code), -1)
}

func (p *Provider) refuseModelOpenAI(w http.ResponseWriter, model string) {
	p.refuseOpenAI(w, http.StatusNotFound, fmt.Sprintf("The model %s does not exist or you do not have access to it.", strconv.Quote(model)), "", "model_not_found")
}

func (p *Provider) refuseBodyOpenAI(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if errors.Is(err, errTooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	p.refuseOpenAI(w, status, err.Error(), "", "")
}

// failOpenAI is the error that a directive asked for.
func (p *Provider) failOpenAI(w http.ResponseWriter, d Directives) {
	code := ""
	if d.Error == http.StatusTooManyRequests {
		code = "rate_limit_exceeded"
	}
	if d.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(d.RetryAfter))
	}
	p.refuseOpenAI(w, d.Error, "The built-in provider was asked to fail.", "", code)
}
