package journalsqlite

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/quota"
)

// Load reads what a plan names in the caller's transaction: a journal may share its
// file, and its transactions, with what else a node decides.
//
// Errors: journal.ErrCorrupt, and the transaction's own.
func Load(tx *sqlitetx.Tx, plan *journal.Plan) (*journal.Loaded, error) {
	l := &journal.Loaded{}
	if err := loadMeta(tx, &l.Meta); err != nil {
		return nil, err
	}
	if err := loadRecords(tx, plan, l); err != nil {
		return nil, err
	}
	return l, loadGrants(tx, plan, l)
}

func loadMeta(tx *sqlitetx.Tx, m *journal.Meta) error {
	var boot, namespace, poison []byte
	err := tx.QueryRow(selectMeta).Scan(&boot, &m.Number, &m.Node, &namespace, &m.Ended, &m.Acked, &m.Forgotten, &poison, &m.Poison.Used, &m.Poison.Bound)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if copy(m.Boot[:], boot) != 16 || copy(m.Namespace[:], namespace) != 16 || (poison != nil && copy(m.Poison.Reservation[:], poison) != 16) {
		return corrupt("journal_meta")
	}
	return nil
}

func loadRecords(tx *sqlitetx.Tx, plan *journal.Plan, l *journal.Loaded) error {
	if n := len(plan.Reservations); n > 0 {
		ids := make([]byte, 0, 16*n)
		for i := range plan.Reservations {
			ids = append(ids, plan.Reservations[i][:]...)
		}
		if err := scanRecords(tx, l, nil, selectRecords, ids, n); err != nil {
			return err
		}
	}
	if !plan.OnTheirWay {
		return nil
	}
	known := make(map[journal.ID]bool, len(l.Records))
	for i := range l.Records {
		known[l.Records[i].ID] = true
	}
	return scanRecords(tx, l, known, selectOnTheirWay)
}

func scanRecords(tx *sqlitetx.Tx, l *journal.Loaded, known map[journal.ID]bool, query string, args ...any) error {
	var id, fingerprint, portions sql.RawBytes
	var state int64
	var r journal.Record
	targets := []any{&id, &fingerprint, &portions, &state, (*int64)(&r.Cost), &r.Number}
	return each(tx, query, targets, func() (err error) {
		if len(id) != 16 || len(fingerprint) != 16 || state < 1 || state > int64(journal.Burned) {
			return corrupt("journal_reservations")
		}
		copy(r.ID[:], id)
		copy(r.Fingerprint[:], fingerprint)
		r.State = journal.State(state)
		if r.Portions, err = journal.ParsePortions(portions); err != nil {
			return err
		}
		if !known[r.ID] {
			l.Records = append(l.Records, r)
		}
		return nil
	}, args...)
}

func loadGrants(tx *sqlitetx.Tx, plan *journal.Plan, l *journal.Loaded) error {
	if plan.Everything {
		return scanGrants(tx, l, nil, selectGrants)
	}
	known := map[escrow.GrantID]bool{}
	if n := len(plan.Accounts); n > 0 {
		keys := make([]byte, 0, 16*n)
		for i := range plan.Accounts {
			key := journal.AccountKey(plan.Accounts[i])
			keys = append(keys, key[:]...)
		}
		if err := scanGrants(tx, l, nil, selectOpen, keys, n); err != nil {
			return err
		}
		for i := range l.Grants {
			known[l.Grants[i].ID] = true
		}
	}
	var ids []byte
	for i := range l.Records {
		for _, p := range l.Records[i].Portions {
			if !known[p.Grant] {
				known[p.Grant] = true
				ids = append(ids, p.Grant[:]...)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return scanGrants(tx, l, nil, selectGrantsOf, ids, len(ids)/16)
}

func scanGrants(tx *sqlitetx.Tx, l *journal.Loaded, known map[escrow.GrantID]bool, query string, args ...any) error {
	var g journal.Grant
	var id sql.RawBytes
	var period, ending int64
	a := &g.Account
	targets := []any{
		&id, &a.Policy, &a.Rule, &a.Subject.Team, &a.Subject.User, &period, &a.Window.Start, &a.Window.End, &g.Boot, &g.Meter, &g.Asked,
		(*int64)(&g.Amount), (*int64)(&g.Reserved), (*int64)(&g.Consumed), (*int64)(&g.Uncertain), (*int64)(&g.Observed), &ending, &g.Version, &g.Acked,
	}
	return each(tx, query, targets, func() error {
		if len(id) != 16 || period < 0 || period > 255 || ending < 0 || ending > int64(escrow.Burned) {
			return corrupt("journal_grants")
		}
		copy(g.ID[:], id)
		a.Period, g.Ending = quota.Period(period), escrow.Ending(ending)
		if !known[g.ID] {
			l.Grants = append(l.Grants, g)
		}
		return nil
	}, args...)
}

// Write puts the changes of a journal into the caller's transaction.
//
// Errors: those of the transaction.
func Write(tx *sqlitetx.Tx, ch *journal.Changes) error {
	if m := ch.Meta; m != nil {
		var poison any
		if m.Poison != (journal.Poison{}) {
			poison = m.Poison.Reservation[:]
		}
		if _, err := tx.Exec(upsertMeta, m.Boot[:], m.Number, m.Node, m.Namespace[:], m.Ended, m.Acked, m.Forgotten, poison, int64(m.Poison.Used), int64(m.Poison.Bound)); err != nil {
			return err
		}
	}
	for i := range ch.Grants {
		if err := writeGrant(tx, &ch.Grants[i]); err != nil {
			return err
		}
	}
	for i := range ch.Dropped {
		if _, err := tx.Exec(deleteGrant, ch.Dropped[i][:]); err != nil {
			return err
		}
	}
	if err := writeRecords(tx, ch.Made); err != nil {
		return err
	}
	for i := range ch.Changed {
		r := &ch.Changed[i]
		if n, err := tx.Exec(changeRecord, r.ID[:], int64(r.State), int64(r.Cost), r.Number, encode(r)); err != nil || n != 1 {
			return errors.Join(err, missing(n))
		}
	}
	if ch.Forget > 0 {
		if _, err := tx.Exec(forgetRecords, ch.Forget); err != nil {
			return err
		}
	}
	for i := range ch.Notes {
		n := &ch.Notes[i]
		if _, err := tx.Exec(insertNote, tx.Now, n.Actor, n.Action, n.Reason, n.Poison.Reservation[:], int64(n.Poison.Used), int64(n.Poison.Bound)); err != nil {
			return err
		}
	}
	return nil
}

// missing says that a row was not there any more though the write lock was held.
func missing(n int64) error {
	if n == 1 {
		return nil
	}
	return corrupt("journal_reservations")
}

func writeGrant(tx *sqlitetx.Tx, g *journal.Grant) error {
	a := &g.Account
	key := journal.AccountKey(*a)
	_, err := tx.Exec(upsertGrant, key[:], g.ID[:], a.Policy, a.Rule, a.Subject.Team, a.Subject.User, int64(a.Period), a.Window.Start, a.Window.End,
		g.Boot, g.Meter, g.Asked, int64(g.Amount), int64(g.Reserved), int64(g.Consumed), int64(g.Uncertain), int64(g.Observed), int64(g.Ending), g.Version, g.Acked)
	return err
}

// writeRecords writes new reservations side by side, in the order of their ids.
func writeRecords(tx *sqlitetx.Tx, list []journal.Record) error {
	order := make([]*journal.Record, 0, len(list))
	for i := range list {
		r := &list[i]
		if r.State == journal.Reserved && r.Cost == 0 && r.Number == 0 {
			order = append(order, r)
			continue
		}
		if _, err := tx.Exec(insertRecord, r.ID[:], r.Fingerprint[:], encode(r), int64(r.State), int64(r.Cost), r.Number); err != nil {
			return err
		}
	}
	slices.SortFunc(order, func(a, b *journal.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	args := make([]any, 0, 3*min(len(order), rowsAtOnce))
	for len(order) > 0 {
		n, query := rowsAtOnce, insertManyFresh
		if len(order) < rowsAtOnce {
			n, query = 1, insertOneFresh
		}
		args = args[:0]
		for _, r := range order[:n] {
			args = append(args, r.ID[:], r.Fingerprint[:], encode(r))
		}
		if _, err := tx.Exec(query, args...); err != nil {
			return err
		}
		order = order[n:]
	}
	return nil
}

func encode(r *journal.Record) []byte {
	return journal.AppendPortions(make([]byte, 0, 24*len(r.Portions)+1), r.Portions)
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

func corrupt(table string) error { return fmt.Errorf("%w: table %s", journal.ErrCorrupt, table) }
