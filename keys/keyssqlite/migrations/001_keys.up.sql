-- Instants are microseconds since 1970, UTC. NULL in a limit is unlimited, in a
-- list everything. Nothing is ever deleted: deleted_us and revoked_us are tombstones.
CREATE TABLE tallystick_teams (
	id                      TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
	name                    TEXT    NOT NULL,
	requests_per_minute     INTEGER CHECK (requests_per_minute >= 0),
	tokens_per_minute       INTEGER CHECK (tokens_per_minute >= 0),
	tokens_per_day          INTEGER CHECK (tokens_per_day >= 0),
	concurrency             INTEGER CHECK (concurrency >= 0),
	cost_per_day_microusd   INTEGER CHECK (cost_per_day_microusd >= 0),
	cost_per_month_microusd INTEGER CHECK (cost_per_month_microusd >= 0),
	allowed_models          TEXT    CHECK (json_type(allowed_models) = 'array'),
	allowed_regions         TEXT    CHECK (json_type(allowed_regions) = 'array'),
	guardrail               TEXT    NOT NULL,
	metadata                TEXT    CHECK (json_type(metadata) = 'object'),
	default_max_tokens      INTEGER CHECK (default_max_tokens > 0),
	revision                INTEGER NOT NULL CHECK (revision > 0),
	created_us              INTEGER NOT NULL,
	updated_us              INTEGER NOT NULL,
	deleted_us              INTEGER
) STRICT;

CREATE TABLE tallystick_keys (
	id                      TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
	team_id                 TEXT    NOT NULL REFERENCES tallystick_teams (id),
	owner                   TEXT    NOT NULL,
	name                    TEXT    NOT NULL,
	requests_per_minute     INTEGER CHECK (requests_per_minute >= 0),
	tokens_per_minute       INTEGER CHECK (tokens_per_minute >= 0),
	tokens_per_day          INTEGER CHECK (tokens_per_day >= 0),
	concurrency             INTEGER CHECK (concurrency >= 0),
	cost_per_day_microusd   INTEGER CHECK (cost_per_day_microusd >= 0),
	cost_per_month_microusd INTEGER CHECK (cost_per_month_microusd >= 0),
	allowed_models          TEXT    CHECK (json_type(allowed_models) = 'array'),
	allowed_regions         TEXT    CHECK (json_type(allowed_regions) = 'array'),
	metadata                TEXT    CHECK (json_type(metadata) = 'object'),
	default_max_tokens      INTEGER CHECK (default_max_tokens > 0),
	revision                INTEGER NOT NULL CHECK (revision > 0),
	created_us              INTEGER NOT NULL,
	updated_us              INTEGER NOT NULL,
	expires_us              INTEGER CHECK (expires_us > 0),
	revoked_us              INTEGER
) STRICT;

-- One per way that keys are listed: each is a range of one of these, in order.
CREATE INDEX tallystick_keys_by_team ON tallystick_keys (team_id, id);
CREATE INDEX tallystick_keys_by_owner ON tallystick_keys (owner, id);
CREATE INDEX tallystick_keys_by_team_and_owner ON tallystick_keys (team_id, owner, id);

-- SHA-256 of every token that a key has or had. A rotation id is used once per key;
-- the first secret has none.
CREATE TABLE tallystick_key_secrets (
	hash        BLOB    NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
	key_id      TEXT    NOT NULL REFERENCES tallystick_keys (id),
	rotation_id TEXT    NOT NULL,
	grace_us    INTEGER NOT NULL CHECK (grace_us >= 0),
	created_us  INTEGER NOT NULL,
	retires_us  INTEGER,
	UNIQUE (key_id, rotation_id)
) STRICT, WITHOUT ROWID;
