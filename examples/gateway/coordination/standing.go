package coordination

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
)

// ErrStale: the log could not be read for longer than Options.Stale. What others decided since is not known here.
var ErrStale = errors.New("coordination: what the other gateways did lately is not known, because the log cannot be read")

// Following is nil while the log is followed and what is known of it is young enough, else why it is not. It asks nothing of the database.
//
// Errors: why the log is not followed any more; ErrStale, with the age, which passes when the log can be read again.
func (b *Base) Following() error {
	b.mu.Lock()
	ended := b.ended
	b.mu.Unlock()
	if ended != nil || b.options.Stale <= 0 {
		return ended
	}
	if age := b.Age(); age > b.options.Stale {
		return fmt.Errorf("%w: for %s", ErrStale, age.Round(time.Second))
	}
	return nil
}

// Age is how long ago all that was in the log had been dealt with, by the projection for which that is longest. An effect's does not count: it may be busy
// exporting.
//
// Time: this machine's; the wall clock where it gained on the monotonic one, which stands still while a machine is suspended.
func (b *Base) Age() time.Duration {
	if b.Log == nil {
		return 0
	}
	var oldest time.Duration
	for _, s := range b.Log.Status().Subscriptions {
		if s.Kind != eventlog.KindProjection {
			continue
		}
		since := s.Lag.Looked
		if since.IsZero() {
			since = b.began
		}
		oldest = max(oldest, time.Since(since), time.Now().Round(0).Sub(since.Round(0)))
	}
	return oldest
}

// Retain removes events from before an instant, some thousand at most, and keeps in mind who needs older ones: see HeldBy.
//
// Errors: those of eventlog.Store.Prune.
func (b *Base) Retain(ctx context.Context, before time.Time) error {
	done, err := b.Store.Prune(ctx, eventlog.Prune{Before: before, Limit: 10_000})
	if err != nil {
		return err
	}
	b.mu.Lock()
	news := done.HeldBy != b.heldBy
	b.heldBy = done.HeldBy
	b.mu.Unlock()
	if news && done.HeldBy != "" {
		b.options.Logger.Warn("coordination: events stay that are older than coordination.keep, because a reader has not had them. "+
			"If it is gone for good, such as an export that was switched off, drop its checkpoints: gateway events drop",
			"consumer", done.HeldBy)
	}
	return nil
}

// HeldBy is the reader that kept old events from being removed, when this gateway last tried: only who manages does. Empty: none.
func (b *Base) HeldBy() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.heldBy
}

// Checkpoints lists how far the log's readers came.
//
// Errors: those of eventlog.Store.Checkpoints.
func (b *Base) Checkpoints(ctx context.Context) ([]eventlog.Checkpoint, error) {
	return b.Store.Checkpoints(ctx, "")
}

// Drop forgets the checkpoints of a reader that nobody has touched for longer than Silence, and says how many. What they had still to
// deliver is delivered to nobody. One that is in use is made anew at once, and so it is left alone.
//
// Retry: safe.
// Errors: ErrNotFound where the reader has none, those of eventlog.Store.
func (b *Base) Drop(ctx context.Context, consumer string) (dropped int, err error) {
	list, err := b.Store.Checkpoints(ctx, consumer)
	switch {
	case err != nil:
		return 0, err
	case consumer == "" || len(list) == 0:
		return 0, ErrNotFound
	}
	for _, c := range list {
		if c.Idle < b.Silence() {
			continue
		}
		err := b.Store.Drop(ctx, c)
		switch {
		case err == nil:
			dropped++
		case !errors.Is(err, eventlog.ErrTaken): // by who came back
			return dropped, err
		}
	}
	return dropped, nil
}
