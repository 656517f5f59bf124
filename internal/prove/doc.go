// Package prove shows guarantees on real processes: gateways that share one Postgres, each in a process of its own,
// whose callers write down what they asked, what they were told and when. What they wrote is then compared
// with what the guarantees allow. It is tests only.
//
// Source: internal/docs/guarantees.md "One after another".
package prove
