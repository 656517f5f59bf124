package keyssqlite

import (
	"strings"

	"github.com/tallystick-go/tallystick/keys"
)

// All SQL of the package. Edits run under BEGIN IMMEDIATE, which locks the whole
// file for writing; a single statement that only reads sees one snapshot.
var (
	teamColumns   = aliased("t", keys.TeamColumns)
	keyColumns    = aliased("k", keys.KeyColumns)
	secretColumns = aliased("s", keys.SecretColumns)

	selectTeam  = `SELECT ` + teamColumns + ` FROM tallystick_teams t WHERE t.id = ?`
	selectTeams = `SELECT ` + teamColumns + ` FROM tallystick_teams t WHERE t.id > ? ORDER BY t.id LIMIT ?`
	insertTeam  = `INSERT INTO tallystick_teams (` + keys.TeamColumns + `) VALUES (` + marks(keys.TeamColumns) + `)`
	updateTeam  = `UPDATE tallystick_teams SET (` + keys.TeamColumns + `) = (` + marks(keys.TeamColumns) + `) WHERE id = ? AND revision = ? AND deleted_us IS NULL`

	selectKey        = `SELECT ` + keyColumns + ` FROM tallystick_keys k WHERE k.id = ?`
	selectKeyAndTeam = `SELECT ` + keyColumns + `, ` + teamColumns + ` FROM tallystick_keys k JOIN tallystick_teams t ON t.id = k.team_id WHERE k.id = ?`
	insertKey        = `INSERT INTO tallystick_keys (` + keys.KeyColumns + `) VALUES (` + marks(keys.KeyColumns) + `)`
	updateKey        = `UPDATE tallystick_keys SET (` + keys.KeyColumns + `) = (` + marks(keys.KeyColumns) + `) WHERE id = ? AND revision = ? AND revoked_us IS NULL`

	// One statement per way to list: a range of one index each.
	selectKeys               = `SELECT ` + keyColumns + ` FROM tallystick_keys k WHERE k.id > ?1 ORDER BY k.id LIMIT ?2`
	selectKeysOfTeam         = `SELECT ` + keyColumns + ` FROM tallystick_keys k WHERE k.team_id = ?3 AND k.id > ?1 ORDER BY k.id LIMIT ?2`
	selectKeysOfOwner        = `SELECT ` + keyColumns + ` FROM tallystick_keys k WHERE k.owner = ?3 AND k.id > ?1 ORDER BY k.id LIMIT ?2`
	selectKeysOfTeamAndOwner = `SELECT ` + keyColumns + ` FROM tallystick_keys k WHERE k.team_id = ?3 AND k.owner = ?4 AND k.id > ?1 ORDER BY k.id LIMIT ?2`

	selectByHash = `SELECT ` + secretColumns + `, ` + keyColumns + `, ` + teamColumns + `
	FROM tallystick_key_secrets s JOIN tallystick_keys k ON k.id = s.key_id JOIN tallystick_teams t ON t.id = k.team_id WHERE s.hash = ?`
	selectRotation = `SELECT ` + secretColumns + ` FROM tallystick_key_secrets s WHERE s.key_id = ? AND s.rotation_id = ?`
	retireSecrets  = `UPDATE tallystick_key_secrets SET retires_us = ?2 WHERE key_id = ?1 AND (retires_us IS NULL OR retires_us > ?2)`
	insertSecret   = `INSERT INTO tallystick_key_secrets (` + keys.SecretColumns + `) VALUES (` + marks(keys.SecretColumns) + `)`

	selectSecret         = `SELECT ` + secretColumns + ` FROM tallystick_key_secrets s WHERE s.hash = ?`
	selectSecretsOf      = `SELECT ` + secretColumns + ` FROM tallystick_key_secrets s WHERE s.key_id = ?`
	selectSecretsBetween = `SELECT ` + secretColumns + ` FROM tallystick_key_secrets s WHERE s.key_id > ? AND s.key_id <= ? ORDER BY s.key_id, s.rotation_id`
	selectDeclared       = `SELECT ` + keys.DeclaredColumns + ` FROM tallystick_key_declarations WHERE kind = ? AND id = ?`
	selectDeclaredAfter  = `SELECT ` + keys.DeclaredColumns + ` FROM tallystick_key_declarations WHERE (kind, id) > (?, ?) ORDER BY kind, id LIMIT ?`
	insertDeclared       = `INSERT INTO tallystick_key_declarations (` + keys.DeclaredColumns + `) VALUES (` + marks(keys.DeclaredColumns) + `)`

	// The ids come as one JSON array, so that one prepared statement serves any number.
	selectDefinitions = `SELECT wanted.key, k.revision, t.revision, k.revoked_us, k.expires_us, t.deleted_us
	FROM json_each(?) wanted JOIN tallystick_keys k ON k.id = wanted.value JOIN tallystick_teams t ON t.id = k.team_id`
)

// aliased puts the table's alias before every column.
func aliased(table, columns string) string {
	return table + "." + strings.ReplaceAll(columns, ", ", ", "+table+".")
}

// marks makes one placeholder per column.
func marks(columns string) string {
	return strings.TrimSuffix(strings.Repeat("?, ", strings.Count(columns, ",")+1), ", ")
}
