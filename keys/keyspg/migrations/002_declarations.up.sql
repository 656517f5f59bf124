-- What configurations declared, by digests that never change: rows are inserted and
-- never updated or deleted, whatever becomes of the team or key.
CREATE TABLE {{schema}}.key_declarations (
	kind        text   COLLATE "C" NOT NULL CHECK (kind IN ('team', 'key')),
	id          text   COLLATE "C" NOT NULL CHECK (id <> ''),
	fingerprint text   NOT NULL,
	created_us  bigint NOT NULL,
	PRIMARY KEY (kind, id)
);
