package eventlog

import "sync"

// Witness is a process's memory of the furthest that it has seen of a log. A store asks it
// around every read. It is safe for concurrent use; the zero Witness has seen nothing.
//
// A history can also go back unseen: where as much was appended since as was lost, on the same timeline of the same
// cluster, as after an old copy of the disk. Nothing inside the database tells that.
type Witness struct {
	mu     sync.Mutex
	origin Origin
	head   int64
	went   *ResyncError
}

// Mark is what was seen before a read began. Reads overlap: one that began earlier rightly shows less.
type Mark struct {
	origin Origin
	head   int64
}

// Mark must be taken before the snapshot of the view that See is asked about.
func (w *Witness) Mark() Mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Mark{w.origin, w.head}
}

// See remembers the view, or refuses it where it shows less than was seen before the mark. What was refused
// stays refused until Accept, also when the log has grown past it again.
//
// Errors: *ResyncError that is ErrHistoryRegressed.
//
// Source: ADR-020 "History that goes back".
func (w *Witness) See(m Mark, v View) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.went == nil && v.Head < m.head && v.Origin.System == m.origin.System && v.Origin.Log == m.origin.Log {
		w.went = &ResyncError{Reason: Regressed, Through: m.head, Head: v.Head}
	}
	if w.went != nil {
		return &ResyncError{Reason: Regressed, Through: w.went.Through, Head: v.Head}
	}
	if v.Origin != w.origin || v.Head > w.head {
		w.origin, w.head = v.Origin, v.Head
	}
	return nil
}

// Regressed is what was lost, or nil.
func (w *Witness) Regressed() *ResyncError {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.went
}

// Accept forgets what was seen: the history as it is now is the one to go on with.
func (w *Witness) Accept() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.head, w.origin, w.went = 0, Origin{}, nil
}
