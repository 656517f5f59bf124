package journal

import (
	"context"
	"fmt"
)

// mostHeard is far above the number of any opening, and far below where numbers end.
const mostHeard = 1 << 62

// Readmit lets a journal that was started anew speak for its node again, on an operator's
// word, which is kept: its next opening has a number above heard, the highest that the
// authority knows of (escrow.Fenced says it, and so does the authority's list of nodes). To
// the authority that is a later opening as any: it shuts out the earlier ones, and what they
// were granted stays out until it is resolved there.
//
// It changes nothing where the next opening is above heard already. Nobody may have the
// journal open.
//
// Errors: *FieldError (also for a journal that holds something: that was not started anew),
// ErrUnavailable, ErrUnknownOutcome, ErrCorrupt.
//
// Source: ADR-045 "Local journal".
func Readmit(ctx context.Context, s Store, heard int64, actor, reason string) error {
	if err := signed(actor, reason); err != nil {
		return err
	}
	if heard < 1 || heard > mostHeard {
		return invalid("heard", fmt.Sprintf("must be between 1 and %d", int64(mostHeard)))
	}
	return s.Step(ctx, &Plan{Everything: true, OnTheirWay: true}, func(l *Loaded) (*Changes, error) {
		m := l.Meta
		switch {
		case len(l.Grants) > 0 || len(l.Records) > 0:
			return nil, invalid("journal", "must hold nothing: what an older copy holds may have been spent; start it anew first")
		case m.Number >= heard:
			return nil, nil
		}
		m.Number = heard
		return &Changes{Meta: &m, Notes: []Note{{Actor: actor, Action: "readmit", Reason: reason}}}, nil
	})
}
