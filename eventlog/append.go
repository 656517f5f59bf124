package eventlog

// Row is one event as a store inserts it: at the stream's version plus Offset.
type Row struct {
	Event
	Stream   string
	Producer Producer
	Append   int   // which of the appends it belongs to
	Base     int64 // the version that the stream must be at; -1: any
	Offset   int64 // from 1
}

// Plan lays out the rows of appends that go in together, in order. Appends to one stream follow
// one another, and an expectation counts what those before it bring.
//
// Errors: *FieldError; ErrDuplicate for one id twice; *ConflictError where two expectations cannot both hold.
//
// Source: ADR-020 "Appending".
func Plan(appends []Append) ([]Row, error) {
	type stream struct{ base, count int64 }
	streams := map[string]*stream{}
	ids := map[string]bool{}
	var rows []Row
	for i, a := range appends {
		if err := a.Validate(); err != nil {
			return nil, err
		}
		s := streams[a.Stream]
		if s == nil {
			s = &stream{base: -1}
			streams[a.Stream] = s
		}
		if version, exact := a.Expect.Version(); exact {
			switch {
			case s.base < 0 && version >= s.count:
				s.base = version - s.count
			case s.base < 0 || s.base+s.count != version:
				return nil, &ConflictError{Index: i, Expected: version, Actual: -1}
			}
		}
		for _, e := range a.Events {
			if ids[e.ID] {
				return nil, ErrDuplicate
			}
			ids[e.ID] = true
			s.count++
			rows = append(rows, Row{Event: e, Stream: a.Stream, Producer: a.Producer, Append: i, Offset: s.count})
		}
	}
	if len(rows) == 0 || len(rows) > MaxEvents {
		return nil, refuse("events", "must be 1 to 4096 in one transaction")
	}
	for i := range rows {
		rows[i].Base = streams[rows[i].Stream].base
	}
	return rows, nil
}

// Replay compares rows with what the log has under their ids. It returns the answers where all of
// them are there as they would have been appended, and nil where none is.
//
// Errors: ErrDuplicate where an id is there with other terms, or only some are there.
func Replay(rows []Row, appends int, found []Recorded) ([]Appended, error) {
	if len(found) == 0 {
		return nil, nil
	}
	have := map[string]Recorded{}
	for _, r := range found {
		have[r.ID] = r
	}
	out := make([]Appended, appends)
	for i, r := range rows {
		old, is := have[r.ID]
		if !is || old.Stream != r.Stream || old.Type != r.Type || old.Schema != r.Schema || string(old.Data) != string(r.Data) {
			return nil, ErrDuplicate
		}
		if i > 0 && rows[i-1].Append == r.Append && have[rows[i-1].ID].Version+1 != old.Version {
			return nil, ErrDuplicate
		}
		if r.Base >= 0 && old.Version != r.Base+r.Offset {
			return nil, ErrDuplicate
		}
		out[r.Append] = Appended{Version: old.Version, Position: old.Position, Replayed: true}
	}
	return out, nil
}

// Conflict names the append whose expectation a stream does not meet, given the streams'
// versions as they are. It returns nil where all of them are met.
func Conflict(appends []Append, versions map[string]int64) *ConflictError {
	count := map[string]int64{}
	for i, a := range appends {
		expected, exact := a.Expect.Version()
		if at := versions[a.Stream] + count[a.Stream]; exact && at != expected {
			return &ConflictError{Index: i, Expected: expected, Actual: at}
		}
		count[a.Stream] += int64(len(a.Events))
	}
	return nil
}
