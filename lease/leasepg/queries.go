package leasepg

import "github.com/tallystick-go/tallystick/internal/pgtx"

// All SQL of the package, with the schema spliced in once. Each is one statement that commits by itself, so
// that no transaction is left open and a pooler may sit between.
//
// Each change locks its row in the first step, reads the clock in the second, and changes the row in the
// third: an expression of the statement that locks is computed before it waits. A condition on the clock stands
// in the first step, so that a row which does not match is not locked at all, and is made sure of in the third.
const (
	nowColumn = `(extract(epoch from clock_timestamp()) * 1000000)::bigint`
	columns   = `holder, generation, ttl_us, acquired_us, renewed_us, expires_us`

	// $1 name, $2 holder, $3 ttl, $4 and $5 the generation and origin that were seen, $6 how long to wait for a lock.
	//
	// A live lease of another is read and not locked. A free one is locked FOR UPDATE, which waits for
	// transactions that hold it FOR KEY SHARE: fenced ones. Of those who race for a free row the others wait for the first, and
	// find the condition gone. Of those who race to make the row the others insert nothing: ON CONFLICT names no key, since
	// whichever of the two keys it does not name is an error in such a race.
	acquire = `with bounds as materialized (
	select set_config('lock_timeout', $6::text, true)
), free as materialized (
	select l.name from bounds, {{schema}}.leases l, {{schema}}.lease_origin o
	where l.name = $1::text and (l.expires_us <= ` + nowColumn + ` or l.holder in ('', $2::text))
		and l.generation >= $4::bigint and ($5::text = '' or o.id = $5::text)
	for update of l
), clock as materialized (
	select name, ` + nowColumn + ` as now from free
), taken as (
	update {{schema}}.leases l set holder = $2::text, generation = l.generation + 1, ttl_us = $3::bigint,
		acquired_us = clock.now, renewed_us = clock.now, expires_us = clock.now + $3::bigint
	from clock where l.name = clock.name
	returning l.holder, l.generation, l.ttl_us, l.acquired_us, l.renewed_us, l.expires_us
), made as (
	insert into {{schema}}.leases as l (name, ` + columns + `)
	select $1::text, $2::text, 1, $3::bigint, fresh.now, fresh.now, fresh.now + $3::bigint
	from bounds, {{schema}}.lease_origin o, (select ` + nowColumn + ` as now offset 0) fresh
	where $4::bigint = 0 and ($5::text = '' or o.id = $5::text)
		and not exists (select from {{schema}}.leases l where l.name = $1::text)
	on conflict do nothing
	returning l.holder, l.generation, l.ttl_us, l.acquired_us, l.renewed_us, l.expires_us
), shown as (
	select true as done, t.* from taken t
	union all select true, m.* from made m
	union all select false, ` + columns + ` from {{schema}}.leases where name = $1::text
)
` + shownRow

	// $1 name, $2 holder, $3 generation, $4 how long to wait for a lock. The lock is FOR NO KEY UPDATE, which fenced
	// transactions do not hold up.
	renew = `with bounds as materialized (
	select set_config('lock_timeout', $4::text, true)
), mine as materialized (
	select l.name from bounds, {{schema}}.leases l
	where l.name = $1::text and l.holder = $2::text and l.generation = $3::bigint and l.expires_us > ` + nowColumn + `
	for no key update of l
), clock as materialized (
	select name, ` + nowColumn + ` as now from mine
), renewed as (
	update {{schema}}.leases l set renewed_us = clock.now, expires_us = clock.now + l.ttl_us
	from clock where l.name = clock.name and l.expires_us > clock.now
	returning l.holder, l.generation, l.ttl_us, l.acquired_us, l.renewed_us, l.expires_us
), shown as (
	select true as done, r.* from renewed r
	union all select false, ` + columns + ` from {{schema}}.leases where name = $1::text
)
` + shownRow

	// As renew; a generation of 0 is any. The generation stays, so fenced transactions do not hold it up: who acquires
	// next waits for them.
	release = `with bounds as materialized (
	select set_config('lock_timeout', $4::text, true)
), mine as materialized (
	select l.name from bounds, {{schema}}.leases l
	where l.name = $1::text and l.holder = $2::text and ($3::bigint = 0 or l.generation = $3::bigint)
	for no key update of l
), clock as materialized (
	select name, ` + nowColumn + ` as now from mine
), released as (
	update {{schema}}.leases l set holder = '', expires_us = least(l.expires_us, clock.now)
	from clock where l.name = clock.name
	returning l.holder, l.generation, l.ttl_us, l.acquired_us, l.renewed_us, l.expires_us
), shown as (
	select true as done, r.* from released r
	union all select false, ` + columns + ` from {{schema}}.leases where name = $1::text
)
` + shownRow

	// $1 name. Locks nothing; one snapshot.
	look = `with shown as (
	select false as done, ` + columns + ` from {{schema}}.leases where name = $1::text
)
` + shownRow

	// What the statement did, or else what its snapshot saw; one row in any case.
	shownRow = `select o.id, ` + nowColumn + `, pg_catalog.pg_is_in_recovery(), coalesce(s.done, false), coalesce(s.holder, ''), coalesce(s.generation, 0),
	coalesce(s.ttl_us, 0), coalesce(s.acquired_us, 0), coalesce(s.renewed_us, 0), coalesce(s.expires_us, 0)
from {{schema}}.lease_origin o left join lateral (select * from shown order by done desc limit 1) s on true`

	// $1 name, $2 holder, $3 generation. In the caller's transaction: holds the row FOR KEY SHARE until its end, which
	// acquisitions wait for and renewals do not. One row if the tenure is live: what is left of it, and the timeout
	// that was set for a transaction that stands idle, which is never more than the caller's own.
	fence = `with mine as materialized (
	select l.expires_us from {{schema}}.leases l
	where l.name = $1::text and l.holder = $2::text and l.generation = $3::bigint and l.expires_us > ` + nowColumn + `
	for key share of l
), clock as materialized (
	select expires_us - ` + nowColumn + ` as left_us,
		(extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::bigint as idle_ms
	from mine
)
select left_us, set_config('idle_in_transaction_session_timeout',
	greatest(1, least(left_us / 1000, case when idle_ms > 0 then idle_ms else left_us end))::text, true)
from clock where left_us > 0`
)

type queries struct{ acquire, renew, release, look, fence string }

func splice(s pgtx.Schema) queries {
	return queries{s.Splice(acquire), s.Splice(renew), s.Splice(release), s.Splice(look), s.Splice(fence)}
}
