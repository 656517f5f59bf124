package keyssqlite

import "strings"

// Statements are those whose plans are checked, by name.
func Statements() map[string]string {
	return map[string]string{
		"team": selectTeam, "teams": selectTeams, "update team": updateTeam, "key": selectKey, "key and team": selectKeyAndTeam, "update key": updateKey,
		"keys": selectKeys, "keys of team": selectKeysOfTeam, "keys of owner": selectKeysOfOwner, "keys of both": selectKeysOfTeamAndOwner,
		"by hash": selectByHash, "rotation": selectRotation, "retire": retireSecrets, "definitions": selectDefinitions,
	}
}

// Parameters counts what a statement takes.
func Parameters(sql string) int {
	for n := 4; n > 0; n-- {
		if strings.Contains(sql, "?"+string(rune('0'+n))) {
			return n
		}
	}
	return strings.Count(sql, "?")
}
