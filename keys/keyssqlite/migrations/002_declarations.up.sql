-- What configurations declared, by digests that never change: rows are inserted and
-- never updated or deleted, whatever becomes of the team or key.
CREATE TABLE tallystick_key_declarations (
	kind        TEXT    NOT NULL CHECK (kind IN ('team', 'key')),
	id          TEXT    NOT NULL CHECK (id <> ''),
	fingerprint TEXT    NOT NULL,
	created_us  INTEGER NOT NULL,
	PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
