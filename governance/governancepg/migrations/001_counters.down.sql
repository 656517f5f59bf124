DROP TABLE {{schema}}.governance_notes;
DROP TABLE {{schema}}.governance_permits;
DROP TABLE {{schema}}.governance_batches;
DROP TABLE {{schema}}.governance_entries;
DROP TABLE {{schema}}.governance_cells;
DROP TABLE {{schema}}.governance_constraints;
DROP TABLE {{schema}}.governance_meta;
