-- What the authority knows of each node that has spoken to it, in the library's own encoding. A heartbeat locks its
-- node's row before all others. Names compare by bytes.
CREATE TABLE {{schema}}.escrow_nodes (
	name     text   COLLATE "C" NOT NULL PRIMARY KEY CHECK (name <> ''),
	data     bytea  NOT NULL,
	heard_us bigint NOT NULL
) WITH (fillfactor = 50);
