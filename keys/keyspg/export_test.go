package keyspg

import "github.com/tallystick-go/tallystick/internal/pgtx"

// Schema is the store's schema.
func (s *Store) Schema() pgtx.Schema { return s.schema }

// Statements are the ones whose plans are checked, by name.
func (s *Store) Statements() map[string]string {
	return map[string]string{
		"resolve": s.sql.selectByHash, "reload": s.sql.selectKeyAndTeam, "keys": s.sql.selectKeys, "keys of team": s.sql.selectKeysOfTeam,
		"keys of owner": s.sql.selectKeysOfOwner, "keys of both": s.sql.selectKeysOfTeamAndOwner, "teams": s.sql.selectTeams,
		"definitions": s.schema.Splice(selectDefinitions), "rotation": s.sql.selectRotation, "retire": s.sql.retireSecrets,
		"teams by id": s.sql.keepTeams, "keys by id": s.sql.selectKeysByID, "secrets": s.sql.selectSecrets, "declared": s.sql.selectDeclared,
	}
}
