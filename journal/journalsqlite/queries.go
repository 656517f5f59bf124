package journalsqlite

import "strings"

// All SQL of the package. Everything that writes runs under BEGIN IMMEDIATE, which
// locks the whole file for writing; what only reads sees one snapshot.
//
// Lists of ids come as one BLOB of 16 bytes each (?1) with their number (?2), so that
// one prepared statement serves any number.
const (
	selectPath = `SELECT coalesce(max(file), '') FROM pragma_database_list WHERE name = 'main'`

	wanted = `WITH RECURSIVE wanted (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM wanted WHERE i + 1 < ?2) `

	selectMeta = `SELECT boot, number, node, namespace, ended, acked, forgotten, poison_id, poison_used, poison_bound FROM journal_meta`
	upsertMeta = `INSERT INTO journal_meta (singleton, boot, number, node, namespace, ended, acked, forgotten, poison_id, poison_used, poison_bound)
	VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (singleton) DO UPDATE SET
	(boot, number, node, namespace, ended, acked, forgotten, poison_id, poison_used, poison_bound) =
	(excluded.boot, excluded.number, excluded.node, excluded.namespace, excluded.ended, excluded.acked, excluded.forgotten, excluded.poison_id, excluded.poison_used, excluded.poison_bound)`

	grantColumns = `g.id, g.policy, g.rule, g.team, g."user", g.period, g.window_start_us, g.window_end_us, g.boot, g.meter, g.asked,
	g.amount_microusd, g.reserved_microusd, g.consumed_microusd, g.uncertain_microusd, g.observed_microusd, g.ending, g.version, g.acked`
	selectGrants   = `SELECT ` + grantColumns + ` FROM journal_grants g ORDER BY g.id`
	selectOpen     = wanted + `SELECT ` + grantColumns + ` FROM wanted CROSS JOIN journal_grants g ON g.account = substr(?1, 1 + 16 * wanted.i, 16) WHERE g.ending = 0`
	selectGrantsOf = wanted + `SELECT ` + grantColumns + ` FROM wanted CROSS JOIN journal_grants g ON g.id = substr(?1, 1 + 16 * wanted.i, 16)`
	upsertGrant    = `INSERT INTO journal_grants (account, id, policy, rule, team, "user", period, window_start_us, window_end_us, boot, meter, asked,
	amount_microusd, reserved_microusd, consumed_microusd, uncertain_microusd, observed_microusd, ending, version, acked)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
	(asked, amount_microusd, reserved_microusd, consumed_microusd, uncertain_microusd, observed_microusd, ending, version, acked) =
	(excluded.asked, excluded.amount_microusd, excluded.reserved_microusd, excluded.consumed_microusd, excluded.uncertain_microusd,
	excluded.observed_microusd, excluded.ending, excluded.version, excluded.acked)`
	deleteGrant = `DELETE FROM journal_grants WHERE id = ?`

	recordColumns    = `r.id, r.fingerprint, r.portions, r.state, r.cost_microusd, r.number`
	selectRecords    = wanted + `SELECT ` + recordColumns + ` FROM wanted CROSS JOIN journal_reservations r ON r.id = substr(?1, 1 + 16 * wanted.i, 16)`
	selectOnTheirWay = `SELECT ` + recordColumns + ` FROM journal_reservations r WHERE r.state = 1`
	insertRecord     = `INSERT INTO journal_reservations (id, fingerprint, portions, state, cost_microusd, number) VALUES (?, ?, ?, ?, ?, ?)`
	changeRecord     = `UPDATE journal_reservations SET state = ?2, cost_microusd = ?3, number = ?4, portions = ?5 WHERE id = ?1 AND state = 1`
	forgetRecords    = `DELETE FROM journal_reservations WHERE number > 0 AND number <= ?`

	insertNote = `INSERT INTO journal_notes (at_us, actor, action, reason, poison_id, poison_used, poison_bound) VALUES (?, ?, ?, ?, ?, ?, ?)`
)

// Many rows in one statement cost a third of what they cost one by one. Where one of
// them fails the transaction ends: FAIL spares SQLite a copy of every page that it
// touches, kept to undo the others.
const (
	rowsAtOnce   = 32
	insertFresh  = `INSERT OR FAIL INTO journal_reservations (id, fingerprint, portions, state, cost_microusd, number) VALUES `
	freshColumns = `(?, ?, ?, 1, 0, 0)`
)

var (
	insertOneFresh  = insertFresh + freshColumns
	insertManyFresh = insertFresh + strings.Repeat(freshColumns+`, `, rowsAtOnce-1) + freshColumns
)
