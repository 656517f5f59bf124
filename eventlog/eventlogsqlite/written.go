package eventlogsqlite

import (
	"database/sql"
	"runtime"
	"sync"
	"weak"
)

// written remembers the callers' transactions that a store has appended or saved in, for as long as they are there. SQLite itself
// does not tell whether a transaction has written.
type written struct {
	mu sync.Mutex
	by map[weak.Pointer[sql.Tx]]struct{}
}

func (w *written) note(tx *sql.Tx) {
	p := weak.Make(tx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.by[p]; known {
		return
	}
	if w.by == nil {
		w.by = map[weak.Pointer[sql.Tx]]struct{}{}
	}
	w.by[p] = struct{}{}
	runtime.AddCleanup(tx, w.forget, p)
}

func (w *written) forget(p weak.Pointer[sql.Tx]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.by, p)
}

func (w *written) has(tx *sql.Tx) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.by[weak.Make(tx)]
	return is
}
