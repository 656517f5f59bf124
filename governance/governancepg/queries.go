package governancepg

import (
	"fmt"
	"strings"

	"github.com/tallystick-go/tallystick/governance/policy/policypg"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// The ring of partitions: slots of two days each. A permit id is refused once it is
// 30 days old, so a slot never holds two rounds of the ring.
const (
	slots      = 16
	slotMillis = 2 * 86_400_000
)

// queries are all statements of one schema. They are spliced once.
type queries struct {
	ensure, lock, lockFree                      string
	clockMark, currentMark                      string // with the mark of the policies in force
	clock, current, accounts, entries           string
	windows, update, remove, insert, entry      string
	note, notes                                 string
	listAccounts, listFrozen, pointers          string
	permits, batchInsert, batchTerms, tombstone [slots]string
	admit, advance, permitWhole                 [slots]string
	permitUpdate, permitList                    [slots]string
	forgetting
}

const cellColumns = `c.constraint_id, c.window_start_us, c.epoch, c.updates, c.window_end_us, c.kind, c.consumed, c.uncertain, c.reserved, c.granted, c.observed, c.frozen, c.entries, c.state`

// Each is computed once, when the first row is: after the locks are held.
const clockColumns = `(select (extract(epoch from clock_timestamp()) * 1000000)::bigint), (select m.horizon_us from {{schema}}.governance_meta m where m.singleton)`

const permitColumns = `p.id, p.batch, p.terms, p.owner, p.fingerprint, p.at_us, p.ended_us, p.state, p.flags, p.version, p.tokens, p.cost_microusd, p.segments, p.outcome, p.resolution`

// splice builds the statements. What each locks is said beside it; whatever has
// no remark locks nothing.
func splice(s pgtx.Schema) *queries {
	q := &queries{
		ensure: `insert into {{schema}}.governance_constraints (id) select u from unnest($1::uuid[]) u order by u on conflict do nothing`,
		// Locks the pointer rows, in the order of their ids.
		lock:     `select id, window_start_us, window_end_us from {{schema}}.governance_constraints where id = any($1::uuid[]) order by id for update`,
		lockFree: `select id, window_start_us, window_end_us from {{schema}}.governance_constraints where id = any($1::uuid[]) order by id for update skip locked`,
		pointers: `select id, window_start_us, window_end_us from {{schema}}.governance_constraints where id = any($1::uuid[]) order by id`,
		clock:    `select ` + clockColumns,
		// The clock comes with the cells, once for all of them.
		current: `select ` + cellColumns + `, ` + clockColumns + ` from {{schema}}.governance_constraints p cross join lateral (
select * from {{schema}}.governance_cells where constraint_id = p.id and window_start_us = p.window_start_us order by epoch desc limit 1) c
where p.id = any($1::uuid[])`,
		accounts: `select ` + cellColumns + ` from unnest($1::uuid[], $2::bigint[]) w(id, start_us)
join {{schema}}.governance_constraints p on p.id = w.id cross join lateral (
select * from {{schema}}.governance_cells where constraint_id = w.id and window_start_us = w.start_us order by epoch desc limit 1) c
where p.window_start_us <> w.start_us`,
		entries: `select number, batch from {{schema}}.governance_entries where constraint_id = $1::uuid and window_start_us = $2::bigint and number > $3::bigint order by number limit $4::bigint`,
		// Locks what the pointer rows already protect.
		windows: `update {{schema}}.governance_constraints p set window_start_us = u.s, window_end_us = u.e, label = coalesce(u.label::jsonb, p.label) from (select unnest($1::uuid[]) id, unnest($2::bigint[]) s, unnest($3::bigint[]) e, unnest($4::text[]) label) u where p.id = u.id`,
		update: `with ` + updateCells(1) + `
select ` + allUpdated(1),
		remove: `delete from {{schema}}.governance_cells c using (select unnest($1::uuid[]) id, unnest($2::bigint[]) start_us, unnest($3::bigint[]) epoch) u where c.constraint_id = u.id and c.window_start_us = u.start_us and c.epoch = u.epoch`,
		insert: `insert into {{schema}}.governance_cells (constraint_id, window_start_us, epoch, updates, window_end_us, kind, consumed, uncertain, reserved, granted, observed, frozen, entries, state)
select id, start_us, epoch, 0, end_us, kind, consumed, uncertain, reserved, granted, observed, frozen, entries, state
from (select unnest($1::uuid[]) id, unnest($2::bigint[]) start_us, unnest($3::bigint[]) epoch, unnest($4::bigint[]) consumed, unnest($5::bigint[]) uncertain, unnest($6::bigint[]) reserved, unnest($7::bigint[]) granted, unnest($8::bigint[]) observed, unnest($9::boolean[]) frozen, unnest($10::bigint[]) entries, unnest($11::bytea[]) state, unnest($12::bigint[]) end_us, unnest($13::smallint[]) kind) u`,
		entry: `insert into {{schema}}.governance_entries (constraint_id, window_start_us, number, batch) select id, start_us, number, $4::uuid from (select unnest($1::uuid[]) id, unnest($2::bigint[]) start_us, unnest($3::bigint[]) number) u`,
		note:  `insert into {{schema}}.governance_notes (at_us, actor, action, permit, constraint_id, window_start_us, reason, before_json, after_json) values ($1::bigint, $2::text, $3::text, $4::uuid, $5::uuid, $6::bigint, $7::text, $8::text, $9::text)`,
		notes: `select id, at_us, actor, action, permit, constraint_id, window_start_us, reason, before_json, after_json from {{schema}}.governance_notes where id > $1::bigint order by id limit $2::bigint`,
		listAccounts: `select distinct on (c.constraint_id, c.window_start_us) ` + cellColumns + `, p.label::text from {{schema}}.governance_cells c left join {{schema}}.governance_constraints p on p.id = c.constraint_id
where (c.constraint_id, c.window_start_us) > ($1::uuid, $2::bigint) and c.kind = any($4::smallint[]) order by c.constraint_id, c.window_start_us, c.epoch desc limit $3::bigint`,
		listFrozen: `select distinct on (c.constraint_id, c.window_start_us) ` + cellColumns + `, p.label::text from {{schema}}.governance_cells c left join {{schema}}.governance_constraints p on p.id = c.constraint_id
where (c.constraint_id, c.window_start_us) > ($1::uuid, $2::bigint) and c.kind = any($4::smallint[]) and c.frozen order by c.constraint_id, c.window_start_us, c.epoch desc limit $3::bigint`,
	}
	// The mark comes with the clock too.
	mark := ", " + policypg.MarkColumn(s.Name())
	q.clockMark = q.clock + mark
	q.currentMark = strings.Replace(q.current, clockColumns, clockColumns+mark, 1)
	for _, sql := range q.shared() {
		*sql = s.Splice(*sql)
	}
	q.forgetting = spliceForgetting(s)
	for i := range slots {
		permits, batches := fmt.Sprintf("{{schema}}.governance_permits_%02d", i), fmt.Sprintf("{{schema}}.governance_batches_%02d", i)
		q.permits[i] = s.Splice(`select ` + permitColumns + ` from ` + permits + ` p where p.slot = ` + fmt.Sprint(i) + ` and p.id = any($1::uuid[])`)
		q.permitList[i] = s.Splice(`select ` + permitColumns + ` from ` + permits + ` p where p.slot = ` + fmt.Sprint(i) + ` and p.id > $1::uuid and (cardinality($2::smallint[]) = 0 and $3::smallint = 0 or p.state = any($2::smallint[]) or p.flags & $3::smallint <> 0) order by p.id limit $4::bigint`)
		// A batch as it almost always is: one partition, permits that just began; and with
		// it the cells that it reserved in, where none of them changes its identity.
		q.admit[i] = s.Splice(`with ` + insertBatch(batches, i) + insertPermits(permits, i, ``))
		q.advance[i] = s.Splice(`with ` + updateCells(17) + `, ` + insertBatch(batches, i) + insertPermits(permits, i, ` where (select `+allUpdated(17)+`) = 1`))
		// For permits that are not as a Governor begins them, or lie in several partitions.
		q.permitWhole[i] = s.Splice(`insert into ` + permits + ` (slot, id, batch, terms, owner, fingerprint, at_us, state, flags, version, tokens, cost_microusd, segments, ended_us, outcome, resolution)
select ` + fmt.Sprint(i) + `, id, $1::uuid, terms, owner, fingerprint, at_us, state, flags, version, tokens, cost, segments, ended_us, outcome, resolution
from (select unnest($2::uuid[]) id, unnest($3::smallint[]) terms, unnest($4::uuid[]) owner, unnest($5::uuid[]) fingerprint, unnest($6::bigint[]) at_us, unnest($7::smallint[]) state, unnest($8::smallint[]) flags, unnest($9::integer[]) version, unnest($10::bigint[]) tokens, unnest($11::bigint[]) cost, unnest($12::bytea[]) segments, unnest($13::bigint[]) ended_us, unnest($14::bytea[]) outcome, unnest($15::bytea[]) resolution) u`)
		// Fails with a division by zero, which rolls everything back, unless every
		// permit is still in the version that was decided on.
		q.permitUpdate[i] = s.Splice(`with u as (update ` + permits + ` p set ended_us = u.ended_us, state = u.state, flags = u.flags, version = u.version, tokens = u.tokens, cost_microusd = u.cost, segments = u.segments, outcome = u.outcome, resolution = u.resolution
from (select unnest($1::uuid[]) id, unnest($2::bigint[]) ended_us, unnest($3::smallint[]) state, unnest($4::smallint[]) flags, unnest($5::integer[]) version, unnest($6::bigint[]) tokens, unnest($7::bigint[]) cost, unnest($8::bytea[]) segments, unnest($9::bytea[]) outcome, unnest($10::bytea[]) resolution) u
where p.slot = ` + fmt.Sprint(i) + ` and p.id = u.id and p.version = u.version - 1 returning 1)
select 1 / (case when (select count(*) from u) = cardinality($1::uuid[]) then 1 else 0 end)`)
		q.batchInsert[i] = s.Splice(`insert into ` + batches + ` (slot, id, at_us, terms, permits) values (` + fmt.Sprint(i) + `, $1::uuid, $2::bigint, $3::bytea[], $4::bytea)`)
		q.batchTerms[i] = s.Splice(`select id, terms, permits from ` + batches + ` where slot = ` + fmt.Sprint(i) + ` and id = any($1::uuid[])`)
		// Waits for a transaction in doubt that inserted the same id. It writes though there may be nothing to
		// change: where a standby confirms commits, this one's confirms what it answers.
		q.tombstone[i] = s.Splice(`insert into ` + batches + ` as b (slot, id, at_us, void) values (` + fmt.Sprint(i) + `, $1::uuid, 0, true) on conflict (slot, id) do update set void = b.void returning b.void`)
	}
	return q
}

// updateCells is a CTE whose parameters begin at $n. It locks what the pointer rows already protect.
func updateCells(n int) string {
	return `u as (update {{schema}}.governance_cells c set updates = c.updates + 1, consumed = u.consumed, uncertain = u.uncertain, reserved = u.reserved, granted = u.granted, observed = u.observed, frozen = u.frozen, entries = u.entries, state = u.state, window_end_us = u.end_us, kind = u.kind
from (` + columns(n, "id uuid", "start_us bigint", "epoch bigint", "consumed bigint", "uncertain bigint", "reserved bigint", "granted bigint", "observed bigint", "frozen boolean", "entries bigint", "state bytea", "end_us bigint", "kind smallint") + `) u
where c.constraint_id = u.id and c.window_start_us = u.start_us and c.epoch = u.epoch returning 1)`
}

// allUpdated is 1, or fails with a division by zero, which rolls everything back, if a
// cell of updateCells was not there in its epoch.
func allUpdated(n int) string {
	return fmt.Sprintf(`1 / (case when (select count(*) from u) = cardinality($%d::uuid[]) then 1 else 0 end)`, n)
}

// insertBatch is two CTEs with the parameters $1 to $7: a batch, and in which accounts it reserved.
func insertBatch(table string, slot int) string {
	return `b as (insert into ` + table + ` (slot, id, at_us, terms, permits) values (` + fmt.Sprint(slot) + `, $1::uuid, $2::bigint, $3::bytea[], $4::bytea)),
e as (insert into {{schema}}.governance_entries (constraint_id, window_start_us, number, batch)
select id, start_us, number, $1::uuid from (` + columns(5, "id uuid", "start_us bigint", "number bigint") + `) u)
`
}

// insertPermits has the parameters $8 to $16.
func insertPermits(table string, slot int, where string) string {
	return `insert into ` + table + ` (slot, id, batch, terms, owner, fingerprint, at_us, state, flags, version, tokens, cost_microusd, segments)
select ` + fmt.Sprint(slot) + `, id, $1::uuid, terms, owner, fingerprint, $2::bigint, $8::smallint, flags, 1, tokens, cost, segments
from (` + columns(9, "id uuid", "terms smallint", "owner uuid", "fingerprint uuid", "flags smallint", "tokens bigint", "cost bigint", "segments bytea") + `) p` + where
}

// columns selects arrays side by side, from $n on: without a table in between for each.
func columns(n int, named ...string) string {
	out := make([]string, len(named))
	for i, column := range named {
		name, kind, _ := strings.Cut(column, " ")
		out[i] = fmt.Sprintf("unnest($%d::%s[]) %s", n+i, kind, name)
	}
	return "select " + strings.Join(out, ", ")
}

func (q *queries) shared() []*string {
	return []*string{
		&q.ensure, &q.lock, &q.lockFree, &q.pointers, &q.clock, &q.clockMark, &q.current, &q.currentMark, &q.accounts, &q.entries,
		&q.windows, &q.update, &q.remove, &q.insert, &q.entry, &q.note, &q.notes, &q.listAccounts, &q.listFrozen,
	}
}
