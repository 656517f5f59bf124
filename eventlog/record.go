package eventlog

// Rows makes appends ready for a recorder, which inserts them in a transaction that holds the locks by which their streams are in order: it
// writes this process's identity on them, mints ids that are missing and lays them out, without I/O. Expect must be Any. Call
// Stamp, with nothing, before the transaction begins; an event whose process was not registered by then could be left behind by
// a crash without anybody knowing.
//
// Errors: *FieldError; ErrDuplicate for one id twice.
//
// Source: ADR-020 "Appending".
func (l *Log) Rows(appends ...Append) ([]Row, error) {
	for _, a := range appends {
		if a.Expect != Any {
			return nil, refuse("expect", "must be Any: the caller's lock decides the order")
		}
	}
	signed, err := l.sign(appends)
	if err != nil {
		return nil, err
	}
	return Plan(signed)
}

func (l *Log) sign(appends []Append) ([]Append, error) {
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
