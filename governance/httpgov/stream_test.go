package httpgov_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/governance/httpgov"
)

// pieces writes a text in pieces of a size, each flushed.
func pieces(text string, size int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		flusher := http.NewResponseController(w)
		for i := 0; i < len(text); i += size {
			_, _ = io.WriteString(w, text[i:min(i+size, len(text))])
			_ = flusher.Flush()
		}
	})
}

// Where the stream is cut into pieces makes no difference, and every byte but
// those of the usage chunk passes as it came.
func TestStreamCutAnywhere(t *testing.T) {
	const comment, odd = ": a comment\r\n\r\n", "event: x\r\nid: 7\r\ndata: {\"choices\":[],\r\ndata: \"model\":\"gpt-test\"}\r\n\r\n"
	head := "\ufeff" + comment + firstChunk + odd
	for _, size := range []int{1, 2, 3, 7, 64, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			g := open(t, pieces(head+usageChunk+doneChunk+"trailing bytes", size), setup{})
			is(t, "stripped", g.post(chatPath, chatStream).body, head+doneChunk+"trailing bytes")
			g.spent(books{consumed: replyCost}, books{consumed: replyTokens})

			asked := strings.Replace(chatStream, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1)
			is(t, "relayed", g.post(chatPath, asked).body, head+usageChunk+doneChunk+"trailing bytes")
			g.spent(books{consumed: 2 * replyCost}, books{consumed: 2 * replyTokens})
		})
	}
}

// The client has every event before the provider sends the next one.
func TestStreamIsNotBuffered(t *testing.T) {
	next := make(chan struct{})
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 5 {
			_, _ = io.WriteString(w, firstChunk)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
		_, _ = io.WriteString(w, usageChunk+doneChunk)
	})
	g := open(t, upstream, setup{})
	resp, err := g.client.Do(g.request(t.Context(), chatPath, chatStream))
	check(t, err)
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for range 5 {
		line, err := in.ReadString('\n')
		check(t, err)
		is(t, "event", line+"\n", firstChunk)
		_, err = in.ReadString('\n')
		check(t, err)
		next <- struct{}{}
	}
	rest, err := io.ReadAll(in)
	check(t, err)
	is(t, "rest", string(rest), doneChunk)
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
}

// A long stream and a large answer pass in bounded memory.
func TestBoundedMemory(t *testing.T) {
	const size = 10 << 20
	event := `data: {"model":"gpt-test","choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 500) + `"}}]}` + "\n\n"
	vector := `{"object":"embedding","embedding":"` + strings.Repeat("A", 8192) + `"}`
	cases := map[string]struct{ path, body, kind, unit, between, head, tail string }{
		"stream": {chatPath, chatStream, "text/event-stream", event, "", "", usageChunk + doneChunk},
		"plain": {embedPath, `{"model":"embed-test","input":"abc"}`, "application/json", vector, ",", `{"object":"list","data":[`,
			`],"model":"embed-test","usage":{"prompt_tokens":5,"total_tokens":5}}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			half, resume := make(chan struct{}), make(chan struct{})
			upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.head)
				for sent := 0; sent < size; sent += len(c.unit) {
					if sent > 0 {
						_, _ = io.WriteString(w, c.between)
					}
					_, _ = io.WriteString(w, c.unit)
					if sent < size/2 && sent+len(c.unit) >= size/2 {
						_ = http.NewResponseController(w).Flush()
						close(half)
						<-resume
					}
				}
				_, _ = io.WriteString(w, c.tail)
			})
			g := open(t, upstream, setup{})
			before := heap()
			resp, err := g.client.Do(g.request(t.Context(), c.path, c.body))
			check(t, err)
			defer resp.Body.Close()
			_, err = io.CopyN(io.Discard, resp.Body, size/2-1<<20)
			check(t, err)
			<-half
			if grown := heap() - before; grown > 3<<20 {
				t.Errorf("%d bytes are held in the middle of the answer", grown)
			}
			close(resume)
			_, err = io.Copy(io.Discard, resp.Body)
			check(t, err)
			a := g.attempt()
			is(t, "settled", a.Outcome.Tokens.Value > 0 && a.Outcome.Cost.Value > 0, true)
			g.balanced()
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A client that does not read holds the provider back, and nothing piles up here.
func TestBackPressure(t *testing.T) {
	var written int
	stopped := make(chan struct{})
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(stopped)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for written < 1<<30 {
			n, err := io.WriteString(w, firstChunk)
			if err != nil {
				return
			}
			written += n
		}
	})
	s := setup{transport: &httpgov.Transport{}}
	s.transport.Linger = -1
	g := open(t, upstream, s)
	before := heap()
	resp, err := g.client.Do(g.request(t.Context(), chatPath, chatStream))
	check(t, err)
	if grown := heap() - before; grown > 3<<20 {
		t.Errorf("%d bytes are held for a client that does not read", grown)
	}
	check(t, resp.Body.Close())
	<-stopped
	if written >= 1<<30 {
		t.Error("the provider was not held back")
	}
	g.attempt()
	g.spent(books{uncertain: streamCost}, books{uncertain: streamTokens})
}

// A stream that declares its length is shorter once a chunk is taken out.
func TestStreamWithLength(t *testing.T) {
	stream := firstChunk + usageChunk + doneChunk
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Length", fmt.Sprint(len(stream)))
		_, _ = io.WriteString(w, stream)
	})
	s := setup{wrap: func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil {
				is(t, "length", resp.ContentLength, int64(-1))
			}
			return resp, err
		})
	}}
	g := open(t, upstream, s)
	got := g.post(chatPath, chatStream)
	check(t, got.err)
	is(t, "body", got.body, firstChunk+doneChunk)
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
}

// Trailers arrive, announced or not.
func TestTrailers(t *testing.T) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Announced")
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, usageChunk+doneChunk)
		w.Header().Set("X-Announced", "yes")
		w.Header().Set(http.TrailerPrefix+"X-Late", "too")
	})
	g := open(t, upstream, setup{})
	got := g.post(chatPath, chatStream)
	is(t, "announced", got.Trailer.Get("X-Announced"), "yes")
	is(t, "late", got.Trailer.Get("X-Late"), "too")
}

// An upstream that takes no stream_options is not asked for usage.
func TestNoStreamUsage(t *testing.T) {
	upstream := says(200, "text/event-stream", firstChunk+usageChunk+doneChunk)
	s := setup{transport: &httpgov.Transport{}}
	s.transport.Select = selectAs(httpgov.Selection{NoStreamUsage: true})
	g := open(t, upstream, s)
	is(t, "body", g.post(chatPath, chatStream).body, firstChunk+usageChunk+doneChunk)
	is(t, "forwarded", upstream.only(t).raw, chatStream)
	g.spent(books{consumed: replyCost}, books{consumed: replyTokens})
}

// Options that the client set stay, beside the one that is asked for.
func TestStreamOptionsAreKept(t *testing.T) {
	upstream := says(200, "text/event-stream", usageChunk+doneChunk)
	g := open(t, upstream, setup{})
	for _, c := range [][2]string{
		{`{"include_obfuscation":false}`, `{"include_usage":true,"include_obfuscation":false}`},
		{`{"include_usage":false , "a\"b":[1]}`, `{"include_usage":true,"a\"b":[1]}`},
		{`{}`, `{"include_usage":true}`},
		{`null`, `{"include_usage":true}`},
	} {
		body := strings.Replace(chatStream, `"stream":true`, `"stream":true,"stream_options": `+c[0], 1)
		is(t, "answer to "+c[0], g.post(chatPath, body).body, doneChunk)
		seen := upstream.requests()
		is(t, "forwarded", seen[len(seen)-1].raw, strings.Replace(body, c[0], c[1], 1))
	}
	g.balanced()
}
