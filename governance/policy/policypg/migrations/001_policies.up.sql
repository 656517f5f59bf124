-- Documents are kept as the text that they were digested as: a jsonb would write numbers and
-- keys in its own way. Names compare by bytes.
CREATE TABLE {{schema}}.policy_documents (
	name       text   COLLATE "C" NOT NULL PRIMARY KEY CHECK (name <> ''),
	document   text   NOT NULL,
	updated_us bigint NOT NULL
);

-- One row, for ever: who has the authority, and which set is in force. Edits lock it; an admission
-- reads it, or locks it where it hands out authority. generation is the digest of the
-- empty set to begin with. revision rises with each change and never falls.
CREATE TABLE {{schema}}.policy_state (
	singleton  boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (singleton),
	namespace  uuid    NOT NULL DEFAULT gen_random_uuid(),
	generation bytea   NOT NULL CHECK (octet_length(generation) = 32),
	revision   bigint  NOT NULL DEFAULT 1 CHECK (revision > 0)
) WITH (fillfactor = 50);
INSERT INTO {{schema}}.policy_state (generation) VALUES ('\x50b5da85b5e3949540f8f9e3896bdb5c35bbe74472c3485d6f629c04454e5274'::bytea);
