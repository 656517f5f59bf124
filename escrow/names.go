package escrow

var (
	endingNames = [...]string{Open: "open", Closed: "closed", Burned: "burned"}
	denialNames = [...]string{NoRoom: "no_room", Spent: "spent", Unknown: "unknown", Frozen: "frozen", Over: "over"}
	fenceNames  = [...]string{Replaced: "replaced", Cloned: "cloned", Restored: "restored"}
)

func (e Ending) String() string       { return nameOf(endingNames[:], int(e)) }
func (r DenialReason) String() string { return nameOf(denialNames[:], int(r)) }
func (r FenceReason) String() string  { return nameOf(fenceNames[:], int(r)) }

// MarshalText writes the ending's name.
func (e Ending) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// MarshalText writes the reason's name.
func (r DenialReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MarshalText writes the reason's name.
func (r FenceReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a name. Errors: *Error.
func (e *Ending) UnmarshalText(text []byte) error {
	return named(endingNames[:], text, func(i int) { *e = Ending(i) })
}

// UnmarshalText reads a name. Errors: *Error.
func (r *DenialReason) UnmarshalText(text []byte) error {
	return named(denialNames[:], text, func(i int) { *r = DenialReason(i) })
}

// UnmarshalText reads a name. Errors: *Error.
func (r *FenceReason) UnmarshalText(text []byte) error {
	return named(fenceNames[:], text, func(i int) { *r = FenceReason(i) })
}

func nameOf(names []string, i int) string {
	if i < len(names) && names[i] != "" {
		return names[i]
	}
	return "none"
}

func named(names []string, text []byte, set func(int)) error {
	for i, name := range names {
		if name != "" && name == string(text) {
			set(i)
			return nil
		}
	}
	return refuse("", "must be one of the names that are known")
}
