package usage_test

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/governance/usage"
)

// header is one header of a frame, as bytes.
func header(name string, kind byte, value string) string {
	out := string([]byte{byte(len(name))}) + name + string([]byte{kind})
	if kind == 6 || kind == 7 {
		out += string(binary.BigEndian.AppendUint16(nil, uint16(len(value))))
	}
	return out + value
}

// encode makes a frame of headers and a payload.
func encode(headers, payload string) string {
	out := binary.BigEndian.AppendUint32(nil, uint32(16+len(headers)+len(payload)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(headers)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	out = append(append(out, headers...), payload...)
	return string(binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out)))
}

func framed(name, payload string) string {
	return encode(header(":message-type", 7, "event")+header(":event-type", 7, name)+header(":content-type", 7, "application/json"), payload)
}

func exception(name string) string {
	return encode(header(":message-type", 7, "exception")+header(":exception-type", 7, name), `{"message":"no"}`)
}

// chunk is a piece of a vendor's stream in Bedrock's wrapping.
func chunk(data string) string {
	return framed("chunk", `{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(data))+`","p":"abcd"}`)
}

// copied is a Frame that outlives its callback.
type copied struct {
	kind, name, payload string
	oversize            bool
}

func frames(text string, max int, pieces func(rest string) int) ([]copied, error) {
	s := usage.FrameScanner{MaxFrame: max}
	var out []copied
	for rest := text; len(rest) > 0; {
		n := pieces(rest)
		s.Feed([]byte(rest[:n]), func(f usage.Frame) {
			out = append(out, copied{string(f.Kind), string(f.Name), string(f.Payload), f.Oversize})
		})
		rest = rest[n:]
	}
	return out, s.Err()
}

func TestFrameScanner(t *testing.T) {
	const eventHeaders = "\x0d:message-type\x07\x00\x05event\x0b:event-type\x07\x00\x01a"
	all := header("t", 0, "") + header("f", 1, "") + header("b", 2, "1") + header("s", 3, "12") + header("i", 4, "1234") +
		header("l", 5, "12345678") + header("y", 6, "\x00\xff") + header("d", 8, "12345678") + header("u", 9, "1234567890123456")
	for _, c := range []struct {
		name, text string
		want       []copied
		bad        bool
	}{
		{"nothing", "", nil, false},
		{"one", framed("a", "{}"), []copied{{"event", "a", "{}", false}}, false},
		{"no payload", framed("a", ""), []copied{{"event", "a", "", false}}, false},
		{"two", framed("a", "1") + exception("b"), []copied{{"event", "a", "1", false}, {"exception", "b", `{"message":"no"}`, false}}, false},
		{"error", encode(header(":message-type", 7, "error")+header(":error-code", 7, "c"), ""), []copied{{"error", "c", "", false}}, false},
		{"every kind of header", encode(all+eventHeaders, "x"), []copied{{"event", "a", "x", false}}, false},
		{"cut", framed("a", "1")[:20], nil, false},
		{"oversize", framed("a", "1") + framed("b", strings.Repeat("x", 200)) + framed("c", "2"), []copied{{"event", "a", "1", false}, {oversize: true}, {"event", "c", "2", false}}, false},
		{"oversize and cut", framed("b", strings.Repeat("x", 200))[:150], nil, false},

		{"no frame", "data: {}\n\ndata: {}\n\n", nil, true},
		{"frame, then none", framed("a", "1") + "data: {}\n\ndata", []copied{{"event", "a", "1", false}}, true},
		{"no headers", encode("", "{}"), nil, true},
		{"no type of the message", encode(header(":event-type", 7, "a"), ""), nil, true},
		{"no type of the event", encode(header(":message-type", 7, "event"), ""), nil, true},
		{"another message", encode(header(":message-type", 7, "x")+header(":event-type", 7, "a"), ""), nil, true},
		{"header twice", encode(eventHeaders+header(":event-type", 7, "b"), ""), nil, true},
		{"type that is no text", encode(header(":message-type", 0, "")+header(":event-type", 7, "b"), ""), nil, true},
		{"header without a name", encode("\x00\x00"+eventHeaders, ""), nil, true},
		{"header of a type that is none", encode(header("x", 10, "")+eventHeaders, ""), nil, true},
		{"header that is longer than the headers", encode(eventHeaders+"\x01x\x07\x00\x09abc", "defghijkl"), nil, true},
		{"header without its length", encode(eventHeaders+"\x01x\x07\x00", ""), nil, true},
		{"name that is longer than the headers", encode(eventHeaders+"\x09x", ""), nil, true},
		{"headers longer than the frame", prelude(17, 2), nil, true},
		{"frame shorter than itself", prelude(15, 0), nil, true},
		{"frame of a size that none has", prelude(1<<31, 0), nil, true},
		{"headers of a size that none has", prelude(1<<20, 1<<19), nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pieces := range []func(string) int{whole, byOne} {
				got, err := frames(c.text, 128, pieces)
				require.Equal(t, c.want, got)
				if c.bad {
					require.ErrorIs(t, err, usage.ErrFrame)
				} else {
					require.NoError(t, err)
				}
			}
		})
	}
}

// prelude begins a frame that says how long it is, and says it with a good checksum.
func prelude(size, headers uint32) string {
	out := binary.BigEndian.AppendUint32(nil, size)
	out = binary.BigEndian.AppendUint32(out, headers)
	return string(binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))) + strings.Repeat("x", 100)
}

// Whatever bit is turned, the frame is refused, and so is what follows it.
func TestFrameScannerRefusesEveryTurnedBit(t *testing.T) {
	for _, limit := range []int{0, 16} {
		one := framed("metadata", `{"usage":{"inputTokens":1}}`)
		for bit := range len(one) * 8 {
			turned := []byte(one + one)
			turned[bit/8] ^= 1 << (bit % 8)
			got, err := frames(string(turned), limit, whole)
			require.Empty(t, got, "bit %d", bit)
			if err == nil { // a length that is longer than what came: it waits for more
				t.Fatalf("bit %d: taken", bit)
			}
		}
	}
}

func TestFrameScannerIsIndependentOfChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{
			framed("a", "{}"), framed("b", strings.Repeat("x", 300)), exception("c"), "\x00", "data: x",
		})).Draw(t, "parts")
		text := strings.Join(parts, "")
		text = text[:rapid.IntRange(0, len(text)).Draw(t, "cut")]
		want, bad := frames(text, 128, whole)
		got, err := frames(text, 128, func(rest string) int { return rapid.IntRange(1, len(rest)).Draw(t, "piece") })
		require.Equal(t, want, got)
		require.Equal(t, bad, err)
	})
}
