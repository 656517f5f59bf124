package customstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// Options tune the adapter. Nil and zero fields are the defaults.
type Options struct {
	Now func() time.Time // default time.Now
}

// DB is one bbolt file: keys and counters in one place.
type DB struct {
	Keys     *Keys
	Policies *policy.Memory // of this process
	Store    *Store
}

var (
	_ governance.Backend = (*DB)(nil)
	_ governance.Store   = (*Store)(nil)
	_ keys.Store         = (*Keys)(nil)
)

// The buckets of the file.
var (
	teams    = []byte("teams")    // id -> JSON
	people   = []byte("keys")     // id -> JSON
	secrets  = []byte("secrets")  // hash -> JSON
	declared = []byte("declared") // kind and id -> JSON
	windows  = []byte("windows")  // constraint -> JSON
	cells    = []byte("cells")    // constraint, window start -> cell
	permits  = []byte("permits")  // id -> JSON
	batches  = []byte("batches")  // id -> ids of its permits
	entries  = []byte("entries")  // constraint, window start, number -> batch
	notes    = []byte("notes")    // number -> JSON

	checkpoints = []byte("checkpoints") // constraint, window start -> bytes
	meta        = []byte("meta")        // "memory" -> JSON
)

// Open makes the buckets in a file that the caller opened and owns.
func Open(file *bbolt.DB, o *Options) (*DB, error) {
	f := &store{file: file, now: time.Now}
	if o != nil && o.Now != nil {
		f.now = o.Now
	}
	err := file.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{teams, people, secrets, declared, windows, cells, permits, batches, entries, notes, checkpoints, meta} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: the file cannot be written", governance.ErrUnavailable)
	}
	policies := policy.NewMemory()
	return &DB{Keys: &Keys{f}, Policies: policies, Store: &Store{f, policies}}, nil
}

// Backend is what governance.New takes.
func (db *DB) Backend() governance.Stores {
	return governance.Stores{Keys: db.Keys, Policies: db.Policies, Store: db.Store, Profile: policy.Local}
}

type store struct {
	file *bbolt.DB
	now  func() time.Time
}

// Store keeps the counters.
type Store struct {
	*store
	policies *policy.Memory
}

// Step implements governance.Store.
func (s *Store) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	release := func() {}
	defer func() { release() }()
	err := s.file.Update(func(tx *bbolt.Tx) error {
		loaded, err := s.load(tx, plan)
		if err != nil {
			return err
		}
		if plan.Policies { // held until the transaction has ended: an edit waits for it
			var now policy.Snapshot
			now, release = s.policies.Hold()
			loaded.Policies = now.Mark
		}
		for i := range loaded.Current {
			loaded.Current[i].Locked = true
		}
		ch := decide(loaded)
		if ch.Empty() {
			return errNothing
		}
		return write(tx, ch)
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return translate(err)
}

// errNothing rolls a transaction back that has nothing to write.
var errNothing = errors.New("nothing to write")

// translate keeps the core's errors; any other is the file's, whose text stays here.
func translate(err error) error {
	if err == nil {
		return nil
	}
	for _, own := range []error{governance.ErrRetry, governance.ErrCorrupt, governance.ErrUnavailable} {
		if errors.Is(err, own) {
			return err
		}
	}
	return fmt.Errorf("%w: the file cannot be used", governance.ErrUnavailable)
}

// View implements governance.Store.
func (s *Store) View(ctx context.Context, plan *governance.Plan) (*governance.Loaded, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", governance.ErrUnavailable, err)
	}
	var loaded *governance.Loaded
	err := s.file.View(func(tx *bbolt.Tx) (err error) {
		loaded, err = s.load(tx, plan)
		return err
	})
	if err == nil && plan.Policies {
		now, release := s.policies.Hold()
		release()
		loaded.Policies = now.Mark
	}
	return loaded, translate(err)
}

func (s *store) load(tx *bbolt.Tx, plan *governance.Plan) (*governance.Loaded, error) {
	l := &governance.Loaded{
		Now:     s.now().UnixMicro(),
		Current: make([]governance.Current, len(plan.Constraints)), Accounts: make([]governance.Cell, len(plan.Accounts)),
		Definitions: make([]keys.Definition, len(plan.Keys)), Permits: make([]governance.Record, len(plan.Permits)),
	}
	for i, id := range plan.Constraints {
		c := &l.Current[i]
		var w storedWindow
		if err := read(tx, windows, id[:], &w); err != nil && !errors.Is(err, errAbsent) {
			return nil, err
		}
		c.Window = w.Window
		if err := readCell(tx, governance.AccountKey{Constraint: id, WindowStart: c.Window.Start}, &c.Cell); err != nil {
			return nil, err
		}
	}
	for i, key := range plan.Accounts {
		if err := readCell(tx, key, &l.Accounts[i]); err != nil {
			return nil, err
		}
	}
	for i, id := range plan.Keys {
		key, team, err := keyAndTeam(tx, id)
		switch {
		case errors.Is(err, keys.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			l.Definitions[i] = keys.DefinitionOf(key, team)
		}
	}
	for i, id := range plan.Permits {
		if err := read(tx, permits, id[:], &l.Permits[i]); err != nil && !errors.Is(err, errAbsent) {
			return nil, err
		}
	}
	m, err := readMemory(tx)
	if err != nil {
		return nil, err
	}
	l.Horizon = m.Horizon
	if key := plan.Checkpoint; key != nil {
		l.Checkpoint = bytes.Clone(tx.Bucket(checkpoints).Get(cellKey(*key)))
	}
	if plan.Entries != nil {
		return l, readEntries(tx, plan.Entries, l)
	}
	return l, nil
}

// readEntries ends before an entry that is missing, or of which something is gone.
func readEntries(tx *bbolt.Tx, q *governance.EntryQuery, l *governance.Loaded) error {
	for l.EntriesRead = q.After; l.EntriesRead-q.After < int64(q.Limit); l.EntriesRead++ {
		batch := tx.Bucket(entries).Get(entryKey(q.Account, l.EntriesRead+1))
		if batch == nil {
			return nil
		}
		ids := tx.Bucket(batches).Get(batch)
		if ids == nil {
			return nil
		}
		var entry []governance.Record
		for ; len(ids) > 0; ids = ids[16:] {
			var rec governance.Record
			if err := read(tx, permits, ids[:16], &rec); errors.Is(err, errAbsent) {
				return nil
			} else if err != nil {
				return err
			}
			rec.Entry = l.EntriesRead + 1
			entry = append(entry, rec)
		}
		l.Entries = append(l.Entries, entry...)
	}
	return nil
}

func write(tx *bbolt.Tx, ch *governance.Changes) error {
	for _, w := range ch.Windows {
		stored := storedWindow{Window: w.Window}
		if w.Label != (governance.Label{}) {
			stored.Label = &w.Label
		}
		if err := put(tx, windows, w.Constraint[:], stored); err != nil {
			return err
		}
	}
	for i := range ch.Cells {
		if err := writeCell(tx, &ch.Cells[i]); err != nil {
			return err
		}
	}
	if ch.Batch != nil {
		if err := writeBatch(tx, ch.Batch); err != nil {
			return err
		}
	}
	for i := range ch.Permits {
		var old governance.Record
		rec := ch.Permits[i]
		if err := read(tx, permits, rec.ID[:], &old); err != nil && !errors.Is(err, errAbsent) {
			return err
		}
		if old.Version+1 != rec.Version || old.State == 0 {
			return governance.ErrRetry
		}
		rec.Terms = old.Terms
		if err := put(tx, permits, rec.ID[:], rec); err != nil {
			return err
		}
	}
	if ch.Checkpoint != nil {
		if err := writeCheckpoint(tx, ch.Checkpoint); err != nil {
			return err
		}
	}
	for _, note := range ch.Notes {
		n, err := tx.Bucket(notes).NextSequence()
		if err != nil {
			return err
		}
		note.Number = int64(n)
		if err := put(tx, notes, binary.BigEndian.AppendUint64(nil, n), note); err != nil {
			return err
		}
	}
	return nil
}

func writeBatch(tx *bbolt.Tx, b *governance.Batch) error {
	if tx.Bucket(batches).Get(b.ID[:]) != nil {
		return governance.ErrRetry
	}
	var ids []byte
	for _, rec := range b.Permits {
		if tx.Bucket(permits).Get(rec.ID[:]) != nil {
			return governance.ErrRetry
		}
		rec.Terms = b.Terms[rec.TermsIndex]
		if err := put(tx, permits, rec.ID[:], rec); err != nil {
			return err
		}
		ids = append(ids, rec.ID[:]...)
	}
	if err := tx.Bucket(batches).Put(b.ID[:], ids); err != nil {
		return err
	}
	for _, e := range b.Entries {
		if err := tx.Bucket(entries).Put(entryKey(e.Account, e.Number), b.ID[:]); err != nil {
			return err
		}
	}
	return nil
}

// storedWindow is the window that a constraint is in, and what it counts.
type storedWindow struct {
	Window quota.Window
	Label  *governance.Label `json:",omitempty"`
}

// errAbsent: there is no such value.
var errAbsent = errors.New("absent")

func read(tx *bbolt.Tx, bucket, key []byte, into any) error {
	v := tx.Bucket(bucket).Get(key)
	if v == nil {
		return errAbsent
	}
	if err := json.Unmarshal(v, into); err != nil {
		return fmt.Errorf("%w: a value in %s cannot be read", governance.ErrCorrupt, bucket)
	}
	return nil
}

func put(tx *bbolt.Tx, bucket, key []byte, value any) error {
	v, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return tx.Bucket(bucket).Put(key, v)
}
