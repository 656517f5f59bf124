// Package keysimport brings the keys of another system into a store, by their
// hashes: clients keep the tokens that they have.
//
// [Copy] moves a whole store of this library into another one, an SQLite file
// into Postgres say, row by row as it is. [LiteLLM] and [NewAPI] read exports of
// those systems' tables and make a [Plan]: the rows to import, and a [Report] of
// what could not be carried, row by row and with the reason.
//
// Nothing comes in with more rights than it had, unless the caller says so: what
// was revoked, blocked, expired or used up stays refused, what cannot be read is
// refused, and a plan that drops a restriction ([Wider]) is not imported without
// [Options.AllowWider]. An import is one transaction; repeating it changes
// nothing; a row that is there and differs is a *keys.ConflictError.
//
// Tables come as CSV with a header, as Postgres writes it, or as one JSON object
// per line:
//
//	\copy (SELECT * FROM "LiteLLM_VerificationToken") TO 'keys.csv' CSV HEADER
//	psql -Atc 'SELECT row_to_json(t) FROM "LiteLLM_TeamTable" t' > teams.jsonl
//
// Both systems' clients present tokens that begin with "sk-": the store that the
// keys go to must accept that prefix ([keys.Format].Foreign).
package keysimport
