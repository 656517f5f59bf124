-- Checkpoints, and what is kept of permits that are older than the horizon.
--
-- An older program goes by its own rules: it reads all entries, and does not look for what was kept. Until something
-- is pruned it misses nothing.

-- What the entries of an account add up to, so that an audit need not read all of them.
CREATE TABLE {{schema}}.governance_checkpoints (
    constraint_id   uuid   NOT NULL,
    window_start_us bigint NOT NULL,
    data            bytea  NOT NULL,
    PRIMARY KEY (constraint_id, window_start_us)
);

-- Permits that somebody may still need are moved here before their partition of the ring is emptied.
CREATE TABLE {{schema}}.governance_kept (
    id            uuid     PRIMARY KEY,
    batch         uuid     NOT NULL,
    terms         smallint NOT NULL,
    owner         uuid     NOT NULL,
    fingerprint   uuid,
    at_us         bigint   NOT NULL,
    ended_us      bigint,
    state         smallint NOT NULL,
    flags         smallint NOT NULL,
    version       integer  NOT NULL,
    tokens        bigint   NOT NULL,
    cost_microusd bigint   NOT NULL,
    segments      bytea,
    outcome       bytea,
    resolution    bytea
) WITH (fillfactor = 70);

-- Batches of which a permit is still somewhere.
CREATE TABLE {{schema}}.governance_kept_batches (
    id      uuid   PRIMARY KEY,
    at_us   bigint NOT NULL,
    terms   bytea[],
    permits bytea
);

ALTER TABLE {{schema}}.governance_meta
    -- removed in all the schema's time
    ADD COLUMN pruned_permits       bigint NOT NULL DEFAULT 0,
    ADD COLUMN pruned_tokens        bigint NOT NULL DEFAULT 0,
    ADD COLUMN pruned_cost_microusd bigint NOT NULL DEFAULT 0,
    -- rise with every transaction that removes or moves permits, and with every partition that is emptied
    ADD COLUMN prunes               bigint NOT NULL DEFAULT 0,
    ADD COLUMN truncations          bigint NOT NULL DEFAULT 0;
