package governancesqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tallystick-go/tallystick/escrow/escrowsqlite"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyssqlite"
	"github.com/tallystick-go/tallystick/quota"
)

// load reads what a plan names. Nothing has to exist for that: a constraint that
// was never used has no row and needs none, since the writer's turn locks it.
func load(tx *sqlitetx.Tx, plan *governance.Plan, locked bool) (*governance.Loaded, *origins, error) {
	l, from := &governance.Loaded{Now: tx.Now}, &origins{}
	if err := tx.QueryRow(selectHorizon).Scan(&l.Horizon); errors.Is(err, sql.ErrNoRows) {
		return nil, nil, corrupt("governance_meta")
	} else if err != nil {
		return nil, nil, err
	}
	if plan.Node != "" {
		var err error
		if l.Node, err = escrowsqlite.Node(tx, plan.Node); err != nil {
			return nil, nil, err
		}
	}
	if plan.Journal != nil {
		var err error
		if l.Journal, err = journalsqlite.Load(tx, plan.Journal); err != nil {
			return nil, nil, journalError(err)
		}
	}
	if err := loadCurrent(tx, plan, l, locked); err != nil {
		return nil, nil, err
	}
	if err := loadPermits(tx, plan, l, from); err != nil {
		return nil, nil, err
	}
	for _, part := range [...]func(*sqlitetx.Tx, *governance.Plan, *governance.Loaded) error{loadAccounts, loadDefinitions, loadEntries, loadCheckpoint} {
		if err := part(tx, plan, l); err != nil {
			return nil, nil, err
		}
	}
	return l, from, nil
}

func loadCurrent(tx *sqlitetx.Tx, plan *governance.Plan, l *governance.Loaded, locked bool) error {
	n := len(plan.Constraints)
	if n == 0 {
		return nil
	}
	l.Current = make([]governance.Current, n)
	ids := make([]byte, 0, 16*n)
	for i := range plan.Constraints {
		ids = append(ids, plan.Constraints[i][:]...)
		l.Current[i].Locked = locked
		l.Current[i].Cell.Key.Constraint = plan.Constraints[i]
	}
	var row cellRow
	var i int64
	var window quota.Window
	return each(tx, selectCurrent, append([]any{&i, &window.Start, &window.End}, row.targets()...), func() error {
		c := &l.Current[i]
		c.Window = window
		if row.kind == 0 {
			return nil
		}
		c.Cell.Key.WindowStart = window.Start
		return row.into(&c.Cell)
	}, ids, n)
}

// loadAccounts takes what was loaded already from there: most settlements are of
// the current window.
func loadAccounts(tx *sqlitetx.Tx, plan *governance.Plan, l *governance.Loaded) error {
	if len(plan.Accounts) == 0 {
		return nil
	}
	l.Accounts = make([]governance.Cell, len(plan.Accounts))
	var row cellRow
	targets := row.targets()
	for i := range plan.Accounts {
		key := plan.Accounts[i]
		if c := current(plan, l, key); c != nil {
			l.Accounts[i] = governance.Cell{Key: c.Key, End: c.End, Kind: c.Kind, Account: c.Account, Bucket: c.Bucket.Clone(), Slots: c.Slots.Clone(), Entries: c.Entries, Latch: c.Latch}
			continue
		}
		l.Accounts[i].Key = key
		err := each(tx, selectCell, targets, func() error { return row.into(&l.Accounts[i]) }, key.Constraint[:], key.WindowStart)
		if err != nil {
			return err
		}
	}
	return nil
}

// current returns the loaded cell if it is that of the window.
func current(plan *governance.Plan, l *governance.Loaded, key governance.AccountKey) *governance.Cell {
	for i := range plan.Constraints {
		if plan.Constraints[i] == key.Constraint {
			if c := &l.Current[i].Cell; c.Kind != 0 && c.Key == key {
				return c
			}
			return nil
		}
	}
	return nil
}

func loadDefinitions(tx *sqlitetx.Tx, plan *governance.Plan, l *governance.Loaded) error {
	if len(plan.Keys) == 0 {
		return nil
	}
	found, err := keyssqlite.Definitions(tx, plan.Keys)
	if err != nil {
		return err
	}
	l.Definitions = make([]keys.Definition, len(plan.Keys))
	for i, id := range plan.Keys {
		l.Definitions[i] = found[id]
	}
	return nil
}

// Accounts implements governance.Store.
func (s *Store) Accounts(ctx context.Context, q governance.AccountQuery) ([]governance.Cell, error) {
	query := selectAccounts
	if q.Frozen {
		query = selectFrozen
	}
	var list []governance.Cell
	err := s.db.Read(ctx, func(tx *sqlitetx.Tx) error {
		var row cellRow
		var id, label sql.RawBytes
		var start int64
		return each(tx, query, append(append([]any{&id, &start}, row.targets()...), &label), func() (err error) {
			c := governance.Cell{Key: governance.AccountKey{WindowStart: start}}
			if copy(c.Key.Constraint[:], id) != len(id) {
				return corrupt("governance_cells")
			}
			if c.Label, err = governance.ParseLabel(label); err != nil {
				return fmt.Errorf("%w: %w", corrupt("governance_constraints"), err)
			}
			err = row.into(&c)
			list = append(list, c)
			return err
		}, q.After.Constraint[:], q.After.WindowStart, q.Limit)
	})
	if err != nil {
		return nil, coreError(err)
	}
	return list, nil
}

// Notes implements governance.Store.
func (s *Store) Notes(ctx context.Context, q governance.NoteQuery) ([]governance.Note, error) {
	var list []governance.Note
	err := s.db.Read(ctx, func(tx *sqlitetx.Tx) error {
		var n governance.Note
		var permit, constraint sql.RawBytes
		targets := []any{&n.Number, &n.At, &n.Actor, &n.Action, &permit, &constraint, &n.Account.WindowStart, &n.Reason, &n.Before, &n.After}
		return each(tx, selectNotes, targets, func() error {
			n.Permit, n.Account.Constraint = governance.PermitID{}, governance.ConstraintID{}
			copy(n.Permit[:], permit)
			copy(n.Account.Constraint[:], constraint)
			list = append(list, n)
			return nil
		}, q.After, q.Limit)
	})
	if err != nil {
		return nil, coreError(err)
	}
	return list, nil
}

// each scans every row of a query into the same targets.
func each(tx *sqlitetx.Tx, query string, targets []any, visit func() error, args ...any) error {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if err := visit(); err != nil {
			return err
		}
	}
	return rows.Err()
}
