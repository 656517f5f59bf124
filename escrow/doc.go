// Package escrow hands out money budgets to nodes that spend them without asking
// anybody: an authority reserves the full amount of each grant in the budget's
// account before it returns it, a node spends what it was granted, reports, and
// gives back what it can prove to be unused.
//
// This package is the protocol, escrow-v1: the messages, the definitions that both
// sides compute, and the decisions about grants, as pure functions over plain values.
// The authority over a database is governance.Authority; package journal keeps what a
// node holds; Syncer carries one heartbeat after another between them; escrowhttp
// speaks it over HTTP.
//
// Units: money is microUSD, instants are µs since the Unix epoch on the authority's
// clock.
//
// Source: ADR-045.
package escrow
