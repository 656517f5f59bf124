package eventlog

// Sign writes this process's identity on appends and mints ids that are missing, as Stamp does, but without I/O: it is for
// who has a transaction open already. Call Stamp, with nothing, before that begins; an event whose process was not
// registered by then could be left behind by a crash without anybody knowing.
//
// Errors: *FieldError.
//
// Source: ADR-020 "Appending".
func (l *Log) Sign(appends ...Append) ([]Append, error) {
	out := make([]Append, len(appends))
	for i, a := range appends {
		a.Producer = l.producer
		out[i] = a.clone()
		if err := out[i].Validate(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Of reports whether l appends to s.
func (l *Log) Of(s Store) bool { return l.store == s }
