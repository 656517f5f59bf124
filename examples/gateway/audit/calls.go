package audit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/governance/httpgov"
)

// Call is the data of a call.ended event: one attempt at a provider, or why there was none.
type Call struct {
	Team     string    `json:"team"`
	Key      string    `json:"key"`
	Model    string    `json:"model"`
	Upstream string    `json:"upstream,omitempty"`
	Status   int       `json:"status"` // what the client was answered; zero: nothing
	Permit   string    `json:"permit,omitempty"`
	Reason   string    `json:"reason,omitempty"` // of a refusal
	Left     bool      `json:"left,omitempty"`   // the client left before the end
	Began    time.Time `json:"began"`
	Duration int64     `json:"duration_ms"`
}

const (
	mostWaiting = 4096
	mostAtOnce  = 256
	retryPause  = 200 * time.Millisecond
)

// Calls appends an event for every attempt, behind its caller's back: nobody waits for it. Those of a process that dies
// before it has appended them are not exported; the accounts have them all the same.
type Calls struct {
	log    *eventlog.Log
	wait   chan Call
	done   chan struct{}
	stop   context.CancelFunc
	lost   atomic.Int64
	mu     sync.RWMutex
	closed bool
}

// NewCalls begins to append.
func NewCalls(log *eventlog.Log) *Calls {
	ctx, stop := context.WithCancel(context.Background())
	c := &Calls{log: log, wait: make(chan Call, mostWaiting), done: make(chan struct{}), stop: stop}
	go func() {
		defer close(c.done)
		c.run(ctx)
	}()
	return c
}

// Add notes an attempt. Where too many wait already, as in an outage, it is counted as lost.
func (c *Calls) Add(upstream string, a httpgov.Attempt) {
	call := Call{
		Team: a.Team, Key: a.Key, Model: a.Model, Upstream: upstream, Status: a.Status, Reason: a.Reason, Left: a.Left,
		Began: a.Began.UTC(), Duration: a.Duration.Milliseconds(),
	}
	if !a.Permit.IsZero() {
		call.Permit = a.Permit.String()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		c.lost.Add(1)
		return
	}
	select {
	case c.wait <- call:
	default:
		c.lost.Add(1)
	}
}

// Lost is how many were not appended, and never will be.
func (c *Calls) Lost() int64 { return c.lost.Load() }

func (c *Calls) run(ctx context.Context) {
	for first := range c.wait {
		batch := []Call{first}
		for more := true; more && len(batch) < mostAtOnce; {
			select {
			case next, open := <-c.wait:
				if more = open; open {
					batch = append(batch, next)
				}
			default:
				more = false
			}
		}
		if !c.append(ctx, batch) {
			c.lost.Add(int64(len(batch)))
		}
	}
}

// append appends some, under ids that make it safe to repeat, and repeats it until the database answers.
func (c *Calls) append(ctx context.Context, batch []Call) bool {
	a := eventlog.Append{Stream: "calls/" + string(c.log.Producer())}
	for _, call := range batch {
		data, err := json.Marshal(call)
		if err != nil {
			c.lost.Add(1)
			continue
		}
		a.Events = append(a.Events, eventlog.Event{ID: strings.ToLower(rand.Text()), Type: "call.ended", Data: data})
	}
	for {
		_, err := c.log.Append(ctx, a)
		if err == nil {
			return true
		}
		if !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrUnknownOutcome) && !errors.Is(err, eventlog.ErrStandby) {
			return false
		}
		pause := time.NewTimer(retryPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return false
		case <-pause.C:
		}
	}
}

// Close appends what waits, for as long as ctx allows.
//
// Errors: the context's, when something was lost.
func (c *Calls) Close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.wait)
	}
	c.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		c.stop()
		<-c.done
		return ctx.Err()
	}
	c.stop()
	return nil
}
