// Package customstore is a worked example for third parties: keys and counters on
// an embedded key-value store (bbolt), written against the public interfaces
// alone. It passes the same suites as the library's own adapters.
//
// What an adapter has to do is little, since it decides nothing:
//
//   - Step runs one writing transaction: load what the plan names, call decide once,
//     write the changes. bbolt has one writer at a time, which is both the row lock
//     and the edit barrier.
//   - View, Permits and Accounts read in a snapshot.
//   - Forget and Prune raise the horizon and remove what a function says may go.
//   - It keeps no event log, so what steps tell (Changes.Events) is left aside.
//   - Edits of teams and keys are the core's pure functions: load, apply, write.
//
// The time is read inside the transaction, after the lock is held.
package customstore
