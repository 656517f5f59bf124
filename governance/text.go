package governance

import "fmt"

// UnmarshalText reads the kind's name. Errors: ErrInvalid.
func (k *Kind) UnmarshalText(text []byte) error {
	return fromText(k, text, KindRequestRate, KindConcurrency, "kind")
}

// UnmarshalText reads the scope's name. Errors: ErrInvalid.
func (s *Scope) UnmarshalText(text []byte) error {
	return fromText(s, text, ScopeKey, ScopeTeamUser, "scope")
}

// UnmarshalText reads the state's name. Errors: ErrInvalid.
func (s *State) UnmarshalText(text []byte) error {
	return fromText(s, text, StateOpen, StateResolved, "state")
}

// UnmarshalText reads the reason's name. Errors: ErrInvalid.
func (r *Reason) UnmarshalText(text []byte) error {
	return fromText(r, text, ReasonUnauthenticated, ReasonQueueFull, "reason")
}

// fromText finds the value between first and last that has the name.
func fromText[T interface {
	~uint8
	fmt.Stringer
}](into *T, text []byte, first, last T, what string) error {
	for v := first; v <= last; v++ {
		if v.String() == string(text) {
			*into = v
			return nil
		}
	}
	return invalid(what, "has no such name")
}
