-- One writer at a time, so positions are in the order of commits; AUTOINCREMENT hands none out twice, also
-- behind events that were pruned. Instants are microseconds since 1970, UTC.
CREATE TABLE tallystick_events (
	position    INTEGER PRIMARY KEY AUTOINCREMENT,
	recorded_us INTEGER NOT NULL,
	version     INTEGER NOT NULL CHECK (version > 0),
	schema      INTEGER NOT NULL CHECK (schema > 0),
	stream      TEXT    NOT NULL CHECK (stream <> ''),
	id          TEXT    NOT NULL UNIQUE CHECK (id <> ''),
	type        TEXT    NOT NULL CHECK (type <> ''),
	producer    TEXT,
	data        BLOB    NOT NULL,
	UNIQUE (stream, version)
);

-- Where a stream was when retention removed the last of it.
CREATE TABLE tallystick_event_streams (
	stream  TEXT    NOT NULL PRIMARY KEY,
	version INTEGER NOT NULL CHECK (version > 0)
);

-- One row. log is which log this is.
CREATE TABLE tallystick_event_log (
	one    INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
	log    TEXT    NOT NULL DEFAULT (lower(hex(randomblob(8)))),
	pruned INTEGER NOT NULL DEFAULT 0 CHECK (pruned >= 0)
);
INSERT INTO tallystick_event_log (one, log) VALUES (1, lower(hex(randomblob(8))));

CREATE TABLE tallystick_event_consumers (
	consumer   TEXT    NOT NULL CHECK (consumer <> ''),
	producer   TEXT    NOT NULL,
	owner      TEXT    NOT NULL,
	generation INTEGER NOT NULL CHECK (generation > 0),
	left_on    INTEGER NOT NULL DEFAULT 0,
	bound      INTEGER NOT NULL DEFAULT 0,
	seen_us    INTEGER NOT NULL,
	cursor     TEXT    NOT NULL,
	PRIMARY KEY (consumer, producer)
);

CREATE TABLE tallystick_event_asides (
	consumer TEXT    NOT NULL CHECK (consumer <> ''),
	runner   TEXT    NOT NULL,
	id       TEXT    NOT NULL CHECK (id <> ''),
	position INTEGER NOT NULL,
	at_us    INTEGER NOT NULL,
	attempts INTEGER NOT NULL CHECK (attempts > 0),
	declined INTEGER NOT NULL,
	reason   TEXT    NOT NULL,
	event    TEXT    NOT NULL,
	PRIMARY KEY (consumer, runner, id)
);
CREATE INDEX tallystick_event_asides_in_order ON tallystick_event_asides (consumer, position, runner);
