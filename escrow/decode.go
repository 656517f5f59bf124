package escrow

import (
	"errors"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// Every member of a message must be there, lists also when they are empty: what was cut
// short or comes from another version is refused, and never read as "nothing".

// UnmarshalJSON reads a heartbeat and validates it. Errors: *Error, for the first mistake,
// with its place.
func (h *Heartbeat) UnmarshalJSON(data []byte) error {
	var next Heartbeat
	err := decode(data, MaxHeartbeatBytes, func(d *decoder) error {
		return d.object(
			protocol(),
			text("node", &next.Node),
			parsed("boot", &next.Boot, uuid),
			number("boot_number", &next.BootNumber),
			number("sequence", &next.Sequence),
			number("answered", &next.Answered),
			mark(&next.Mark, true),
			entries("reports", &next.Reports, MaxReports, func(d *decoder, r *Report) error {
				return d.object(
					parsed("grant", &r.Grant, uuid7), money("consumed", &r.Consumed), money("uncertain", &r.Uncertain), money("observed", &r.Observed),
					parsed("ending", &r.Ending, "must be open, closed or burned"))
			}),
			entries("meters", &next.Meters, MaxMeters, func(d *decoder, m *Meter) error {
				return d.object(
					parsed("id", &m.ID, uuid7), account(&m.Account), money("consumed", &m.Consumed), money("uncertain", &m.Uncertain),
					money("observed", &m.Observed), money("pending", &m.Pending))
			}),
			entries("requests", &next.Requests, MaxRequests, func(d *decoder, r *Request) error {
				return d.object(parsed("id", &r.ID, uuid7), account(&r.Account), money("amount", &r.Amount), money("least", &r.Least))
			}),
			flag("bye", &next.Bye),
		)
	})
	if err == nil {
		err = next.Validate()
	}
	if err == nil {
		*h = next
	}
	return err
}

// UnmarshalJSON reads an answer and validates it; Verify holds it against the heartbeat.
// Errors: *Error, for the first mistake, with its place.
func (a *Answer) UnmarshalJSON(data []byte) error {
	var next Answer
	err := decode(data, MaxAnswerBytes, func(d *decoder) error {
		return d.object(
			protocol(),
			mark(&next.Mark, false),
			number("now_us", &next.Now),
			field{name: "documents", read: func(d *decoder) (err error) { next.Documents, err = documents(d); return err }},
			entries("definitions", &next.Definitions, maxDefinitions, func(d *decoder, def *Definition) error {
				var renew int64
				err := d.object(
					account(&def.Account), money("limit", &def.Limit), flag("hard", &def.Hard), money("grant", &def.Grant), number("renew_ms", &renew))
				if err == nil && (renew < 1 || renew > (24*time.Hour).Milliseconds()) {
					err = refuse("renew_ms", "must be between 1 ms and a day")
				}
				def.Renew = time.Duration(renew) * time.Millisecond
				return err
			}),
			entries("budgets", &next.Budgets, maxDefinitions, func(d *decoder, b *Budget) error {
				return d.object(
					money("consumed", &b.Consumed), money("uncertain", &b.Uncertain), money("reserved", &b.Reserved), money("granted", &b.Granted),
					number("latch_percent", &b.Latch), flag("frozen", &b.Frozen))
			}),
			entries("grants", &next.Grants, MaxRequests, func(d *decoder, g *Grant) error {
				return d.object(parsed("id", &g.ID, uuid7), account(&g.Account), money("amount", &g.Amount), number("expires_at_us", &g.ExpiresAt))
			}),
			entries("denials", &next.Denials, MaxRequests, func(d *decoder, deny *Denial) error {
				return d.object(parsed("id", &deny.ID, uuid7), parsed("reason", &deny.Reason, "must be one that is known"), money("left", &deny.Left))
			}),
			entries("receipts", &next.Receipts, MaxReports+MaxMeters, func(d *decoder, r *Receipt) error {
				return d.object(parsed("grant", &r.Grant, uuid7), parsed("ending", &r.Ending, "must be open, closed or burned"), flag("late", &r.Late))
			}),
		)
	})
	if err == nil {
		err = next.Validate()
	}
	if err == nil {
		*a = next
	}
	return err
}

const (
	maxDefinitions = policy.MaxDocuments * policy.MaxRules
	uuid           = "must be a UUID in its canonical lower-case form"
	uuid7          = "must be a version 7 UUID in its canonical lower-case form"
)

func protocol() field {
	return field{name: "protocol", read: func(d *decoder) error {
		if s, err := d.text(); err != nil || s != Protocol {
			return refuse("", "must be "+Protocol)
		}
		return nil
	}}
}

func money(name string, to *amount.MicroUSD) field { return number(name+"_microusd", to) }

func account(to *Account) field {
	return field{name: "account", read: func(d *decoder) error {
		return d.object(
			text("policy", &to.Policy), text("rule", &to.Rule),
			optionalText("team", &to.Subject.Team), optionalText("user", &to.Subject.User),
			parsed("period", &to.Period, "must be day, week or month"),
			number("start_us", &to.Window.Start), number("end_us", &to.Window.End))
	}}
}

// mark reads the mark of policies, or null where there may be none yet.
func mark(to *policy.Mark, none bool) field {
	return field{name: "mark", read: func(d *decoder) error {
		if none && d.peek() == 'n' {
			d.raw()
			return nil
		}
		err := d.object(
			parsed("namespace", (*namespace)(&to.Namespace), uuid),
			parsed("generation", &to.Generation, "must be 64 digits of 0-9 and a-f"),
			number("revision", &to.Revision))
		if err != nil {
			return err
		}
		return validMark(*to)
	}}
}

// namespace is one that can be read.
type namespace policy.Namespace

func (n *namespace) UnmarshalText(text []byte) error {
	b, ok := parseUUID(string(text))
	if !ok {
		return refuse("", uuid)
	}
	*n = b
	return nil
}

// documents reads a policy set, as strictly as it is read anywhere.
func documents(d *decoder) (*policy.Set, error) {
	if d.peek() != '[' {
		return nil, refuse("", "must be a list")
	}
	list, err := policy.Decode(d.raw())
	var set *policy.Set
	if err == nil {
		set, err = policy.NewSet(list)
	}
	var e *policy.Error
	switch {
	case errors.As(err, &e):
		place, is := e.Path, len(e.Path) >= len("documents") && e.Path[:len("documents")] == "documents"
		if is {
			place = place[len("documents"):]
		}
		return nil, refuse(place, e.Why)
	case err != nil:
		return nil, refuse("", "cannot be read")
	}
	return set, nil
}
