package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

type converseRequest struct {
	System   []converseBlock `json:"system"`
	Messages []struct {
		Role    string          `json:"role"`
		Content []converseBlock `json:"content"`
	} `json:"messages"`
	InferenceConfig struct {
		MaxTokens *int64 `json:"maxTokens"`
	} `json:"inferenceConfig"`
	ToolConfig struct {
		Tools []struct {
			ToolSpec *struct {
				Name        string `json:"name"`
				InputSchema struct {
					JSON json.RawMessage `json:"json"`
				} `json:"inputSchema"`
			} `json:"toolSpec"`
		} `json:"tools"`
		ToolChoice struct {
			Tool *struct {
				Name string `json:"name"`
			} `json:"tool"`
		} `json:"toolChoice"`
	} `json:"toolConfig"`
}

type converseBlock struct {
	Text       string `json:"text"`
	ToolResult *struct {
		Content []struct {
			Text string          `json:"text"`
			JSON json.RawMessage `json:"json"`
		} `json:"content"`
	} `json:"toolResult"`
}

type converseAnswer struct {
	Output struct {
		Message struct {
			Role    string `json:"role"`
			Content []any  `json:"content"`
		} `json:"message"`
	} `json:"output"`
	StopReason string         `json:"stopReason"`
	Usage      *converseUsage `json:"usage,omitempty"`
	Metrics    converseMetric `json:"metrics"`
}

type converseUsage struct {
	InputTokens           int64           `json:"inputTokens"`
	OutputTokens          int64           `json:"outputTokens"`
	TotalTokens           int64           `json:"totalTokens"`
	CacheReadInputTokens  int64           `json:"cacheReadInputTokens"`
	CacheWriteInputTokens int64           `json:"cacheWriteInputTokens"`
	CacheDetails          []converseCache `json:"cacheDetails,omitempty"`
}

type converseCache struct {
	TTL         string `json:"ttl"`
	InputTokens int64  `json:"inputTokens"`
}

type converseMetric struct {
	LatencyMS int64 `json:"latencyMs"`
}

type converseToolUse struct {
	ToolUseID string          `json:"toolUseId"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input,omitempty"`
}

// bedrock authenticates with an API key of Bedrock, and finds the model in the path.
func (p *Provider) bedrock(next func(w http.ResponseWriter, r *http.Request, credential string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Amzn-Requestid", fmt.Sprintf("00000000-0000-4000-8000-%012x", p.next()))
		credential := bearer(r)
		if !p.accepts(credential) {
			p.refuseBedrock(w, http.StatusForbidden, "Authentication failed: Please make sure your API Key is valid.")
			return
		}
		next(w, r, credential)
	}
}

func (p *Provider) converse(stream bool) http.HandlerFunc {
	return p.bedrock(func(w http.ResponseWriter, r *http.Request, credential string) {
		var q converseRequest
		name := r.PathValue("model")
		if err := p.read(r, credential, &q, func() (string, bool) { return name, stream }); err != nil {
			p.refuseBedrock(w, http.StatusBadRequest, err.Error())
			return
		}
		model, known := p.models[name]
		if !known || model.Embeddings {
			p.refuseBedrock(w, http.StatusBadRequest, "The provided model identifier is invalid.")
			return
		}
		a, err := p.converseAnswer(&q, model)
		if err != nil {
			p.refuseBedrock(w, http.StatusBadRequest, err.Error())
			return
		}
		if p.delay(r.Context(), a.directives) != nil {
			return
		}
		switch {
		case a.directives.Error != 0:
			p.failBedrock(w, a.directives)
		case stream:
			p.streamConverse(w, r, a)
		default:
			send(w, http.StatusOK, a.converse(), a.directives.Cut)
		}
	})
}

// invoke takes Anthropic's messages, as Bedrock passes them on.
func (p *Provider) invoke(stream bool) http.HandlerFunc {
	return p.bedrock(func(w http.ResponseWriter, r *http.Request, credential string) {
		p.answerMessage(w, r, credential, &dialect{
			model: r.PathValue("model"), stream: stream, bedrock: true, refuse: p.refuseBedrock, fail: p.failBedrock,
		})
	})
}

// converseAnswer decides what will be said.
func (p *Provider) converseAnswer(q *converseRequest, model Model) (*messageAnswer, error) {
	if len(q.Messages) == 0 {
		return nil, errors.New("a conversation must start with a user message")
	}
	a := &messageAnswer{model: model.Name, stop: "end_turn"}
	var prompt strings.Builder
	say := func(blocks []converseBlock) (result bool) {
		for _, b := range blocks {
			prompt.WriteString(b.Text)
			if b.ToolResult == nil {
				continue
			}
			result = true
			for _, c := range b.ToolResult.Content {
				prompt.WriteString(c.Text + string(c.JSON))
			}
		}
		return result
	}
	say(q.System)
	answered := false
	for _, m := range q.Messages {
		answered = say(m.Content)
		a.prompt += perMessage
	}
	a.prompt += count(prompt.String())
	var err error
	if a.directives, err = parseDirectives(model.Directives, prompt.String()); err != nil {
		return nil, err
	}
	serial := p.next()
	for _, t := range q.ToolConfig.Tools {
		if t.ToolSpec == nil {
			continue
		}
		a.prompt += perTool + count(t.ToolSpec.Name+string(t.ToolSpec.InputSchema.JSON))
		named := q.ToolConfig.ToolChoice.Tool
		if answered || a.tool != nil && (named == nil || named.Name != t.ToolSpec.Name) {
			continue
		}
		a.tool = &toolUseBlock{ID: fmt.Sprintf("tooluse_%016x", serial), Name: t.ToolSpec.Name, Input: json.RawMessage(arguments(t.ToolSpec.InputSchema.JSON))}
	}
	if a.tool != nil {
		a.stop, a.output = "tool_use", count(a.tool.Name+string(a.tool.Input))
		return a, nil
	}
	a.output = a.directives.Tokens
	if most := q.InferenceConfig.MaxTokens; most != nil {
		if *most < 1 {
			return nil, errors.New("the value of maxTokens must be at least 1")
		}
		if a.output > *most {
			a.output, a.stop = *most, "max_tokens"
		}
	}
	a.words = write(prompt.String(), a.output)
	return a, nil
}

func (a *messageAnswer) converse() converseAnswer {
	out := converseAnswer{StopReason: a.stop, Usage: a.converseUsage(), Metrics: converseMetric{7}}
	out.Output.Message.Role = "assistant"
	if a.tool != nil {
		out.Output.Message.Content = []any{map[string]any{"toolUse": converseToolUse{a.tool.ID, a.tool.Name, a.tool.Input}}}
	} else {
		out.Output.Message.Content = []any{map[string]string{"text": strings.Join(a.words, "")}}
	}
	return out
}

// converseUsage reports the prompt in disjoint classes, and a total of all of them.
func (a *messageAnswer) converseUsage() *converseUsage {
	u := a.usage(a.output)
	if u == nil {
		return nil
	}
	out := &converseUsage{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: a.prompt + a.output,
		CacheReadInputTokens: u.CacheReadInputTokens, CacheWriteInputTokens: u.CacheCreationInputTokens,
	}
	for _, c := range []converseCache{{"1h", u.CacheCreation.Ephemeral1h}, {"5m", u.CacheCreation.Ephemeral5m}} {
		if c.InputTokens > 0 {
			out.CacheDetails = append(out.CacheDetails, c)
		}
	}
	return out
}

// invocationHeader is what Bedrock counts beside an invoke's answer.
func (a *messageAnswer) invocationHeader(h http.Header) {
	u := a.usage(a.output)
	if u == nil || a.directives.Negative {
		return
	}
	for name, n := range map[string]int64{
		"X-Amzn-Bedrock-Input-Token-Count": u.InputTokens, "X-Amzn-Bedrock-Output-Token-Count": u.OutputTokens,
		"X-Amzn-Bedrock-Cache-Read-Input-Token-Count":  u.CacheReadInputTokens,
		"X-Amzn-Bedrock-Cache-Write-Input-Token-Count": u.CacheCreationInputTokens,
		"X-Amzn-Bedrock-Invocation-Latency":            7,
	} {
		h.Set(name, strconv.FormatInt(n, 10))
	}
}

var bedrockErrors = map[int]string{
	http.StatusBadRequest:          "ValidationException",
	http.StatusForbidden:           "AccessDeniedException",
	http.StatusNotFound:            "ResourceNotFoundException",
	http.StatusRequestTimeout:      "ModelTimeoutException",
	http.StatusFailedDependency:    "ModelErrorException",
	http.StatusTooManyRequests:     "ThrottlingException",
	http.StatusInternalServerError: "InternalServerException",
	http.StatusServiceUnavailable:  "ServiceUnavailableException",
}

func (p *Provider) refuseBedrock(w http.ResponseWriter, status int, message string) {
	name := bedrockErrors[status]
	switch {
	case name != "":
	case status < 500:
		name = "ValidationException"
	default:
		name = "InternalServerException"
	}
	w.Header().Set("X-Amzn-Errortype", name+":http://internal.amazon.com/coral/com.amazon.bedrock/")
	send(w, status, map[string]string{"message": message}, -1)
}

// failBedrock is the error that a directive asked for.
func (p *Provider) failBedrock(w http.ResponseWriter, d Directives) {
	if d.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(d.RetryAfter))
	}
	p.refuseBedrock(w, d.Error, "The built-in provider was asked to fail.")
}
