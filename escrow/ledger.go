package escrow

import (
	"context"
	"time"
)

// Ledger is what a node keeps of its grants, durably: package journal. Syncer moves its
// heartbeats.
//
// Concurrency: safe beside the spending of permits; Syncer calls its methods one at a time.
// Errors: any error says that nothing happened, and that the call may be repeated.
//
// Source: ADR-045 "Local journal".
type Ledger interface {
	// Next returns a heartbeat to send now. Its Sequence must be above every earlier one of
	// the boot. It must carry every report and meter that was not receipted with the sums
	// that it has now, and every request that was sent and neither answered nor given up
	// (see Report), as far as the bounds of a heartbeat go; it may ask for more, sized by
	// demand. Reports go before requests where there is no room for all.
	//
	// With leaving, it must give no permit from then on, close every grant that is open and
	// give up every request. The heartbeat is a Bye once all that is left to say fits in it.
	Next(ctx context.Context, leaving bool) (*Heartbeat, error)

	// Take brings in the answer to h, which was verified, and commits before it returns. Sent
	// is read on the monotonic clock just before h was sent: see Answer.Deadline.
	Take(ctx context.Context, h *Heartbeat, a *Answer, sent time.Time) error

	// Fence ends all spending of this boot, for good.
	Fence(ctx context.Context, why *Fenced) error

	// Wants is a channel that receives when credit is missing or about to be. It must have
	// room for one value, and sending to it must never block: wants coalesce.
	Wants() <-chan struct{}
}

// Deadline is when the node must stop to use what lasts until the instant on the authority's
// clock: the instant at which the answer was received, plus what was left of it by the
// authority's clock, minus the full round trip. That is the same as counting from sent, and
// needs the monotonic clock alone. It is never stored: a restart retires it.
//
// Units: until is µs on the authority's clock.
func (a *Answer) Deadline(until int64, sent time.Time) time.Time {
	left := max(until-a.Now, 0)
	const most = int64(1<<63-1) / int64(time.Microsecond)
	return sent.Add(time.Duration(min(left, most)) * time.Microsecond)
}
