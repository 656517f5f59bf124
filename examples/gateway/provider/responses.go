package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

type responsesRequest struct {
	Model           string          `json:"model"`
	Instructions    string          `json:"instructions"`
	Input           json.RawMessage `json:"input"`
	MaxOutputTokens *int64          `json:"max_output_tokens"`
	Stream          bool            `json:"stream"`
	Tools           []struct {
		Type       string          `json:"type"`
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`
}

// response is OpenAI's object of that name. Fields that the protocol always sends
// are here, empty or as a request that says nothing has them.
type response struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"`
	CreatedAt         int64             `json:"created_at"`
	Status            string            `json:"status"`
	AccessPrograms    map[string]string `json:"access_programs"`
	Background        bool              `json:"background"`
	Error             *responseError    `json:"error"`
	IncompleteDetails *incomplete       `json:"incomplete_details"`
	Instructions      *string           `json:"instructions"`
	MaxOutputTokens   *int64            `json:"max_output_tokens"`
	Metadata          struct{}          `json:"metadata"`
	Model             string            `json:"model"`
	Output            []any             `json:"output"`
	ParallelToolCalls bool              `json:"parallel_tool_calls"`
	PreviousResponse  *string           `json:"previous_response_id"`
	ServiceTier       string            `json:"service_tier"`
	Temperature       float64           `json:"temperature"`
	ToolChoice        json.RawMessage   `json:"tool_choice"`
	Tools             []any             `json:"tools"`
	TopP              float64           `json:"top_p"`
	Truncation        string            `json:"truncation"`
	Usage             *responseUsage    `json:"usage"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	InputTokens        int64 `json:"input_tokens"`
	InputTokensDetails struct {
		CacheWriteTokens int64 `json:"cache_write_tokens"`
		CachedTokens     int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens        int64 `json:"output_tokens"`
	OutputTokensDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int64 `json:"total_tokens"`
}

type outputMessage struct {
	Type    string       `json:"type"`
	ID      string       `json:"id"`
	Status  string       `json:"status"`
	Role    string       `json:"role"`
	Content []outputText `json:"content"`
}

type outputText struct {
	Type        string     `json:"type"`
	Text        string     `json:"text"`
	Annotations []struct{} `json:"annotations"`
	Logprobs    []struct{} `json:"logprobs"`
}

type functionCall struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Status    string `json:"status"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// responseAnswer is what will be said, whole or in pieces.
type responseAnswer struct {
	response   response // as it begins
	item       string   // id of the one output item
	directives Directives
	words      []string
	tool       *functionCall
	prompt     int64
	output     int64
	cut        bool // by max_output_tokens
}

func (p *Provider) responses(w http.ResponseWriter, r *http.Request, credential string) {
	var q responsesRequest
	var a *responseAnswer
	if !p.asked(w, r, credential, &q, func() (string, bool) { return q.Model, q.Stream }, func(m Model) (d Directives, err error) {
		if a, err = p.respond(&q, m); err == nil {
			d = a.directives
		}
		return d, err
	}) {
		return
	}
	if q.Stream {
		p.streamResponse(w, r, a)
		return
	}
	send(w, http.StatusOK, a.whole(), a.directives.Cut)
}

// items reads the input: a text, or items of which those with a text count. The
// last one may be a tool's result.
func (q *responsesRequest) items() (texts []string, answersTool bool, err error) {
	var text string
	if json.Unmarshal(q.Input, &text) == nil {
		return []string{text}, false, nil
	}
	var items []struct {
		Type    string  `json:"type"`
		Content content `json:"content"`
		Output  content `json:"output"`
	}
	if json.Unmarshal(q.Input, &items) != nil || len(items) == 0 {
		return nil, false, errors.New("invalid 'input': expected a text or items")
	}
	for _, item := range items {
		texts = append(texts, string(item.Content+item.Output))
	}
	return texts, items[len(items)-1].Type == "function_call_output", nil
}

func (p *Provider) respond(q *responsesRequest, model Model) (*responseAnswer, error) {
	texts, answered, err := q.items()
	if err != nil {
		return nil, err
	}
	prompt := q.Instructions + strings.Join(texts, "")
	a := &responseAnswer{prompt: count(prompt) + perMessage*int64(len(texts))}
	for _, t := range q.Tools {
		a.prompt += perTool + count(t.Name+string(t.Parameters))
	}
	if a.directives, err = parseDirectives(model.Directives, prompt); err != nil {
		return nil, err
	}
	serial := p.next()
	a.response = response{
		ID: fmt.Sprintf("resp_%016x", serial), Object: "response", CreatedAt: p.options.Now().Unix(), Status: "in_progress",
		AccessPrograms: map[string]string{"cyber": "standard"}, MaxOutputTokens: q.MaxOutputTokens, Model: q.Model, Output: []any{},
		ParallelToolCalls: true, ServiceTier: "default", Temperature: 1, ToolChoice: json.RawMessage(`"auto"`), Tools: []any{}, TopP: 1,
		Truncation: "disabled",
	}
	if q.Instructions != "" {
		a.response.Instructions = &q.Instructions
	}
	if name, forced := responsesChoice(q.ToolChoice); len(q.Tools) > 0 && name != "none" && (forced || !answered) {
		chosen := q.Tools[0]
		for _, t := range q.Tools {
			if t.Name == name {
				chosen = t
			}
		}
		a.item = fmt.Sprintf("fc_%016x", serial)
		a.tool = &functionCall{
			Type: "function_call", ID: a.item, Status: "completed", CallID: fmt.Sprintf("call_%016x", serial),
			Name: chosen.Name, Arguments: arguments(chosen.Parameters),
		}
		a.output = count(chosen.Name + a.tool.Arguments)
		return a, nil
	}
	a.item, a.output = fmt.Sprintf("msg_%016x", serial), a.directives.Tokens
	if most := q.MaxOutputTokens; most != nil {
		if *most < 1 {
			return nil, errors.New("invalid 'max_output_tokens': expected a value of at least 1")
		}
		if a.cut = a.output > *most; a.cut {
			a.output = *most
		}
	}
	a.words = write(prompt, a.output)
	return a, nil
}

// responsesChoice reads "none", "auto", "required" or a named function.
func responsesChoice(raw json.RawMessage) (name string, forced bool) {
	if json.Unmarshal(raw, &name) == nil {
		return name, name == "required"
	}
	var named struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(raw, &named) // what names nothing chooses nothing
	return named.Name, named.Name != ""
}

func (a *responseAnswer) usage() *responseUsage {
	if a.directives.NoUsage {
		return nil
	}
	u := &responseUsage{InputTokens: a.prompt, OutputTokens: a.output, TotalTokens: a.prompt + a.output}
	u.InputTokensDetails.CachedTokens = min(a.directives.Cached, a.prompt)
	u.OutputTokensDetails.ReasoningTokens = min(a.directives.Reasoning, a.output)
	if a.directives.Negative {
		u.OutputTokens = -1
	}
	return u
}

// message is the answer's one message, with a text so far.
func (a *responseAnswer) message(status string, content ...outputText) outputMessage {
	return outputMessage{Type: "message", ID: a.item, Status: status, Role: "assistant", Content: append([]outputText{}, content...)}
}

func text(s string) outputText {
	return outputText{Type: "output_text", Text: s, Annotations: []struct{}{}, Logprobs: []struct{}{}}
}

// status is how the response and its message end.
func (a *responseAnswer) status() string {
	if a.cut {
		return "incomplete"
	}
	return "completed"
}

func (a *responseAnswer) whole() response {
	out := a.response
	out.Status, out.Usage = a.status(), a.usage()
	if a.cut {
		out.IncompleteDetails = &incomplete{"max_output_tokens"}
	}
	if a.tool != nil {
		out.Output = []any{a.tool}
	} else {
		out.Output = []any{a.message(out.Status, text(strings.Join(a.words, "")))}
	}
	return out
}
