package governancepg

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tallystick-go/tallystick/escrow/escrowpg"
	"github.com/tallystick-go/tallystick/governance"
)

// updatesPerEpoch is after how many updates a cell's row changes its identity.
const updatesPerEpoch = 32

// write queues the statements of the second round trip.
func (s *Store) write(b *pgx.Batch, l *load, ch *governance.Changes) error {
	if err := s.writeWindows(b, ch.Windows); err != nil {
		return err
	}
	cells, err := l.divide(ch.Cells)
	if err != nil {
		return err
	}
	if ch.Batch == nil || !s.advance(b, cells, ch.Batch) {
		s.writeCells(b, cells)
		if ch.Batch != nil {
			s.writeBatch(b, ch.Batch)
		}
	}
	s.writePermits(b, l, ch.Permits)
	if c := ch.Checkpoint; c != nil {
		s.writeCheckpoint(b, c)
	}
	if ch.Node != nil {
		escrowpg.QueueWrite(b, s.schema.Name(), ch.Node, len(l.loaded.Node.Data) > 0)
	}
	for i := range ch.Notes {
		n := &ch.Notes[i]
		var start *int64
		if n.Account != (governance.AccountKey{}) {
			start = &n.Account.WindowStart
		}
		b.Queue(s.q.note, n.At, n.Actor, n.Action, nullUUID(n.Permit), nullUUID(n.Account.Constraint), start, n.Reason, n.Before, n.After)
	}
	return s.record(b, ch.Events)
}

func (s *Store) writeWindows(b *pgx.Batch, list []governance.WindowChange) error {
	if len(list) == 0 {
		return nil
	}
	ids, starts, ends := make([]pgtype.UUID, len(list)), make([]int64, len(list)), make([]int64, len(list))
	labels := make([]*string, len(list))
	for i, w := range list {
		ids[i], starts[i], ends[i] = pgUUID(w.Constraint), w.Window.Start, w.Window.End
		text, err := w.Label.AppendText(nil)
		if err != nil {
			return err
		}
		if len(text) > 0 {
			label := string(text)
			labels[i] = &label
		}
	}
	b.Queue(s.q.windows, ids, starts, ends, labels)
	return nil
}

// cellArrays are the columns of several cells.
type cellArrays struct {
	ids                                                                              []pgtype.UUID
	starts, epochs, consumed, uncertain, reserved, granted, observed, entries, ended []int64
	frozen                                                                           []bool
	states                                                                           [][]byte
	kinds                                                                            []int16
}

func (a *cellArrays) add(c *governance.Cell, epoch int64, state []byte) {
	a.ids = append(a.ids, pgUUID(c.Key.Constraint))
	a.starts = append(a.starts, c.Key.WindowStart)
	a.epochs = append(a.epochs, epoch)
	a.consumed = append(a.consumed, c.Account.Consumed)
	a.uncertain = append(a.uncertain, c.Account.Uncertain)
	a.reserved = append(a.reserved, c.Account.Reserved)
	a.granted = append(a.granted, c.Account.Granted)
	a.observed = append(a.observed, c.Account.Observed)
	a.frozen = append(a.frozen, c.Account.Frozen)
	a.entries = append(a.entries, c.Entries)
	a.states = append(a.states, state)
	a.ended = append(a.ended, c.End)
	a.kinds = append(a.kinds, int16(c.Kind))
}

// all are the columns in the order of both the update and the insert.
func (a *cellArrays) all() []any {
	return []any{a.ids, a.starts, a.epochs, a.consumed, a.uncertain, a.reserved, a.granted, a.observed, a.frozen, a.entries, a.states, a.ended, a.kinds}
}

// cellWrites are the cells of one step by what has to be done with their rows.
type cellWrites struct {
	update, insert cellArrays
	removed        cellKeys
}

// divide says which rows are updated, and which change their identity or are new.
func (l *load) divide(list []governance.Cell) (*cellWrites, error) {
	w := &cellWrites{}
	for i := range list {
		c := &list[i]
		state, err := c.AppendState(make([]byte, 0, 64))
		if err != nil {
			return nil, err
		}
		v, there := l.rows[c.Key]
		switch {
		case !there:
			w.insert.add(c, 1, state)
		case v.updates >= updatesPerEpoch:
			w.removed.add(c.Key, v.epoch)
			w.insert.add(c, v.epoch+1, state)
		default:
			w.update.add(c, v.epoch, state)
		}
	}
	return w, nil
}

func (s *Store) writeCells(b *pgx.Batch, w *cellWrites) {
	if k := &w.removed; len(k.ids) > 0 {
		s.queue(b, s.q.remove, k.ids, k.starts, k.epochs)
	}
	if a := &w.update; len(a.ids) > 0 {
		s.queue(b, s.q.update, a.all()...)
	}
	if a := &w.insert; len(a.ids) > 0 {
		s.queue(b, s.q.insert, a.all()...)
	}
}

type cellKeys struct {
	ids            []pgtype.UUID
	starts, epochs []int64
}

func (k *cellKeys) add(key governance.AccountKey, epoch int64) {
	k.ids = append(k.ids, pgUUID(key.Constraint))
	k.starts = append(k.starts, key.WindowStart)
	k.epochs = append(k.epochs, epoch)
}

// advance queues a batch together with its cells in one statement, if all of it is as it
// almost always is.
func (s *Store) advance(b *pgx.Batch, w *cellWrites, batch *governance.Batch) bool {
	if len(w.update.ids) == 0 || len(w.insert.ids) > 0 || !plain(batch) {
		return false
	}
	s.queue(b, s.q.advance[slotOf(batch.ID)], append(begun(batch), w.update.all()...)...)
	return true
}

// plain reports that a batch lies in one partition and its permits just began.
func plain(batch *governance.Batch) bool {
	slot := slotOf(batch.ID)
	for i := range batch.Permits {
		rec := &batch.Permits[i]
		if slotOf(rec.ID) != slot || rec.State != governance.StateOpen || rec.Version != 1 || rec.At != batch.At || rec.EndedAt != 0 ||
			rec.Outcome != (governance.Outcome{}) || rec.Resolution != (governance.Outcome{}) {
			return false
		}
	}
	return true
}

// begun are the parameters of a plain batch.
func begun(batch *governance.Batch) []any {
	var a permitArrays
	a.grow(len(batch.Permits))
	for i := range batch.Permits {
		a.begin(&batch.Permits[i])
	}
	k := keysOf(batch.Entries)
	return append(make([]any, 0, 29), pgUUID(batch.ID), batch.At, batch.Terms, idsOf(batch), k.ids, k.starts, k.epochs,
		int16(governance.StateOpen), a.ids, a.terms, a.owners, a.fingerprints, a.flags, a.tokens, a.costs, a.segments)
}

func idsOf(batch *governance.Batch) []byte {
	ids := make([]byte, 0, 16*len(batch.Permits))
	for i := range batch.Permits {
		ids = append(ids, batch.Permits[i].ID[:]...)
	}
	return ids
}

func keysOf(entries []governance.Entry) (k cellKeys) {
	for _, e := range entries {
		k.add(e.Account, e.Number)
	}
	return k
}

// writeBatch queues a batch. A tombstone of its id makes the insert fail, and with it the
// whole transaction.
func (s *Store) writeBatch(b *pgx.Batch, batch *governance.Batch) {
	slot := slotOf(batch.ID)
	if plain(batch) {
		s.queue(b, s.q.admit[slot], begun(batch)...)
		return
	}
	s.queue(b, s.q.batchInsert[slot], pgUUID(batch.ID), batch.At, batch.Terms, idsOf(batch))
	if k := keysOf(batch.Entries); len(k.ids) > 0 {
		s.queue(b, s.q.entry, k.ids, k.starts, k.epochs, pgUUID(batch.ID))
	}
	for slot, a := range divide(batch.Permits) {
		if a != nil {
			s.queue(b, s.q.permitWhole[slot], pgUUID(batch.ID), a.ids, a.terms, a.owners, a.fingerprints, a.ats, a.states, a.flags,
				a.versions, a.tokens, a.costs, a.segments, a.ended, a.outcomes, a.resolutions)
		}
	}
}

// permitArrays are the columns of several permits.
type permitArrays struct {
	ids, owners, fingerprints       []pgtype.UUID
	terms, states, flags            []int16
	versions                        []int32
	tokens, costs, ats, ended       []int64
	segments, outcomes, resolutions [][]byte
}

// grow makes room for n permits that just began.
func (a *permitArrays) grow(n int) {
	uuids, numbers, small := make([]pgtype.UUID, 3*n), make([]int64, 2*n), make([]int16, 2*n)
	a.ids, a.owners, a.fingerprints = uuids[:0:n], uuids[n:n:2*n], uuids[2*n:2*n:3*n]
	a.tokens, a.costs = numbers[:0:n], numbers[n:n:2*n]
	a.terms, a.flags, a.segments = small[:0:n], small[n:n:2*n], make([][]byte, 0, n)
}

// begin adds what differs between permits that just began.
func (a *permitArrays) begin(rec *governance.Record) {
	a.ids = append(a.ids, pgUUID(rec.ID))
	a.owners = append(a.owners, pgUUID(rec.Owner))
	a.fingerprints = append(a.fingerprints, nullUUID(rec.Fingerprint))
	a.terms = append(a.terms, int16(rec.TermsIndex))
	a.flags = append(a.flags, int16(rec.Flags))
	a.tokens = append(a.tokens, rec.Tokens)
	a.costs = append(a.costs, rec.Cost)
	a.segments = append(a.segments, rec.Segments)
}

// add adds a permit in whatever state.
func (a *permitArrays) add(rec *governance.Record) {
	a.begin(rec)
	a.ats = append(a.ats, rec.At)
	a.states = append(a.states, int16(rec.State))
	a.versions = append(a.versions, rec.Version)
	a.ended = append(a.ended, rec.EndedAt)
	a.outcomes = append(a.outcomes, stored(rec.Outcome))
	a.resolutions = append(a.resolutions, stored(rec.Resolution))
}

// divide puts permits into columns by partition.
func divide(list []governance.Record) (parts [slots]*permitArrays) {
	for i := range list {
		rec := &list[i]
		slot := slotOf(rec.ID)
		if parts[slot] == nil {
			parts[slot] = &permitArrays{}
		}
		parts[slot].add(rec)
	}
	return parts
}

func (s *Store) writePermits(b *pgx.Batch, l *load, list []governance.Record) {
	if len(list) == 0 {
		return
	}
	list, kept := l.apart(list)
	if len(kept) > 0 {
		a := &permitArrays{}
		for i := range kept {
			a.add(&kept[i])
		}
		b.Queue(s.q.keptUpdate, a.ids, a.ended, a.states, a.flags, a.versions, a.tokens, a.costs, a.segments, a.outcomes, a.resolutions)
	}
	for slot, a := range divide(list) {
		if a != nil {
			s.queue(b, s.q.permitUpdate[slot], a.ids, a.ended, a.states, a.flags, a.versions, a.tokens, a.costs, a.segments, a.outcomes, a.resolutions)
		}
	}
}

// stored is NULL for the zero outcome.
func stored(o governance.Outcome) []byte {
	if o == (governance.Outcome{}) {
		return nil
	}
	return o.AppendBinary(nil)
}
