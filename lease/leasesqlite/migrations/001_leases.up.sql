-- Where the data is from: another file has another id.
CREATE TABLE lease_origin (
	only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
	id       TEXT    NOT NULL
) STRICT;
INSERT INTO lease_origin (only_row, id) VALUES (1, lower(hex(randomblob(16))));

-- Instants are microseconds since 1970, UTC, of this machine's clock. A holder of '' has released the lease.
CREATE TABLE leases (
	name        TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
	holder      TEXT    NOT NULL,
	generation  INTEGER NOT NULL CHECK (generation > 0),
	ttl_us      INTEGER NOT NULL CHECK (ttl_us > 0),
	acquired_us INTEGER NOT NULL,
	renewed_us  INTEGER NOT NULL,
	expires_us  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A row that is deleted takes its generation with it, and the next acquisition would be the first again.
CREATE TRIGGER leases_are_kept BEFORE DELETE ON leases
BEGIN
	SELECT RAISE(ABORT, 'leases are released and never deleted: generations must not begin again');
END;
