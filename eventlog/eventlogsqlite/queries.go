package eventlogsqlite

// All SQL of the package. What writes runs under BEGIN IMMEDIATE, which locks the file for writing; what reads sees one snapshot.
const (
	eventColumns = `e.position, e.stream, e.version, e.id, e.type, e.schema, coalesce(e.producer, ''), e.recorded_us, e.data`

	insertEvent = `INSERT INTO tallystick_events (recorded_us, version, schema, stream, id, type, producer, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) RETURNING position`
	// What is recorded within another's transaction; what is there already under its id is left.
	recordEvent = `INSERT INTO tallystick_events (recorded_us, version, schema, stream, id, type, producer, data)
		SELECT ?1, 1 + coalesce((SELECT e.version FROM tallystick_events e WHERE e.stream = ?3 ORDER BY e.version DESC LIMIT 1),
		(SELECT s.version FROM tallystick_event_streams s WHERE s.stream = ?3), 0), ?2, ?3, ?4, ?5, ?6, ?7
		WHERE NOT EXISTS (SELECT 1 FROM tallystick_events e WHERE e.id = ?4)`
	selectByID = `SELECT ` + eventColumns + ` FROM tallystick_events e WHERE e.id = ?1`
	version    = `SELECT coalesce((SELECT e.version FROM tallystick_events e WHERE e.stream = ?1 ORDER BY e.version DESC LIMIT 1),
		(SELECT s.version FROM tallystick_event_streams s WHERE s.stream = ?1), 0)`
	selectStream = `SELECT ` + eventColumns + ` FROM tallystick_events e WHERE e.stream = ?1 AND e.version > ?2 ORDER BY e.version LIMIT ?3`
	selectFresh  = `SELECT ` + eventColumns + ` FROM tallystick_events e WHERE e.position > ?1 ORDER BY e.position LIMIT ?2`
	selectView   = `SELECT l.log, l.pruned, coalesce((SELECT e.position FROM tallystick_events e ORDER BY e.position DESC LIMIT 1), 0) FROM tallystick_event_log l`

	selectConsumer = `SELECT c.owner, c.generation, c.left_on, c.bound, c.seen_us, c.cursor FROM tallystick_event_consumers c WHERE c.consumer = ?1 AND c.producer = ?2`
	listConsumers  = `SELECT c.consumer, c.producer, c.owner, c.generation, c.left_on, c.bound, c.seen_us, c.cursor FROM tallystick_event_consumers c
		WHERE ?1 = '' OR c.consumer = ?1 ORDER BY c.consumer, c.producer`
	upsertConsumer = `INSERT INTO tallystick_event_consumers (consumer, producer, owner, generation, left_on, bound, seen_us, cursor) VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7)
		ON CONFLICT (consumer, producer) DO UPDATE SET owner = excluded.owner, generation = excluded.generation, left_on = 0, bound = excluded.bound, seen_us = excluded.seen_us, cursor = excluded.cursor`
	nextGeneration = `SELECT generation + 1 FROM tallystick_event_log`
	saveConsumer   = `UPDATE tallystick_event_consumers SET cursor = ?4, left_on = ?5, bound = ?6, seen_us = ?7 WHERE consumer = ?1 AND producer = ?2 AND generation = ?3`
	// What goes is remembered by its generation first.
	keepGeneration = `UPDATE tallystick_event_log SET generation = max(generation, coalesce((SELECT max(c.generation) FROM tallystick_event_consumers c
		WHERE c.consumer = ?1 AND c.producer = ?2 AND (?3 = 0 OR c.generation = ?3)), 0))`
	dropConsumer      = `DELETE FROM tallystick_event_consumers WHERE consumer = ?1 AND producer = ?2 AND (?3 = 0 OR generation = ?3)`
	keepGenerationOld = `UPDATE tallystick_event_log SET generation = max(generation, coalesce((SELECT max(c.generation) FROM tallystick_event_consumers c
		WHERE c.bound = -1 AND c.seen_us < ?1), 0))`
	// Not while whoever sweeps for them stands still.
	forgetClosed = `DELETE FROM tallystick_event_consumers AS c WHERE c.bound = -1 AND c.seen_us < ?1 AND NOT EXISTS (
		SELECT 1 FROM tallystick_event_consumers w WHERE w.consumer = c.consumer AND w.producer = '' AND w.seen_us < ?1)`

	upsertAside = `INSERT INTO tallystick_event_asides AS a (consumer, runner, id, position, at_us, attempts, declined, reason, event) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
		ON CONFLICT (consumer, runner, id) DO UPDATE SET at_us = excluded.at_us, attempts = a.attempts + excluded.attempts, declined = excluded.declined, last_reason = excluded.reason`
	listAsides = `SELECT a.runner, a.at_us, a.attempts, a.declined, a.reason, coalesce(a.last_reason, ''), a.event FROM tallystick_event_asides a
		WHERE a.consumer = ?1 AND (a.position, a.runner) > (?2, ?3) ORDER BY a.position, a.runner LIMIT ?4`
	deleteAside = `DELETE FROM tallystick_event_asides WHERE consumer = ?1 AND runner = ?2 AND id = ?3`

	selectOld   = `SELECT e.position, e.stream, e.version, e.recorded_us FROM tallystick_events e WHERE e.position <= ?1 ORDER BY e.position LIMIT ?2`
	selectNext  = `SELECT e.recorded_us FROM tallystick_events e WHERE e.position > ?1 ORDER BY e.position LIMIT 1`
	keepVersion = `INSERT INTO tallystick_event_streams AS s (stream, version) SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM tallystick_events e WHERE e.stream = ?1 AND e.version > ?2)
		ON CONFLICT (stream) DO UPDATE SET version = max(s.version, excluded.version)`
	deleteOld = `DELETE FROM tallystick_events WHERE position <= ?1`
	markOld   = `UPDATE tallystick_event_log SET pruned = max(pruned, ?1)`
)
