package fleet_test

import (
	"bytes"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fate is what happens to a heartbeat on its way.
type fate int

const (
	arrives  fate = iota
	lost          // it never arrives
	unheard       // it arrives, and its answer does not
	twice         // it arrives twice, and the second answer is the one that comes back
	overtook      // it arrives once more, after later ones
	slow          // it arrives, a little later
)

// relay is the one address of all control planes. It gives each heartbeat to the next of
// them that is there, and treats it badly.
type relay struct {
	*httptest.Server
	client *http.Client

	mu     sync.Mutex
	random *rand.Rand // nil: everything arrives
	first  []int      // fates that are still to come once each
	planes []string
	next   int
	late   []delivery

	down  atomic.Bool
	beats atomic.Int64 // that arrived
	fates [slow + 1]atomic.Int64
}

type delivery struct {
	header http.Header
	path   string
	body   []byte
}

func newRelay(t testing.TB) *relay {
	r := &relay{client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	r.Start()
	t.Cleanup(r.Close)
	return r
}

// to says where the control planes are.
func (r *relay) to(planes ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.planes = planes
}

// mistreat begins to treat heartbeats badly, or ends it.
func (r *relay) mistreat(seed uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.random = nil; seed != 0 {
		r.random = rand.New(rand.NewPCG(seed, seed))
		r.first = r.random.Perm(int(slow) + 1)
	}
}

func (r *relay) draw() fate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.random == nil {
		return arrives
	}
	if n := len(r.first); n > 0 { // each once, however few come
		f := fate(r.first[n-1])
		r.first = r.first[:n-1]
		return f
	}
	f := fate(r.random.IntN(int(slow) + 3))
	if f > slow {
		f = arrives
	}
	return f
}

func (r *relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil || r.down.Load() {
		panic(http.ErrAbortHandler)
	}
	d := delivery{q.Header.Clone(), q.URL.Path, body}
	f := r.draw()
	r.fates[f].Add(1)
	switch f {
	case lost:
		panic(http.ErrAbortHandler)
	case slow:
		time.Sleep(30 * time.Millisecond)
	case twice:
		r.deliver(q, d)
	case overtook:
		defer r.later(d)
	}
	resp := r.deliver(q, d)
	r.overtaken(q)
	if resp == nil || f == unheard {
		panic(http.ErrAbortHandler)
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// later keeps a heartbeat that will arrive again behind its followers.
func (r *relay) later(d delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = append(r.late, d)
}

func (r *relay) overtaken(q *http.Request) {
	r.mu.Lock()
	late := r.late
	r.late = nil
	r.mu.Unlock()
	for _, d := range late {
		r.deliver(q, d)
	}
}

// deliver gives a heartbeat to a control plane; nil: none is there.
func (r *relay) deliver(q *http.Request, d delivery) *http.Response {
	r.mu.Lock()
	planes := append([]string(nil), r.planes...)
	r.next++
	at := r.next
	r.mu.Unlock()
	for i := range planes {
		out, err := http.NewRequestWithContext(q.Context(), http.MethodPost, planes[(at+i)%len(planes)]+d.path, bytes.NewReader(d.body))
		if err != nil {
			return nil
		}
		out.Header = d.header.Clone()
		resp, err := r.client.Do(out)
		if err != nil {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			continue
		}
		r.beats.Add(1)
		resp.Body = io.NopCloser(bytes.NewReader(body))
		return resp
	}
	return nil
}
