package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
)

var (
	errUnwitnessed = errors.New("server: the authority has not answered yet")
	// errElsewhere: what this gateway reserves in are not the accounts that the authority
	// grants from, however equal the policies are.
	errElsewhere = errors.New("server: the authority has another database than this gateway")
)

// witness makes sure that a gateway of the profile shared and the authority of the nodes
// have one database: it asks for no grants, and compares what is answered with what is
// stored here. Once that is sure it stays so while the authority is away, since the
// database of a gateway does not change under it.
//
// Source: ADR-046 "Policy and runtime binding".
type witness struct {
	authority escrow.Authority
	policies  policy.Store
	node      string
	every     time.Duration
	logger    *slog.Logger

	boot                       escrow.BootID
	number, sequence, answered int64

	mu  sync.Mutex
	err error // nil: it is one database
}

func newWitness(a escrow.Authority, p policy.Store, node string, logger *slog.Logger) *witness {
	// It holds nothing that another opening could spend twice: the time tells two apart.
	return &witness{
		authority: a, policies: p, node: node, every: escrow.DefaultRenew, logger: logger,
		boot: escrow.NewBootID(), number: time.Now().UnixMicro(), err: errUnwitnessed,
	}
}

// ask reports why nothing may be admitted, or nil.
func (w *witness) ask(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// run looks until the context ends, often until it is sure for the first time.
func (w *witness) run(ctx context.Context) {
	const first = time.Second
	for {
		err := w.look(ctx)
		wait := w.every
		if err != nil && !errors.Is(err, errElsewhere) {
			wait = first
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// look asks once.
func (w *witness) look(ctx context.Context) error {
	err := w.compare(ctx)
	if ctx.Err() != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch sure := w.err == nil; {
	case err == nil && !sure:
		w.logger.Info("gateway: the authority and this gateway have one database")
	case err != nil && (!sure || errors.Is(err, errElsewhere)):
		w.logger.Error("gateway: nothing is admitted", "error", err)
	case err != nil:
		w.logger.Warn("gateway: the authority was not asked", "error", err)
		return err // it was one database, and it still is
	}
	w.err = err
	return err
}

// compare asks the authority, and holds its mark against the one that is stored here.
func (w *witness) compare(ctx context.Context) error {
	w.sequence++
	h := &escrow.Heartbeat{ // without a mark: comparing is what this is for
		Node: w.node, Boot: w.boot, BootNumber: w.number, Sequence: w.sequence, Answered: w.answered,
		Reports: []escrow.Report{}, Meters: []escrow.Meter{}, Requests: []escrow.Request{},
	}
	a, err := w.authority.Beat(ctx, h)
	var fenced *escrow.Fenced
	if errors.As(err, &fenced) { // a clock that was set back: the next number is the higher one
		w.boot, w.number, w.sequence, w.answered = escrow.NewBootID(), max(w.number, fenced.BootNumber+1), 0, 0
		return err
	}
	if err == nil {
		err = a.Verify(h)
	}
	if err != nil {
		return err
	}
	now, err := w.policies.Load(ctx)
	if err != nil {
		return err
	}
	// Read after the answer was made: what is stored can be newer than it, and never older.
	switch {
	case now.Namespace != a.Mark.Namespace:
		return fmt.Errorf("%w: it grants from %s, and storage.postgres is %s", errElsewhere, a.Mark.Namespace, now.Namespace)
	case now.Revision < a.Mark.Revision, now.Revision == a.Mark.Revision && now.Generation != a.Mark.Generation:
		return fmt.Errorf("%w: its policies are at revision %d, and those here at %d", errElsewhere, a.Mark.Revision, now.Revision)
	}
	w.answered = h.Sequence
	return nil
}
