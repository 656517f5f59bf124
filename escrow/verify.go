package escrow

import (
	"fmt"

	"github.com/tallystick-go/tallystick/governance/policy"
)

// Verify holds an answer against the heartbeat that it answers. A node takes nothing of an
// answer that does not pass: the documents must be those of the generation, the
// definitions those that Definitions makes of them, every request answered once and
// every report receipted. Only where a window ends is the authority's to say, since a
// window that began before an edit of its calendar goes on.
//
// Errors: ErrIncompatible, with what is wrong; ErrRegressed for policies that are older than
// the node goes by.
//
// Source: ADR-045 "Accounts, windows and reports".
func (a *Answer) Verify(h *Heartbeat) error {
	if err := a.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrIncompatible, err)
	}
	for _, check := range [...]func(*Heartbeat) error{a.verifyMark, a.verifyDefinitions, a.verifyRequests, a.verifyReceipts} {
		if err := check(h); err != nil {
			return err
		}
	}
	return nil
}

func incompatible(field, why string) error {
	return fmt.Errorf("%w: %w", ErrIncompatible, refuse(field, why))
}

func (a *Answer) verifyMark(h *Heartbeat) error {
	switch {
	case a.Documents.Generation() != a.Mark.Generation:
		return incompatible("documents", "must be those of the generation")
	case h.Mark == policy.Mark{}:
		return nil
	case a.Mark.Namespace != h.Mark.Namespace:
		return incompatible("mark.namespace", "must be the one that the node goes by; a node changes its authority only with a new journal")
	case a.Mark.Revision < h.Mark.Revision, a.Mark.Revision == h.Mark.Revision && a.Mark.Generation != h.Mark.Generation:
		return fmt.Errorf("%w: revision %d of the policies follows %d", ErrRegressed, a.Mark.Revision, h.Mark.Revision)
	}
	return nil
}

func (a *Answer) verifyDefinitions(*Heartbeat) error {
	own, err := Definitions(a.Documents, a.Now)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIncompatible, err)
	}
	if len(own) != len(a.Definitions) {
		return incompatible("definitions", fmt.Sprintf("must be the %d of the documents", len(own)))
	}
	for i := range own {
		theirs := a.Definitions[i]
		if !theirs.Account.Window.Contains(a.Now) {
			return incompatible(index("definitions", i), "must have the window that is current")
		}
		own[i].Account.Window = theirs.Account.Window
		if own[i] != theirs {
			return incompatible(index("definitions", i), "must be what the documents say")
		}
	}
	return nil
}

func (a *Answer) verifyRequests(h *Heartbeat) error {
	if len(a.Grants)+len(a.Denials) != len(h.Requests) {
		return incompatible("grants", "must answer every request, together with the denials")
	}
	asked := make(map[GrantID]*Request, len(h.Requests))
	for i := range h.Requests {
		asked[h.Requests[i].ID] = &h.Requests[i]
	}
	for i := range a.Grants {
		g := &a.Grants[i]
		r := asked[g.ID]
		if r == nil || g.Account != r.Account || g.Amount < r.Least || g.Amount > r.Amount {
			return incompatible(index("grants", i), "must be what was asked for")
		}
	}
	for i := range a.Denials {
		if asked[a.Denials[i].ID] == nil {
			return incompatible(index("denials", i), "must be of a request")
		}
	}
	return nil
}

func (a *Answer) verifyReceipts(h *Heartbeat) error {
	if len(a.Receipts) != len(h.Reports)+len(h.Meters) {
		return incompatible("receipts", "must have one entry for each report and meter")
	}
	for i := range a.Receipts {
		r, id := &a.Receipts[i], GrantID{}
		if i < len(h.Reports) {
			id = h.Reports[i].Grant
			if ending := h.Reports[i].Ending; !r.Late && r.Ending != ending {
				return incompatible(index("receipts", i), "must say how the grant was reported, or that this was late")
			}
		} else {
			id = h.Meters[i-len(h.Reports)].ID
		}
		if r.Grant != id {
			return incompatible(index("receipts", i), "must be of the report or meter in its place")
		}
	}
	return nil
}
