package governancepg_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// accident is what happens to the next thing that a client sends after it is armed.
type accident int32

const (
	none        accident = iota
	lostSend             // it never reaches the server
	lostAnswer           // the server does it, the answer is lost
	lostForGood          // the answer is lost and no connection comes through any more
)

// proxy stands between a pool and the server.
type proxy struct {
	listener net.Listener
	target   string
	armed    atomic.Int32
	shut     atomic.Bool
	wg       sync.WaitGroup
}

func newProxy(t *testing.T, dsn string) (*proxy, string) {
	t.Helper()
	config, err := pgconn.ParseConfig(dsn)
	require.NoError(t, err)
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	require.Equal(t, "tcp", network)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, target: address}
	p.wg.Go(p.serve)
	t.Cleanup(func() { _ = l.Close(); p.wg.Wait() })
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.shut.Load() {
			_ = client.Close()
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		var lost atomic.Bool
		closeBoth := func() { _ = client.Close(); _ = server.Close() }
		p.wg.Go(func() {
			defer closeBoth()
			buf := make([]byte, 1<<16)
			for {
				n, err := client.Read(buf)
				if err != nil {
					return
				}
				switch accident(p.armed.Swap(0)) {
				case lostSend:
					return
				case lostForGood:
					p.shut.Store(true)
					lost.Store(true)
				case lostAnswer:
					lost.Store(true)
				}
				if _, err := server.Write(buf[:n]); err != nil {
					return
				}
			}
		})
		p.wg.Go(func() {
			defer closeBoth()
			buf := make([]byte, 1<<16)
			for {
				n, err := server.Read(buf)
				if err != nil || lost.Load() {
					_, _ = io.Discard.Write(buf[:n]) // it was committed, and nobody learns
					return
				}
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
		})
	}
}

// armedStore arms the proxy between the decision and the commit.
type armedStore struct {
	governance.Store
	proxy *proxy
	next  atomic.Int32
}

func (s *armedStore) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	return s.Store.Step(ctx, plan, func(l *governance.Loaded) *governance.Changes {
		ch := decide(l)
		if !ch.Empty() {
			s.proxy.armed.Store(s.next.Swap(0))
		}
		return ch
	})
}

// TestLostCommit: whatever happens to a commit's question or answer, there is one
// permit for one admission, and one settlement for one permit.
func TestLostCommit(t *testing.T) {
	for name, what := range map[string]accident{"question": lostSend, "answer": lostAnswer} {
		t.Run(name, func(t *testing.T) {
			w, store := behindProxy(t)
			store.next.Store(int32(what))
			permit := w.admit(t, 100)
			require.Zero(t, store.next.Load())
			w.verify(t, 0, 0, 100)
			// A lost question was made impossible by a tombstone and asked again; a lost
			// answer was learned.
			var tombstones int
			require.NoError(t, conn(t, w.backend).QueryRow(t.Context(), fmt.Sprintf(`select count(*) from %q.governance_batches where void`, w.backend.schema)).Scan(&tombstones))
			require.Equal(t, map[accident]int{lostSend: 1, lostAnswer: 0}[what], tombstones)
			store.next.Store(int32(what))
			require.NoError(t, permit.Settle(t.Context(), governance.Used(60, 3)))
			require.Zero(t, store.next.Load())
			w.verify(t, 60, 0, 0)
			holds, err := w.gov.Holds(t.Context(), governance.HoldQuery{})
			require.NoError(t, err)
			require.Empty(t, holds)
		})
	}
}

// TestUnknownOutcome: when the truth cannot be learned in time the caller is told
// so; nothing is refunded blindly; once the database is back, the Governor cancels
// the permit that nobody received.
func TestUnknownOutcome(t *testing.T) {
	w, store := behindProxy(t)
	store.next.Store(int32(lostForGood))
	_, err := w.gov.Admit(t.Context(), w.request(100))
	require.ErrorIs(t, err, governance.ErrUnknownOutcome)
	direct := governor(t, w.backend, nil)
	holds, err := direct.Holds(t.Context(), governance.HoldQuery{})
	require.NoError(t, err)
	require.Len(t, holds, 1)

	_, err = w.gov.Admit(t.Context(), w.request(100))
	require.ErrorIs(t, err, governance.ErrUnavailable)
	store.proxy.shut.Store(false)
	require.Eventually(t, func() bool {
		holds, err := direct.Holds(t.Context(), governance.HoldQuery{})
		return err == nil && len(holds) == 0
	}, 30*time.Second, 10*time.Millisecond)
	w.verify(t, 0, 0, 0)
}

// TestSharedLoss: one look-up answers for all callers of a batch.
func TestSharedLoss(t *testing.T) {
	w, store := behindProxy(t)
	store.next.Store(int32(lostAnswer))
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() { w.admit(t, 1) })
	}
	wg.Wait()
	w.verify(t, 0, 0, 40)
}

func behindProxy(t *testing.T) (*world, *armedStore) {
	t.Helper()
	o := fresh(t)
	w := newWorld(t, o, keys.Limits{TokensPerDay: keys.Limit(1000), RequestsPerMinute: keys.Limit(1000)})
	p, dsn := newProxy(t, o.dsn)
	through := open(t, pgtest.Connect(t, dsn, nil), dsn, o.schema, o.clock)
	store := &armedStore{Store: through.Store, proxy: p}
	gov, err := governance.New(governance.Stores{Keys: through.Keys, Store: store}, &governance.Options{StepTimeout: 2 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = gov.Close(ctx)
	})
	w.gov = gov
	// Statements are prepared on the connection by now: what is sent next is the commit.
	for range 2 {
		permit := w.admit(t, 1)
		require.NoError(t, permit.Settle(t.Context(), governance.Used(0, 0)))
	}
	return w, store
}
