package governancesqlite

// HotQueries are those whose plans a test holds in place.
var HotQueries = map[string]string{
	"selectCurrent": selectCurrent, "selectCell": selectCell, "selectPermits": selectPermits, "selectFresh": selectFresh, "selectBatches": selectBatches, "listFresh": listFresh,
	"insertFreshOnce": insertFreshOnce, "deleteFresh": deleteFresh, "insertPermit": insertPermit, "selectEntries": selectEntries,
	"listHeld": listHeld, "selectFrozen": selectFrozen, "changePermit": changePermit, "selectBatch": selectBatch, "selectVersion": selectVersion,
	"selectNotes": selectNotes,
}
