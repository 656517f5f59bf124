package eventlogpg

import "github.com/tallystick-go/tallystick/internal/pgtx"

const (
	nowColumn    = `(extract(epoch from clock_timestamp()) * 1000000)::bigint`
	eventColumns = `e.position, e.stream, e.version, e.id, e.type, e.schema, coalesce(e.producer, ''), e.recorded_us, e.data`

	// Locks nothing but what it inserts; a transaction in doubt under one of the ids or versions is waited for. The
	// table's defaults give the transaction's id before the position. A stream that is not where it must be gets
	// version 0, which the table refuses.
	insertEvents = `insert into {{schema}}.events (version, schema, stream, id, type, producer, data)
	select case when r.base < 0 or r.base = c.version then c.version + r.off else 0 end, r.schema, r.stream, r.id, r.type, r.producer, r.data
	from (select unnest($1::text[]) as stream, unnest($2::text[]) as id, unnest($3::text[]) as type, unnest($4::int[]) as schema, unnest($5::bigint[]) as base,
		unnest($6::bigint[]) as off, unnest($7::text[]) as producer, unnest($8::bytea[]) as data, unnest($9::int[]) as ord) r
	cross join lateral (select coalesce((select e.version from {{schema}}.events e where e.stream = r.stream order by e.version desc limit 1),
		(select s.version from {{schema}}.event_streams s where s.stream = r.stream), 0) as version) c
	order by r.ord
	returning position, version`
	// The same for one event, which is what most appends are.
	insertEvent = `insert into {{schema}}.events (version, schema, stream, id, type, producer, data)
	values ((select case when $1::bigint < 0 or $1::bigint = c.version then c.version + 1 else 0 end
		from (select coalesce((select e.version from {{schema}}.events e where e.stream = $3::text order by e.version desc limit 1),
			(select s.version from {{schema}}.event_streams s where s.stream = $3::text), 0) as version) c),
		$2::int, $3::text, $4::text, $5::text, $6::text, $7::bytea)
	returning position, version`
	// What is recorded within another's transaction: no version is expected, the caller's lock keeps others away from the
	// streams, and what is there already under its id is left out before it is numbered.
	recordEvents = `insert into {{schema}}.events (version, schema, stream, id, type, producer, data)
	select coalesce((select e.version from {{schema}}.events e where e.stream = r.stream order by e.version desc limit 1),
		(select s.version from {{schema}}.event_streams s where s.stream = r.stream), 0) + row_number() over (partition by r.stream order by r.ord),
		r.schema, r.stream, r.id, r.type, r.producer, r.data
	from (select unnest($1::text[]) as stream, unnest($2::text[]) as id, unnest($3::text[]) as type, unnest($4::int[]) as schema,
		unnest($5::text[]) as producer, unnest($6::bytea[]) as data, unnest($7::int[]) as ord) r
	where (select e.position from {{schema}}.events e where e.id = r.id) is null
	order by r.ord
	on conflict (id) do nothing`
	// Locks the streams' names against other appends that had to repeat, until the end.
	lockStreams    = `select pg_catalog.pg_advisory_xact_lock(k.key) from (select distinct unnest($1::bigint[]) as key order by 1) k`
	selectIDs      = `select ` + eventColumns + ` from {{schema}}.events e where e.id = any($1::text[])`
	selectVersions = `select r.stream, coalesce((select e.version from {{schema}}.events e where e.stream = r.stream order by e.version desc limit 1),
		(select s.version from {{schema}}.event_streams s where s.stream = r.stream), 0) from unnest($1::text[]) as r(stream)`
	selectStream = `select ` + eventColumns + ` from {{schema}}.events e where e.stream = $1::text and e.version > $2::bigint order by e.version limit $3::bigint`

	// A view of the log. age() tells the next transaction id as a distance from the snapshot's end: it must be read no earlier than the
	// snapshot is taken, and is. The control file's timeline is not asked: it is behind after a promotion.
	selectView = `select s.snap::text, s.high::text, pg_catalog.age(s.high::xid)::bigint,
	(select system_identifier from pg_catalog.pg_control_system()),
	substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8),
	(select d.oid::bigint from pg_catalog.pg_database d where d.datname = current_database()), '{{schema}}.events'::regclass::oid::bigint, l.log::text,
	coalesce((select e.position from {{schema}}.events e order by e.position desc limit 1), 0), l.pruned, l.pruned_xid::text, ` + nowColumn + `,
	pg_catalog.pg_current_xact_id_if_assigned() is not null, current_setting('transaction_isolation')
	from {{schema}}.event_log l cross join (select n.snap, pg_catalog.pg_snapshot_xmax(n.snap) as high from (select pg_catalog.pg_current_snapshot() as snap) n) s where l.one`
	// Every row behind a position, by position.
	selectFresh = `select ` + eventColumns + ` from {{schema}}.events e where e.position > $1::bigint order by e.position limit $2::bigint`
	// Rows at early positions of transactions that were open: those listed, and those of a range that have rows, found
	// by hopping from one to the next. Each is a range of one index; at most a page of each is read.
	selectLate = `with recursive hop(xid) as (
		(select e.xid from {{schema}}.events e where e.xid >= $2::text::xid8 and e.xid < $3::text::xid8 order by e.xid limit 1)
		union all
		select (select e.xid from {{schema}}.events e where e.xid > h.xid and e.xid < $3::text::xid8 order by e.xid limit 1) from hop h where h.xid is not null
	), late(xid) as (select unnest($1::text[])::xid8 union all select h.xid from hop h where h.xid is not null)
	select ` + eventColumns + ` from late t cross join lateral (
		select * from {{schema}}.events i where i.xid = t.xid and i.position > $4::bigint and i.position <= $5::bigint order by i.xid, i.position limit $6::bigint
	) e where ($7::text = '' or pg_catalog.pg_visible_in_snapshot(t.xid, $7::text::pg_snapshot)) order by e.position limit $6::bigint`

	selectConsumers = `select c.consumer, c.producer, c.owner, c.generation, c.left_on, c.bound, c.seen_us, c.cursor, ` + nowColumn + `,
	coalesce((select e.position from {{schema}}.events e order by e.position desc limit 1), 0)
	from {{schema}}.event_consumers c where $1::text = '' or c.consumer = $1::text order by c.consumer, c.producer`
	// Locks the checkpoint's row, made or found, until the end. xmax tells them apart.
	claimConsumer = `insert into {{schema}}.event_consumers as c (consumer, producer, owner, generation, seen_us, cursor)
	values ($1::text, $2::text, $3::text, (select l.generation + 1 from {{schema}}.event_log l), ` + nowColumn + `, $4::text)
	on conflict (consumer, producer) do update set owner = excluded.owner, generation = c.generation + 1, left_on = false,
		bound = case when excluded.owner = c.producer then 0 else c.bound end, seen_us = excluded.seen_us
	returning c.generation, c.cursor, c.bound, c.seen_us, c.xmax = 0`
	// The same for one that nobody has touched since it was listed.
	claimSeen = `update {{schema}}.event_consumers as c set owner = $3::text, generation = c.generation + 1, left_on = false,
		bound = case when $3::text = c.producer then 0 else c.bound end, seen_us = ` + nowColumn + `
	where consumer = $1::text and producer = $2::text and generation = $4::bigint and seen_us = $5::bigint
	returning c.generation, c.cursor, c.bound, c.seen_us, false`
	moveClaimed = `update {{schema}}.event_consumers set cursor = $4::text where consumer = $1::text and producer = $2::text and generation = $3::bigint`
	// Locks the log's row against retention, not against other claims.
	keepLog = `select from {{schema}}.event_log l for share`
	// Locks the checkpoint's row.
	saveConsumer = `update {{schema}}.event_consumers set cursor = $4::text, left_on = $5::boolean, bound = $6::bigint, seen_us = ` + nowColumn + `
	where consumer = $1::text and producer = $2::text and generation = $3::bigint`
	// Locks the log's row, and then the checkpoint's, as Prune does. One statement tells how many went and remembers their generation.
	dropConsumer = `with gone as (
		delete from {{schema}}.event_consumers where consumer = $1::text and producer = $2::text and ($3::bigint = 0 or generation = $3::bigint) returning generation
	) update {{schema}}.event_log l set generation = greatest(l.generation, g.generation) from gone g`
	// Closed checkpoints that nobody has touched for long, unless whoever sweeps for them stands still; the log's row is locked.
	forgetClosed = `with gone as (delete from {{schema}}.event_consumers c where c.bound = -1 and c.seen_us < $1::bigint and not exists (
		select from {{schema}}.event_consumers w where w.consumer = c.consumer and w.producer = '' and w.seen_us < $1::bigint) returning c.generation)
	update {{schema}}.event_log l set generation = greatest(l.generation, g.generation) from (select max(generation) as generation from gone) g where g.generation is not null`

	insertAside = `insert into {{schema}}.event_asides as a (consumer, runner, id, position, at_us, attempts, declined, reason, event)
	values ($1::text, $2::text, $3::text, $4::bigint, ` + nowColumn + `, $5::bigint, $6::boolean, $7::text, $8::text)
	on conflict (consumer, runner, id) do update set at_us = excluded.at_us, attempts = a.attempts + excluded.attempts, declined = excluded.declined, last_reason = excluded.reason`
	selectAsides = `select a.runner, a.at_us, a.attempts, a.declined, a.reason, coalesce(a.last_reason, ''), a.event from {{schema}}.event_asides a
	where a.consumer = $1::text and (a.position, a.runner) > ($2::bigint, $3::text) order by a.position, a.runner limit $4::bigint`
	deleteAside = `delete from {{schema}}.event_asides where consumer = $1::text and runner = $2::text and id = $3::text`

	// Locks the log's row: one prunes at a time, and none while another repairs.
	lockLog = `select l.pruned, l.pruned_xid::text from {{schema}}.event_log l for update`
	// Locks every checkpoint against being moved or made over, until the end of this part.
	lockConsumers = `select c.consumer, c.producer, c.bound, c.cursor from {{schema}}.event_consumers c order by c.consumer, c.producer for update`
	// The oldest rows, but for those of $2, transactions that a checkpoint still waits for, with a range of them from $3 to $4.
	selectOld = `select e.position, e.xid::text, e.stream, e.version, e.recorded_us from {{schema}}.events e where e.position <= $1::bigint
	and not (e.xid = any($2::text[]::xid8[])) and not (e.xid >= $3::text::xid8 and e.xid < $4::text::xid8) order by e.position limit $5::bigint`
	selectNext   = `select e.recorded_us from {{schema}}.events e where e.position > $1::bigint order by e.position limit 1`
	keepVersions = `insert into {{schema}}.event_streams as s (stream, version) select r.stream, r.version from unnest($1::text[], $2::bigint[]) as r(stream, version)
	where not exists (select from {{schema}}.events e where e.stream = r.stream and e.version > r.version)
	on conflict (stream) do update set version = greatest(s.version, excluded.version)`
	deleteOld = `delete from {{schema}}.events where position = any($1::bigint[])`
	markOld   = `update {{schema}}.event_log set pruned = greatest(pruned, $1::bigint), pruned_xid = greatest(pruned_xid, $2::text::xid8)`

	selectNewest = `select coalesce((select e.xid from {{schema}}.events e order by e.xid desc limit 1) >= s.high, false),
	coalesce((select e.position from {{schema}}.events e order by e.position desc limit 1) > (select q.last_value from {{schema}}.events_position q), false), s.high::text
	from (select pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) as high) s`
	forward = `select setval('{{schema}}.events_position', greatest((select q.last_value from {{schema}}.events_position q), (select max(e.position) from {{schema}}.events e), 1))`
	// Locks the table against appends, not against reads.
	lockEvents = `lock table {{schema}}.events in share row exclusive mode`
	// The lowest position that a cursor has not delivered, of rows with any number.
	selectUndelivered = `select min(e.position) from {{schema}}.events e where e.position > $1::bigint or e.xid = any($2::text[]::xid8[]) or e.xid >= $3::text::xid8 and e.xid < $4::text::xid8`
	// The lowest and the highest number, as it is about to be, of what retention has left behind itself.
	selectLeft = `select min(n.xid), max(n.xid) from (select case when e.xid >= $2::text::xid8 then 2 else e.xid::text::bigint end as xid
		from {{schema}}.events e where e.position <= $1::bigint) n`
	moveConsumer = `update {{schema}}.event_consumers set cursor = $3::text where consumer = $1::text and producer = $2::text`
	// 2 is the number of what every transaction sees.
	renumber = `update {{schema}}.events set xid = '2' where xid >= $1::text::xid8`
	renewLog = `update {{schema}}.event_log set log = gen_random_uuid(), pruned_xid = '0'`

	// Whose transactions a cursor waits for: no statement's text, and nothing that needs a privilege.
	selectHolders = `select x.xid, coalesce(a.pid, 0)::bigint, coalesce(a.application_name, ''), coalesce(a.datname::text, p.database::text, ''), coalesce(a.state, ''), coalesce(p.gid, ''),
	coalesce((extract(epoch from clock_timestamp() - coalesce(a.xact_start, p.prepared)) * 1000000)::bigint, 0)
	from unnest($1::text[]) as x(xid)
	left join pg_catalog.pg_locks l on l.locktype = 'transactionid' and l.granted and l.mode = 'ExclusiveLock' and l.transactionid = x.xid::xid8::xid
	left join pg_catalog.pg_stat_activity a on a.pid = l.pid
	left join pg_catalog.pg_prepared_xacts p on p.transaction = x.xid::xid8::xid
	where not pg_catalog.pg_visible_in_snapshot(x.xid::xid8, pg_catalog.pg_current_snapshot()) order by x.xid::xid8`
)

type queries struct {
	insert, ids, versions, stream, view, fresh, late                  string
	consumers, claim, claimSeen, moveClaimed, save, drop, forget      string
	setAside, asides, takeBack                                        string
	lockLog, lockConsumers, old, keepVersions, deleteOld, markOld     string
	newest, lockEvents, undelivered, moveConsumer, renumber, renewLog string
	keepLog, next, forward, insertOne, left, record                   string
}

func splice(s pgtx.Schema) queries {
	return queries{
		insert: s.Splice(insertEvents), ids: s.Splice(selectIDs), versions: s.Splice(selectVersions), stream: s.Splice(selectStream),
		view: s.Splice(selectView), fresh: s.Splice(selectFresh), late: s.Splice(selectLate),
		consumers: s.Splice(selectConsumers), claim: s.Splice(claimConsumer), save: s.Splice(saveConsumer),
		claimSeen: s.Splice(claimSeen), moveClaimed: s.Splice(moveClaimed), drop: s.Splice(dropConsumer), forget: s.Splice(forgetClosed),
		setAside: s.Splice(insertAside), asides: s.Splice(selectAsides), takeBack: s.Splice(deleteAside),
		lockLog: s.Splice(lockLog), lockConsumers: s.Splice(lockConsumers), old: s.Splice(selectOld),
		keepVersions: s.Splice(keepVersions), deleteOld: s.Splice(deleteOld), markOld: s.Splice(markOld),
		newest: s.Splice(selectNewest), lockEvents: s.Splice(lockEvents), undelivered: s.Splice(selectUndelivered),
		moveConsumer: s.Splice(moveConsumer), renumber: s.Splice(renumber), renewLog: s.Splice(renewLog),
		keepLog: s.Splice(keepLog), next: s.Splice(selectNext), forward: s.Splice(forward), insertOne: s.Splice(insertEvent),
		left:   s.Splice(selectLeft),
		record: s.Splice(recordEvents),
	}
}
