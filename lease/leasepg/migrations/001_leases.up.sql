-- Where the data is from: another database, or one made anew, has another id. A restored copy has the same.
CREATE TABLE {{schema}}.lease_origin (
	only_row boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (only_row),
	id       text    NOT NULL
);
INSERT INTO {{schema}}.lease_origin (id) VALUES (gen_random_uuid()::text);

-- Instants are microseconds since 1970, UTC, of this server's clock. A holder of '' has released the lease.
-- No index covers what a renewal changes, and the generation is part of a key: so FOR KEY SHARE holds up
-- acquisitions and no renewal. Names compare by bytes. The table is logged: an UNLOGGED one is empty
-- after a crash, and generations would begin again.
CREATE TABLE {{schema}}.leases (
	name        text   COLLATE "C" NOT NULL PRIMARY KEY CHECK (name <> ''),
	holder      text   COLLATE "C" NOT NULL,
	generation  bigint NOT NULL CHECK (generation > 0),
	ttl_us      bigint NOT NULL CHECK (ttl_us > 0),
	acquired_us bigint NOT NULL,
	renewed_us  bigint NOT NULL,
	expires_us  bigint NOT NULL,
	CONSTRAINT leases_by_generation UNIQUE (name, generation)
) WITH (fillfactor = 50);

-- A row that is deleted takes its generation with it, and the next acquisition would be the first again.
CREATE FUNCTION {{schema}}.leases_are_kept() RETURNS trigger LANGUAGE plpgsql AS $keep$
BEGIN
	RAISE EXCEPTION 'leases are released and never deleted: generations must not begin again' USING ERRCODE = 'restrict_violation';
END
$keep$;
CREATE TRIGGER leases_are_kept BEFORE DELETE OR TRUNCATE ON {{schema}}.leases
	FOR EACH STATEMENT EXECUTE FUNCTION {{schema}}.leases_are_kept();
