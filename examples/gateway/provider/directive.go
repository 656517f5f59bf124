package provider

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Directives say how to answer one request.
//
//	tokens=N         write N tokens (default 12); max_tokens still cuts them
//	prompt=N         report N tokens of prompt, whatever they are (OpenAI's chat)
//	slow=DURATION    wait before the first byte
//	pace=DURATION    wait between the events of a stream
//	hold=NAME        wait before the first byte until Release(NAME)
//	error=STATUS     answer with the provider's error envelope of that status
//	retry-after=N    send Retry-After: N seconds with the error
//	cut=N            drop the connection after N events of a stream, or after N bytes of a body
//	stream-error=N   send an error event after N events of a stream
//	usage=none       leave the usage report out
//	usage=negative   report a count that cannot be
//	cached=N         so many of the prompt's tokens came from a cache
//	write-5m=N       so many were written to a cache for 5 minutes (Anthropic, Bedrock)
//	write-1h=N       so many were written to a cache for an hour (Anthropic, Bedrock)
//	reasoning=N      so many of the tokens written were reasoning (OpenAI)
type Directives struct {
	Tokens      int64
	Prompt      int64 // 0: what was counted
	Slow        time.Duration
	Pace        time.Duration
	Hold        string
	Error       int
	RetryAfter  int
	Cut         int // -1: not at all
	StreamError int // -1: not at all
	NoUsage     bool
	Negative    bool
	Cached      int64
	Write5m     int64
	Write1h     int64
	Reasoning   int64
}

const (
	directiveStart = "{{provider:"
	directiveEnd   = "}}"
	maxTokens      = 100_000
	maxWait        = time.Minute
)

// parseDirectives reads what the model says and then what the prompt says, so
// that the prompt has the last word.
func parseDirectives(texts ...string) (Directives, error) {
	d := Directives{Tokens: 12, Cut: -1, StreamError: -1}
	for _, text := range texts {
		for {
			_, rest, found := strings.Cut(text, directiveStart)
			if !found {
				break
			}
			body, after, found := strings.Cut(rest, directiveEnd)
			if !found {
				return d, fmt.Errorf("a directive begins with %q and has no %q", directiveStart, directiveEnd)
			}
			for word := range strings.FieldsSeq(body) {
				if err := d.set(word); err != nil {
					return d, err
				}
			}
			text = after
		}
	}
	return d, nil
}

func (d *Directives) set(word string) error {
	name, value, _ := strings.Cut(word, "=")
	var err error
	switch name {
	case "tokens":
		d.Tokens, err = number(value, maxTokens)
	case "prompt":
		d.Prompt, err = number(value, maxTokens)
	case "slow":
		d.Slow, err = wait(value)
	case "pace":
		d.Pace, err = wait(value)
	case "hold":
		d.Hold = value
	case "error":
		var status int64
		if status, err = number(value, 599); err == nil && status < 400 {
			err = fmt.Errorf("must be a status from 400 to 599")
		}
		d.Error = int(status)
	case "retry-after":
		var seconds int64
		seconds, err = number(value, 3600)
		d.RetryAfter = int(seconds)
	case "cut":
		var n int64
		n, err = number(value, maxTokens)
		d.Cut = int(n)
	case "stream-error":
		var n int64
		n, err = number(value, maxTokens)
		d.StreamError = int(n)
	case "usage":
		switch value {
		case "none":
			d.NoUsage = true
		case "negative":
			d.Negative = true
		default:
			err = fmt.Errorf("must be none or negative")
		}
	case "cached":
		d.Cached, err = number(value, maxTokens)
	case "write-5m":
		d.Write5m, err = number(value, maxTokens)
	case "write-1h":
		d.Write1h, err = number(value, maxTokens)
	case "reasoning":
		d.Reasoning, err = number(value, maxTokens)
	default:
		return fmt.Errorf("directive %q is unknown", name)
	}
	if err != nil {
		return fmt.Errorf("directive %q: %w", name, err)
	}
	return nil
}

func number(text string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("must be a number from 0 to %d", most)
	}
	return n, nil
}

func wait(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxWait {
		return 0, fmt.Errorf("must be a duration of at most %s", maxWait)
	}
	return d, nil
}
