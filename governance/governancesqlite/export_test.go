package governancesqlite

// HotQueries are those whose plans a test holds in place.
var HotQueries = map[string]string{
	"selectCurrent": selectCurrent, "selectCell": selectCell, "selectPermits": selectPermits, "selectEntries": selectEntries,
	"listHeld": listHeld, "selectFrozen": selectFrozen, "updatePermit": updatePermit, "selectBatch": selectBatch, "selectVersion": selectVersion,
	"selectNotes": selectNotes,
}
