package keyspg

import (
	"fmt"
	"strings"

	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/keys"
)

// All SQL of the package, with the schema spliced in once. Statements that only
// read lock nothing and see one snapshot each.
const (
	// The clock is read by a statement of its own, after the one that locks.
	selectNow = `select (extract(epoch from clock_timestamp()) * 1000000)::bigint`
	nowColumn = `(extract(epoch from clock_timestamp()) * 1000000)::bigint`
)

var (
	teamColumns   = aliased("t", keys.TeamColumns)
	keyColumns    = aliased("k", keys.KeyColumns)
	secretColumns = aliased("s", keys.SecretColumns)

	selectTeam       = `select ` + teamColumns + ` from {{schema}}.teams t where t.id = $1::text`
	selectTeams      = `select ` + teamColumns + ` from {{schema}}.teams t where t.id > $1::text order by t.id limit $2::bigint`
	lockTeam         = selectTeam + ` for update` // locks the team's row against other edits
	keepTeam         = selectTeam + ` for share`  // locks the team's row against edits; creates share it
	selectKey        = `select ` + keyColumns + ` from {{schema}}.keys k where k.id = $1::text`
	lockKey          = selectKey + ` for update` // locks the key's row against other edits
	selectKeyAndTeam = `select ` + keyColumns + `, ` + teamColumns + `, ` + nowColumn + `
	from {{schema}}.keys k join {{schema}}.teams t on t.id = k.team_id where k.id = $1::text`

	insertTeam = `insert into {{schema}}.teams (` + keys.TeamColumns + `) values (` + params(keys.TeamColumns) + `)`
	updateTeam = `update {{schema}}.teams set (` + keys.TeamColumns + `) = (` + params(keys.TeamColumns) + `)
	where id = $1::text and revision = $18::bigint and deleted_us is null`
	insertKey = `insert into {{schema}}.keys (` + keys.KeyColumns + `) values (` + params(keys.KeyColumns) + `)`
	updateKey = `update {{schema}}.keys set (` + keys.KeyColumns + `) = (` + params(keys.KeyColumns) + `)
	where id = $1::text and revision = $20::bigint and revoked_us is null`

	// One statement per way to list: a range of one index each.
	selectKeys               = `select ` + keyColumns + ` from {{schema}}.keys k where k.id > $1::text order by k.id limit $2::bigint`
	selectKeysOfTeam         = `select ` + keyColumns + ` from {{schema}}.keys k where k.team_id = $3::text and k.id > $1::text order by k.id limit $2::bigint`
	selectKeysOfOwner        = `select ` + keyColumns + ` from {{schema}}.keys k where k.owner = $3::text and k.id > $1::text order by k.id limit $2::bigint`
	selectKeysOfTeamAndOwner = `select ` + keyColumns + ` from {{schema}}.keys k where k.team_id = $3::text and k.owner = $4::text and k.id > $1::text order by k.id limit $2::bigint`

	selectByHash = `select ` + secretColumns + `, ` + keyColumns + `, ` + teamColumns + `, ` + nowColumn + `
	from {{schema}}.key_secrets s join {{schema}}.keys k on k.id = s.key_id join {{schema}}.teams t on t.id = k.team_id where s.hash = $1::bytea`
	selectRotation = `select ` + secretColumns + ` from {{schema}}.key_secrets s where s.key_id = $1::text and s.rotation_id = $2::text`
	// The key's row is locked already; these rows change under that lock only.
	retireSecrets = `update {{schema}}.key_secrets set retires_us = $2::bigint where key_id = $1::text and (retires_us is null or retires_us > $2::bigint)`
	insertSecret  = `insert into {{schema}}.key_secrets (` + keys.SecretColumns + `) values (` + params(keys.SecretColumns) + `)`

	// Locks nothing but the turn of bootstraps, imports and migrations, until the end.
	takeTurn = `select pg_advisory_xact_lock($1::bigint)`
	// Locks the teams' rows against edits and deletion, as for a create.
	keepTeams      = `select ` + teamColumns + ` from {{schema}}.teams t where t.id = any($1::text[]) order by t.id for share`
	selectKeysByID = `select ` + keyColumns + ` from {{schema}}.keys k where k.id = any($1::text[])`
	selectSecrets  = `select ` + secretColumns + ` from {{schema}}.key_secrets s where s.hash = any($1::bytea[])
	union select ` + secretColumns + ` from {{schema}}.key_secrets s where s.key_id = any($2::text[])`
	selectDeclared = `select ` + aliased("d", keys.DeclaredColumns) + ` from {{schema}}.key_declarations d
	where (d.kind, d.id) in (select * from unnest($1::text[], $2::text[]))`
	// Many rows at once: an array per column.
	insertTeams    = manyRows("teams", keys.TeamColumns)
	insertKeys     = manyRows("keys", keys.KeyColumns)
	insertSecrets  = manyRows("key_secrets", keys.SecretColumns)
	insertDeclared = manyRows("key_declarations", keys.DeclaredColumns)

	// After many rows came in: until the planner knows of them, it would sort what it can walk.
	analyze = `analyze {{schema}}.teams, {{schema}}.keys, {{schema}}.key_secrets, {{schema}}.key_declarations`

	// Each id is one walk down two indexes, whatever the planner knew of the tables when
	// it made a plan to keep.
	selectDefinitions = `select w.n - 1, k.revision, t.revision, k.revoked_us, k.expires_us, t.deleted_us
	from unnest($1::text[]) with ordinality as w (id, n)
	cross join lateral (select k.team_id, k.revision, k.revoked_us, k.expires_us from {{schema}}.keys k where k.id = w.id limit 1) k
	cross join lateral (select t.revision, t.deleted_us from {{schema}}.teams t where t.id = k.team_id limit 1) t`
)

// columnTypes are the types of the columns that are not bigint.
var columnTypes = map[string]string{
	"id": "text", "team_id": "text", "owner": "text", "name": "text", "guardrail": "text", "key_id": "text", "rotation_id": "text", "hash": "bytea",
	"kind": "text", "fingerprint": "text",
	"allowed_models": "text::jsonb", "allowed_regions": "text::jsonb", "metadata": "text::jsonb",
}

// aliased puts the table's alias before every column. JSON is read as text: the
// driver would take a JSON null for a missing list, which allows everything.
func aliased(table, columns string) string {
	out := strings.Split(columns, ", ")
	for i, column := range out {
		out[i] = table + "." + column
		if strings.HasSuffix(columnTypes[column], "jsonb") {
			out[i] += "::text"
		}
	}
	return strings.Join(out, ", ")
}

// params makes one numbered parameter per column, each with its type: what the
// server infers depends on the statement.
func params(columns string) string {
	var out []string
	for i, column := range strings.Split(columns, ", ") {
		kind, other := columnTypes[column]
		if !other {
			kind = "bigint"
		}
		out = append(out, fmt.Sprintf("$%d::%s", i+1, kind))
	}
	return strings.Join(out, ", ")
}

// manyRows inserts as many rows as its arrays are long.
func manyRows(table, columns string) string {
	var values, types, names []string
	for i, column := range strings.Split(columns, ", ") {
		kind, cast, _ := strings.Cut(columnTypes[column], "::")
		if kind == "" {
			kind = "bigint"
		}
		name := fmt.Sprintf("v%d", i+1)
		names, types = append(names, name), append(types, fmt.Sprintf("$%d::%s[]", i+1, kind))
		if cast != "" {
			name += "::" + cast
		}
		values = append(values, name)
	}
	return `insert into {{schema}}.` + table + ` (` + columns + `) select ` + strings.Join(values, ", ") +
		` from unnest(` + strings.Join(types, ", ") + `) as v (` + strings.Join(names, ", ") + `)`
}

type queries struct {
	selectTeam, selectTeams, lockTeam, keepTeam, insertTeam, updateTeam string
	selectKey, lockKey, selectKeyAndTeam, insertKey, updateKey          string
	selectKeys, selectKeysOfTeam, selectKeysOfOwner                     string
	selectKeysOfTeamAndOwner                                            string
	selectByHash, selectRotation, retireSecrets, insertSecret           string
	keepTeams, selectKeysByID, selectSecrets, selectDeclared            string
	insertTeams, insertKeys, insertSecrets, insertDeclared, analyze     string
}

func splice(schema pgtx.Schema) queries {
	s := schema.Splice
	return queries{
		s(selectTeam), s(selectTeams), s(lockTeam), s(keepTeam), s(insertTeam), s(updateTeam),
		s(selectKey), s(lockKey), s(selectKeyAndTeam), s(insertKey), s(updateKey),
		s(selectKeys), s(selectKeysOfTeam), s(selectKeysOfOwner), s(selectKeysOfTeamAndOwner),
		s(selectByHash), s(selectRotation), s(retireSecrets), s(insertSecret),
		s(keepTeams), s(selectKeysByID), s(selectSecrets), s(selectDeclared),
		s(insertTeams), s(insertKeys), s(insertSecrets), s(insertDeclared), s(analyze),
	}
}
