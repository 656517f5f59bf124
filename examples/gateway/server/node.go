package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/escrow/escrowhttp"
	"github.com/tallystick-go/tallystick/examples/gateway/metrics"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/journal"
)

// node is what a gateway of the profile node has beside its Governor: the journal of what it
// was granted, and the syncer that talks to the authority.
//
// Source: ADR-045 "Failure and operational boundaries".
type node struct {
	journal *journal.Journal
	client  *escrowhttp.Client
	syncer  *escrow.Syncer
}

// openJournal takes the journal over: what an earlier process had open is burned.
func (s *Server) openJournal(ctx context.Context) error {
	j, err := journal.Open(ctx, s.Storage.Journal, &journal.Options{
		Node: s.Config.Node, StepTimeout: s.Config.Timeouts.Storage.Duration, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	s.node = &node{journal: j}
	burnt := j.Burnt()
	say := s.logger.Info
	if burnt.Grants > 0 || burnt.Reservations > 0 { // the process before did not stop in good order
		say = s.logger.Warn
	}
	say("gateway: the journal was opened", "node", s.Config.Node, "boot", burnt.Number, "burned_grants", burnt.Grants, "burned_reservations", burnt.Reservations)
	return nil
}

// startSyncer begins to talk to the authority. The first answer makes the gateway ready.
func (s *Server) startSyncer() error {
	client, err := s.authority()
	if err != nil {
		return err
	}
	s.node.client = client
	s.node.syncer, err = escrow.NewSyncer(client, s.Governor.Ledger(), &escrow.SyncerOptions{
		Timeout: s.Config.Authority.Timeout.Duration, Logger: s.logger,
	})
	return err
}

// closeNode ends the node in good order: first the outcomes that are still waiting, then the
// farewell that gives back what was not used, then the journal.
func (s *Server) closeNode(ctx context.Context) (err error) {
	if s.Governor != nil {
		err = s.Governor.Close(ctx)
	}
	if e := s.node.leave(s.Config.Authority.Farewell.Duration); e != nil {
		err = errors.Join(err, fmt.Errorf("server: the authority has not heard what this node gives back; the next start will tell it: %w", e))
	}
	return errors.Join(err, s.node.journal.Close())
}

// leave says goodbye, for as long as the configuration says. Every attempt has been settled
// by then, or is charged as uncertain. Who was never answered has nothing to give back.
//
// Errors: those of Syncer.Close.
func (n *node) leave(farewell time.Duration) error {
	if n.client != nil {
		defer n.client.Close()
	}
	if n.syncer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if n.syncer.Status().LastSync.IsZero() {
		cancel()
		_ = n.syncer.Close(ctx)
		return nil
	}
	return n.syncer.Close(ctx)
}

// heard reports why nothing may be admitted: before the first answer of the authority no budget
// is known.
func (n *node) heard() error {
	if s := n.syncer.Status(); !s.Ready {
		if s.Err != nil {
			return s.Err
		}
		return errUnheard
	}
	return nil
}

var errUnheard = errors.New("server: the authority has not answered yet")

// sayHeard is what /readyz tells of it. What comes from a network is not repeated there.
func sayHeard(err error) string {
	var fenced *escrow.Fenced
	if errors.As(err, &fenced) {
		return fenced.Error()
	}
	switch {
	case errors.Is(err, escrow.ErrIncompatible):
		return "is another authority than the one that this journal belongs to, or does not speak escrow-v1"
	case errors.Is(err, escrow.ErrRegressed):
		return "has gone back in time: its database was restored from a copy"
	}
	return "has not answered yet"
}

// sayReady is what /readyz tells of a Governor that admits nothing.
func sayReady(err error) string {
	var poisoned *journal.PoisonedError
	switch {
	case errors.As(err, &poisoned):
		return "is poisoned by an overrun: see `gateway journal status`, and `gateway journal release`"
	case errors.Is(err, journal.ErrFenced):
		return "was taken over by another opening, or refused by the authority: stop this gateway"
	case errors.Is(err, journal.ErrCorrupt), errors.Is(err, governance.ErrCorrupt):
		return "is damaged: stop this gateway, keep the file, and see `gateway journal start-anew`"
	case errors.Is(err, governance.ErrNotReady):
		return "waits for the authority's first answer"
	}
	return "does not answer"
}

// nodeStatus says how the node stands with its authority.
func (s *Server) nodeStatus() *report.NodeStatus {
	if s.node == nil || s.node.syncer == nil {
		return nil
	}
	now := s.node.syncer.Status()
	out := &report.NodeStatus{
		Name: s.Config.Node, Boot: s.node.journal.Boot().String(), BootNumber: s.node.journal.Burnt().Number,
		Synced: now.Ready, Failures: now.Failures, EveryMS: now.Every.Milliseconds(),
	}
	if !now.LastSync.IsZero() {
		at := now.LastSync.UTC()
		out.LastSync = &at
	}
	if now.Err != nil {
		out.Why = now.Err.Error()
	}
	return out
}

// nodeMetrics is what a scrape finds of the node.
func (s *Server) nodeMetrics(ctx context.Context) (metrics.Node, error) {
	now := s.node.syncer.Status()
	out := metrics.Node{Synced: now.Ready, LastSync: now.LastSync, Failures: now.Failures}
	held, err := journal.Look(ctx, s.Storage.Journal)
	if err != nil {
		return out, err
	}
	out.Poisoned = held.Poison != (journal.Poison{})
	for i := range held.Accounts {
		a := &held.Accounts[i]
		out.Money = append(out.Money, metrics.NodeMoney{
			Policy: a.Account.Policy, Rule: a.Account.Rule,
			Free: int64(a.Free), Reserved: int64(a.Reserved), Consumed: int64(a.Consumed), Uncertain: int64(a.Uncertain),
		})
	}
	return out, nil
}
