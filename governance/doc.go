// Package governance admits, reserves and settles paid, metered calls: exactly,
// across any number of processes that share a store, through crashes.
//
// # The life of a call
//
// A gateway resolves the caller's key to a keys.Principal, computes the most that
// the call may use (a Bound), and asks the Governor to Admit it. Admit reserves
// that bound against every limit that applies, all or none, and returns a Permit;
// or it returns a *Refusal that says which limit, how full it is, when it frees
// and whether to retry. After the call the Permit is settled with an Outcome:
// what was used when that is known, or that it is not known. Do does all of that
// around a function and cannot leak a permit.
//
// # What is promised
//
// No commit that adds to reserved or granted leaves consumed + uncertain +
// reserved + granted above the limit then in force. A refused request changes
// nothing. A permit is settled exactly once. Crashes, expiry and ambiguity refund
// nothing: what a dead process held stays open until an operator resolves it
// (Holds, Resolve). Verify recomputes every account from its permits.
//
// # Many gateways without a shared database
//
// With Options.Journal a Governor is a node: it spends of the policies' budgets what an Authority has
// granted it, also while that is away, until a deadline. Ledger is what an escrow.Syncer carries
// heartbeats for. Rates, quotas and the money of keys and teams are then the node's own.
//
// # Deciding and storing
//
// Decisions are pure Go over plain values. A Store loads and locks rows, hands
// them to a pure function, and writes what it returns; it knows nothing of
// limits. Calls that arrive while a transaction is on its way share the next one.
// See Store for what an adapter must do, and the governancetest package for the
// suite that shows that it does.
//
// Source: ADR-046 "Global admission and accounting"; internal/docs/architecture.md.
package governance
