DROP TABLE governance_notes;
DROP TABLE governance_entries;
DROP TABLE governance_permits;
DROP TABLE governance_fresh;
DROP TABLE governance_batches;
DROP TABLE governance_cells;
DROP TABLE governance_constraints;
DROP TABLE governance_meta;
