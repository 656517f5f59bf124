package governance

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// shelf is a Store for tests from inside: it keeps everything encoded, checks that
// what it is told to write is well formed, and fails where a test wants it to.
type shelf struct {
	mu    sync.Mutex
	clock int64

	definitions map[string]keys.Definition
	windows     map[ConstraintID]quota.Window
	labels      map[ConstraintID]Label
	cells       map[AccountKey]shelved
	permits     map[PermitID]Record
	entries     map[AccountKey][][]PermitID
	batches     map[BatchID]bool
	notes       []Note
	events      []Event
	told        map[string]bool // ids of events
	checkpoints map[AccountKey][]byte
	trimmed     map[AccountKey]int64
	memory      Memory
	policies    *policy.Memory // nil: no policies
	steps       int            // transactions that came as far as the locks
	commits     int

	// Hooks; nil does nothing. They are called under the mutex.
	taken    func(ConstraintID) bool      // another transaction holds the row
	enter    func(*Plan) error            // before anything is read: an error ends the step
	commit   func(*Plan, *Changes) error  // before anything is written: an error means nothing was
	answer   func(*Plan, *Changes) error  // after everything was written: the answer of the commit
	sweeping func()                       // before anything is removed
	pause    func(context.Context, *Plan) // before the mutex: a transaction that takes its time
}

// shelved is a cell as it is stored.
type shelved struct {
	end     int64
	kind    Kind
	account quota.Account
	state   string
	entries int64
}

func newShelf(now int64) *shelf {
	return &shelf{
		clock: now, definitions: map[string]keys.Definition{}, windows: map[ConstraintID]quota.Window{}, labels: map[ConstraintID]Label{}, cells: map[AccountKey]shelved{},
		permits: map[PermitID]Record{}, entries: map[AccountKey][][]PermitID{}, batches: map[BatchID]bool{},
		checkpoints: map[AccountKey][]byte{}, trimmed: map[AccountKey]int64{}, told: map[string]bool{},
	}
}

// misuse is what the shelf panics with when the contract of Store is broken from above.
type misuse string

func require(ok bool, format string, args ...any) {
	if !ok {
		panic(misuse(fmt.Sprintf(format, args...)))
	}
}

func (s *shelf) Step(ctx context.Context, plan *Plan, decide func(*Loaded) *Changes) error {
	if s.pause != nil {
		s.pause(ctx, plan)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkPlan(plan)
	if s.enter != nil {
		if err := s.enter(plan); err != nil {
			return err
		}
	}
	free := make([]bool, len(plan.Constraints))
	for i, id := range plan.Constraints {
		free[i] = s.taken == nil || !s.taken(id)
		if !free[i] && !plan.SkipLocked {
			return ErrLockTimeout
		}
	}
	s.steps++
	ch := decide(s.load(plan, free))
	if ch.Empty() {
		return nil
	}
	s.checkChanges(plan, free, ch)
	if s.commit != nil {
		if err := s.commit(plan, ch); err != nil {
			return err
		}
	}
	if err := s.write(ch); err != nil {
		return err
	}
	s.commits++
	if s.answer != nil {
		return s.answer(plan, ch)
	}
	return nil
}

func (s *shelf) View(ctx context.Context, plan *Plan) (*Loaded, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkPlan(plan)
	return s.load(plan, make([]bool, len(plan.Constraints))), nil
}

func (s *shelf) checkPlan(plan *Plan) {
	byBytes := func(a, b ConstraintID) int { return bytes.Compare(a[:], b[:]) }
	require(slices.IsSortedFunc(plan.Constraints, byBytes), "constraints are not sorted")
	require(len(slices.Compact(slices.Clone(plan.Constraints))) == len(plan.Constraints), "constraints are repeated")
	require(slices.IsSorted(plan.Keys) && len(slices.Compact(slices.Clone(plan.Keys))) == len(plan.Keys), "keys are not a sorted set")
	require(slices.IsSortedFunc(plan.Accounts, AccountKey.Compare) && len(slices.Compact(slices.Clone(plan.Accounts))) == len(plan.Accounts), "accounts are not a sorted set")
	require(len(slices.Compact(slices.Clone(plan.Permits))) == len(plan.Permits), "permits are repeated")
	for _, a := range plan.Accounts {
		_, ok := slices.BinarySearchFunc(plan.Constraints, a.Constraint, byBytes)
		require(ok, "an account's constraint is not locked")
	}
}

func (s *shelf) load(plan *Plan, free []bool) *Loaded {
	l := &Loaded{Now: s.clock, Horizon: s.memory.Horizon, Current: make([]Current, len(plan.Constraints)), Accounts: make([]Cell, len(plan.Accounts))}
	for i, id := range plan.Constraints {
		w := s.windows[id]
		l.Current[i] = Current{Locked: free[i], Window: w, Cell: s.cell(AccountKey{id, w.Start})}
	}
	for i, key := range plan.Accounts {
		l.Accounts[i] = s.cell(key)
	}
	if plan.Policies {
		now, release := s.policies.Hold()
		l.Policies = now.Mark
		release()
	}
	for _, id := range plan.Keys {
		l.Definitions = append(l.Definitions, s.definitions[id])
	}
	for _, id := range plan.Permits {
		rec := s.permits[id]
		if plan.NoTerms {
			rec.Terms = nil
		}
		l.Permits = append(l.Permits, rec)
	}
	if q := plan.Entries; q != nil {
		s.readEntries(q, l)
	}
	if plan.Checkpoint != nil {
		l.Checkpoint = bytes.Clone(s.checkpoints[*plan.Checkpoint])
	}
	return l
}

func (s *shelf) readEntries(q *EntryQuery, l *Loaded) {
	l.EntriesRead = q.After
	for n := q.After; n >= s.trimmed[q.Account] && n < min(q.After+int64(q.Limit), int64(len(s.entries[q.Account]))); n++ {
		var list []Record
		for _, id := range s.entries[q.Account][n] {
			rec, ok := s.permits[id]
			if !ok {
				return
			}
			rec.Entry = n + 1
			list = append(list, rec)
		}
		l.Entries, l.EntriesRead = append(l.Entries, list...), n+1
	}
}

func (s *shelf) cell(key AccountKey) Cell {
	e, ok := s.cells[key]
	if !ok {
		return Cell{}
	}
	c := Cell{Key: key, End: e.end, Kind: e.kind, Account: e.account, Entries: e.entries}
	if err := c.UnmarshalState([]byte(e.state)); err != nil {
		panic(misuse(fmt.Sprintf("a stored state is refused: %v", err)))
	}
	return c
}

// shelve encodes a cell.
func shelve(c *Cell) shelved {
	state, err := c.AppendState(nil)
	require(err == nil, "a state cannot be encoded: %v", err)
	return shelved{c.End, c.Kind, c.Account, string(state), c.Entries}
}

// checkChanges holds decide to what the comments on Changes promise to adapters.
func (s *shelf) checkChanges(plan *Plan, free []bool, ch *Changes) {
	index := func(id ConstraintID) int { return slices.Index(plan.Constraints, id) }
	written := map[AccountKey]*Cell{}
	for i := range ch.Cells {
		c := &ch.Cells[i]
		n := index(c.Key.Constraint)
		require(n >= 0 && free[n], "cell %v was not locked", c.Key)
		require(written[c.Key] == nil, "cell %v is written twice", c.Key)
		require(c.Kind != 0 && c.End > c.Key.WindowStart, "cell %v has no kind or window: %+v", c.Key, c)
		written[c.Key] = c
	}
	for _, w := range ch.Windows {
		old := s.windows[w.Constraint]
		require(index(w.Constraint) >= 0 && w.Window.Start < w.Window.End, "window of %s: %+v", w.Constraint, w.Window)
		require(old == (quota.Window{}) || w.Window.Start >= old.End, "the window of %s goes from %+v to %+v", w.Constraint, old, w.Window)
		require(written[AccountKey{w.Constraint, w.Window.Start}] != nil, "a window without a cell")
		require(w.Label.Scope != 0 && w.Label.Kind != 0 && w.Label.Subject != "", "a row without a label")
	}
	if b := ch.Batch; b != nil {
		require(b.ID == plan.Batch && b.At == s.clock && len(b.Permits) > 0, "batch %+v", b)
		for i := range b.Permits {
			rec := &b.Permits[i]
			require(rec.TermsIndex < len(b.Terms) && rec.Batch == b.ID && rec.State == StateOpen && rec.Version == 1, "permit %+v", rec)
		}
		for _, e := range b.Entries {
			c := written[e.Account]
			require(c != nil && c.Entries == e.Number && e.Number == int64(len(s.entries[e.Account]))+1, "entry %+v, cell %+v", e, c)
		}
	}
	for i := range ch.Permits {
		require(slices.Contains(plan.Permits, ch.Permits[i].ID), "permit %s was not planned", ch.Permits[i].ID)
	}
}

func (s *shelf) write(ch *Changes) error {
	if b := ch.Batch; b != nil {
		if s.batches[b.ID] {
			return ErrRetry
		}
		ids := map[PermitID]bool{}
		for i := range b.Permits {
			id := b.Permits[i].ID
			require(!ids[id], "permit %s is made twice", id)
			ids[id] = true
			if s.permits[id].State != 0 {
				return ErrRetry
			}
		}
	}
	for i := range ch.Permits {
		if s.permits[ch.Permits[i].ID].Version+1 != ch.Permits[i].Version {
			return ErrRetry
		}
	}
	for _, w := range ch.Windows {
		s.windows[w.Constraint], s.labels[w.Constraint] = w.Window, w.Label
	}
	for i := range ch.Cells {
		s.cells[ch.Cells[i].Key] = shelve(&ch.Cells[i])
	}
	if b := ch.Batch; b != nil {
		s.batches[b.ID] = true
		var ids []PermitID
		for _, rec := range b.Permits {
			rec.Terms = bytes.Clone(b.Terms[rec.TermsIndex])
			s.permits[rec.ID] = recode(rec)
			ids = append(ids, rec.ID)
		}
		for _, e := range b.Entries {
			s.entries[e.Account] = append(s.entries[e.Account], ids)
		}
	}
	for _, rec := range ch.Permits {
		rec.Terms = s.permits[rec.ID].Terms
		s.permits[rec.ID] = recode(rec)
	}
	if c := ch.Checkpoint; c != nil {
		s.checkpoints[c.Account] = bytes.Clone(c.Data)
		if c.Trim != (Trim{}) {
			require(s.trimmed[c.Account] == c.Trim.After && c.Trim.Through > c.Trim.After && c.Trim.Through <= int64(len(s.entries[c.Account])), "trimmed %+v", c)
			s.trimmed[c.Account] = c.Trim.Through
		}
	}
	for _, n := range ch.Notes {
		n.Number = int64(len(s.notes)) + 1
		s.notes = append(s.notes, n)
	}
	for _, e := range ch.Events {
		require(!s.told[e.ID], "%s is told twice", e.ID)
		s.told[e.ID] = true
		s.events = append(s.events, e)
	}
	return nil
}

// recode stores what a database would: no shared memory, outcomes encoded.
func recode(rec Record) Record {
	rec.Segments = bytes.Clone(rec.Segments)
	for _, o := range [...]*Outcome{&rec.Outcome, &rec.Resolution} {
		var again Outcome
		if err := again.UnmarshalBinary(o.AppendBinary(nil)); err != nil || again != *o {
			panic(misuse(fmt.Sprintf("outcome %+v becomes %+v: %v", *o, again, err)))
		}
	}
	return rec
}

func (s *shelf) Permits(_ context.Context, q PermitQuery) ([]Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Record
	for id, rec := range s.permits {
		if bytes.Compare(id[:], q.After[:]) > 0 && q.Matches(&rec) {
			list = append(list, rec)
		}
	}
	slices.SortFunc(list, func(a, b Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return list[:min(len(list), q.Limit)], nil
}

func (s *shelf) Accounts(_ context.Context, q AccountQuery) ([]Cell, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Cell
	for key := range s.cells {
		if c := s.cell(key); q.Matches(&c) && key.Compare(q.After) > 0 {
			c.Label = s.labels[key.Constraint]
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b Cell) int { return a.Key.Compare(b.Key) })
	return list[:min(len(list), q.Limit)], nil
}

func (s *shelf) Notes(_ context.Context, q NoteQuery) ([]Note, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.notes[min(q.After, int64(len(s.notes))):]
	return slices.Clone(list[:min(len(list), q.Limit)]), nil
}

func (s *shelf) Forget(_ context.Context, before int64) (Memory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory.Horizon = max(s.memory.Horizon, before)
	return s.memory, nil
}

func (s *shelf) Prune(_ context.Context, judge Judge) (Swept, error) {
	if s.sweeping != nil {
		s.sweeping()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var done Swept
	for id, rec := range s.permits {
		if !id.older(s.memory.Horizon) {
			continue
		}
		of, ok := judge(&rec)
		if !ok {
			done.Kept++
			continue
		}
		for key, list := range s.entries {
			for n, ids := range list {
				require(!slices.Contains(ids, id) || int64(n) < s.trimmed[key], "permit %s is needed by entry %d of %v", id, n+1, key)
			}
		}
		delete(s.permits, id)
		done.Removed = done.Removed.Add(of)
	}
	s.memory.Total = s.memory.Total.Add(done.Removed)
	done.Total = s.memory.Total
	return done, nil
}

// copyOf is everything that is stored, for comparison.
func (s *shelf) copyOf() (map[ConstraintID]quota.Window, map[AccountKey]shelved, map[PermitID]Record) {
	return maps.Clone(s.windows), maps.Clone(s.cells), maps.Clone(s.permits)
}

// registry is the keys side of a shelf: it follows the edits that a test makes.
type registry struct {
	keys.Store // nil: what a test does not implement must not be called

	mu      sync.Mutex
	shelf   *shelf
	current map[string]keys.Principal
	loads   int
	load    func() // before a reload reads
}

func newRegistry(s *shelf) *registry {
	return &registry{shelf: s, current: map[string]keys.Principal{}}
}

// set puts a principal in force and returns it.
func (r *registry) set(p keys.Principal) *keys.Principal {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current[p.KeyID] = p
	r.shelf.mu.Lock()
	defer r.shelf.mu.Unlock()
	r.shelf.definitions[p.KeyID] = keys.DefinitionOf(p.Key, p.Team)
	return &p
}

func (r *registry) Reload(_ context.Context, p keys.Principal) (keys.Principal, error) {
	if r.load != nil {
		r.load()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loads++
	now, ok := r.current[p.KeyID]
	switch {
	case !ok:
		return keys.Principal{}, keys.ErrUnknown
	case now.Key.RevokedAt != nil:
		return keys.Principal{}, keys.ErrRevoked
	}
	return now, nil
}
