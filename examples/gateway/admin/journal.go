package admin

import (
	"errors"
	"net/http"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/journal"
)

// journalStore refuses where there is none.
func (a *api) journalStore() (journal.Store, error) {
	if a.Journal == nil {
		return nil, &Problem{Status: http.StatusNotFound, Type: "not_found", Message: "there is no journal: only gateways of the profile node have one"}
	}
	return a.Journal, nil
}

// journalStatus tells what the node holds of what it was granted.
func (a *api) journalStatus(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	store, err := a.journalStore()
	if err != nil {
		return nil, err
	}
	s, err := journal.Look(c.ctx, store)
	if err != nil {
		return nil, err
	}
	return report.JournalOf(s), nil
}

// journalRelease lets a journal reserve again after an overrun.
func (a *api) journalRelease(c *call) (any, error) {
	store, err := a.journalStore()
	if err != nil {
		return nil, err
	}
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var actor, reason string
	if err := fields(data, map[string]any{"actor": &actor, "reason": &reason}); err != nil {
		return nil, err
	}
	released, err := journal.Release(c.ctx, store, actor, reason)
	if err != nil {
		return nil, err
	}
	if released {
		a.Logger.WarnContext(c.ctx, "admin: the journal was released after an overrun", "actor", actor, "reason", reason)
	}
	return report.JournalRelease{Released: released}, nil
}

// journalProblem is what an error of a journal means to an operator; nil: it is none.
func journalProblem(err error) *Problem {
	var field *journal.FieldError
	switch {
	case errors.As(err, &field):
		return &Problem{http.StatusBadRequest, "invalid", field.Field, field.Why}
	case errors.Is(err, journal.ErrCorrupt):
		return &Problem{http.StatusInternalServerError, "corrupt", "", "the journal is damaged: stop the gateway, keep the file, and see `gateway journal start-anew`"}
	case errors.Is(err, journal.ErrUnknownOutcome):
		return &Problem{http.StatusServiceUnavailable, "unknown_outcome", "", "it is not known whether this was recorded: repeat it"}
	case errors.Is(err, journal.ErrUnavailable):
		return &Problem{http.StatusServiceUnavailable, "unavailable", "", "the journal cannot be read: try again"}
	}
	return nil
}
