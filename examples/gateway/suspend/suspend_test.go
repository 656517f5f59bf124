package suspend_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/examples/gateway/suspend"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

const patience, tick = 20 * time.Second, 2 * time.Millisecond

// join is one more gateway on a schema.
func join(t *testing.T, db *pgtest.DB) (*coordination.Base, *suspend.Suspensions) {
	t.Helper()
	b, err := coordination.Open(t.Context(), coordination.Options{
		DSN: db.DSN, Schema: db.Schema, Connect: 5 * time.Second, Call: 10 * time.Second, Migrate: true,
		Tenure: 3 * time.Second, Tail: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	s := suspend.New(b)
	_, err = s.Of("k", "")
	require.ErrorIs(t, err, coordination.ErrStarting, "who knows nothing refuses all")
	require.NoError(t, b.Start(s.Subscription()))
	t.Cleanup(func() { require.NoError(t, b.Close(context.WithoutCancel(t.Context()))) })
	require.Eventually(t, func() bool { return s.Known() == nil }, patience, tick)
	return b, s
}

func begin(key, session, reason string) suspend.Record {
	return suspend.Record{Key: key, Session: session, Suspended: true, Reason: reason, Actor: "ann"}
}

func lift(key, session string) suspend.Record {
	return suspend.Record{Key: key, Session: session, Reason: "over", Actor: "ben"}
}

// why is the reason that a gateway gives, or nothing.
func why(t *testing.T, s *suspend.Suspensions, key, session string) string {
	t.Helper()
	r, err := s.Of(key, session)
	require.NoError(t, err)
	if r == nil {
		return ""
	}
	return r.Reason
}

func TestSuspensionsReachEveryGateway(t *testing.T) {
	db := pgtest.New(t)
	_, one := join(t, db)
	_, two := join(t, db)
	_, err := one.Put(t.Context(), lift("k", ""))
	require.ErrorIs(t, err, coordination.ErrNotFound)
	done, err := one.Put(t.Context(), begin("k", "", "leaked"))
	require.NoError(t, err)
	require.Equal(t, "leaked", why(t, one, "k", ""), "at once where it was decided")
	require.Eventually(t, func() bool { return why(t, two, "k", "any") == "leaked" }, patience, tick)
	again, err := two.Put(t.Context(), begin("k", "", "leaked"))
	require.NoError(t, err)
	require.Equal(t, done, again, "what is so already stays as it is")
	_, err = two.Put(t.Context(), begin("k", "s1", "loops"))
	require.NoError(t, err)
	_, err = two.Put(t.Context(), lift("k", ""))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return why(t, one, "k", "") == "" && why(t, one, "k", "s1") == "loops" }, patience, tick)
	require.Empty(t, why(t, one, "k", "s2"))
	require.Empty(t, why(t, one, "other", "s1"), "a session is a key's")
	// Who joins late begins with what is suspended, and hears of what comes.
	_, late := join(t, db)
	require.Equal(t, "loops", why(t, late, "k", "s1"))
	require.Len(t, late.List(), 1)
	_, err = one.Put(t.Context(), lift("k", "s1"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return why(t, late, "k", "s1") == "" }, patience, tick)
}

// TestTheLastDecisionHolds: gateways that decide at the same time end up of one mind, as the table has it.
func TestTheLastDecisionHolds(t *testing.T) {
	db := pgtest.New(t)
	_, one := join(t, db)
	_, two := join(t, db)
	var wait sync.WaitGroup
	for i := range 40 {
		s := one
		if i%2 == 1 {
			s = two
		}
		wait.Go(func() {
			r := begin("k", "", fmt.Sprint(i))
			r.Suspended = i%4 < 2
			for {
				if _, err := s.Put(t.Context(), r); err == nil || !r.Suspended {
					return // the first may have nothing to lift
				}
			}
		})
	}
	wait.Wait()
	var text string
	require.NoError(t, db.Pool.QueryRow(t.Context(), "select record from "+db.Schema+".gateway_suspensions").Scan(&text))
	var last suspend.Record
	require.NoError(t, json.Unmarshal([]byte(text), &last))
	want := ""
	if last.Suspended {
		want = last.Reason
	}
	_, late := join(t, db)
	for _, s := range []*suspend.Suspensions{one, two, late} {
		require.Eventually(t, func() bool { return why(t, s, "k", "") == want }, patience, tick)
	}
	var events, versions int64
	require.NoError(t, db.Pool.QueryRow(t.Context(), "select count(*), max(version) from "+db.Schema+".events where stream = 'suspension/k'").Scan(&events, &versions))
	require.Equal(t, events, versions, "each decision is in the log, in a line")
}

// TestWhatIsNewerIsDeclined: a gateway does not guess at what it does not know, and goes on behind it.
func TestWhatIsNewerIsDeclined(t *testing.T) {
	db := pgtest.New(t)
	b, s := join(t, db)
	_, err := b.Log.Append(t.Context(), eventlog.Append{Stream: "suspension/k", Events: []eventlog.Event{{Type: "suspension.paused", Data: []byte(`{"key":"k","suspended":true}`)}}})
	require.NoError(t, err)
	_, err = s.Put(t.Context(), begin("j", "", "leaked"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		for _, sub := range b.Log.Status().Subscriptions {
			if sub.Aside == 1 && sub.Handled == 1 {
				return true
			}
		}
		return false
	}, patience, tick)
	require.Empty(t, why(t, s, "k", ""))
}

func TestValidate(t *testing.T) {
	require.NoError(t, begin("k", "s-1", "a reason").Validate())
	for field, r := range map[string]suspend.Record{
		"key": begin("", "", "r"), "session": begin("k", "two words", "r"), "reason": begin("k", "", " "),
		"actor": {Key: "k", Reason: "r", Actor: "a\nb"},
	} {
		var wrong *coordination.FieldError
		require.ErrorAs(t, r.Validate(), &wrong)
		require.Equal(t, field, wrong.Field)
	}
}
