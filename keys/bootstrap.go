package keys

import (
	"errors"
	"fmt"
	"time"
)

// MaxDeclarations is how many teams and keys one bootstrap may declare.
const MaxDeclarations = 10_000

// Bootstrap brings the teams and keys of a configuration into a store, all or
// none, at every start of every replica. What was declared once is left alone
// from then on: a repetition neither undoes an administrator's edit nor brings
// back what was deleted or revoked.
//
// Source: ADR-046 "Shared identity".
type Bootstrap struct {
	Declarations []Declaration
}

// Bootstrapped is what a bootstrap did.
type Bootstrapped struct {
	Created   []Name `json:"created"`   // declared for the first time
	Unchanged int    `json:"unchanged"` // declared before
}

// Prepare validates b. Call it before a transaction opens. Errors: *FieldError,
// whose field begins with the place of the declaration.
func (b Bootstrap) Prepare(format Format) (Bootstrap, error) {
	if len(b.Declarations) > MaxDeclarations {
		return Bootstrap{}, refuse("declarations", fmt.Sprintf("must be at most %d", MaxDeclarations))
	}
	out := Bootstrap{Declarations: make([]Declaration, len(b.Declarations))}
	names := make(map[Name]bool, len(b.Declarations))
	tokens := make(map[Hash]bool, len(b.Declarations))
	for i, d := range b.Declarations {
		d, err := d.prepare(format)
		switch {
		case err != nil:
		case names[d.name()]:
			err = refuse("id", "must not be declared twice")
		case d.Key != nil && tokens[d.Key.secretHash()]:
			err = refuse("token", "must not be another declaration's")
		}
		if err != nil {
			return Bootstrap{}, within(fmt.Sprintf("declarations[%d]", i), err)
		}
		if names[d.name()] = true; d.Key != nil {
			tokens[d.Key.secretHash()] = true
		}
		out.Declarations[i] = d
	}
	return out, nil
}

// Names are the rows that a store reads, in the transaction, for a prepared b.
func (b Bootstrap) Names() Names {
	var n Names
	for _, d := range b.Declarations {
		n.Declared = append(n.Declared, d.name())
		if d.Team != nil {
			n.Teams = append(n.Teams, d.Team.ID)
			continue
		}
		n.Teams = append(n.Teams, d.Key.TeamID)
		n.Keys = append(n.Keys, d.Key.ID)
		n.Hashes = append(n.Hashes, d.Key.secretHash())
	}
	return n.sorted()
}

// Apply decides a prepared bootstrap: add is what to insert, in that order. have
// is what the store has of b.Names(), read where nobody can insert or delete any
// of it meanwhile.
//
// Errors: *ConflictError, several joined: declared differently before, or an id
// or token that somebody else has. *FieldError: expired already.
func (b Bootstrap) Apply(have Rows, now time.Time) (add Rows, done Bootstrapped, err error) {
	h := have.index()
	done.Created = []Name{}
	var faults []error
	fault := func(n Name, why string, fields ...string) {
		faults = append(faults, &ConflictError{Name: n, Fields: fields, Why: why})
	}
	isTeam := func(d Declaration) bool { return d.Team != nil }
	isKey := func(d Declaration) bool { return d.Key != nil }
	for _, round := range []func(Declaration) bool{isTeam, isKey} { // a key may stand before its team
		for i, d := range b.Declarations {
			if !round(d) {
				continue
			}
			n, mark := d.name(), d.fingerprint()
			if before, known := h.declared[n]; known {
				done.Unchanged++
				if before.Fingerprint != mark {
					fault(n, "was declared differently before: restore the declaration, or edit the row instead", differences(before.Fingerprint, mark)...)
				}
				continue
			}
			if d.Team != nil {
				if _, taken := h.teams[n.ID]; taken {
					fault(n, "is there already, and was never declared: take another id", "id")
					continue
				}
				team := d.Team.Apply(now)
				h.teams[n.ID] = team
				add.Teams = append(add.Teams, team)
			} else {
				team, found := h.teams[d.Key.TeamID]
				_, taken := h.keys[n.ID]
				_, used := h.secrets[d.Key.secretHash()]
				switch {
				case taken:
					fault(n, "is there already, and was never declared: take another id", "id")
				case used:
					fault(n, "is another key's: take another token", "token")
				case !found:
					fault(n, "there is no such team: declare it as well", "team_id")
				case team.DeletedAt != nil:
					fault(n, "the team was deleted: take another team", "team_id")
				}
				if taken || used || !found || team.DeletedAt != nil {
					continue
				}
				key, secret, err := d.Key.Apply(team, now)
				if err != nil {
					return Rows{}, Bootstrapped{}, within(fmt.Sprintf("declarations[%d]", i), err)
				}
				add.Keys, add.Secrets = append(add.Keys, key), append(add.Secrets, secret)
			}
			add.Declarations = append(add.Declarations, Declared{Name: n, Fingerprint: mark, CreatedAt: micro(now)})
			done.Created = append(done.Created, n)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return Rows{}, Bootstrapped{}, err
	}
	return add, done, nil
}
