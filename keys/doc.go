// Package keys says who may call: teams, their virtual keys, and the one
// question a gateway asks on every request, which principal a presented token
// belongs to.
//
// A [Store] keeps teams and keys. Only the SHA-256 of a token is stored; the
// plaintext is returned once, by CreateKey or RotateKey. [Store.Resolve] reads
// token, key and team in one snapshot at the store's own time and returns a
// [Principal]. An admission that follows compares the principal's revision with
// the [Definition] it reads under its own lock, so an edit or a revocation
// between the two can never widen a request.
//
// Everything that decides is a pure function over plain values: an edit is
// prepared, then applied to the row that the store has locked, and the store
// writes what came back. An adapter therefore loads, locks, calls Apply and
// writes; keyspg and keyssqlite do it in SQL, and keystest checks anyone's.
//
// An edit also says, as an [Event], what it changed: a store that keeps an event log
// appends that in the edit's own transaction, and a [Cache] that follows the log forgets
// what was edited anywhere.
//
// Nothing is ever deleted: a revoked key and a deleted team stay as tombstones,
// so that no identifier is used twice and history keeps its names.
package keys
