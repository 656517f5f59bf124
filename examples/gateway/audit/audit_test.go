package audit_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogsqlite"
	"github.com/tallystick-go/tallystick/examples/gateway/audit"
	"github.com/tallystick-go/tallystick/governance/httpgov"
)

const patience, tick = 20 * time.Second, 2 * time.Millisecond

func emptyLog(t *testing.T) *eventlogsqlite.Store {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "events.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=fullfsync(1)")
	require.NoError(t, err)
	st := eventlogsqlite.New(db)
	t.Cleanup(func() { require.NoError(t, st.Close()); require.NoError(t, db.Close()) })
	require.NoError(t, st.Migrate(t.Context()))
	return st
}

// run runs a log with an exporter until the test ends.
func run(t *testing.T, st eventlog.Store, sink audit.Sink) (*eventlog.Log, *audit.Exporter) {
	t.Helper()
	var l *eventlog.Log
	x := audit.New(sink, func() string { return string(l.Producer()) })
	l, err := eventlog.New(st, &eventlog.Options{Label: "g", Subscriptions: []eventlog.Subscription{x.Subscription()}, Poll: tick, Attempts: 1})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, x.Close())
	})
	return l, x
}

func put(t *testing.T, l *eventlog.Log, id, data string) {
	t.Helper()
	_, err := l.Append(t.Context(), eventlog.Append{Stream: "s", Events: []eventlog.Event{{ID: id, Type: "happened", Data: []byte(data)}}})
	require.NoError(t, err)
}

func lines(t *testing.T, folder string) (out []audit.Line) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	require.NoError(t, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			var l audit.Line
			require.NoError(t, json.Unmarshal([]byte(line), &l))
			out = append(out, l)
		}
	}
	return out
}

func TestFilesOfTheirOwn(t *testing.T) {
	st, folder := emptyLog(t), filepath.Join(t.TempDir(), "audit")
	for _, id := range []string{"one", "two"} {
		var l *eventlog.Log
		f, err := audit.NewFile(folder, func() string { return string(l.Producer()) })
		require.NoError(t, err)
		l, _ = run(t, st, f)
		put(t, l, id, `{"n":1}`)
		put(t, l, id+" is no JSON", "\xff")
	}
	require.Eventually(t, func() bool { return len(lines(t, folder)) == 4 }, patience, tick)
	seen := map[string]audit.Line{}
	for _, l := range lines(t, folder) {
		require.Equal(t, l.Producer, l.Exporter, "by whom it was produced")
		seen[l.ID] = l
	}
	require.Len(t, seen, 4)
	require.JSONEq(t, `{"n":1}`, string(seen["one"].Data))
	require.Equal(t, []byte("\xff"), seen["two is no JSON"].Raw)
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	_, err = audit.NewFile(files[0], nil)
	require.ErrorContains(t, err, "cannot be made")
}

// TestTheCollectorIsDown: events wait, visibly, without keeping anybody, and are exported when it is back.
func TestTheCollectorIsDown(t *testing.T) {
	var down atomic.Bool
	var mu sync.Mutex
	got := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got[r.Header.Get("Idempotency-Key")]++
	}))
	t.Cleanup(s.Close)
	exported := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
	st := emptyLog(t)
	l, x := run(t, st, audit.NewWebhook(s.URL, "secret", 5*time.Second))
	put(t, l, "before", "{}")
	require.Eventually(t, func() bool { return exported() == 1 }, patience, tick)
	down.Store(true)
	for i := range 20 {
		put(t, l, fmt.Sprint("during ", i), "{}")
	}
	var aside []eventlog.Aside
	require.Eventually(t, func() bool {
		var err error
		aside, err = st.ListAside(t.Context(), eventlog.AsideQuery{Consumer: audit.Name})
		return err == nil && len(aside) == 20
	}, patience, tick)
	require.Contains(t, aside[0].Reason, "answered 502")
	require.NotContains(t, aside[0].Reason, "secret")
	down.Store(false)
	require.Eventually(t, func() bool { return x.Again() == 1 }, patience, tick, "one, to see whether it is back")
	n, err := l.Retry(t.Context(), audit.Name, x.Again())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Greater(t, x.Again(), 1)
	n, err = l.Retry(t.Context(), audit.Name, x.Again())
	require.NoError(t, err)
	require.Equal(t, 19, n)
	put(t, l, "after", "{}")
	require.Eventually(t, func() bool { return exported() == 22 }, patience, tick)
	mu.Lock()
	defer mu.Unlock()
	for id, n := range got {
		require.Equal(t, 1, n, id)
	}
}

// TestWhatIsRefusedKeepsNobody: one event that the collector will not have is set aside at once, for good as far as it goes, and again and
// again; neither those behind it nor those that wait beside it are kept.
func TestWhatIsRefusedKeepsNobody(t *testing.T) {
	var mended atomic.Bool
	var mu sync.Mutex
	got := map[string]int{}
	codes := map[string]int{"400": 400, "413": 413, "429": 429, "408": 408, "500": 500}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Idempotency-Key")
		mu.Lock()
		defer mu.Unlock()
		got[id]++
		if code := codes[id]; code != 0 && !mended.Load() {
			w.WriteHeader(code)
		}
	}))
	t.Cleanup(s.Close)
	st := emptyLog(t)
	hook := audit.NewWebhook(s.URL, "", 5*time.Second)
	for id, code := range codes {
		err := hook.Take(t.Context(), id, []byte("{}"))
		require.ErrorContains(t, err, fmt.Sprint(code))
		require.Equal(t, code == 400 || code == 413, errors.Is(err, audit.ErrRefused), code)
	}
	l, x := run(t, st, hook)
	asides := func() []eventlog.Aside {
		list, err := st.ListAside(t.Context(), eventlog.AsideQuery{Consumer: audit.Name})
		require.NoError(t, err)
		return list
	}
	for _, id := range []string{"400", "413", "good"} {
		put(t, l, id, "{}")
	}
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return got["good"] == 1 }, patience, tick)
	require.Len(t, asides(), 2)
	require.False(t, asides()[0].Declined)
	require.Greater(t, x.Again(), 1, "the collector is there")
	n, err := l.Retry(t.Context(), audit.Name, 1)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, 3, got["400"])
	_, err = l.Retry(t.Context(), audit.Name, 1)
	require.NoError(t, err)
	require.Equal(t, 3, got["413"], "the next has its turn, though the first still fails")
	mended.Store(true)
	n, err = l.Retry(t.Context(), audit.Name, x.Again())
	require.NoError(t, err)
	require.Equal(t, 2, n, "and is tried when what was wrong is mended")
	require.Empty(t, asides())
}

func TestCalls(t *testing.T) {
	st := emptyLog(t)
	l, err := eventlog.New(st, nil)
	require.NoError(t, err)
	c := audit.NewCalls(l)
	for range 600 {
		c.Add("one", httpgov.Attempt{Team: "acme", Key: "app", Model: "m", Status: 200})
	}
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, c.Close(t.Context()))
	require.Zero(t, c.Lost())
	events, err := st.Stream(t.Context(), eventlog.ReadStream{Stream: "calls/" + string(l.Producer()), Limit: eventlog.MaxPage})
	require.NoError(t, err)
	require.Len(t, events, 600)
	var call audit.Call
	require.NoError(t, json.Unmarshal(events[0].Data, &call))
	require.Equal(t, "app", call.Key)
	c.Add("one", httpgov.Attempt{})
	require.Equal(t, int64(1), c.Lost(), "nobody is told that it was exported")
}
