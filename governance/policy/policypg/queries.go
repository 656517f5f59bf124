package policypg

// All SQL of the package, with the schema spliced in once. Statements that only read lock
// nothing and see one snapshot each.
const (
	// markOf is a mark as one value of 56 bytes: namespace, generation, revision.
	markOf = `(uuid_send(s.namespace) || s.generation || int8send(s.revision))`

	selectMark = `select ` + markOf + ` from {{schema}}.policy_state s where s.singleton`
	scalarMark = `(` + selectMark + `)`     // for other statements to carry along; null where there is no row
	lockMark   = selectMark + ` for update` // locks the state's row: edits one after another, and against those that share it

	// The mark and the documents in one snapshot: a row with nulls where there is none.
	selectSet = `select ` + markOf + `, d.name, d.document
	from {{schema}}.policy_state s left join {{schema}}.policy_documents d on true where s.singleton order by d.name`

	// The state's row is locked already; documents and state change under that lock only.
	selectDocuments = `select d.name, d.document from {{schema}}.policy_documents d order by d.name`
	deleteDocuments = `delete from {{schema}}.policy_documents d where d.name = any($1::text[])`
	deleteAll       = `delete from {{schema}}.policy_documents`
	putDocuments    = `insert into {{schema}}.policy_documents (name, document, updated_us)
	select w.name, w.document, (extract(epoch from clock_timestamp()) * 1000000)::bigint
	from unnest($1::text[], $2::text[]) as w (name, document)
	on conflict (name) do update set document = excluded.document, updated_us = excluded.updated_us`
	updateState = `update {{schema}}.policy_state s set generation = $1::bytea, revision = s.revision + 1
	where s.singleton returning ` + markOf
)
