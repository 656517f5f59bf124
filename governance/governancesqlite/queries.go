package governancesqlite

// All SQL of the package. Everything that writes runs under BEGIN IMMEDIATE, which
// locks the whole file for writing; what only reads sees one snapshot.
//
// Lists of ids come as one BLOB of 16 bytes each (?1) with their number (?2), so
// that one prepared statement serves any number.
const (
	countJournals = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'journal_meta'`
	selectPath    = `SELECT coalesce(max(file), '') FROM pragma_database_list WHERE name = 'main'`

	wanted = `WITH RECURSIVE wanted (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM wanted WHERE i + 1 < ?2) `

	selectHorizon = `SELECT horizon_us FROM governance_meta`
	countDoubt    = `UPDATE governance_meta SET doubts = doubts + 1`

	cellColumns = `c.window_end_us, c.kind, c.consumed, c.uncertain, c.reserved, c.granted, c.observed, c.frozen, c.entries, c.state`

	selectCurrent = wanted + `SELECT wanted.i, w.window_start_us, w.window_end_us,
	coalesce(c.window_end_us, 0), coalesce(c.kind, 0), coalesce(c.consumed, 0), coalesce(c.uncertain, 0), coalesce(c.reserved, 0),
	coalesce(c.granted, 0), coalesce(c.observed, 0), coalesce(c.frozen, 0), coalesce(c.entries, 0), c.state
	FROM wanted CROSS JOIN governance_constraints w ON w.constraint_id = substr(?1, 1 + 16 * wanted.i, 16)
	LEFT JOIN governance_cells c ON c.constraint_id = w.constraint_id AND c.window_start_us = w.window_start_us`
	selectCell   = `SELECT ` + cellColumns + ` FROM governance_cells c WHERE c.constraint_id = ?1 AND c.window_start_us = ?2`
	upsertWindow = `INSERT INTO governance_constraints (constraint_id, window_start_us, window_end_us, label) VALUES (?, ?, ?, ?)
	ON CONFLICT (constraint_id) DO UPDATE SET window_start_us = excluded.window_start_us, window_end_us = excluded.window_end_us,
	label = coalesce(excluded.label, label)`
	upsertCell = `INSERT INTO governance_cells
	(constraint_id, window_start_us, window_end_us, kind, consumed, uncertain, reserved, granted, observed, frozen, entries, state)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (constraint_id, window_start_us) DO UPDATE SET
	(window_end_us, kind, consumed, uncertain, reserved, granted, observed, frozen, entries, state) =
	(excluded.window_end_us, excluded.kind, excluded.consumed, excluded.uncertain, excluded.reserved, excluded.granted, excluded.observed,
	excluded.frozen, excluded.entries, excluded.state)`

	// Token quotas and money: kinds 3 and 4.
	listed = `SELECT c.constraint_id, c.window_start_us, ` + cellColumns + `, coalesce(w.label, '')
	FROM governance_cells c LEFT JOIN governance_constraints w ON w.constraint_id = c.constraint_id `
	selectAccounts = listed + `WHERE (c.constraint_id, c.window_start_us) > (?1, ?2) AND c.kind IN (3, 4)
	ORDER BY c.constraint_id, c.window_start_us LIMIT ?3`
	selectFrozen = listed + `WHERE c.frozen = 1 AND (c.constraint_id, c.window_start_us) > (?1, ?2) AND c.kind IN (3, 4)
	ORDER BY c.constraint_id, c.window_start_us LIMIT ?3`

	insertBatch = `INSERT INTO governance_batches (id, at_us, terms, permits) VALUES (?, ?, ?, ?)`
	selectBatch = `SELECT count(*) FROM governance_batches WHERE id = ?`
	// The numbers come as a JSON array.
	selectBatches = `SELECT b.number, b.id, b.at_us, b.terms, b.permits FROM json_each(?) wanted CROSS JOIN governance_batches b ON b.number = wanted.value`

	// The batch is the last row that went into a table with a rowid: governance_batches.
	insertEntry   = `INSERT INTO governance_entries (constraint_id, window_start_us, number, batch) VALUES (?, ?, ?, last_insert_rowid())`
	selectEntries = `SELECT number, batch FROM governance_entries
	WHERE constraint_id = ?1 AND window_start_us = ?2 AND number > ?3 ORDER BY number LIMIT ?4`

	// One fresh permit, and many. Ids that callers brought may be among those that changed:
	// such rows are left out, and their number is then short.
	insertFresh     = `INSERT INTO governance_fresh (id, batch, position) VALUES (?1, last_insert_rowid(), 0)`
	insertManyFresh = `INSERT INTO governance_fresh (id, batch, position) ` + wanted + `SELECT substr(?1, 1 + 16 * wanted.i, 16), last_insert_rowid(), wanted.i FROM wanted`
	insertFreshOnce = `INSERT INTO governance_fresh (id, batch, position) ` + wanted + `SELECT substr(?1, 1 + 16 * wanted.i, 16), last_insert_rowid(), wanted.i FROM wanted
	WHERE NOT EXISTS (SELECT 1 FROM governance_permits p WHERE p.id = substr(?1, 1 + 16 * wanted.i, 16))`
	deleteFresh   = `DELETE FROM governance_fresh WHERE id = ?`
	selectFresh   = wanted + `SELECT wanted.i, f.batch, f.position FROM wanted CROSS JOIN governance_fresh f ON f.id = substr(?1, 1 + 16 * wanted.i, 16)`
	listFresh     = `SELECT 0, batch, position FROM governance_fresh WHERE id > ?1 ORDER BY id LIMIT ?2`
	permitColumns = `id, batch, terms_index, owner, fingerprint, admitted_us, ended_us, state, flags, version, tokens, cost_microusd, segments, outcome, resolution`
	// One row by its values: what selects its rows makes SQLite copy every page that it touches.
	insertPermit = `INSERT INTO governance_permits (` + permitColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	lastBatch    = `SELECT last_insert_rowid()`
	changePermit = `UPDATE governance_permits SET ended_us = ?, state = ?, flags = ?, version = ?, tokens = ?, cost_microusd = ?, segments = ?, outcome = ?, resolution = ?
	WHERE id = ? AND version = ?`
	selectVersion = `SELECT version, state, ended_us, tokens, cost_microusd, outcome FROM governance_permits WHERE id = ?1
	UNION ALL SELECT 1, 1, 0, 0, 0, NULL FROM governance_fresh WHERE id = ?1`
	selectPermits = wanted + `SELECT wanted.i, ` + permitColumns + ` FROM wanted CROSS JOIN governance_permits ON id = substr(?1, 1 + 16 * wanted.i, 16)`
	// ?2 is a bit per state, 1 << state; ?3 flags; both zero select all.
	listPermits = `SELECT 0, ` + permitColumns + ` FROM governance_permits
	WHERE id > ?1 AND ((?2 = 0 AND ?3 = 0) OR (?2 >> state) & 1 = 1 OR flags & ?3 <> 0) ORDER BY id LIMIT ?4`
	// The same for a selection that the index governance_permits_held covers.
	listHeld = `SELECT 0, ` + permitColumns + ` FROM governance_permits
	WHERE (state = 1 OR flags & 11 <> 0) AND id > ?1 AND ((?2 >> state) & 1 = 1 OR flags & ?3 <> 0) ORDER BY id LIMIT ?4`

	selectCheckpoint = `SELECT data FROM governance_checkpoints WHERE constraint_id = ?1 AND window_start_us = ?2`
	upsertCheckpoint = `INSERT INTO governance_checkpoints (constraint_id, window_start_us, data) VALUES (?1, ?2, ?3)
	ON CONFLICT (constraint_id, window_start_us) DO UPDATE SET data = excluded.data`
	trimEntries = `DELETE FROM governance_entries WHERE constraint_id = ?1 AND window_start_us = ?2 AND number > ?3 AND number <= ?4`

	selectMemory = `SELECT horizon_us, pruned_permits, pruned_tokens, pruned_cost_microusd FROM governance_meta`
	raiseHorizon = `UPDATE governance_meta SET horizon_us = max(horizon_us, ?1)`
	addPruned    = `UPDATE governance_meta SET pruned_permits = pruned_permits + ?1, pruned_tokens = pruned_tokens + ?2, pruned_cost_microusd = pruned_cost_microusd + ?3`
	// Ids are ordered by the time inside them: ?2 is the least one that is not older than the horizon.
	listOld     = `SELECT 0, ` + permitColumns + ` FROM governance_permits WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3`
	countFresh  = `SELECT count(*) FROM governance_fresh WHERE id < ?`
	forgetOne   = `DELETE FROM governance_permits WHERE id = ?`
	forgetBatch = `DELETE FROM governance_batches WHERE number = ?`

	insertNote = `INSERT INTO governance_notes (at_us, actor, action, permit, constraint_id, window_start_us, reason, before, after)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	selectNotes = `SELECT number, at_us, actor, action, permit, constraint_id, window_start_us, reason, before, after
	FROM governance_notes WHERE number > ? ORDER BY number LIMIT ?`
)
