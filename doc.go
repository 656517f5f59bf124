// Package tallystick is documentation; import the packages below it.
//
// Tallystick governs paid, metered calls, inference by language models first of all: who may call,
// how fast, how much, and for how much money. It is exact across any number of replicas, through crashes and
// outages: nothing is lost and nothing is spent twice.
//
// # The idea
//
// A call passes through four steps. A key says who is calling. Every limit that applies to that caller
// is checked in one transaction, and the most the call may cost is reserved against all of them or against none.
// The call is made. What it really used is settled, and only the proven rest is given back.
//
// What to decide is computed by pure functions over plain values. Where it is kept is an adapter:
// memory, SQLite, Postgres, or one of your own that passes the same suite.
//
// # Where to start
//
// To govern an existing proxy, begin with [github.com/tallystick-go/tallystick/governance/httpgov]: a middleware that
// resolves the caller and a RoundTripper that reserves before each attempt at a provider and settles from the answer,
// streams included.
//
// To govern any call without HTTP, begin with [github.com/tallystick-go/tallystick/governance] and its Do.
//
// For one thing alone: [github.com/tallystick-go/tallystick/keys] holds keys and teams,
// [github.com/tallystick-go/tallystick/ratelimit] is an exact token bucket,
// [github.com/tallystick-go/tallystick/quota] calendar windows and their accounts,
// [github.com/tallystick-go/tallystick/governance/pricing] turns tokens into money,
// [github.com/tallystick-go/tallystick/governance/usage] reads what providers report.
//
// # Rules that hold everywhere
//
// Money is int64 microUSD and tokens are int64; no float comes near a counter, and an overflow refuses.
// Zero is a limit of zero; unlimited is the absence of a limit. Time is the database's. The caller opens and
// owns the database handle; constructors do no I/O and run no migrations. Errors are typed, say what to do,
// and never hold a DSN, SQL, a hash or a key.
package tallystick
