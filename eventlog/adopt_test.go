package eventlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
)

// damaged is a store with two left checkpoints, of which one cannot be claimed.
type damaged struct {
	eventlog.Store
	saved []eventlog.Producer
}

func (d *damaged) Checkpoints(context.Context, string) ([]eventlog.Checkpoint, error) {
	return []eventlog.Checkpoint{
		{Consumer: "export", Producer: "bad", Left: true, Generation: 1},
		{Consumer: "export", Producer: "good", Left: true, Generation: 1},
	}, nil
}

func (d *damaged) Head(context.Context) (eventlog.Cursor, error) { return eventlog.Cursor{}, nil }

func (d *damaged) Claim(_ context.Context, c eventlog.Claim) (eventlog.Checkpoint, error) {
	if c.Producer == "bad" {
		return eventlog.Checkpoint{}, &eventlog.FieldError{Field: "cursor", Why: "is damaged"}
	}
	return eventlog.Checkpoint{Consumer: c.Consumer, Producer: c.Producer, Owner: c.Owner, Generation: 2}, nil
}

func (d *damaged) Read(context.Context, eventlog.Read) (eventlog.Page, error) {
	return eventlog.Page{}, nil
}

func (d *damaged) Save(_ context.Context, c eventlog.Checkpoint) error {
	d.saved = append(d.saved, c.Producer)
	return nil
}

func TestOneThatCannotBeAdoptedStopsNoOther(t *testing.T) {
	d := &damaged{}
	l, err := eventlog.New(d, &eventlog.Options{Subscriptions: []eventlog.Subscription{
		eventlog.Effect("export", func(context.Context, eventlog.Recorded, eventlog.Appender) error { return nil }),
	}})
	require.NoError(t, err)
	out, err := l.Adopt(t.Context(), eventlog.Adopt{Idle: time.Hour})
	require.ErrorIs(t, err, eventlog.ErrInvalid, "and it is said")
	require.Equal(t, 1, out.Producers)
	require.Contains(t, d.saved, eventlog.Producer("good"))
}
