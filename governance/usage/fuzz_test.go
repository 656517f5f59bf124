package usage_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/usage"
)

func FuzzFromJSON(f *testing.F) {
	for _, s := range []string{
		`{"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`, `{"usage":{"input_tokens":1,"output_tokens":2}}`,
		`{"usage":{"prompt_tokens":-9,"completion_tokens":1e3,"total_tokens":"21"}}`, `{"a":"\u00e9\\","b":[1,2.5e-3,{}],"usage":null}`,
		`{"error":{"message":"m","type":"t","code":5}}`, `{}`, `[`, `{"usage":{"prompt_tokens":9223372036854775807,"completion_tokens":9223372036854775807}}`,
	} {
		f.Add(uint8(1), []byte(s))
		f.Add(uint8(3), []byte(s))
		f.Add(uint8(4), []byte(s))
		f.Add(uint8(5), []byte(s))
	}
	f.Add(uint8(5), []byte(`{"usage":{"inputTokens":9,"outputTokens":12,"totalTokens":41,"cacheWriteInputTokens":20,"cacheDetails":[{"ttl":"1h","inputTokens":20}]}}`))
	f.Fuzz(func(t *testing.T, p uint8, body []byte) {
		u, err := usage.FromJSON(usage.Protocol(p), body)
		requireSane(t, u)
		if err != nil {
			require.Equal(t, usage.Usage{}, u)
			return
		}
		require.True(t, json.Valid(body), "what we take, the standard library takes")
		for _, name := range []string{"", "com.amazon#ThrottlingException:http://x/"} {
			if e, complete := usage.ParseNamedError(usage.Protocol(p), 400, name, body); complete {
				require.NotEmpty(t, e.Error())
			}
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add(uint8(1), []byte(openaiStream), uint8(3))
	f.Add(uint8(3), []byte(anthropicStream), uint8(5))
	f.Add(uint8(4), []byte(responsesStream), uint8(5))
	f.Add(uint8(5), []byte(converseStream), uint8(5))
	f.Add(uint8(6), []byte(invokeStream), uint8(5))
	f.Add(uint8(1), []byte("\ufeffdata: {}\r\r\n\ndata:\n\n: x\n\ndata: [DONE]"), uint8(1))
	f.Fuzz(func(t *testing.T, p uint8, text []byte, n uint8) {
		one, many := read(usage.Protocol(p), string(text), 0), read(usage.Protocol(p), string(text), int(n))
		requireSane(t, one.Result())
		require.Equal(t, one.Result(), many.Result())
		require.Equal(t, one.Err(), many.Err())
		require.Equal(t, one.Done(), many.Done())
		require.Equal(t, one.DataSeen(), many.DataSeen())
	})
}

func FuzzEventScanner(f *testing.F) {
	f.Add([]byte(openaiStream), uint8(3), uint8(40))
	f.Add([]byte("data: a\r\n\r\r\n: c\n\n"), uint8(1), uint8(8))
	f.Fuzz(func(t *testing.T, text []byte, n, max uint8) {
		events, raw := scan(string(text), int(max)+1, whole)
		require.Equal(t, string(text), raw)
		again, raw := scan(string(text), int(max)+1, func(rest string) int { return min(int(n)+1, len(rest)) })
		require.Equal(t, string(text), raw)
		require.Equal(t, events, again)
	})
}

func FuzzFrameScanner(f *testing.F) {
	f.Add([]byte(converseStream), uint8(3), uint8(200))
	f.Add([]byte(invokeStream+exception("x")), uint8(1), uint8(100))
	f.Add([]byte(encode("", "")), uint8(1), uint8(100))
	f.Add([]byte(header(":message-type", 7, "event")+header(":event-type", 7, "a")+header("x", 9, "1234567890123456")), uint8(1), uint8(100))
	f.Fuzz(func(t *testing.T, text []byte, n, max uint8) {
		for _, f := range [][]byte{[]byte(encode(string(text), "payload")), []byte(encode("", string(text)))} { // past the checksums
			got, bad := frames(string(f), 0, whole)
			require.Equal(t, bad == nil, len(got) == 1)
		}
		want, bad := frames(string(text), int(max)+1, whole)
		got, err := frames(string(text), int(max)+1, func(rest string) int { return min(int(n)+1, len(rest)) })
		require.Equal(t, want, got)
		require.Equal(t, bad, err)
		size := 0
		for _, c := range want {
			size += len(c.kind) + len(c.name) + len(c.payload)
		}
		require.LessOrEqual(t, size, len(text), "nothing is made up")
	})
}

func FuzzFromHeader(f *testing.F) {
	f.Add("9", "12", "", "4", "flex")
	f.Add("-1", "1.5", "1e3", "x", "a\x00b")
	f.Add("9223372036854775807", "9223372036854775807", "007", " 5 ", "")
	f.Fuzz(func(t *testing.T, in, out, read, write, tier string) {
		values := map[string]string{
			"X-Amzn-Bedrock-Input-Token-Count": in, "X-Amzn-Bedrock-Output-Token-Count": out, "X-Amzn-Bedrock-Service-Tier": tier,
			"X-Amzn-Bedrock-Cache-Read-Input-Token-Count": read, "X-Amzn-Bedrock-Cache-Write-Input-Token-Count": write,
		}
		u := usage.FromHeader(usage.BedrockInvoke, func(name string) string { return values[name] })
		requireSane(t, u)
		require.NotEqual(t, usage.Known, u.State(), "a header does not know whether the answer came whole")
		requireSane(t, usage.Usage{}.Beside(u))
	})
}
