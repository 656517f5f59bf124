// Package governancemem keeps keys and counters in the memory of one process.
//
// It is for tests, for trying things out, and for gateways that may forget
// everything when they stop. It decides with the same code as the databases and
// passes the same suites; it survives nothing and shares nothing.
//
// Concurrency: one mutex; safe for concurrent use within one process.
package governancemem
