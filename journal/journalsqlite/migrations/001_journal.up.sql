-- Amounts are microUSD, instants end in _us: microseconds since 1970, UTC. Ids are 16 bytes.

-- One row: who owns the journal, and how far the authority was told. Every transaction
-- of an owner compares boot.
CREATE TABLE journal_meta (
	singleton       INTEGER NOT NULL PRIMARY KEY CHECK (singleton = 1),
	boot            BLOB    NOT NULL CHECK (length(boot) = 16),
	number          INTEGER NOT NULL CHECK (number > 0), -- of this opening
	node            TEXT    NOT NULL, -- whose journal it is; empty until known
	namespace       BLOB    NOT NULL CHECK (length(namespace) = 16), -- whose grants it holds; zero until known
	ended           INTEGER NOT NULL, -- reservations that ended, ever
	acked           INTEGER NOT NULL, -- how many of them the authority was told of
	forgotten       INTEGER NOT NULL, -- up to which number they were removed
	poison_id       BLOB    CHECK (length(poison_id) = 16), -- NULL: reserving is allowed
	poison_used     INTEGER NOT NULL,
	poison_bound    INTEGER NOT NULL
) STRICT;

-- Grants, and meters of soft budgets. A row goes when the authority has receipted its end.
CREATE TABLE journal_grants (
	id                 BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
	account            BLOB    NOT NULL CHECK (length(account) = 16), -- digest of the next seven
	policy             TEXT    NOT NULL,
	rule               TEXT    NOT NULL,
	team               TEXT    NOT NULL,
	"user"             TEXT    NOT NULL,
	period             INTEGER NOT NULL,
	window_start_us    INTEGER NOT NULL,
	window_end_us      INTEGER NOT NULL,
	boot               INTEGER NOT NULL CHECK (boot > 0), -- number of the opening that asked for it
	meter              INTEGER NOT NULL CHECK (meter IN (0, 1)),
	asked              INTEGER NOT NULL CHECK (asked IN (0, 1)), -- and not answered
	amount_microusd    INTEGER NOT NULL CHECK (amount_microusd >= 0),
	reserved_microusd  INTEGER NOT NULL CHECK (reserved_microusd >= 0),
	consumed_microusd  INTEGER NOT NULL CHECK (consumed_microusd >= 0),
	uncertain_microusd INTEGER NOT NULL CHECK (uncertain_microusd >= 0),
	observed_microusd  INTEGER NOT NULL CHECK (observed_microusd >= 0),
	ending             INTEGER NOT NULL CHECK (ending BETWEEN 0 AND 2), -- open, closed, burned
	version            INTEGER NOT NULL CHECK (version > 0), -- of what is reported
	acked              INTEGER NOT NULL CHECK (acked BETWEEN 0 AND version)
) STRICT, WITHOUT ROWID;

CREATE INDEX journal_grants_open ON journal_grants (account) WHERE ending = 0;

-- Reservations on their way, and the last of those that ended.
CREATE TABLE journal_reservations (
	id            BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
	fingerprint   BLOB    NOT NULL CHECK (length(fingerprint) = 16),
	portions      BLOB    NOT NULL, -- grant and amount, by need
	state         INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5), -- reserved, settled, uncertain, unsent, burned
	cost_microusd INTEGER NOT NULL CHECK (cost_microusd >= 0),
	number        INTEGER NOT NULL CHECK (number >= 0) -- among those that ended; 0 on its way
) STRICT, WITHOUT ROWID;

CREATE INDEX journal_reservations_ended ON journal_reservations (number) WHERE number > 0;

-- What operators did and why.
CREATE TABLE journal_notes (
	number       INTEGER NOT NULL PRIMARY KEY,
	at_us        INTEGER NOT NULL,
	actor        TEXT    NOT NULL,
	action       TEXT    NOT NULL,
	reason       TEXT    NOT NULL,
	poison_id    BLOB    NOT NULL,
	poison_used  INTEGER NOT NULL,
	poison_bound INTEGER NOT NULL
) STRICT;
