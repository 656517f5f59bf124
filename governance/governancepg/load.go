package governancepg

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/escrow/escrowpg"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/policy/policypg"
	"github.com/tallystick-go/tallystick/quota"
)

// load is the reading half of one step.
type load struct {
	s      *Store
	plan   *governance.Plan
	loaded *governance.Loaded
	rows   map[governance.AccountKey]version // of the cells that were loaded
	found  int                               // pointer rows
	now    int64                             // the database's clock; zero until it was read
	mark   []byte
	batch  map[governance.BatchID]*batchRow
	listed []governance.BatchID             // batches of the entries that the plan asked for
	kept   map[governance.PermitID]struct{} // loaded permits that were moved out of the ring
}

// version identifies a cell's row.
type version struct {
	epoch   int64
	updates int32
}

// batchRow is what a batch row says.
type batchRow struct {
	terms   [][]byte
	permits []governance.PermitID
}

func (s *Store) loading(plan *governance.Plan) *load {
	return &load{
		s: s, plan: plan, rows: make(map[governance.AccountKey]version, len(plan.Constraints)),
		loaded: &governance.Loaded{Current: make([]governance.Current, len(plan.Constraints))},
	}
}

// queue adds the statements of the first round trip.
func (l *load) queue(b *pgx.Batch, lock bool) {
	q := l.s.q
	if name := l.plan.Node; name != "" {
		l.loaded.Node.Name = name
		escrowpg.QueueNode(b, l.s.schema.Name(), name, lock, func(n escrow.NodeRow) { l.loaded.Node = n })
	}
	ids := uuids(l.plan.Constraints)
	if len(ids) > 0 {
		sql := q.lock
		switch {
		case !lock:
			sql = q.pointers
		case l.plan.SkipLocked:
			sql = q.lockFree
		}
		b.Queue(sql, ids).Query(func(rows pgx.Rows) error { return l.pointers(rows, lock) })
	}
	if len(ids) > 0 {
		sql := q.current
		if l.plan.Policies {
			sql = q.currentMark
		}
		b.Queue(sql, ids).Query(l.current)
	} else {
		l.queueClock(b)
	}
	if len(l.plan.Accounts) > 0 {
		l.loaded.Accounts = make([]governance.Cell, len(l.plan.Accounts))
		ids, starts := accountArrays(l.plan.Accounts)
		b.Queue(q.accounts, ids, starts).Query(l.cells)
	}
	if len(l.plan.Keys) > 0 {
		l.definitions(b)
	}
	if len(l.plan.Permits) > 0 {
		l.loaded.Permits = make([]governance.Record, len(l.plan.Permits))
		for slot, ids := range bySlot(l.plan.Permits) {
			b.Queue(q.permits[slot], ids).Query(func(rows pgx.Rows) error {
				return scanPermits(rows, func(rec governance.Record) {
					if i, ok := searchPermit(l.plan.Permits, rec.ID); ok {
						l.loaded.Permits[i] = rec
					}
				})
			})
		}
	}
	if e := l.plan.Entries; e != nil {
		l.loaded.EntriesRead = e.After
		b.Queue(q.entries, pgUUID(e.Account.Constraint), e.Account.WindowStart, e.After, int64(e.Limit)).Query(l.entries)
	}
	if key := l.plan.Checkpoint; key != nil {
		b.Queue(q.checkpoint, pgUUID(key.Constraint), key.WindowStart).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&l.loaded.Checkpoint); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
}

// pointers reads the locked rows. Both lists are sorted.
func (l *load) pointers(rows pgx.Rows, lock bool) error {
	i := 0
	for rows.Next() {
		var id pgtype.UUID
		var w quota.Window
		if err := rows.Scan(&id, &w.Start, &w.End); err != nil {
			return err
		}
		for i < len(l.plan.Constraints) && l.plan.Constraints[i] != governance.ConstraintID(id.Bytes) {
			i++
		}
		if i == len(l.plan.Constraints) {
			return fmt.Errorf("%w: rows came in another order", governance.ErrCorrupt)
		}
		l.loaded.Current[i].Locked, l.loaded.Current[i].Window = lock, w
		l.found++
	}
	return rows.Err()
}

func (l *load) missing() bool { return l.found < len(l.plan.Constraints) }

// queueClock is for a step that reads no state.
func (l *load) queueClock(b *pgx.Batch) {
	sql := l.s.q.clock
	if l.plan.Policies {
		sql = l.s.q.clockMark
	}
	b.Queue(sql).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(l.clockTargets()...); err != nil {
			return err
		}
		return l.tell()
	})
}

// clockTargets are where clockColumns go, and the mark if the plan wants it.
func (l *load) clockTargets() []any {
	targets := append(make([]any, 0, 3), &l.now, &l.loaded.Horizon)
	if l.plan.Policies {
		targets = append(targets, &l.mark)
	}
	return targets
}

// tell takes what was read into clockTargets.
func (l *load) tell() (err error) {
	l.loaded.Now = l.s.clock(time.UnixMicro(l.now)).UnixMicro()
	if l.plan.Policies {
		if l.loaded.Policies, err = policypg.ParseMark(l.mark); err != nil {
			return fmt.Errorf("%w: %w", governance.ErrCorrupt, err)
		}
	}
	return nil
}

// current reads the states of the current windows, and the clock with them.
func (l *load) current(rows pgx.Rows) error {
	clock := l.clockTargets()
	for rows.Next() {
		c, v, err := scanCell(rows, clock...)
		if err != nil {
			return err
		}
		l.place(c, v)
		clock = nothing[:len(clock)] // it is the same in every row
	}
	if err := rows.Err(); err != nil || l.now == 0 {
		return err
	}
	return l.tell()
}

var nothing [3]any

// cells reads the states of other windows.
func (l *load) cells(rows pgx.Rows) error {
	for rows.Next() {
		c, v, err := scanCell(rows)
		if err != nil {
			return err
		}
		l.place(c, v)
	}
	return rows.Err()
}

// place puts a state where the plan wants it.
func (l *load) place(c governance.Cell, v version) {
	l.rows[c.Key] = v
	if i, ok := searchConstraint(l.plan.Constraints, c.Key.Constraint); ok && l.loaded.Current[i].Window.Start == c.Key.WindowStart {
		l.loaded.Current[i].Cell = c
	}
	if i, ok := searchAccount(l.plan.Accounts, c.Key); ok {
		l.loaded.Accounts[i] = c
	}
}

// scanCell reads cellColumns, and more columns into more.
func scanCell(rows pgx.Rows, more ...any) (c governance.Cell, v version, err error) {
	var id pgtype.UUID
	var kind int16
	var state []byte
	a := &c.Account
	targets := [...]any{&id, &c.Key.WindowStart, &v.epoch, &v.updates, &c.End, &kind, &a.Consumed, &a.Uncertain, &a.Reserved,
		&a.Granted, &a.Observed, &a.Frozen, &c.Entries, &state}
	if err = rows.Scan(append(targets[:], more...)...); err != nil {
		return c, v, err
	}
	c.Key.Constraint, c.Kind = id.Bytes, governance.Kind(kind)
	return c, v, c.UnmarshalState(state)
}

// attachTerms gives each record the terms that it captured.
func attachTerms(list []governance.Record, batches map[governance.BatchID]*batchRow) error {
	for i := range list {
		rec := &list[i]
		if rec.State == 0 {
			continue
		}
		row := batches[rec.Batch]
		if row == nil || rec.TermsIndex >= len(row.terms) {
			return fmt.Errorf("%w: permit %s has no terms", governance.ErrCorrupt, rec.ID)
		}
		rec.Terms = row.terms[rec.TermsIndex]
	}
	return nil
}

func scanPermits(rows pgx.Rows, each func(governance.Record)) error {
	for rows.Next() {
		var rec governance.Record
		var id, batch, owner, fingerprint pgtype.UUID
		var ended *int64
		var terms, state, flags int16
		var outcome, resolution []byte
		if err := rows.Scan(&id, &batch, &terms, &owner, &fingerprint, &rec.At, &ended, &state, &flags, &rec.Version, &rec.Tokens, &rec.Cost,
			&rec.Segments, &outcome, &resolution); err != nil {
			return err
		}
		rec.ID, rec.Batch, rec.Owner, rec.Fingerprint = id.Bytes, batch.Bytes, owner.Bytes, fingerprint.Bytes
		rec.TermsIndex, rec.State, rec.Flags = int(terms), governance.State(state), governance.Flags(flags)
		if ended != nil {
			rec.EndedAt = *ended
		}
		if err := errorsOf(rec.Outcome.UnmarshalBinary(outcome), rec.Resolution.UnmarshalBinary(resolution)); err != nil {
			return err
		}
		each(rec)
	}
	return rows.Err()
}
