package governance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallystick-go/tallystick/quota"
)

// VerifyQuery says how much is recomputed.
type VerifyQuery struct {
	// Full begins at the oldest entry that is still there, not at the account's checkpoint,
	// and so checks the checkpoint too. Where nothing was pruned that is the first entry.
	Full bool
}

// VerifyReport is what Verify found.
type VerifyReport struct {
	Accounts int64
	Permits  int64 // reservations that the sums contain, one per permit and account
	Pruned   int64 // accounts of which the oldest entries are gone: a full verification begins behind them
	// Reservations counts those on their way in a node's journal; each was compared with its permit.
	Reservations int64
	Differences  []Difference
}

// How many batches are added up between two looks at the store, and how many at
// most under an account's lock.
const (
	verifyPage = 500
	verifyTail = 128
)

// foldEvery is how many entries are worth a new checkpoint.
const foldEvery = 32

// Verify recomputes every account from its checkpoint and the permits behind it, and
// compares. Permits that can no longer change are added up without any lock; those
// that still may, a few entries, and the comparison are left for the account's own
// lock. Accounts that are right get a new checkpoint now and then. On a node the journal's
// reservations are added up too. A healthy store has no difference.
//
// Concurrency: safe while admissions, settlements and Prune go on.
// Errors: ErrUnavailable, ErrUnknownOutcome, ErrCorrupt, ErrClosed.
//
// Source: internal/docs/guarantees.md "The books".
func (g *Governor) Verify(ctx context.Context, q VerifyQuery) (VerifyReport, error) {
	var v VerifyReport
	err := g.everyAccount(ctx, func(c *Cell) error {
		o, err := g.audit(ctx, &audit{account: c.Key, kind: c.Kind, full: q.Full})
		if err != nil {
			return err
		}
		v.Accounts++
		v.Permits += o.permits
		if o.stored.floor.through > 0 {
			v.Pruned++
		}
		if o.difference != nil {
			v.Differences = append(v.Differences, *o.difference)
		}
		return nil
	})
	if err == nil {
		err = g.balance(ctx, &v)
	}
	return v, err
}

// everyAccount calls f with each account, in the order of their keys.
func (g *Governor) everyAccount(ctx context.Context, f func(*Cell) error) error {
	const page = 500
	var after AccountKey
	for {
		cells, err := g.store.Accounts(ctx, AccountQuery{After: after, Limit: page})
		if err != nil {
			return err
		}
		for i := range cells {
			after = cells[i].Key
			if err := f(&cells[i]); err != nil {
				return fmt.Errorf("account %s at %d: %w", after.Constraint, after.WindowStart, err)
			}
		}
		if len(cells) < page {
			return nil
		}
	}
}

// audit recomputes one account. What can no longer change is added up before, without
// the account's lock.
type audit struct {
	account AccountKey
	kind    Kind
	full    bool
	before  int64 // not zero: entries that were admitted before are no longer needed one by one
	// reconcile sets the account to what its permits add up to, and is noted then.
	reconcile *Note
	release   *unfreezing // what is done once it agrees

	raw    []byte // the checkpoint that it began from
	stored checkpoint
	read   int64 // entries that are in parts
	parts  []part

	moved      bool // others went on meanwhile: begin anew
	more       bool // there are more entries than are read under a lock
	difference *Difference
	permits    int64
	next       checkpoint // what is known now, when there is no difference
	folded     bool       // its floor is where before demands
	frozen     bool
	err        error
}

// part is entries that follow one another and are alike: all up to the latest
// checkpoint or behind it, all admitted before an instant or not.
type part struct {
	through int64
	checked bool // up to the latest checkpoint
	old     bool
	tally   tally // permits that cannot change any more
	pending []PermitID
}

// audit runs until nobody interferes.
func (g *Governor) audit(ctx context.Context, o *audit) (*audit, error) {
	for o.moved = true; o.moved; {
		if err := g.readCheckpoint(ctx, o); err != nil || o.difference != nil {
			return o, err
		}
		o.moved, o.more = false, true
		for o.more && !o.moved {
			if err := g.readEntries(ctx, o); err != nil {
				return o, err
			}
			if err := g.alone(ctx, o); err != nil {
				return o, err
			}
		}
	}
	return o, nil
}

func (g *Governor) readCheckpoint(ctx context.Context, o *audit) error {
	loaded, err := g.store.View(ctx, &Plan{Constraints: []ConstraintID{o.account.Constraint}, Accounts: []AccountKey{o.account}, Checkpoint: &o.account})
	if err != nil {
		return err
	}
	if o.release != nil {
		if o.kind = loaded.Accounts[0].Kind; !o.kind.isAccount() {
			return ErrNotFound
		}
	}
	if o.stored, err = decodeCheckpoint(loaded.Checkpoint); err != nil {
		o.difference = &Difference{Account: o.account, Kind: o.kind, Stored: loaded.Accounts[0].Account, Why: "the checkpoint cannot be read"}
		return nil
	}
	o.raw = loaded.Checkpoint
	from := &o.stored.latest
	if o.full || o.before > 0 {
		from = &o.stored.floor
	}
	o.read = from.through
	o.parts = []part{{through: from.through, checked: true, old: true, tally: from.tally(), pending: slices.Clip(from.pending)}}
	return nil
}

// readEntries adds up all entries but the last few.
func (g *Governor) readEntries(ctx context.Context, o *audit) error {
	for {
		loaded, err := g.store.View(ctx, &Plan{Entries: &EntryQuery{Account: o.account, After: o.read, Limit: verifyPage}})
		if err != nil {
			return err
		}
		if o.parts, err = o.take(o.parts, loaded.Entries); err != nil {
			return err
		}
		got := loaded.EntriesRead - o.read
		o.read = loaded.EntriesRead
		if got < verifyTail {
			return nil
		}
	}
}

// take adds permits, in the order of their entries, to a list of parts.
func (o *audit) take(parts []part, list []Record) ([]part, error) {
	for i := range list {
		rec := &list[i]
		here, err := rec.reservedIn(o.account)
		if err != nil {
			return parts, err
		}
		if !here {
			continue
		}
		checked, old := rec.Entry <= o.stored.latest.through, rec.At < o.before
		last := &parts[len(parts)-1]
		if last.checked != checked || last.old != old {
			parts = append(parts, part{checked: checked, old: old})
			last = &parts[len(parts)-1]
		}
		last.through = rec.Entry
		if !rec.final() {
			last.pending = append(last.pending, rec.ID)
			continue
		}
		if err := last.tally.add(rec, o.kind); err != nil {
			return parts, err
		}
	}
	return parts, nil
}

func (o *audit) plan(p *planner) {
	p.constraints = append(p.constraints, o.account.Constraint)
	p.accounts = append(p.accounts, o.account)
	for i := range o.parts {
		p.permits = append(p.permits, o.parts[i].pending...)
	}
	p.permits = append(p.permits, o.stored.latest.pending...)
	p.entries = &EntryQuery{Account: o.account, After: o.read, Limit: verifyTail}
	p.checkpoint = &o.account
}
func (o *audit) decide(s *sheet)     { s.audit(o) }
func (o *audit) fail(err error)      { o.err = err }
func (o *audit) failed() error       { return o.err }
func (o *audit) subject() string     { return "" }
func (o *audit) patient() bool       { return true }
func (o *audit) replayable() bool    { return o.reconcile == nil && o.release == nil }
func (o *audit) abandoned(*Governor) {}

// audit finishes one under the account's lock.
func (s *sheet) audit(o *audit) {
	o.difference, o.moved, o.more, o.folded = nil, false, false, false
	i, ok := s.position(o.account.Constraint)
	if !ok || !s.current[i].locked {
		o.err = ErrUnavailable
		return
	}
	w := &s.current[i]
	if w.window.Start != o.account.WindowStart {
		w = &s.older[0]
	}
	if !bytes.Equal(s.loaded.Checkpoint, o.raw) {
		o.moved = true
		return
	}
	read := max(o.read, s.loaded.EntriesRead)
	if read-o.read >= verifyTail && w.Entries > read {
		o.more = true
		return
	}
	parts := slices.Clone(o.parts) // the step may be repeated
	for i := range parts {
		parts[i].pending = slices.Clip(parts[i].pending)
	}
	parts, err := o.take(parts, s.loaded.Entries)
	if err != nil {
		o.err = err
		return
	}
	sums, gone, err := s.addUp(o, parts)
	if err != nil {
		o.err = err
		return
	}
	o.frozen = w.Account.Frozen
	o.permits = sums.all.permits
	computed := sums.all.sum
	computed.Frozen = w.Account.Frozen
	d := &Difference{Account: o.account, Kind: o.kind, Stored: w.Account, Computed: computed}
	switch {
	case w.Kind == 0:
		d.Why = "the account is gone"
	case gone != (PermitID{}):
		d.Why = fmt.Sprintf("permit %s is gone", gone)
	case read != w.Entries:
		d.Why = fmt.Sprintf("the account counts %d batches, %d were found", w.Entries, read)
	case w.Account != computed && o.reconcile != nil && sums.checked == sums.checkpoint:
		s.reconcile(o, w, computed)
		s.agreed(o, parts)
		return
	case w.Account != computed:
		d.Why = "the counters are not what the permits add up to"
	case sums.checked != sums.checkpoint:
		d.Why = "the checkpoint is not what the permits up to it add up to"
	default:
		s.agreed(o, parts)
		return
	}
	o.difference = d
}

// agreed is what follows when an account is what its permits add up to.
func (s *sheet) agreed(o *audit, parts []part) {
	s.fold(o, parts)
	if o.release != nil {
		s.unfreeze(o.release)
		o.err = o.release.err
	}
}

// reconcile puts right what an account counts, and says what it was.
func (s *sheet) reconcile(o *audit, w *cell, computed quota.Account) {
	note := *o.reconcile
	note.At, note.Action, note.Account = s.now, "reconcile", o.account
	note.Before, note.After = describeAccount(w.Account), describeAccount(computed)
	w.Account, w.dirty = computed, true
	s.notes = append(s.notes, note)
}

// sums are what an audit compares.
type sums struct {
	all        tally
	checked    tally // up to the latest checkpoint, from the permits
	checkpoint tally // the same, from the checkpoint
}

// addUp looks at the permits that may have changed: in parts they move from pending
// to the sums where they cannot any more. gone is one that is not there.
func (s *sheet) addUp(o *audit, parts []part) (sums sums, gone PermitID, err error) {
	now := make(map[PermitID]*Record, len(s.loaded.Permits))
	for _, list := range [...][]Record{s.loaded.Entries, s.loaded.Permits} {
		for i := range list {
			if list[i].State != 0 {
				now[list[i].ID] = &list[i]
			}
		}
	}
	add := func(to *tally, id PermitID) error {
		rec := now[id]
		if rec == nil {
			gone = id
			return nil
		}
		return to.add(rec, o.kind)
	}
	sums.checkpoint = o.stored.latest.tally()
	for _, id := range o.stored.latest.pending {
		err = errors.Join(err, add(&sums.checkpoint, id))
	}
	for i := range parts {
		p := &parts[i]
		var pending []PermitID
		open := tally{}
		for _, id := range p.pending {
			if rec := now[id]; rec != nil && rec.final() {
				err = errors.Join(err, add(&p.tally, id))
				continue
			}
			pending = append(pending, id)
			err = errors.Join(err, add(&open, id))
		}
		p.pending = pending
		for _, total := range [...]tally{p.tally, open} {
			err = errors.Join(err, sums.all.merge(total))
			if p.checked {
				err = errors.Join(err, sums.checked.merge(total))
			}
		}
	}
	return sums, gone, err
}

// fold writes a new checkpoint if that is worth it.
func (s *sheet) fold(o *audit, parts []part) {
	o.next = o.stored
	last := 0 // part behind which nothing is old
	for i := range parts {
		if parts[i].old {
			last = i
		}
	}
	latest, ok := foldOf(parts)
	if !ok {
		return
	}
	next := checkpoint{latest: latest, floor: o.stored.floor, trimmed: o.stored.trimmed}
	if o.before > 0 {
		next.floor, o.folded = foldOf(parts[:last+1])
	}
	worth := next.latest.through-o.stored.latest.through >= foldEvery || len(o.stored.latest.pending)-len(next.latest.pending) >= foldEvery
	if o.before == 0 && !worth {
		return
	}
	data := next.append(nil)
	if o.next = next; !bytes.Equal(data, o.raw) {
		s.checkpoint = &Checkpoint{Account: o.account, Data: data}
	}
}

// foldOf is what parts that follow one another add up to; false when too much of it
// may still change.
func foldOf(parts []part) (fold, bool) {
	var f fold
	var t tally
	for i := range parts {
		if t.merge(parts[i].tally) != nil {
			return fold{}, false
		}
		f.through = parts[i].through
		f.pending = append(f.pending, parts[i].pending...)
	}
	f.permits, f.consumed, f.observed = t.permits, t.sum.Consumed, t.sum.Observed
	slices.SortFunc(f.pending, comparePermits)
	f.pending = slices.Compact(f.pending)
	return f, len(f.pending) <= maxPending && t.sum == quota.Account{Consumed: f.consumed, Observed: f.observed}
}
