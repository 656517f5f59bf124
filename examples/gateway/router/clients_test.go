package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/tallystick-go/tallystick/examples/gateway/loopback"
)

// said is what a client was told of what it used. The zero value: nothing.
type said struct{ in, out int64 }

// client is one key's way to the gateway, by the official SDKs.
type client struct {
	url   string
	token string
	http  *http.Client // counts
	plain *http.Client
	sent  atomic.Int64 // requests, repeated ones included
	retry bool         // as the SDKs do by themselves
}

func (g *gateway) clientOf(token string, retry bool) *client {
	c := &client{url: g.url, token: token, retry: retry, plain: g.client}
	c.http = &http.Client{Transport: counting{g.client.Transport, &c.sent}}
	return c
}

type counting struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

func (c *client) openai() openai.Client {
	o := []option.RequestOption{
		option.WithBaseURL(c.url + "/v1"), option.WithAPIKey(c.token), option.WithHTTPClient(c.plain), option.WithUnsafeAllowHTTP(),
		option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			c.sent.Add(1) // the SDK changes the transport of what it sends by plain HTTP
			return next(r)
		}),
	}
	if !c.retry {
		o = append(o, option.WithMaxRetries(0))
	}
	return openai.NewClient(o...)
}

func (c *client) anthropic() anthropic.Client {
	o := []anthropicoption.RequestOption{anthropicoption.WithBaseURL(c.url), anthropicoption.WithAPIKey(c.token), anthropicoption.WithHTTPClient(c.http)}
	if !c.retry {
		o = append(o, anthropicoption.WithMaxRetries(0))
	}
	return anthropic.NewClient(o...)
}

func (c *client) bedrock() *bedrockruntime.Client {
	var retryer aws.Retryer
	if !c.retry {
		retryer = aws.NopRetryer{}
	}
	return loopback.Bedrock(c.url, c.token, c.http.Transport, retryer)
}

// ingress is one way in, as its official SDK uses it.
type ingress struct {
	name   string
	stream bool
	texts  bool // it generates: a maximum of output cuts it
	in     func(tokens int64) int64
	out    int64 // microUSD for a token of output
	ask    func(ctx context.Context, c *client, prompt string, most int64) (said, error)
}

// one and tenth are what a thousandth of a dollar buys of input: demo-small's price is
// 1 microUSD a token, the embeddings' a tenth of it, rounded up at the end.
func one(tokens int64) int64   { return tokens }
func tenth(tokens int64) int64 { return (tokens + 9) / 10 }

var ingresses = []ingress{
	{"chat", false, true, one, 2, func(ctx context.Context, c *client, prompt string, most int64) (said, error) {
		answer, err := clientChat(c).New(ctx, chat(prompt, most))
		if err != nil {
			return said{}, err
		}
		return said{answer.Usage.PromptTokens, answer.Usage.CompletionTokens}, nil
	}},
	{"chat stream", true, true, one, 2, func(ctx context.Context, c *client, prompt string, most int64) (s said, err error) {
		q := chat(prompt, most)
		q.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := clientChat(c).NewStreaming(ctx, q)
		for stream.Next() {
			if u := stream.Current().Usage; u.TotalTokens > 0 {
				s = said{u.PromptTokens, u.CompletionTokens}
			}
		}
		return s, stream.Err()
	}},
	{"responses", false, true, one, 2, func(ctx context.Context, c *client, prompt string, most int64) (said, error) {
		o := c.openai()
		answer, err := o.Responses.New(ctx, respond(prompt, most))
		if err != nil {
			return said{}, err
		}
		return said{answer.Usage.InputTokens, answer.Usage.OutputTokens}, nil
	}},
	{"responses stream", true, true, one, 2, func(ctx context.Context, c *client, prompt string, most int64) (s said, err error) {
		o := c.openai()
		stream := o.Responses.NewStreaming(ctx, respond(prompt, most))
		for stream.Next() {
			if u := stream.Current().Response.Usage; u.TotalTokens > 0 {
				s = said{u.InputTokens, u.OutputTokens}
			}
		}
		return s, stream.Err()
	}},
	{"embeddings", false, false, tenth, 0, func(ctx context.Context, c *client, prompt string, _ int64) (said, error) {
		o := c.openai()
		answer, err := o.Embeddings.New(ctx, openai.EmbeddingNewParams{
			Model: "demo-embedding", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String(prompt)},
		})
		if err != nil {
			return said{}, err
		}
		return said{answer.Usage.PromptTokens, 0}, nil
	}},
	{"messages", false, true, one, 2, func(ctx context.Context, c *client, prompt string, most int64) (said, error) {
		a := c.anthropic()
		answer, err := a.Messages.New(ctx, message(prompt, most))
		if err != nil {
			return said{}, err
		}
		return said{answer.Usage.InputTokens, answer.Usage.OutputTokens}, nil
	}},
	{"messages stream", true, true, one, 2, func(ctx context.Context, c *client, prompt string, most int64) (said, error) {
		a := c.anthropic()
		stream := a.Messages.NewStreaming(ctx, message(prompt, most))
		var all anthropic.Message
		for stream.Next() {
			if err := all.Accumulate(stream.Current()); err != nil {
				return said{}, err
			}
		}
		return said{all.Usage.InputTokens, all.Usage.OutputTokens}, stream.Err()
	}},
	{"converse", false, true, one, 2, func(ctx context.Context, c *client, prompt string, most int64) (said, error) {
		answer, err := c.bedrock().Converse(ctx, &bedrockruntime.ConverseInput{
			ModelId: aws.String(bedrockModel), Messages: conversation(prompt), InferenceConfig: &types.InferenceConfiguration{MaxTokens: aws.Int32(int32(most))},
		})
		if err != nil || answer.Usage == nil {
			return said{}, err
		}
		return said{int64(*answer.Usage.InputTokens), int64(*answer.Usage.OutputTokens)}, nil
	}},
	{"converse stream", true, true, one, 2, func(ctx context.Context, c *client, prompt string, most int64) (s said, err error) {
		answer, err := c.bedrock().ConverseStream(ctx, &bedrockruntime.ConverseStreamInput{
			ModelId: aws.String(bedrockModel), Messages: conversation(prompt), InferenceConfig: &types.InferenceConfiguration{MaxTokens: aws.Int32(int32(most))},
		})
		if err != nil {
			return said{}, err
		}
		stream, ended := answer.GetStream(), false
		for e := range stream.Events() {
			if m, ok := e.(*types.ConverseStreamOutputMemberMetadata); ok {
				if ended = true; m.Value.Usage != nil {
					s = said{int64(*m.Value.Usage.InputTokens), int64(*m.Value.Usage.OutputTokens)}
				}
			}
		}
		return s, errors.Join(stream.Err(), stream.Close(), whole(ctx, ended))
	}},
	{"invoke", false, true, one, 2, func(ctx context.Context, c *client, prompt string, most int64) (said, error) {
		answer, err := c.bedrock().InvokeModel(ctx, &bedrockruntime.InvokeModelInput{ModelId: aws.String(bedrockModel), Body: native(prompt, most)})
		if err != nil {
			return said{}, err
		}
		var m anthropic.Message
		err = json.Unmarshal(answer.Body, &m)
		return said{m.Usage.InputTokens, m.Usage.OutputTokens}, err
	}},
	{"invoke stream", true, true, one, 2, func(ctx context.Context, c *client, prompt string, most int64) (said, error) {
		answer, err := c.bedrock().InvokeModelWithResponseStream(ctx, &bedrockruntime.InvokeModelWithResponseStreamInput{
			ModelId: aws.String(bedrockModel), Body: native(prompt, most),
		})
		if err != nil {
			return said{}, err
		}
		stream, ended := answer.GetStream(), false
		var all anthropic.Message
		for e := range stream.Events() {
			var event anthropic.MessageStreamEventUnion
			if err := json.Unmarshal(e.(*types.ResponseStreamMemberChunk).Value.Bytes, &event); err != nil {
				return said{}, errors.Join(err, stream.Close())
			}
			ended = ended || event.Type == "message_stop"
			if err := all.Accumulate(event); err != nil {
				return said{}, errors.Join(err, stream.Close())
			}
		}
		return said{all.Usage.InputTokens, all.Usage.OutputTokens}, errors.Join(stream.Err(), stream.Close(), whole(ctx, ended))
	}},
}

var errCut = errors.New("the stream has no end")

// whole is what AWS's SDK does not say: it takes a cut between two frames, and a
// cancelled context, for the end of a stream.
func whole(ctx context.Context, ended bool) error {
	if ended {
		return nil
	}
	return errors.Join(errCut, ctx.Err())
}

const bedrockModel = "us.vendor.small-v1:0"

func clientChat(c *client) *openai.ChatCompletionService {
	o := c.openai()
	return &o.Chat.Completions
}

func chat(prompt string, most int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: "demo-small", MaxCompletionTokens: openai.Int(most), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}
}

func respond(prompt string, most int64) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "demo-small", MaxOutputTokens: openai.Int(most), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)},
	}
}

func message(prompt string, most int64) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{Model: "spoken", MaxTokens: most, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))}}
}

func conversation(prompt string) []types.Message {
	return []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: prompt}}}}
}

func native(prompt string, most int64) []byte {
	body, err := json.Marshal(map[string]any{
		"anthropic_version": "bedrock-2023-05-31", "max_tokens": most, "messages": []any{map[string]string{"role": "user", "content": prompt}},
	})
	if err != nil {
		panic(err)
	}
	return body
}

// statusOf finds the HTTP status in any SDK's typed error, and what the error is called.
func statusOf(err error) (status int, code string) {
	var o *openai.Error
	var a *anthropic.Error
	var b *smithyhttp.ResponseError
	switch {
	case errors.As(err, &o):
		return o.StatusCode, o.Code
	case errors.As(err, &a):
		return a.StatusCode, string(a.Type())
	case errors.As(err, &b):
		var named interface{ ErrorCode() string }
		if errors.As(err, &named) {
			code = named.ErrorCode()
		}
		return b.HTTPStatusCode(), code
	}
	return 0, ""
}
