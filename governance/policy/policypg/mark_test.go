package policypg_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policypg"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/quota"
)

// fresh gives a migrated store in a schema of its own.
func fresh(t *testing.T) (*policypg.Store, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t)
	s, err := policypg.New(db.Pool, &policypg.Options{Schema: db.Schema})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	return s, db
}

func document(name string, tokens int64) policy.Document {
	return policy.Document{Name: name, Subject: policy.Subject{Team: "red"}, Rules: []policy.Rule{{
		Name: "tokens", FailurePolicy: policy.FailClosed,
		TokenQuota: &policy.TokenQuota{LimitTokens: tokens, Calendar: quota.Calendar{Period: quota.Day}},
	}}}
}

func apply(t *testing.T, s *policypg.Store, documents ...policy.Document) policy.Snapshot {
	t.Helper()
	now, err := s.Load(t.Context())
	require.NoError(t, err)
	now, err = s.Apply(t.Context(), policy.Apply{Documents: documents, Expect: now.Generation})
	require.NoError(t, err)
	return now
}

func TestTheMarkCanBeCarriedAlong(t *testing.T) {
	for name, mode := range map[string]pgx.QueryExecMode{
		"CacheStatement": pgx.QueryExecModeCacheStatement, "CacheDescribe": pgx.QueryExecModeCacheDescribe,
		"DescribeExec": pgx.QueryExecModeDescribeExec, "Exec": pgx.QueryExecModeExec, "SimpleProtocol": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			s, db := fresh(t)
			now := apply(t, s, document("a", 1))
			pool := db.Connect(t, hostile(mode))

			var queued policy.Mark
			b := &pgx.Batch{}
			policypg.QueueMark(b, db.Schema, func(m policy.Mark) { queued = m })
			require.NoError(t, pool.SendBatch(t.Context(), b).Close())
			require.Equal(t, now.Mark, queued)

			var clock int64
			var value []byte
			require.NoError(t, pool.QueryRow(t.Context(), "select 7::bigint, "+policypg.MarkColumn(db.Schema)).Scan(&clock, &value))
			folded, err := policypg.ParseMark(value)
			require.NoError(t, err)
			require.Equal(t, now.Mark, folded)
			require.Equal(t, int64(7), clock)
		})
	}
}

// An admission reads what is committed, and neither waits for an edit under way nor stops one.
func TestReadingTheMarkWaitsForNobody(t *testing.T) {
	s, db := fresh(t)
	now := apply(t, s, document("a", 1))
	tx, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), "update "+db.Schema+".policy_state set revision = revision + 1")
	require.NoError(t, err)
	b := &pgx.Batch{}
	policypg.QueueMark(b, db.Schema, func(m policy.Mark) { require.Equal(t, now.Mark, m) })
	require.NoError(t, db.Pool.SendBatch(t.Context(), b).Close())
}

func TestParseMarkRefusesEverythingElse(t *testing.T) {
	for _, value := range [][]byte{nil, {}, make([]byte, 55), make([]byte, 57)} {
		_, err := policypg.ParseMark(value)
		require.ErrorIs(t, err, policy.ErrCorrupt)
	}
}

func TestASchemaThatWasNotValidated(t *testing.T) {
	require.Panics(t, func() { policypg.MarkColumn(`x"; drop table y; --`) })
	_, err := policypg.New(nil, &policypg.Options{Schema: "X"})
	require.ErrorIs(t, err, policy.ErrInvalid)
}

func FuzzParseMark(f *testing.F) {
	f.Add(make([]byte, 56))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, value []byte) {
		m, err := policypg.ParseMark(value)
		if (err == nil) != (len(value) == 56) {
			t.Fatal(m, err)
		}
	})
}
