-- A transaction has its id before it takes a position: xid stands before position, and defaults are
-- computed in this order. What follows a cursor rests on it. CACHE 1: a session must not hold
-- back positions, or a stream's later event could have an earlier one. Instants are microseconds since 1970, UTC.
CREATE SEQUENCE {{schema}}.events_position AS bigint CACHE 1;

CREATE TABLE {{schema}}.events (
	xid         xid8    NOT NULL DEFAULT pg_current_xact_id(),
	position    bigint  NOT NULL DEFAULT nextval('{{schema}}.events_position') PRIMARY KEY,
	recorded_us bigint  NOT NULL DEFAULT (extract(epoch from clock_timestamp()) * 1000000)::bigint,
	version     bigint  NOT NULL CONSTRAINT events_version CHECK (version > 0),
	schema      integer NOT NULL CHECK (schema > 0),
	stream      text    COLLATE "C" NOT NULL CHECK (stream <> ''),
	id          text    COLLATE "C" NOT NULL CONSTRAINT events_id UNIQUE CHECK (id <> ''),
	type        text    COLLATE "C" NOT NULL CHECK (type <> ''),
	producer    text    COLLATE "C",
	data        bytea   NOT NULL,
	CONSTRAINT events_stream UNIQUE (stream, version)
);
ALTER SEQUENCE {{schema}}.events_position OWNED BY {{schema}}.events.position;

-- What late transactions put at early positions is a range of this.
CREATE INDEX events_xid ON {{schema}}.events (xid, position);

-- Where a stream was when retention removed the last of it.
CREATE TABLE {{schema}}.event_streams (
	stream  text   COLLATE "C" NOT NULL PRIMARY KEY,
	version bigint NOT NULL CHECK (version > 0)
);

-- One row. log is which log this is: it changes when the log is repaired after a restore.
CREATE TABLE {{schema}}.event_log (
	one        boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
	log        uuid    NOT NULL DEFAULT gen_random_uuid(),
	pruned     bigint  NOT NULL DEFAULT 0 CHECK (pruned >= 0),
	pruned_xid xid8    NOT NULL DEFAULT '0'
);
INSERT INTO {{schema}}.event_log DEFAULT VALUES;

CREATE TABLE {{schema}}.event_consumers (
	consumer   text    COLLATE "C" NOT NULL CHECK (consumer <> ''),
	producer   text    COLLATE "C" NOT NULL,
	owner      text    COLLATE "C" NOT NULL,
	generation bigint  NOT NULL CHECK (generation > 0),
	left_on    boolean NOT NULL DEFAULT false,
	bound      bigint  NOT NULL DEFAULT 0,
	seen_us    bigint  NOT NULL,
	cursor     text    COLLATE "C" NOT NULL,
	PRIMARY KEY (consumer, producer)
) WITH (fillfactor = 50);

CREATE TABLE {{schema}}.event_asides (
	consumer text    COLLATE "C" NOT NULL CHECK (consumer <> ''),
	runner   text    COLLATE "C" NOT NULL,
	id       text    COLLATE "C" NOT NULL CHECK (id <> ''),
	position bigint  NOT NULL,
	at_us    bigint  NOT NULL,
	attempts bigint  NOT NULL CHECK (attempts > 0),
	declined boolean NOT NULL,
	reason   text    NOT NULL,
	event    text    NOT NULL,
	PRIMARY KEY (consumer, runner, id)
);
CREATE INDEX event_asides_in_order ON {{schema}}.event_asides (consumer, position, runner);
