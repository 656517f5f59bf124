package escrowpg

// All SQL of the package, with the schema spliced in. What has no remark locks nothing.
const (
	selectNode  = `select data, heard_us from {{schema}}.escrow_nodes where name = $1::text`
	lockNode    = selectNode + ` for update` // locks the node's row: its heartbeats one after another
	insertNode  = `insert into {{schema}}.escrow_nodes (name, data, heard_us) values ($1::text, $2::bytea, $3::bigint)`
	updateNode  = `update {{schema}}.escrow_nodes set data = $2::bytea, heard_us = $3::bigint where name = $1::text`
	selectNodes = `select name, data, heard_us from {{schema}}.escrow_nodes where name > $1::text order by name limit $2::bigint`
)
