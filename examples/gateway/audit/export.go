// Package audit exports events: from the gateway that produced them, once while it lives. What a gateway left that died, and
// what it could not export, whoever holds the lease on exporting exports, at least once. An event's id tells a repetition.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
)

// Name is the effect's, under which the log keeps how far each gateway's exports came.
const Name = "audit"

// Line is one exported event.
type Line struct {
	ID       string          `json:"id"` // the key: a line with an id that was seen is a repetition
	Type     string          `json:"type"`
	Stream   string          `json:"stream"`
	Version  int64           `json:"version"`
	Position int64           `json:"position"`
	At       time.Time       `json:"at"`
	Producer string          `json:"producer"`
	Exporter string          `json:"exporter"`
	Data     json.RawMessage `json:"data,omitempty"`
	Raw      []byte          `json:"raw,omitempty"` // data that is no JSON
}

// ErrRefused is a sink's, wrapped, for a line that it will not have: it is there, and takes others.
var ErrRefused = errors.New("audit: the event was refused")

// Sink takes lines. What it has taken must survive the process.
type Sink interface {
	// Take takes one line, which ends in no newline. Its errors are kept with the event, and shown: they carry no secret.
	//
	// Errors: ErrRefused; any other says that the sink is down.
	Take(ctx context.Context, id string, line []byte) error
	Close() error
}

// Exporter writes events to a sink. It is safe for concurrent use.
type Exporter struct {
	sink     Sink
	instance func() string

	mu    sync.Mutex
	pause time.Duration // after a failure; zero: the last one was taken
	until time.Time
}

const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// New makes an exporter of this gateway, whose identity is known once events come.
func New(sink Sink, instance func() string) *Exporter {
	return &Exporter{sink: sink, instance: instance}
}

// Subscription is the effect.
func (x *Exporter) Subscription() eventlog.Subscription {
	return eventlog.Effect(Name, func(ctx context.Context, e eventlog.Recorded, _ eventlog.Appender) error { return x.export(ctx, e) })
}

// export sets an event aside at once where the sink does not take it, so that neither one that is refused nor a sink that is down keeps those
// behind it. It is not lost: see Again.
func (x *Exporter) export(ctx context.Context, e eventlog.Recorded) error {
	if x.paused() {
		return fmt.Errorf("%w: the export is down", eventlog.ErrDeclined)
	}
	line, err := x.line(e)
	if err != nil {
		return fmt.Errorf("%w: %w", eventlog.ErrPoison, err)
	}
	err = x.sink.Take(ctx, e.ID, line)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrRefused) {
		x.note(nil)
		return fmt.Errorf("%w: %w", eventlog.ErrPoison, err)
	}
	x.note(err)
	if err != nil {
		return fmt.Errorf("%w: %w", eventlog.ErrDeclined, err)
	}
	return nil
}

func (x *Exporter) line(e eventlog.Recorded) ([]byte, error) {
	l := Line{
		ID: e.ID, Type: e.Type, Stream: e.Stream, Version: e.Version, Position: e.Position, At: e.At,
		Producer: string(e.Producer), Exporter: x.instance(),
	}
	if json.Valid(e.Data) {
		l.Data = e.Data
	} else {
		l.Raw = e.Data
	}
	return json.Marshal(l)
}

func (x *Exporter) paused() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Now().Before(x.until)
}

func (x *Exporter) note(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		x.pause, x.until = 0, time.Time{}
		return
	}
	x.pause = min(max(2*x.pause, firstPause), longestPause)
	x.until = time.Now().Add(x.pause)
}

// Again says how many of the events that were set aside are worth trying now: none while the sink is down, one to see
// whether it still is. Refused ones are among them, in turns (eventlog.Log.Retry): whoever mends what was wrong, a token or a path, has them all.
func (x *Exporter) Again() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case time.Now().Before(x.until):
		return 0
	case x.pause > 0:
		return 1
	}
	return eventlog.DefaultPage
}

// Close closes the sink.
func (x *Exporter) Close() error { return x.sink.Close() }
