-- Counters, permits and what proves them.
--
-- governance_constraints is the pointer row of each limit: it serializes everything that touches the limit and names
-- the current window. It is locked for every admission and updated only when a window rolls.
-- governance_cells holds the state. A hot row changes its identity (epoch) every few dozen updates, so that a snapshot
-- held open elsewhere does not make look-ups walk dead versions. No index on anything that changes.
-- Permits and batches live in a ring of partitions by the time inside their ids, two days each, so that old ones can be
-- emptied at once.

CREATE TABLE {{schema}}.governance_meta (
    singleton       boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    horizon_us      bigint  NOT NULL DEFAULT 0
);
INSERT INTO {{schema}}.governance_meta DEFAULT VALUES;

CREATE TABLE {{schema}}.governance_constraints (
    id              uuid   PRIMARY KEY,
    window_start_us bigint NOT NULL DEFAULT 0,
    window_end_us   bigint NOT NULL DEFAULT 0,
    -- what is counted, in words: the id is a hash, and the definition may be gone
    label           jsonb
) WITH (fillfactor = 70);

CREATE TABLE {{schema}}.governance_cells (
    constraint_id   uuid     NOT NULL,
    window_start_us bigint   NOT NULL,
    epoch           bigint   NOT NULL,
    updates         integer  NOT NULL,
    window_end_us   bigint   NOT NULL,
    kind            smallint NOT NULL,
    consumed        bigint   NOT NULL,
    uncertain       bigint   NOT NULL,
    reserved        bigint   NOT NULL,
    granted         bigint   NOT NULL,
    observed        bigint   NOT NULL,
    frozen          boolean  NOT NULL,
    entries         bigint   NOT NULL,
    state           bytea    NOT NULL,
    PRIMARY KEY (constraint_id, window_start_us, epoch)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
ALTER TABLE {{schema}}.governance_cells ALTER COLUMN state SET STORAGE PLAIN;

CREATE TABLE {{schema}}.governance_entries (
    constraint_id   uuid   NOT NULL,
    window_start_us bigint NOT NULL,
    number          bigint NOT NULL,
    batch           uuid   NOT NULL,
    PRIMARY KEY (constraint_id, window_start_us, number)
);

CREATE TABLE {{schema}}.governance_batches (
    slot    smallint NOT NULL,
    id      uuid     NOT NULL,
    at_us   bigint   NOT NULL,
    -- a tombstone: this batch did not and will not happen
    void    boolean  NOT NULL DEFAULT false,
    terms   bytea[],
    permits bytea,
    PRIMARY KEY (slot, id)
) PARTITION BY LIST (slot);

CREATE TABLE {{schema}}.governance_permits (
    slot          smallint NOT NULL,
    id            uuid     NOT NULL,
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
    resolution    bytea,
    PRIMARY KEY (slot, id)
) PARTITION BY LIST (slot);

CREATE TABLE {{schema}}.governance_batches_00 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (0);
ALTER TABLE {{schema}}.governance_batches_00 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_01 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (1);
ALTER TABLE {{schema}}.governance_batches_01 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_02 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (2);
ALTER TABLE {{schema}}.governance_batches_02 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_03 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (3);
ALTER TABLE {{schema}}.governance_batches_03 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_04 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (4);
ALTER TABLE {{schema}}.governance_batches_04 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_05 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (5);
ALTER TABLE {{schema}}.governance_batches_05 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_06 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (6);
ALTER TABLE {{schema}}.governance_batches_06 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_07 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (7);
ALTER TABLE {{schema}}.governance_batches_07 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_08 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (8);
ALTER TABLE {{schema}}.governance_batches_08 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_09 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (9);
ALTER TABLE {{schema}}.governance_batches_09 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_10 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (10);
ALTER TABLE {{schema}}.governance_batches_10 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_11 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (11);
ALTER TABLE {{schema}}.governance_batches_11 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_12 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (12);
ALTER TABLE {{schema}}.governance_batches_12 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_13 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (13);
ALTER TABLE {{schema}}.governance_batches_13 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_14 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (14);
ALTER TABLE {{schema}}.governance_batches_14 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_batches_15 PARTITION OF {{schema}}.governance_batches FOR VALUES IN (15);
ALTER TABLE {{schema}}.governance_batches_15 ALTER COLUMN permits SET STORAGE EXTERNAL;
CREATE TABLE {{schema}}.governance_permits_00 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (0) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_01 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (1) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_02 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (2) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_03 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (3) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_04 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (4) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_05 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (5) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_06 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (6) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_07 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (7) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_08 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (8) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_09 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (9) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_10 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (10) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_11 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (11) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_12 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (12) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_13 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (13) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_14 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (14) WITH (fillfactor = 55);
CREATE TABLE {{schema}}.governance_permits_15 PARTITION OF {{schema}}.governance_permits FOR VALUES IN (15) WITH (fillfactor = 55);

CREATE TABLE {{schema}}.governance_notes (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_us           bigint NOT NULL,
    actor           text   NOT NULL,
    action          text   NOT NULL,
    permit          uuid,
    constraint_id   uuid,
    window_start_us bigint,
    reason          text   NOT NULL,
    before_json     text   NOT NULL,
    after_json      text   NOT NULL
);
