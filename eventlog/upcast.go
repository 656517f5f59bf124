package eventlog

import "fmt"

// Upcast brings the data of one type from one schema to the next. It must not invent: what the old
// data does not say is absent in the new.
type Upcast struct {
	Type string
	From int
	Up   func(data []byte) ([]byte, error)
}

// Upcasters bring events to the newest schema that a program knows. The zero value changes nothing. Events of a
// later schema than it knows pass as they are: during a rollout a newer process appends them, and fields are only ever added.
type Upcasters struct {
	steps map[string]map[int]func([]byte) ([]byte, error)
}

// NewUpcasters refuses two steps from one schema, and a step that no event could reach.
//
// Errors: *FieldError.
func NewUpcasters(steps ...Upcast) (*Upcasters, error) {
	u := &Upcasters{steps: map[string]map[int]func([]byte) ([]byte, error){}}
	for _, s := range steps {
		if err := checkName("type", s.Type); err != nil {
			return nil, err
		}
		if s.Up == nil || s.From < 1 {
			return nil, refuse("upcast", "of "+s.Type+" needs a schema from 1 and a function")
		}
		if u.steps[s.Type] == nil {
			u.steps[s.Type] = map[int]func([]byte) ([]byte, error){}
		}
		if u.steps[s.Type][s.From] != nil {
			return nil, refuse("upcast", fmt.Sprintf("of %s from schema %d is there twice", s.Type, s.From))
		}
		u.steps[s.Type][s.From] = s.Up
	}
	for name, of := range u.steps {
		for from := 1; from <= len(of); from++ {
			if of[from] == nil {
				return nil, refuse("upcast", fmt.Sprintf("of %s from schema %d is missing", name, from))
			}
		}
	}
	return u, nil
}

// Apply brings one event up. The data that it was given is not changed.
//
// Errors: those of a step, wrapped with ErrPoison.
func (u *Upcasters) Apply(r Recorded) (Recorded, error) {
	if u == nil {
		return r, nil
	}
	for {
		up := u.steps[r.Type][r.Schema]
		if up == nil {
			return r, nil
		}
		data, err := up(append([]byte{}, r.Data...))
		if err != nil {
			return r, fmt.Errorf("%w: upcast of %s from schema %d: %w", ErrPoison, r.Type, r.Schema, err)
		}
		r.Data, r.Schema = data, r.Schema+1
	}
}
