package leasesqlite

// All SQL of the package. Each change is one conditional statement within BEGIN IMMEDIATE: the writer's lock is held
// before the clock is read, so that the clock is a parameter.
const (
	columns = `holder, generation, ttl_us, acquired_us, renewed_us, expires_us`

	// ?1 name, ?2 holder, ?3 ttl, ?4 now, ?5 and ?6 the generation and origin that were seen.
	acquire = `insert into leases (name, ` + columns + `)
	select ?1, ?2, 1, ?3, ?4, ?4, ?4 + ?3 from lease_origin o
	where (?5 = 0 or exists (select 1 from leases l where l.name = ?1)) and (?6 = '' or o.id = ?6)
	on conflict (name) do update set holder = ?2, generation = generation + 1, ttl_us = ?3, acquired_us = ?4, renewed_us = ?4, expires_us = ?4 + ?3
	where (expires_us <= ?4 or holder in ('', ?2)) and generation >= ?5`

	// ?1 name, ?2 holder, ?3 generation, ?4 now.
	renew = `update leases set renewed_us = ?4, expires_us = ?4 + ttl_us
	where name = ?1 and holder = ?2 and generation = ?3 and expires_us > ?4`

	// As renew; a generation of 0 is any.
	release = `update leases set holder = '', expires_us = min(expires_us, ?4)
	where name = ?1 and holder = ?2 and (?3 = 0 or generation = ?3)`

	// ?1 name. One row in any case.
	look = `select o.id, coalesce(l.holder, ''), coalesce(l.generation, 0), coalesce(l.ttl_us, 0), coalesce(l.acquired_us, 0),
	coalesce(l.renewed_us, 0), coalesce(l.expires_us, 0)
	from lease_origin o left join leases l on l.name = ?1`

	// ?1 name, ?2 holder, ?3 generation, ?4 now. It changes nothing, and takes the writer's lock until the caller's transaction ends.
	fence = `update leases set generation = generation
	where name = ?1 and holder = ?2 and generation = ?3 and expires_us > ?4`
)
