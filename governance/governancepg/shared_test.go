package governancepg_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

func governanceTokens(n int64) amount.Tokens { return amount.Tokens(n) }

// TestManyGateways: four gateways with pools of their own, 64 callers each, admit
// to the last token and no further.
func TestManyGateways(t *testing.T) {
	o := fresh(t)
	w := newWorld(t, o, keys.Limits{TokensPerDay: keys.Limit(777), RequestsPerMinute: keys.Limit(1_000_000)})
	govs := []*governance.Governor{w.gov}
	for range 3 {
		govs = append(govs, governor(t, another(t, o, nil), nil))
	}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range 256 {
		wg.Go(func() {
			for range 8 {
				_, err := govs[i%4].Admit(t.Context(), w.request(1))
				var refusal *governance.Refusal
				switch {
				case err == nil:
					admitted.Add(1)
				case !errors.As(err, &refusal) || refusal.Reason != governance.ReasonReserved:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 777, admitted.Load())
	w.verify(t, 0, 0, 777)
}

// TestBarrier: a revocation returns only after every admission that may have read
// the key as it was, and what starts after it is refused.
func TestBarrier(t *testing.T) { barrier(t, fresh(t), nil) }

// barrier revokes on another handle, opened with the adjustment.
func barrier(t *testing.T, o *opened, adjust func(*pgxpool.Config)) {
	w := newWorld(t, o, keys.Limits{TokensPerDay: keys.Limit(1000)})
	inside, leave, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		plan := &governance.Plan{Batch: governance.BatchID(governance.NewPermitID(time.Now())), Keys: []string{w.principal.KeyID}}
		err := o.Store.Step(context.Background(), plan, func(l *governance.Loaded) *governance.Changes {
			if err := l.Definitions[0].Check(&w.principal, l.Now); err != nil {
				t.Error(err)
			}
			close(inside)
			<-leave
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-inside
	revoked := make(chan error, 1)
	go func() {
		_, err := another(t, o, adjust).Keys.RevokeKey(context.Background(), keys.RevokeKey{ID: w.principal.KeyID})
		revoked <- err
	}()
	// The revocation is committed and waits: another admission sees it already.
	require.Eventually(t, func() bool {
		_, err := w.gov.Admit(t.Context(), w.request(1))
		var refusal *governance.Refusal
		return errors.As(err, &refusal) && refusal.Reason == governance.ReasonUnauthenticated
	}, 10*time.Second, time.Millisecond)
	select {
	case err := <-revoked:
		t.Fatalf("the revocation returned (%v) while an admission that had read the key was under way", err)
	default:
	}
	close(leave)
	<-ended
	require.NoError(t, <-revoked)
}

// TestHeldRowsDoNotStopOthers: a gateway that is stopped inside a transaction holds
// its rows; requests for other rows in the same batch are answered, those for the
// held row are unavailable, and after the server's idle timeout all is well.
func TestHeldRowsDoNotStopOthers(t *testing.T) {
	o := fresh(t)
	w := newWorld(t, o, keys.Limits{TokensPerDay: keys.Limit(1000)})
	_, err := o.Keys.CreateTeam(t.Context(), keys.CreateTeam{ID: "other", Name: "other", Limits: keys.Limits{TokensPerDay: keys.Limit(1000)}})
	require.NoError(t, err)
	created, err := o.Keys.CreateKey(t.Context(), keys.CreateKey{TeamID: "other", Owner: "user", Name: "key"})
	require.NoError(t, err)
	other, err := o.Keys.Resolve(t.Context(), created.Token.Reveal())
	require.NoError(t, err)
	w.admit(t, 1) // the row is there

	conn, err := pgx.Connect(t.Context(), o.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	usage, err := w.gov.Usage(t.Context(), governance.UsageQuery{Principal: &w.principal})
	require.NoError(t, err)
	id := usage.Verdicts[0].Constraint.ID
	_, err = tx.Exec(t.Context(), fmt.Sprintf(`select 1 from %q.governance_constraints where id = $1 for update`, o.schema), [16]byte(id))
	require.NoError(t, err)

	var mine, others error
	var wg sync.WaitGroup
	wg.Go(func() { _, mine = w.gov.Admit(t.Context(), w.request(1)) })
	wg.Go(func() {
		r := w.request(1)
		r.Principal = &other
		_, others = w.gov.Admit(t.Context(), r)
	})
	wg.Wait()
	require.ErrorIs(t, mine, governance.ErrUnavailable)
	require.NoError(t, others)
	require.NoError(t, tx.Rollback(t.Context()))
	w.admit(t, 1)
	w.verify(t, 0, 0, 2)
}

// TestEpochs: a hot row is replaced every few dozen updates, and there is never
// more than one row per window.
func TestEpochs(t *testing.T) {
	o := fresh(t)
	w := newWorld(t, o, keys.Limits{TokensPerDay: keys.Limit(1_000_000)})
	for range 100 {
		w.admit(t, 1)
	}
	var rows, epoch int64
	row := conn(t, o).QueryRow(t.Context(), fmt.Sprintf(`select count(*), max(epoch) from %q.governance_cells`, o.schema))
	require.NoError(t, row.Scan(&rows, &epoch))
	require.EqualValues(t, 1, rows)
	require.EqualValues(t, 1+99/33, epoch)
	w.verify(t, 0, 0, 100)
}

func conn(t testing.TB, o *opened) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), o.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// TestLockOrder: transactions over the same rows in opposite orders of arrival
// never deadlock (replay D1).
func TestLockOrder(t *testing.T) {
	o := fresh(t)
	w := newWorld(t, o, keys.Limits{TokensPerDay: keys.Limit(1_000_000), RequestsPerMinute: keys.Limit(1_000_000), CostPerDay: keys.Cost(1_000_000_000)})
	second := governor(t, another(t, o, nil), nil)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			gov := []*governance.Governor{w.gov, second}[i%2]
			for range 10 {
				permit, err := gov.Admit(t.Context(), w.request(1))
				if err != nil {
					t.Error(err)
					return
				}
				if err := permit.Settle(t.Context(), governance.Used(1, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	w.verify(t, 320, 0, 0)
	var deadlocks int64
	require.NoError(t, conn(t, o).QueryRow(t.Context(), `select deadlocks from pg_stat_database where datname = current_database()`).Scan(&deadlocks))
	require.Zero(t, deadlocks)
}

// TestOwnTool: the exported files, run by another tool, leave what Check wants.
func TestOwnTool(t *testing.T) {
	db := pgtest.New(t)
	o := open(t, db.Pool, db.DSN, db.Schema, &clock{})
	require.Error(t, o.Check(t.Context()))
	files, err := o.Migrations()
	require.NoError(t, err)
	for _, folder := range []string{"keyspg", "policypg", "escrowpg", "governancepg"} {
		names, err := fs.Glob(files, folder+"/*.up.sql")
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			require.NoError(t, err)
			_, err = db.Pool.Exec(t.Context(), string(text), pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err, name)
		}
	}
	require.NoError(t, o.Check(t.Context()))
}

// TestClockAfterLocks: the time is the database's, read once the locks are held,
// however long that took.
func TestClockAfterLocks(t *testing.T) {
	o := fresh(t)
	id := governance.ConstraintID{1}
	plan := func() *governance.Plan {
		return &governance.Plan{Batch: governance.BatchID(governance.NewPermitID(time.Now())), Constraints: []governance.ConstraintID{id}}
	}
	require.NoError(t, o.Store.Step(t.Context(), plan(), func(*governance.Loaded) *governance.Changes { return nil }))
	c := conn(t, o)
	tx, err := c.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), fmt.Sprintf(`select 1 from %q.governance_constraints where id = $1 for update`, o.schema), [16]byte(id))
	require.NoError(t, err)
	loaded := make(chan int64, 1)
	go func() {
		err := another(t, o, nil).Store.Step(context.Background(), plan(), func(l *governance.Loaded) *governance.Changes {
			loaded <- l.Now
			return nil
		})
		if err != nil {
			t.Error(err)
			loaded <- 0
		}
	}()
	watch := conn(t, o)
	require.Eventually(t, func() bool { // it waits for the row
		var waiting bool
		err := watch.QueryRow(t.Context(), `select exists (select 1 from pg_locks where not granted)`).Scan(&waiting)
		return err == nil && waiting
	}, 10*time.Second, time.Millisecond)
	var before int64
	require.NoError(t, watch.QueryRow(t.Context(), `select (extract(epoch from clock_timestamp()) * 1000000)::bigint`).Scan(&before))
	require.NoError(t, tx.Rollback(t.Context()))
	require.GreaterOrEqual(t, <-loaded, before)
}
