-- Instants end in _us: microseconds since 1970, UTC. Ids are 16 bytes. Amounts in
-- governance_cells are tokens or microUSD, by kind.

-- One row: which file this is, and how far back permits are remembered.
CREATE TABLE governance_meta (
	singleton  INTEGER NOT NULL PRIMARY KEY CHECK (singleton = 1),
	namespace  BLOB    NOT NULL CHECK (length(namespace) = 16),
	horizon_us INTEGER NOT NULL,
	doubts     INTEGER NOT NULL -- commits whose answer was lost and whose outcome was then found
) STRICT;

INSERT INTO governance_meta (singleton, namespace, horizon_us, doubts) VALUES (1, randomblob(16), 0, 0);

-- The window that each constraint is in, and what it counts in words: the id is a
-- hash, and the definition that it came from may be gone.
CREATE TABLE governance_constraints (
	constraint_id   BLOB    NOT NULL PRIMARY KEY CHECK (length(constraint_id) = 16),
	window_start_us INTEGER NOT NULL,
	window_end_us   INTEGER NOT NULL,
	label           TEXT CHECK (json_type(label) = 'object')
) STRICT, WITHOUT ROWID;

-- The state of one window of one constraint: an account's amounts, or a bucket or
-- slots in state. Rows are never deleted with the definition that they belong to.
-- With a rowid: a bucket of 1 kB would not fit a page of an index, and spill.
CREATE TABLE governance_cells (
	constraint_id   BLOB    NOT NULL CHECK (length(constraint_id) = 16),
	window_start_us INTEGER NOT NULL,
	window_end_us   INTEGER NOT NULL,
	kind            INTEGER NOT NULL CHECK (kind > 0),
	consumed        INTEGER NOT NULL,
	uncertain       INTEGER NOT NULL,
	reserved        INTEGER NOT NULL,
	granted         INTEGER NOT NULL,
	observed        INTEGER NOT NULL,
	frozen          INTEGER NOT NULL CHECK (frozen IN (0, 1)),
	entries         INTEGER NOT NULL, -- batches that reserved here
	state           BLOB,
	PRIMARY KEY (constraint_id, window_start_us)
) STRICT;

CREATE INDEX governance_cells_frozen ON governance_cells (constraint_id, window_start_us) WHERE frozen = 1;

-- One row per transaction that admitted. terms: what its permits captured, each
-- text once. permits: the permits as they were admitted, in the order of their ids.
CREATE TABLE governance_batches (
	number  INTEGER NOT NULL PRIMARY KEY,
	id      BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
	at_us   INTEGER NOT NULL,
	terms   BLOB    NOT NULL,
	permits BLOB    NOT NULL
) STRICT;

-- Permits that are as they were admitted: open, and all else in their batch. The
-- narrow rows make an admission cheap; the first change moves a permit on.
CREATE TABLE governance_fresh (
	id       BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
	batch    INTEGER NOT NULL, -- governance_batches.number
	position INTEGER NOT NULL  -- in its permits, from 0
) STRICT, WITHOUT ROWID;

-- Permits that changed since. An id is here or in governance_fresh, never in both.
CREATE TABLE governance_permits (
	id            BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
	batch         INTEGER NOT NULL, -- governance_batches.number
	terms_index   INTEGER NOT NULL, -- into its terms
	owner         BLOB    NOT NULL CHECK (length(owner) = 16),
	fingerprint   BLOB    CHECK (length(fingerprint) = 16), -- NULL: the id was not the caller's
	admitted_us   INTEGER NOT NULL,
	ended_us      INTEGER NOT NULL, -- 0 while open
	state         INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4), -- open, settled, cancelled, resolved
	flags         INTEGER NOT NULL,
	version       INTEGER NOT NULL,
	tokens        INTEGER NOT NULL, -- reserved
	cost_microusd INTEGER NOT NULL, -- reserved
	segments      BLOB,
	outcome       BLOB,
	resolution    BLOB
) STRICT, WITHOUT ROWID;

-- What somebody may have to look at: open, or flagged uncertain (1, 2) or invalid (8).
CREATE INDEX governance_permits_held ON governance_permits (id) WHERE state = 1 OR flags & 11 <> 0;

-- The number-th batch that reserved in an account; numbers have no gaps.
CREATE TABLE governance_entries (
	constraint_id   BLOB    NOT NULL CHECK (length(constraint_id) = 16),
	window_start_us INTEGER NOT NULL,
	number          INTEGER NOT NULL CHECK (number > 0),
	batch           INTEGER NOT NULL, -- governance_batches.number
	PRIMARY KEY (constraint_id, window_start_us, number)
) STRICT, WITHOUT ROWID;

-- What operators did and why.
CREATE TABLE governance_notes (
	number          INTEGER NOT NULL PRIMARY KEY,
	at_us           INTEGER NOT NULL,
	actor           TEXT    NOT NULL,
	action          TEXT    NOT NULL,
	permit          BLOB,
	constraint_id   BLOB,
	window_start_us INTEGER NOT NULL,
	reason          TEXT    NOT NULL,
	before          TEXT    NOT NULL,
	after           TEXT    NOT NULL
) STRICT;
