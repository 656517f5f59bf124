package lease

import "sync"

// History remembers the highest generation that a process has seen of each name, and where the data came
// from, and refuses a store that shows less. It also says what an answer means: adapters run their
// statement and hand over what it showed.
//
// The zero History has seen nothing. Make one per process and database.
//
// Concurrency: safe for concurrent use.
//
// Source: ADR-020 "One logical PostgreSQL is assumed".
type History struct {
	mu     sync.Mutex
	origin string
	seen   map[string]Generation
}

// Mark is what was seen when a statement was sent. What it shows can be no less: answers overtake each
// other, statements do not.
type Mark struct {
	Origin     string
	Generation Generation
}

// Answer is what a conditional statement showed: the row as it is after it, and whether the condition held.
type Answer struct {
	Row  Row
	Done bool
}

// Mark must be taken before the statement is sent. Adapters make its Generation and Origin part of the condition of
// Acquire, so that data which went back is refused before it is changed.
func (h *History) Mark(name string) Mark {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Mark{h.origin, h.seen[name]}
}

// see judges a row against what was seen before its statement was sent, and remembers it.
func (h *History) see(name string, m Mark, r Row) error {
	if m.Origin != "" && r.Origin != m.Origin {
		return &HistoryError{Name: name, Seen: m.Generation, Shown: r.Generation, Origin: true}
	}
	if r.Generation < m.Generation {
		return &HistoryError{Name: name, Seen: m.Generation, Shown: r.Generation}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.origin == "" {
		h.origin = r.Origin
	}
	if h.seen == nil {
		h.seen = map[string]Generation{}
	}
	h.seen[name] = max(h.seen[name], r.Generation)
	return nil
}

// Acquired says what the answer to an Acquire means.
func (h *History) Acquired(c Claim, m Mark, a Answer) (Lease, error) {
	if err := h.see(c.Name, m, a.Row); err != nil {
		return Lease{}, err
	}
	if a.Done && a.Row.Generation <= m.Generation {
		return Lease{}, &HistoryError{Name: c.Name, Seen: m.Generation, Shown: a.Row.Generation}
	}
	if !a.Done {
		return Lease{}, &HeldError{Name: c.Name, Row: a.Row}
	}
	return a.Row.lease(), nil
}

// Renewed says what the answer to a Renew means.
func (h *History) Renewed(held Lease, m Mark, a Answer) (Lease, error) {
	// The lease was seen, if not by this History: then by whoever granted it.
	m.Generation = max(m.Generation, held.Generation)
	if err := h.see(held.Name, m, a.Row); err != nil {
		return Lease{}, err
	}
	if !a.Done {
		return Lease{}, &LostError{Held: held, Row: a.Row}
	}
	return a.Row.lease(), nil
}

// Released says what the answer to a Release means.
func (h *History) Released(held Lease, m Mark, a Answer) error {
	m.Generation = max(m.Generation, held.Generation)
	if err := h.see(held.Name, m, a.Row); err != nil {
		return err
	}
	already := a.Row.Holder == "" && (held.Generation == 0 || held.Generation == a.Row.Generation)
	if a.Done || already {
		return nil
	}
	return &LostError{Held: held, Row: a.Row}
}

// Looked says what the answer to a Look means.
func (h *History) Looked(m Mark, r Row) (Row, error) {
	if err := h.see(r.Name, m, r); err != nil {
		return Row{}, err
	}
	return r, nil
}
