DROP TABLE operator_notes;
DROP TABLE account_entries;
DROP TABLE permits;
DROP TABLE permit_batches;
DROP TABLE constraint_cells;
DROP TABLE constraint_windows;
DROP TABLE governance_meta;
