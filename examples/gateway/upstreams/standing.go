package upstreams

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
)

// Standing is how an upstream stands with one gateway, at one moment of the database's clock.
type Standing struct {
	Record
	// ExpiresAt is when it is deregistered unless it is registered again, ExpiresInMS how long that is, negative where whoever
	// manages has not come to it.
	ExpiresAt   time.Time `json:"expires_at"`
	ExpiresInMS int64     `json:"expires_in_ms"`
	// Declined says why this gateway does not use it; empty: it does, while it is healthy.
	Declined string `json:"declined,omitempty"`
}

type expiry struct {
	name    string
	at, now int64
}

// Standings returns the upstreams that are there, by name, with how long each of them stays.
//
// Errors: those of List; coordination.ErrUnavailable.
func (u *Upstreams) Standings(ctx context.Context) ([]Standing, error) {
	list, err := u.List()
	if err != nil {
		return nil, err
	}
	rows, err := coordination.Query(ctx, u.base, "select name, expires_us, (extract(epoch from clock_timestamp()) * 1000000)::bigint from "+u.table()+" where gone_us is null",
		func(row pgx.CollectableRow) (e expiry, err error) {
			err = row.Scan(&e.name, &e.at, &e.now)
			return e, err
		})
	if err != nil {
		return nil, err
	}
	until := map[string]expiry{}
	for _, e := range rows {
		until[e.name] = e
	}
	declined := u.Declined()
	out := make([]Standing, 0, len(list))
	for _, r := range list {
		e, is := until[r.Name]
		if !is {
			continue // gone since: the log will tell
		}
		out = append(out, Standing{Record: r, ExpiresAt: time.UnixMicro(e.at).UTC(), ExpiresInMS: (e.at - e.now) / 1000, Declined: declined[r.Name]})
	}
	return out, nil
}
