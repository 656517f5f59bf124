DROP TABLE journal_notes;
DROP TABLE journal_reservations;
DROP TABLE journal_grants;
DROP TABLE journal_meta;
