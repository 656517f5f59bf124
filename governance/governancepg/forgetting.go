package governancepg

import (
	"fmt"

	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// forgetting are the statements around checkpoints and the horizon. What each locks is
// said beside it; whatever has no remark locks nothing.
type forgetting struct {
	checkpoint, checkpointPut, trim   string
	kept, keptList, keptUpdate        string
	keptScan, keptDrop, keptThere     string
	keptBatches, keptBatchScan        string
	keptBatchDrop                     string
	memory, raise, swept, truncations string
	newest, scan, move, drop, there   [slots]string
	batchScan, batchKeep, batchDrop   [slots]string
	lockMember, truncate              [slots]string
}

const moved = `id, batch, terms, owner, fingerprint, at_us, ended_us, state, flags, version, tokens, cost_microusd, segments, outcome, resolution`

func spliceForgetting(s pgtx.Schema) forgetting {
	f := forgetting{
		checkpoint: `select data from {{schema}}.governance_checkpoints where constraint_id = $1::uuid and window_start_us = $2::bigint`,
		// Locks what the pointer row already protects, as trim does.
		checkpointPut: `insert into {{schema}}.governance_checkpoints (constraint_id, window_start_us, data) values ($1::uuid, $2::bigint, $3::bytea)
on conflict (constraint_id, window_start_us) do update set data = excluded.data`,
		trim: `delete from {{schema}}.governance_entries where constraint_id = $1::uuid and window_start_us = $2::bigint and number > $3::bigint and number <= $4::bigint`,

		kept:     `select ` + permitColumns + ` from {{schema}}.governance_kept p where p.id = any($1::uuid[])`,
		keptList: `select ` + permitColumns + ` from {{schema}}.governance_kept p where p.id > $1::uuid and (cardinality($2::smallint[]) = 0 and $3::smallint = 0 or p.state = any($2::smallint[]) or p.flags & $3::smallint <> 0) order by p.id limit $4::bigint`,
		// Fails like permitUpdate.
		keptUpdate: `with u as (update {{schema}}.governance_kept p set ended_us = u.ended_us, state = u.state, flags = u.flags, version = u.version, tokens = u.tokens, cost_microusd = u.cost, segments = u.segments, outcome = u.outcome, resolution = u.resolution
from (select unnest($1::uuid[]) id, unnest($2::bigint[]) ended_us, unnest($3::smallint[]) state, unnest($4::smallint[]) flags, unnest($5::integer[]) version, unnest($6::bigint[]) tokens, unnest($7::bigint[]) cost, unnest($8::bytea[]) segments, unnest($9::bytea[]) outcome, unnest($10::bytea[]) resolution) u
where p.id = u.id and p.version = u.version - 1 returning 1)
select 1 / (case when (select count(*) from u) = cardinality($1::uuid[]) then 1 else 0 end)`,
		keptScan: `select ` + permitColumns + ` from {{schema}}.governance_kept p where p.id > $1::uuid and p.id < $2::uuid order by p.id limit $3::bigint`,
		// Locks the rows that it removes.
		keptDrop:      `delete from {{schema}}.governance_kept p where p.id = any($1::uuid[]) and p.state <> 1 returning p.id`,
		keptThere:     `select id from {{schema}}.governance_kept where id = any($1::uuid[])`,
		keptBatches:   `select id, terms, permits from {{schema}}.governance_kept_batches where id = any($1::uuid[])`,
		keptBatchScan: `select id, permits from {{schema}}.governance_kept_batches where id > $1::uuid and id < $2::uuid order by id limit $3::bigint`,
		keptBatchDrop: `delete from {{schema}}.governance_kept_batches where id = any($1::uuid[])`,

		memory: `select horizon_us, pruned_permits, pruned_tokens, pruned_cost_microusd, prunes from {{schema}}.governance_meta where singleton`,
		raise:  `update {{schema}}.governance_meta set horizon_us = greatest(horizon_us, $1::bigint) where singleton`,
		// Locks the row, and so every other transaction that removes or moves permits.
		swept: `update {{schema}}.governance_meta set prunes = prunes + 1, truncations = truncations + $4::bigint, pruned_permits = pruned_permits + $1::bigint, pruned_tokens = pruned_tokens + $2::bigint, pruned_cost_microusd = pruned_cost_microusd + $3::bigint
where singleton returning pruned_permits, pruned_tokens, pruned_cost_microusd, prunes`,
		truncations: `select truncations from {{schema}}.governance_meta where singleton`,
	}
	for _, sql := range f.shared() {
		*sql = s.Splice(*sql)
	}
	for i := range slots {
		permits, batches := fmt.Sprintf("{{schema}}.governance_permits_%02d", i), fmt.Sprintf("{{schema}}.governance_batches_%02d", i)
		here := fmt.Sprintf("slot = %d", i)
		f.newest[i] = s.Splice(`select (select id from ` + permits + ` where ` + here + ` order by id desc limit 1), (select id from ` + batches + ` where ` + here + ` order by id desc limit 1)`)
		f.scan[i] = s.Splice(`select ` + permitColumns + ` from ` + permits + ` p where p.` + here + ` and p.id > $1::uuid and p.id < $2::uuid order by p.id limit $3::bigint`)
		// Locks the rows that it moves, and waits for whoever is changing one of them.
		f.move[i] = s.Splice(`with m as (delete from ` + permits + ` p where p.` + here + ` and p.id = any($1::uuid[]) returning ` + permitColumns + `)
insert into {{schema}}.governance_kept (` + moved + `) select ` + moved + ` from m`)
		f.drop[i] = s.Splice(`delete from ` + permits + ` p where p.` + here + ` and p.id = any($1::uuid[]) and p.state <> 1 returning p.id`)
		f.there[i] = s.Splice(`select id from ` + permits + ` where ` + here + ` and id = any($1::uuid[])`)
		f.batchScan[i] = s.Splice(`select id, permits from ` + batches + ` where ` + here + ` and id > $1::uuid and id < $2::uuid order by id limit $3::bigint`)
		f.batchKeep[i] = s.Splice(`insert into {{schema}}.governance_kept_batches (id, at_us, terms, permits) select id, at_us, terms, permits from ` + batches + ` where ` + here + ` and id = any($1::uuid[]) on conflict (id) do nothing`)
		f.batchDrop[i] = s.Splice(`delete from ` + batches + ` where ` + here + ` and id = any($1::uuid[])`)
		// Locks both partitions against everybody.
		f.lockMember[i] = s.Splice(`lock table ` + permits + `, ` + batches + ` in access exclusive mode`)
		f.truncate[i] = s.Splice(`truncate ` + permits + `, ` + batches)
	}
	return f
}

func (f *forgetting) shared() []*string {
	return []*string{
		&f.checkpoint, &f.checkpointPut, &f.trim, &f.kept, &f.keptList, &f.keptUpdate, &f.keptScan, &f.keptDrop, &f.keptThere, &f.keptBatches,
		&f.keptBatchScan, &f.keptBatchDrop, &f.memory, &f.raise, &f.swept, &f.truncations,
	}
}
