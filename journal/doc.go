// Package journal keeps what a node holds of budgets that an escrow authority granted
// it, and reserves from that durably before money is spent.
//
// A [Journal] reserves the bound of one provider attempt against every budget that
// applies, all of them or none, and returns when that is on the disk. Settling gives
// back what is proved to be unused; what is not known stays charged as uncertain. When
// a process dies, the next one to open the journal burns what was open: no credit is
// ever used twice, at the price of some that is used by nobody.
//
// The decisions are pure (see [Book]); a [Store] loads, locks, writes and knows nothing
// of budgets. The same decisions can be taken inside another transaction, which is how
// the rates, quotas and budgets of a node are decided as one: see [Journal.Book].
//
// Units: money is microUSD.
// Time: deadlines follow this process's monotonic clock and are never stored.
//
// Source: ADR-045 "Local journal".
package journal
