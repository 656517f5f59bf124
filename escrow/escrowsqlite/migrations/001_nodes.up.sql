-- What the authority knows of each node that has spoken to it, in the library's own encoding.
CREATE TABLE escrow_nodes (
	name     TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
	data     BLOB    NOT NULL,
	heard_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
