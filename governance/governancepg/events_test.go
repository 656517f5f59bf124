package governancepg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// told lists what a stream was told, as the log's own store reads it.
func (s *subject) told(t *testing.T, stream string) (types []string) {
	t.Helper()
	list, err := s.w.direct.log.Stream(t.Context(), eventlog.ReadStream{Stream: stream})
	require.NoError(t, err)
	for i, e := range list {
		require.Equal(t, int64(i+1), e.Version)
		types = append(types, e.Type)
	}
	return types
}

// notice puts one budget of a team in force, in place of what was: by its name it is an account of its own.
func notice(t *testing.T, o *opened, name string) {
	t.Helper()
	now, err := o.Policies.Load(t.Context())
	require.NoError(t, err)
	_, err = o.Policies.Replace(t.Context(), policy.Replace{Expect: now.Generation, Documents: []policy.Document{{
		Name: name, Subject: policy.Subject{Team: "team"}, Rules: []policy.Rule{{Name: "month", FailurePolicy: policy.FailClosed, Budget: &policy.Budget{
			LimitMilliUSD: 1, HardCap: true, Calendar: quota.Calendar{Period: quota.Month}, Tiers: []policy.Tier{{Threshold: 50}, {Threshold: 80}},
		}}},
	}}})
	require.NoError(t, err)
}

// thresholds are those that were told of a policy.
func thresholds(t *testing.T, o *opened, name string) (list []policy.Percent) {
	t.Helper()
	for _, e := range told(t, o) {
		var data governance.ThresholdEvent
		if e.Type == governance.EventThreshold {
			require.NoError(t, json.Unmarshal(e.Data, &data))
		}
		if data.Policy == name {
			list = append(list, data.Threshold)
		}
	}
	return list
}

// TestThresholdIsCut: an admission that crosses two thresholds loses its connection at every other message.
// They are told exactly when there is a permit, and once.
func TestThresholdIsCut(t *testing.T) {
	t.Parallel()
	name := func(s *subject) string { return s.principal.KeyID }
	crossing := func(s *subject) governance.Request {
		r := s.request()
		r.Bound.Cost = 900
		return r
	}
	op := operation{
		"Admit", func(t *testing.T, s *subject) { notice(t, s.w.direct, name(s)) },
		func(ctx context.Context, s *subject) (err error) {
			s.permit, err = s.w.gov.Admit(ctx, crossing(s))
			return err
		},
		func(t *testing.T, s *subject, err error) {
			if err != nil {
				unavailable(t, err)
				require.Empty(t, thresholds(t, s.w.direct, name(s)))
				s.permit, err = s.w.truth.Admit(t.Context(), crossing(s))
				require.NoError(t, err)
			}
			require.Equal(t, []policy.Percent{50, 80}, thresholds(t, s.w.direct, name(s)))
			require.NoError(t, s.permit.Settle(t.Context(), governance.Used(60, 3)))
			require.Equal(t, []policy.Percent{50, 80}, thresholds(t, s.w.direct, name(s)))
		},
	}
	op.everywhere(t, benchOptions{mode: pgx.QueryExecModeExec, ruled: true, each: 2})
}

// TestLostCommitTellsOnce: of a batch that a tombstone made impossible nothing is told, of one whose answer was
// lost all is, and of its repetition nothing again.
func TestLostCommitTellsOnce(t *testing.T) {
	for name, what := range map[string]accident{"question": lostSend, "answer": lostAnswer} {
		t.Run(name, func(t *testing.T) {
			o := fresh(t)
			w := newWorld(t, o, keys.Limits{})
			p, dsn := newProxy(t, o.dsn)
			log, events := recorder(t, o.pool, o.schema) // hints are sent beside the proxy
			through := openTelling(t, pgtest.Connect(t, dsn, nil), dsn, o.schema, o.clock, log, events)
			store := &armedStore{Store: through.Store, proxy: p}
			gov, err := governance.New(governance.Stores{Keys: through.Keys, Store: store, Policies: through.Policies, Profile: policy.Shared},
				&governance.Options{StepTimeout: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				_ = gov.Close(ctx)
			})
			w.gov = gov
			r := w.request(1)
			r.Bound.Cost = 900
			cross := func(policy string) {
				notice(t, o, policy)
				require.NoError(t, w.admit(t, 1).Cancel(t.Context())) // its windows are there
				require.Empty(t, thresholds(t, o, policy))
				if policy == "p" {
					store.next.Store(int32(what))
				}
				permit, err := gov.Admit(t.Context(), r)
				require.NoError(t, err)
				require.NoError(t, permit.Cancel(t.Context()))
			}
			cross("others") // all is prepared by then: what is sent after a decision is the commit
			cross("others-again")
			cross("p")
			require.Zero(t, store.next.Load())
			require.Equal(t, []policy.Percent{50, 80}, thresholds(t, o, "p"))
			var tombstones int
			require.NoError(t, o.pool.QueryRow(t.Context(), fmt.Sprintf(`select count(*) from %q.governance_batches where void`, o.schema)).Scan(&tombstones))
			require.Equal(t, map[accident]int{lostSend: 1, lostAnswer: 0}[what], tombstones)
		})
	}
}
