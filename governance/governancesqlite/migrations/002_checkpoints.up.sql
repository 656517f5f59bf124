-- What the entries of an account add up to, so that an audit need not read all of them.
-- The older program reads all of them, and does so for as long as nothing is pruned.
CREATE TABLE governance_checkpoints (
	constraint_id   BLOB    NOT NULL CHECK (length(constraint_id) = 16),
	window_start_us INTEGER NOT NULL,
	data            BLOB    NOT NULL,
	PRIMARY KEY (constraint_id, window_start_us)
) STRICT;

-- What was removed in all the file's time.
ALTER TABLE governance_meta ADD COLUMN pruned_permits INTEGER NOT NULL DEFAULT 0;
ALTER TABLE governance_meta ADD COLUMN pruned_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE governance_meta ADD COLUMN pruned_cost_microusd INTEGER NOT NULL DEFAULT 0;
