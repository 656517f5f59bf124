package eventlogpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	quiet       = 30 * time.Second // after which a listener asks whether its connection lives
	firstRetry  = 50 * time.Millisecond
	longestWait = 5 * time.Second
)

// channel is where hints are sent: one per schema.
func (s *Store) channel() string {
	sum := sha256.Sum256([]byte("eventlog\x00" + s.schema.Name()))
	return "tallystick_events_" + hex.EncodeToString(sum[:8])
}

// Hint implements eventlog.Hinter: it tells listeners that there may be something new. It is sent by itself, after the commit
// of what it is about: inside of it, it would take a lock of the whole cluster.
func (s *Store) Hint(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, "select pg_catalog.pg_notify($1::text, '')", s.channel())
	return coreError(err)
}

// Listen returns a channel that receives after hints, and whenever hints may have been missed. Hand it to
// eventlog.Options.Wake. It holds one connection of its own, directly to the server, not through a pooler in transaction mode; nil
// takes the pool's settings. It reconnects until ctx ends, and then closes the channel. Hints are no data: who
// misses one polls.
//
// Source: ADR-020 "Hints".
func (s *Store) Listen(ctx context.Context, config *pgx.ConnConfig) <-chan struct{} {
	if config == nil {
		config = s.pool.Config().ConnConfig
	}
	config = config.Copy()
	wake := make(chan struct{}, 1)
	go func() {
		defer close(wake)
		for wait := firstRetry; ctx.Err() == nil; wait = min(2*wait, longestWait) {
			if s.listen(ctx, config, wake) {
				wait = firstRetry
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
	}()
	return wake
}

// listen passes hints on until the connection breaks, and reports whether it ever stood.
func (s *Store) listen(ctx context.Context, config *pgx.ConnConfig, wake chan<- struct{}) (stood bool) {
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(end)
	}()
	if _, err := c.Exec(ctx, "listen "+s.channel()); err != nil {
		return false
	}
	for {
		select {
		case wake <- struct{}{}: // also after connecting: what was said before was missed
		default:
		}
		for {
			within, cancel := context.WithTimeout(ctx, quiet)
			_, err := c.WaitForNotification(within)
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
				return true
			}
			within, cancel = context.WithTimeout(ctx, pgAnswer)
			err = c.Ping(within)
			cancel()
			if err != nil {
				return true
			}
		}
	}
}

const pgAnswer = 5 * time.Second
