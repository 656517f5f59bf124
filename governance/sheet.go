package governance

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// sheet is the working copy of one step: what was loaded, changed in memory by
// one request after another, and turned into Changes at the end.
type sheet struct {
	desk    *desk
	plan    *Plan
	loaded  *Loaded
	now     int64
	current []cell
	older   []cell
	made    []Record // permits admitted by this step
	terms   []*sharedTerms
	ended   []int // indexes of loaded permits that changed
	notes   []Note
	events  []Event
	node    *escrow.NodeRow
	till    *till // nil: not a node

	checkpoint *Checkpoint
}

// cell is a loaded Cell being worked on, in place.
type cell struct {
	*Cell
	window  quota.Window
	locked  bool
	entered bool // the window was compared with the clock
	moved   bool // the window is a new one
	dirty   bool
	entry   bool // this step reserved here
	limit   *Constraint
	latched policy.Percent // Latch as it was loaded: what is above it was reached by this step
}

// sharedTerms are terms that several permits have in common. They are never changed.
type sharedTerms struct {
	set         *constraintSet
	incarnation uint64
	free        bool
	terms       *terms
	encoded     []byte
}

// desk is what the sheet of a lone admission needs, in one piece of memory.
type desk struct {
	sheet   sheet
	current [8]cell
	made    [1]Record
	terms   [1]*sharedTerms
	encoded [1][]byte
	entries [4]Entry
	batch   Batch
	changes Changes
}

func newSheet(plan *Plan, loaded *Loaded) *sheet {
	d := &desk{}
	s := &d.sheet
	s.desk, s.plan, s.loaded, s.now = d, plan, loaded, loaded.Now
	s.made, s.terms, s.current = d.made[:0], d.terms[:0], d.current[:0]
	for i := range loaded.Current {
		c := &loaded.Current[i]
		s.current = append(s.current, cell{Cell: &c.Cell, window: c.Window, locked: c.Locked, latched: c.Cell.Latch})
	}
	if len(loaded.Accounts) > 0 {
		s.older = make([]cell, len(loaded.Accounts))
		for i := range loaded.Accounts {
			a := &loaded.Accounts[i]
			s.older[i] = cell{Cell: a, window: quota.Window{Start: a.Key.WindowStart, End: a.End}, latched: a.Latch}
		}
	}
	return s
}

// near is position with a guess where to look first.
func (s *sheet) near(id ConstraintID, guess int) (int, bool) {
	if guess < len(s.plan.Constraints) && s.plan.Constraints[guess] == id {
		return guess, true
	}
	return s.position(id)
}

// position finds a constraint in the plan.
func (s *sheet) position(id ConstraintID) (int, bool) {
	return slices.BinarySearchFunc(s.plan.Constraints, id, func(a, b ConstraintID) int { return bytes.Compare(a[:], b[:]) })
}

// enter returns the constraint's cell in the window that the clock is in. The
// next window starts where the last one ended; the calendar supplies ends only.
func (s *sheet) enter(i int, c *Constraint) (*cell, error) {
	w := &s.current[i]
	if w.entered {
		return w, nil
	}
	if w.Kind != 0 && w.Kind != c.Kind {
		return nil, fmt.Errorf("%w: constraint %s changed its kind", ErrCorrupt, c.ID)
	}
	window, err := c.windowAt(w.window, s.now)
	if err != nil {
		return nil, err
	}
	if window != w.window {
		s.leave(w)
		w.Cell, w.window, w.moved = new(Cell), window, true
		w.latched = 0
	}
	w.limit = c
	w.Key, w.End, w.Kind, w.entered = AccountKey{c.ID, window.Start}, window.End, c.Kind, true
	return w, nil
}

// leave keeps what this step has changed in a window that the clock is past: a
// settlement may have come before the admission that enters the next one.
func (s *sheet) leave(w *cell) {
	if !w.dirty {
		return
	}
	old := *w
	w.dirty = false
	for i := range s.older {
		if s.older[i].Key == old.Key {
			s.older[i] = old
			return
		}
	}
	s.older = append(s.older, old)
}

// windowAt returns the window that follows prev at the instant; prev is zero for
// a constraint that was never used.
func (c *Constraint) windowAt(prev quota.Window, now int64) (quota.Window, error) {
	if !c.Kind.isAccount() {
		return allTime, nil
	}
	if prev == (quota.Window{}) {
		return c.Calendar.Window(now)
	}
	return c.Calendar.Roll(prev, now)
}

// captured returns the cell of a window that a permit captured.
func (s *sheet) captured(h *hold) (*cell, error) {
	i, ok := s.position(h.constraint)
	if !ok {
		return nil, fmt.Errorf("%w: constraint %s is not in the plan", ErrCorrupt, h.constraint)
	}
	w := &s.current[i]
	if !w.locked {
		return nil, ErrUnavailable
	}
	if w.window.Start == h.window.Start {
		if w.Kind == 0 {
			return nil, fmt.Errorf("%w: constraint %s has no state", ErrCorrupt, h.constraint)
		}
		return w, nil
	}
	key := h.account()
	for i := range s.older {
		if s.older[i].Key == key && s.older[i].Kind != 0 {
			return &s.older[i], nil
		}
	}
	return nil, fmt.Errorf("%w: no account of constraint %s at %d", ErrCorrupt, key.Constraint, key.WindowStart)
}

// permit finds a loaded permit; -1 when there is none.
func (s *sheet) permit(id PermitID) int {
	i, ok := slices.BinarySearchFunc(s.plan.Permits, id, func(a, b PermitID) int { return bytes.Compare(a[:], b[:]) })
	if !ok || s.loaded.Permits[i].State == 0 {
		return -1
	}
	return i
}

// absent says why a permit with these terms was not loaded. Without its locks that
// proves nothing: the transaction that admits it may still be on its way.
func (s *sheet) absent(id PermitID, t *terms) error {
	for i := range t.holds {
		if j, ok := s.position(t.holds[i].constraint); !ok || !s.current[j].locked {
			return ErrUnavailable
		}
	}
	if id.older(s.loaded.Horizon) {
		return ErrPruned
	}
	return ErrNotFound
}

func (s *sheet) definition(keyID string) *keys.Definition {
	i, ok := slices.BinarySearch(s.plan.Keys, keyID)
	if !ok {
		return &keys.Definition{}
	}
	return &s.loaded.Definitions[i]
}

// finish turns the sheet into what is to be written.
func (s *sheet) finish() *Changes {
	ch := &s.desk.changes
	ch.Notes, ch.Checkpoint, ch.Node, ch.Journal = s.notes, s.checkpoint, s.node, s.till.changes()
	if n := s.dirty(); n > 0 {
		ch.Cells = make([]Cell, 0, n)
	}
	if len(s.made) > 0 {
		ch.Batch = &s.desk.batch
		*ch.Batch = Batch{ID: s.plan.Batch, At: s.now, Permits: s.made, Terms: s.desk.encoded[:0], Entries: s.desk.entries[:0]}
		for _, h := range s.terms {
			ch.Batch.Terms = append(ch.Batch.Terms, h.encoded)
		}
	}
	for i := range s.current {
		c := &s.current[i]
		if c.moved && c.dirty {
			ch.Windows = append(ch.Windows, WindowChange{c.Key.Constraint, c.window, c.limit.label()})
		}
		s.write(ch, c)
	}
	for i := range s.older {
		s.write(ch, &s.older[i])
	}
	if len(s.ended) > 0 {
		slices.Sort(s.ended)
		for _, i := range slices.Compact(s.ended) {
			rec := s.loaded.Permits[i]
			rec.Version++ // once, however often it changed in this step
			ch.Permits = append(ch.Permits, rec)
		}
	}
	s.noted()
	ch.Events = s.events
	return ch
}

// changed reports whether there is anything to be written by now.
func (s *sheet) changed() bool {
	return len(s.made)+len(s.ended)+len(s.notes) > 0 || s.checkpoint != nil || s.dirty() > 0
}

// dirty returns how many cells are to be written.
func (s *sheet) dirty() (n int) {
	for _, list := range [...][]cell{s.current, s.older} {
		for i := range list {
			if list[i].dirty {
				n++
			}
		}
	}
	return n
}

func (s *sheet) write(ch *Changes, c *cell) {
	if !c.dirty {
		return
	}
	if c.entry {
		c.Entries++
		ch.Batch.Entries = append(ch.Batch.Entries, Entry{c.Key, c.Entries})
	}
	if c.limit != nil && len(c.limit.thresholds) > 0 {
		c.Latch = c.tier(c.limit)
		s.crossed(c)
	}
	ch.Cells = append(ch.Cells, *c.Cell)
}
