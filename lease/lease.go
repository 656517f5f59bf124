package lease

import (
	"context"
	"time"
)

// Generation counts the acquisitions of a name. It rises with each and never falls or starts again,
// whatever is released, lapses or restarts: a lower one is always older. The first is 1.
type Generation int64

// Claim asks for a lease.
type Claim struct {
	// Name says what is leased: 1 to 200 bytes of printable UTF-8.
	Name string
	// Holder is who asks, from NewHolder. Whoever presents it is taken for the same process.
	Holder string
	// TTL is how long the tenure lasts without renewal, 50 ms to 24 h, by the store's clock. It is how long
	// everybody waits for a holder that died.
	TTL time.Duration
}

// Lease is a tenure as the store granted it.
type Lease struct {
	Name       string
	Holder     string
	Generation Generation
	TTL        time.Duration
	// ExpiresAt is when it ends unless it is renewed, by the store's clock. Never compare it with
	// another clock: a Keeper says whether to believe in it.
	ExpiresAt time.Time
}

// Row is what a store shows of a name.
type Row struct {
	Name string
	// Origin names the store's data: another database, or one made anew, has another. "" where a store has none.
	Origin     string
	Holder     string     // "" when it was released
	Generation Generation // of the latest acquisition; 0: the name was never acquired
	TTL        time.Duration
	AcquiredAt time.Time
	RenewedAt  time.Time
	ExpiresAt  time.Time
	// Now is the store's clock when it was read: all times are of this clock.
	Now time.Time
}

// Held reports whether somebody held the lease at Now.
func (r Row) Held() bool { return r.Holder != "" && r.Now.Before(r.ExpiresAt) }

// Remaining is what was left of the tenure at Now, by the store's clock; zero when nobody holds it.
func (r Row) Remaining() time.Duration {
	if !r.Held() {
		return 0
	}
	return r.ExpiresAt.Sub(r.Now)
}

func (r Row) lease() Lease {
	return Lease{Name: r.Name, Holder: r.Holder, Generation: r.Generation, TTL: r.TTL, ExpiresAt: r.ExpiresAt}
}

// Leaser keeps leases. leasepg.Leaser and leasesqlite.Leaser are Leasers; package leasetest tries others.
//
// Each method is one conditional change, decided on the store's clock read after the row was locked. What a
// store showed goes through a History, so that data which went back in time is refused.
//
// Concurrency: safe for concurrent use; linearizable across all processes that share the store.
type Leaser interface {
	// Acquire takes the lease if nobody holds it, if its tenure has ended, or if the claim's own holder has
	// it: who does not know whether an earlier call went through asks again. It must wait for transactions that
	// are fenced with the generation before, or answer *HeldError.
	//
	// Time: the tenure begins when the row was locked, by the store's clock. Count trust from before the call.
	// Retry: safe; every success raises the generation.
	// Errors: *HeldError (ErrHeld), *FieldError (ErrInvalid), *HistoryError (ErrHistoryRegressed; nothing
	// changed), ErrUnavailable (nothing changed), ErrUnknownOutcome (repeat it with the same holder).
	Acquire(ctx context.Context, c Claim) (Lease, error)
	// Renew makes the tenure last its TTL from now on. A tenure that has ended is not renewed, though nobody has
	// taken the lease yet. It must not wait for transactions that are fenced.
	//
	// Retry: safe.
	// Errors: *LostError (ErrLost), *FieldError, *HistoryError, ErrUnavailable, ErrUnknownOutcome (repeat it).
	Renew(ctx context.Context, held Lease) (Lease, error)
	// Release ends the tenure, and keeps the row and its generation. Stop all work first. With Generation 0 it
	// releases whatever the holder has, for who does not know whether an Acquire went through.
	//
	// Retry: safe; what is released already is nil.
	// Errors: *LostError (another has it, or it was never this holder's), *FieldError, *HistoryError,
	// ErrUnavailable, ErrUnknownOutcome (repeat it).
	Release(ctx context.Context, held Lease) error
	// Look shows the row, and locks nothing. A name that was never acquired has Generation 0.
	//
	// Errors: *FieldError, *HistoryError, ErrUnavailable.
	Look(ctx context.Context, name string) (Row, error)
	// Shared reports whether processes on other machines can use the same data. Where they cannot, each
	// machine would grant itself every lease, and all would look well.
	Shared() bool
}
