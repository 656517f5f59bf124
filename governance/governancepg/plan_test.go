package governancepg

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// TestPlans: the hot statements use indexes, on empty tables and on full ones.
// Their generic plans are what gateways run.
func TestPlans(t *testing.T) {
	db := pgtest.New(t)
	handle, err := Open(db.Pool, &Options{Schema: db.Schema})
	require.NoError(t, err)
	require.NoError(t, handle.Migrate(t.Context()))
	q := handle.Store.q
	check := func(when string) {
		for name, sql := range map[string]string{
			"lock": q.lock, "current": q.current, "accounts": q.accounts, "entries": q.entries, "windows": q.windows,
			"admit": q.admit[3], "advance": q.advance[3], "update": q.update, "remove": q.remove, "permits": q.permits[3], "permitUpdate": q.permitUpdate[3],
			"batchTerms": q.batchTerms[3],
			"checkpoint": q.checkpoint, "checkpointPut": q.checkpointPut, "trim": q.trim, "kept": q.kept, "keptUpdate": q.keptUpdate,
			"keptBatches": q.keptBatches, "keptScan": q.keptScan, "keptDrop": q.keptDrop, "keptBatchScan": q.keptBatchScan,
			"newest": q.newest[3], "scan": q.scan[3], "move": q.move[3], "drop": q.drop[3], "there": q.there[3],
			"batchScan": q.batchScan[3], "batchKeep": q.batchKeep[3], "batchDrop": q.batchDrop[3],
		} {
			t.Run(when+"/"+name, func(t *testing.T) {
				plan := explain(t, handle.Store, sql)
				if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Hash Join") || strings.Contains(plan, "Merge Join") {
					t.Errorf("not an index plan:\n%s", plan)
				}
			})
		}
	}
	check("empty")
	_, err = db.Pool.Exec(t.Context(), fmt.Sprintf(`
insert into %[1]q.governance_constraints (id) select gen_random_uuid() from generate_series(1, 20000);
insert into %[1]q.governance_cells select id, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, false, 0, '' from %[1]q.governance_constraints;
insert into %[1]q.governance_entries select gen_random_uuid(), 0, i, gen_random_uuid() from generate_series(1, 20000) i;
insert into %[1]q.governance_permits_03 (slot, id, batch, terms, owner, at_us, state, flags, version, tokens, cost_microusd)
select 3, gen_random_uuid(), gen_random_uuid(), 0, gen_random_uuid(), 0, 1, 0, 1, 0, 0 from generate_series(1, 20000);
insert into %[1]q.governance_batches_03 (slot, id, at_us) select 3, gen_random_uuid(), 0 from generate_series(1, 20000);
analyze`, db.Schema))
	require.NoError(t, err)
	check("full")
}

// explain returns the generic plan of a statement under the settings of a step.
func explain(t *testing.T, s *Store, sql string) string {
	t.Helper()
	begun, err := pgtx.Begin(t.Context(), s.pool, s.stepping, nil)
	require.NoError(t, err)
	defer begun.Rollback()
	tx := begun.Conn()
	_, err = tx.Exec(t.Context(), "prepare checked as "+sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	defer func() { _, _ = tx.Exec(t.Context(), "deallocate checked", pgx.QueryExecModeSimpleProtocol) }()
	params := 0
	for strings.Contains(sql, fmt.Sprintf("$%d", params+1)) {
		params++
	}
	arguments := ""
	if params > 0 {
		arguments = "(" + strings.TrimSuffix(strings.Repeat("null,", params), ",") + ")"
	}
	rows, err := tx.Query(t.Context(), "explain execute checked"+arguments, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}
