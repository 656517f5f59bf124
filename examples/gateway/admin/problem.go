package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
)

// Problem is why a request failed, as it is answered and as Client returns it.
type Problem struct {
	Status  int    `json:"-"`
	Type    string `json:"type"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

func (p *Problem) Error() string {
	if p.Field != "" {
		return fmt.Sprintf("admin: %s: %s: %s", p.Type, p.Field, p.Message)
	}
	return fmt.Sprintf("admin: %s: %s", p.Type, p.Message)
}

func invalid(field, why string) error {
	return &Problem{Status: http.StatusBadRequest, Type: "invalid", Field: field, Message: why}
}

func answer(w http.ResponseWriter, p *Problem) {
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(1))
	}
	wire.JSON(w, p.Status, map[string]*Problem{"error": p})
}

var unconfirmed = &Problem{http.StatusServiceUnavailable, "unconfirmed", "", "the edit may be in force, but it is not confirmed that every admission sees it: repeat it until it succeeds"}

// problemOf is the table of failures. Only what this program or the library wrote
// is repeated.
func problemOf(err error) *Problem {
	var own *Problem
	var key *keys.FieldError
	var field *governance.FieldError
	var refused *governance.Refusal
	var unbalanced *governance.UnbalancedError
	var document *policy.Error
	var other *policy.ConflictError
	var damaged *policy.CorruptError
	var spendable *governance.SpendableError
	var shared *coordination.FieldError
	if p := journalProblem(err); p != nil {
		return p
	}
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &key):
		return &Problem{http.StatusBadRequest, "invalid", key.Field, key.Why}
	case errors.As(err, &field):
		return &Problem{http.StatusBadRequest, "invalid", field.Field, field.Why}
	case errors.As(err, &shared) && shared.Conflict:
		return &Problem{http.StatusConflict, "conflict", shared.Field, shared.Why}
	case errors.As(err, &shared):
		return &Problem{http.StatusBadRequest, "invalid", shared.Field, shared.Why}
	case errors.Is(err, coordination.ErrNotFound):
		return &Problem{http.StatusNotFound, "not_found", "", "there is nothing of this name"}
	case errors.Is(err, coordination.ErrUnknownOutcome):
		return &Problem{http.StatusServiceUnavailable, "unknown_outcome", "", "it is not known whether this was recorded: repeat it"}
	case errors.Is(err, coordination.ErrUnavailable), errors.Is(err, coordination.ErrStarting), errors.Is(err, coordination.ErrStale), errors.Is(err, eventlog.ErrUnavailable):
		return &Problem{http.StatusServiceUnavailable, "unavailable", "", "the database does not answer: try again"}
	case errors.Is(err, eventlog.ErrHistoryRegressed):
		return &Problem{http.StatusServiceUnavailable, "history_regressed", "", "the database shows less than this gateway has seen of it: decide which history is right, and start the gateway again"}
	case errors.As(err, &document):
		return &Problem{http.StatusBadRequest, "invalid", document.Path, document.Why}
	case errors.As(err, &other):
		return &Problem{http.StatusConflict, "stale", "expect", "the policies were changed since: look at the difference again, and decide again"}
	case errors.Is(err, policy.ErrNotFound):
		return &Problem{http.StatusNotFound, "not_found", "delete", "there is no policy of this name"}
	case errors.Is(err, policy.ErrUnconfirmed):
		return unconfirmed
	case errors.As(err, &damaged):
		return &Problem{http.StatusInternalServerError, "corrupt", "", fmt.Sprintf("the stored policies cannot be read, and nothing is admitted: put a whole set in their place, expecting generation %s", damaged.Now.Generation)}
	case errors.As(err, &refused):
		return &Problem{http.StatusConflict, "refused", "", "the key is revoked, expired or unknown"}
	case errors.Is(err, keys.ErrUnconfirmed):
		return unconfirmed
	case errors.Is(err, keys.ErrNotFound), errors.Is(err, keys.ErrUnknown), errors.Is(err, governance.ErrNotFound), errors.Is(err, governance.ErrPruned):
		return &Problem{http.StatusNotFound, "not_found", "", "there is nothing with this id"}
	case errors.Is(err, keys.ErrExists):
		return &Problem{http.StatusConflict, "exists", "id", "the id is taken, perhaps by something that was deleted: ids are never used twice"}
	case errors.Is(err, keys.ErrStale):
		return &Problem{http.StatusConflict, "stale", "if_revision", "it was changed since it was read: read it again and decide again"}
	case errors.Is(err, keys.ErrConflict):
		return &Problem{http.StatusConflict, "conflict", "", "the same id was used with other terms, or the token is in use"}
	case errors.Is(err, keys.ErrRevoked):
		return &Problem{http.StatusConflict, "revoked", "", "the key is revoked or the team deleted, and that is final"}
	case errors.Is(err, keys.ErrExpired):
		return &Problem{http.StatusConflict, "expired", "", "the key has expired: move expires_at first"}
	case errors.As(err, &unbalanced):
		return &Problem{http.StatusConflict, "unbalanced", "", "the account is not released: " + unbalanced.Difference.Why + "; look at verify, and release it with reconcile to put right what it counts"}
	case errors.As(err, &spendable):
		return &Problem{http.StatusConflict, "spendable", "", "its node may spend from the grant until " + time.UnixMicro(spendable.Until).UTC().Format(time.RFC3339) + ": resolve it then"}
	case errors.Is(err, governance.ErrTerminal):
		return &Problem{http.StatusConflict, "terminal", "", "nothing is held any more"}
	case errors.Is(err, governance.ErrConflict):
		return &Problem{http.StatusConflict, "conflict", "", "it was resolved in another way"}
	case errors.Is(err, governance.ErrCorrupt):
		return &Problem{http.StatusInternalServerError, "corrupt", "", "a stored value is damaged: stop the gateway and look at the database file"}
	case errors.Is(err, governance.ErrUnknownOutcome):
		return &Problem{http.StatusServiceUnavailable, "unknown_outcome", "", "it is not known whether this was recorded: repeat it"}
	case errors.Is(err, keys.ErrUnavailable), errors.Is(err, policy.ErrUnavailable), errors.Is(err, governance.ErrUnavailable), errors.Is(err, governance.ErrClosed),
		errors.Is(err, governance.ErrStale), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Problem{http.StatusServiceUnavailable, "unavailable", "", "the database does not answer: try again"}
	}
	return &Problem{http.StatusInternalServerError, "internal", "", "the gateway's log says more"}
}
