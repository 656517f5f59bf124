package governancemem

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// Options tune the adapter. Nil and zero fields are the defaults.
type Options struct {
	// Now is the adapter's clock. Default time.Now.
	Now func() time.Time
	// Format is how tokens look. The zero value is the library's own.
	Format keys.Format
	// Events is given what each step tells, in order, under the mutex: it must be quick and call nothing of the
	// database. A log of
	// them leaves out ids that it has. Nil: nobody listens.
	Events func([]governance.Event)
}

// DB is a database in memory: keys and counters in one place.
type DB struct {
	Keys     *Keys
	Policies *policy.Memory
	Store    *Store
}

var (
	_ governance.Backend = (*DB)(nil)
	_ governance.Store   = (*Store)(nil)
	_ keys.Store         = (*Keys)(nil)
	_ escrow.NodeStore   = (*Store)(nil)
)

// New returns an empty database. Errors: keys.ErrInvalid for an unusable format.
func New(o *Options) (*DB, error) {
	var options Options
	if o != nil {
		options = *o
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if err := options.Format.Validate(); err != nil {
		return nil, err
	}
	d := &data{
		now: options.Now, format: options.Format, tell: options.Events,
		teams: map[string]keys.Team{}, keys: map[string]keys.Key{}, secrets: map[keys.Hash]keys.Secret{}, declared: map[keys.Name]keys.Declared{},
		windows: map[governance.ConstraintID]quota.Window{}, labels: map[governance.ConstraintID]governance.Label{}, cells: map[governance.AccountKey]governance.Cell{},
		permits: map[governance.PermitID]*governance.Record{}, entries: map[governance.AccountKey][][]governance.PermitID{},
		batches: map[governance.BatchID]int{}, checkpoints: map[governance.AccountKey][]byte{}, trimmed: map[governance.AccountKey]int64{},
		nodes: map[string]escrow.NodeRow{},
	}
	policies := policy.NewMemory()
	return &DB{Keys: &Keys{d}, Policies: policies, Store: &Store{d, policies}}, nil
}

// Backend is what governance.New takes.
func (db *DB) Backend() governance.Stores {
	return governance.Stores{Keys: db.Keys, Policies: db.Policies, Store: db.Store, Nodes: db.Store, Profile: policy.Local}
}

// data is everything, under one mutex: the serial writer is the edit barrier.
type data struct {
	mu     sync.Mutex
	now    func() time.Time
	format keys.Format
	tell   func([]governance.Event)

	teams    map[string]keys.Team
	keys     map[string]keys.Key
	secrets  map[keys.Hash]keys.Secret
	declared map[keys.Name]keys.Declared

	windows map[governance.ConstraintID]quota.Window
	labels  map[governance.ConstraintID]governance.Label
	cells   map[governance.AccountKey]governance.Cell
	permits map[governance.PermitID]*governance.Record
	entries map[governance.AccountKey][][]governance.PermitID // by entry number, from the first that was not trimmed
	batches map[governance.BatchID]int                        // how many of its permits are there
	notes   []governance.Note

	checkpoints map[governance.AccountKey][]byte
	trimmed     map[governance.AccountKey]int64
	memory      governance.Memory
	nodes       map[string]escrow.NodeRow
}

// Store keeps the counters.
type Store struct {
	d        *data
	policies *policy.Memory
}

// Step implements governance.Store.
func (s *Store) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	loaded := s.d.load(plan, true)
	if plan.Policies {
		now, release := s.policies.Hold()
		defer release()
		loaded.Policies = now.Mark
	}
	ch := decide(loaded)
	if ch.Empty() {
		return nil
	}
	return s.d.apply(ch)
}

// View implements governance.Store.
func (s *Store) View(ctx context.Context, plan *governance.Plan) (*governance.Loaded, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	loaded := s.d.load(plan, false)
	if plan.Policies {
		now, release := s.policies.Hold()
		release()
		loaded.Policies = now.Mark
	}
	return loaded, nil
}

func (d *data) load(plan *governance.Plan, locked bool) *governance.Loaded {
	l := &governance.Loaded{Now: d.now().UnixMicro(), Horizon: d.memory.Horizon}
	l.Current = make([]governance.Current, len(plan.Constraints))
	for i, id := range plan.Constraints {
		window := d.windows[id]
		l.Current[i] = governance.Current{Locked: locked, Window: window}
		l.Current[i].Cell = d.cell(governance.AccountKey{Constraint: id, WindowStart: window.Start})
	}
	if len(plan.Accounts) > 0 {
		l.Accounts = make([]governance.Cell, len(plan.Accounts))
		for i, key := range plan.Accounts {
			l.Accounts[i] = d.cell(key)
		}
	}
	l.Definitions = make([]keys.Definition, len(plan.Keys))
	for i, id := range plan.Keys {
		if key, ok := d.keys[id]; ok {
			l.Definitions[i] = keys.DefinitionOf(key, d.teams[key.TeamID])
		}
	}
	if len(plan.Permits) > 0 {
		l.Permits = make([]governance.Record, len(plan.Permits))
		for i, id := range plan.Permits {
			if rec := d.permits[id]; rec != nil {
				l.Permits[i] = *rec
			}
		}
	}
	if plan.Entries != nil {
		d.loadEntries(plan.Entries, l)
	}
	if plan.Checkpoint != nil {
		l.Checkpoint = bytes.Clone(d.checkpoints[*plan.Checkpoint])
	}
	if plan.Node != "" {
		l.Node = d.nodes[plan.Node]
		l.Node.Name, l.Node.Data = plan.Node, bytes.Clone(l.Node.Data)
	}
	return l
}

func (d *data) loadEntries(q *governance.EntryQuery, l *governance.Loaded) {
	l.EntriesRead = q.After
	first := q.After - d.trimmed[q.Account]
	if first < 0 {
		return // the next one is gone
	}
	list := d.entries[q.Account]
	for n := first; n < min(first+int64(q.Limit), int64(len(list))); n++ {
		entry := make([]governance.Record, 0, len(list[n]))
		for _, id := range list[n] {
			rec := d.permits[id]
			if rec == nil {
				return
			}
			entry = append(entry, *rec)
			entry[len(entry)-1].Entry = l.EntriesRead + 1
		}
		l.Entries = append(l.Entries, entry...)
		l.EntriesRead++
	}
}

// cell returns a copy that decide may change.
func (d *data) cell(key governance.AccountKey) governance.Cell {
	c := d.cells[key]
	c.Bucket = c.Bucket.Clone()
	c.Slots = c.Slots.Clone()
	return c
}

// apply writes all or nothing: what can fail is checked first.
func (d *data) apply(ch *governance.Changes) error {
	if b := ch.Batch; b != nil {
		if _, used := d.batches[b.ID]; used {
			return governance.ErrRetry
		}
		for i := range b.Permits {
			if d.permits[b.Permits[i].ID] != nil {
				return governance.ErrRetry
			}
		}
		if twice(b.Permits) {
			return governance.ErrRetry
		}
	}
	for i := range ch.Permits {
		if old := d.permits[ch.Permits[i].ID]; old == nil || old.Version+1 != ch.Permits[i].Version {
			return governance.ErrRetry
		}
	}
	for _, w := range ch.Windows {
		d.windows[w.Constraint], d.labels[w.Constraint] = w.Window, w.Label
	}
	for _, c := range ch.Cells {
		d.cells[c.Key] = c
	}
	if b := ch.Batch; b != nil {
		d.batches[b.ID] = len(b.Permits)
		ids := make([]governance.PermitID, len(b.Permits))
		for i := range b.Permits {
			rec := b.Permits[i]
			rec.Terms = b.Terms[rec.TermsIndex]
			d.permits[rec.ID] = &rec
			ids[i] = rec.ID
		}
		for _, e := range b.Entries {
			d.entries[e.Account] = append(d.entries[e.Account], ids)
		}
	}
	for i := range ch.Permits {
		rec := ch.Permits[i]
		d.permits[rec.ID] = &rec
	}
	if c := ch.Checkpoint; c != nil {
		d.checkpoints[c.Account] = bytes.Clone(c.Data)
		d.trim(c.Account, c.Trim)
	}
	if n := ch.Node; n != nil {
		d.nodes[n.Name] = escrow.NodeRow{Name: n.Name, Data: bytes.Clone(n.Data), HeardAt: n.HeardAt}
	}
	for _, note := range ch.Notes {
		note.Number = int64(len(d.notes)) + 1
		d.notes = append(d.notes, note)
	}
	if len(ch.Events) > 0 && d.tell != nil {
		d.tell(ch.Events)
	}
	return nil
}

// twice reports whether an id occurs more than once.
func twice(list []governance.Record) bool {
	if len(list) < 2 {
		return false
	}
	seen := make(map[governance.PermitID]struct{}, len(list))
	for i := range list {
		seen[list[i].ID] = struct{}{}
	}
	return len(seen) < len(list)
}

// Permits implements governance.Store.
func (s *Store) Permits(ctx context.Context, q governance.PermitQuery) ([]governance.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	var list []governance.Record
	for id, rec := range s.d.permits {
		if bytes.Compare(id[:], q.After[:]) > 0 && q.Matches(rec) {
			list = append(list, *rec)
		}
	}
	slices.SortFunc(list, func(a, b governance.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return list[:min(len(list), q.Limit)], nil
}

// Accounts implements governance.Store.
func (s *Store) Accounts(ctx context.Context, q governance.AccountQuery) ([]governance.Cell, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	var list []governance.Cell
	for key, c := range s.d.cells {
		if q.Matches(&c) && key.Compare(q.After) > 0 {
			c.Label = s.d.labels[key.Constraint]
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b governance.Cell) int { return a.Key.Compare(b.Key) })
	return list[:min(len(list), q.Limit)], nil
}

// Nodes implements escrow.NodeStore.
func (s *Store) Nodes(ctx context.Context, q escrow.NodeQuery) ([]escrow.NodeRow, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", escrow.ErrUnavailable, err)
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	var list []escrow.NodeRow
	for name, n := range s.d.nodes {
		if name > q.After {
			n.Data = bytes.Clone(n.Data)
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b escrow.NodeRow) int { return strings.Compare(a.Name, b.Name) })
	return list[:min(len(list), q.Limit)], nil
}

// Notes implements governance.Store.
func (s *Store) Notes(ctx context.Context, q governance.NoteQuery) ([]governance.Note, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	rest := s.d.notes[min(max(q.After, 0), int64(len(s.d.notes))):]
	return slices.Clone(rest[:min(len(rest), q.Limit)]), nil
}
