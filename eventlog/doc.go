// Package eventlog is an append-only log that many processes share and follow.
//
// A [Store] keeps it: eventlogpg in Postgres, for any number of processes, and eventlogsqlite
// in a file, for one machine. A [Log] is one process's use of a store: it has a [Producer],
// minted for this process and written on every event, and it runs subscriptions.
//
// # Following without losing anything
//
// Where many transactions append at once, positions are handed out in one order and committed
// in another. Who remembers the last position loses what commits late; who waits for the oldest
// transaction waits for strangers. A [Cursor] therefore remembers a snapshot: how far
// everything was delivered, and which transactions were still open then. A read returns what has
// become visible since, each event once, the events of a stream in their order, and waits for nobody.
//
// # Kinds of subscriptions
//
// A subscription says what it is, and there is no default. A [Projection] keeps a view and runs
// on every replica for every event. An [Effect] acts on the outside and runs where the event was
// produced, at least once: what a dead process left is adopted. A [LocalView] follows
// this process's own events from its own state. Only an effect is given the means to append.
//
// # What is decided where
//
// The cursor, what a page holds, what an append may do and when a history is refused are pure
// functions over plain values ([Cursor.Lookup], [Cursor.Page], [Plan], [Witness]); a store looks up and writes.
// eventlogtest checks anyone's.
package eventlog
