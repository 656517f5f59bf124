-- Instants are microseconds since 1970, UTC, so that no session's time zone bends
-- them. NULL in a limit is unlimited, in a list everything. Nothing is ever
-- deleted: deleted_us and revoked_us are tombstones. Identifiers compare by bytes.
CREATE TABLE {{schema}}.teams (
	id                      text   COLLATE "C" NOT NULL PRIMARY KEY CHECK (id <> ''),
	name                    text   NOT NULL,
	requests_per_minute     bigint CHECK (requests_per_minute >= 0),
	tokens_per_minute       bigint CHECK (tokens_per_minute >= 0),
	tokens_per_day          bigint CHECK (tokens_per_day >= 0),
	concurrency             bigint CHECK (concurrency >= 0),
	cost_per_day_microusd   bigint CHECK (cost_per_day_microusd >= 0),
	cost_per_month_microusd bigint CHECK (cost_per_month_microusd >= 0),
	allowed_models          jsonb  CHECK (jsonb_typeof(allowed_models) = 'array'),
	allowed_regions         jsonb  CHECK (jsonb_typeof(allowed_regions) = 'array'),
	guardrail               text   NOT NULL,
	metadata                jsonb  CHECK (jsonb_typeof(metadata) = 'object'),
	default_max_tokens      bigint CHECK (default_max_tokens > 0),
	revision                bigint NOT NULL CHECK (revision > 0),
	created_us              bigint NOT NULL,
	updated_us              bigint NOT NULL,
	deleted_us              bigint
);

CREATE TABLE {{schema}}.keys (
	id                      text   COLLATE "C" NOT NULL PRIMARY KEY CHECK (id <> ''),
	team_id                 text   COLLATE "C" NOT NULL REFERENCES {{schema}}.teams (id),
	owner                   text   COLLATE "C" NOT NULL,
	name                    text   NOT NULL,
	requests_per_minute     bigint CHECK (requests_per_minute >= 0),
	tokens_per_minute       bigint CHECK (tokens_per_minute >= 0),
	tokens_per_day          bigint CHECK (tokens_per_day >= 0),
	concurrency             bigint CHECK (concurrency >= 0),
	cost_per_day_microusd   bigint CHECK (cost_per_day_microusd >= 0),
	cost_per_month_microusd bigint CHECK (cost_per_month_microusd >= 0),
	allowed_models          jsonb  CHECK (jsonb_typeof(allowed_models) = 'array'),
	allowed_regions         jsonb  CHECK (jsonb_typeof(allowed_regions) = 'array'),
	metadata                jsonb  CHECK (jsonb_typeof(metadata) = 'object'),
	default_max_tokens      bigint CHECK (default_max_tokens > 0),
	revision                bigint NOT NULL CHECK (revision > 0),
	created_us              bigint NOT NULL,
	updated_us              bigint NOT NULL,
	expires_us              bigint CHECK (expires_us > 0),
	revoked_us              bigint
);

-- One per way that keys are listed: each is a range of one of these, in order.
CREATE INDEX keys_by_team ON {{schema}}.keys (team_id, id);
CREATE INDEX keys_by_owner ON {{schema}}.keys (owner, id);
CREATE INDEX keys_by_team_and_owner ON {{schema}}.keys (team_id, owner, id);

-- SHA-256 of every token that a key has or had. A rotation id is used once per key;
-- the first secret has none.
CREATE TABLE {{schema}}.key_secrets (
	hash        bytea  NOT NULL PRIMARY KEY CHECK (octet_length(hash) = 32),
	key_id      text   COLLATE "C" NOT NULL REFERENCES {{schema}}.keys (id),
	rotation_id text   COLLATE "C" NOT NULL,
	grace_us    bigint NOT NULL CHECK (grace_us >= 0),
	created_us  bigint NOT NULL,
	retires_us  bigint,
	CONSTRAINT key_secrets_by_key UNIQUE (key_id, rotation_id)
);
