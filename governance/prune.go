package governance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Memory is how far back a store remembers, and what it has removed in all its time.
type Memory struct {
	Horizon int64 // µs; ids older than this are forgotten
	Total   Pruned
}

// Pruned is what was removed: how many permits, and what they had consumed.
type Pruned struct {
	Permits int64
	Tokens  int64
	Cost    int64 // microUSD
}

// Add returns the sum of both.
func (p Pruned) Add(other Pruned) Pruned {
	return Pruned{p.Permits + other.Permits, p.Tokens + other.Tokens, p.Cost + other.Cost}
}

// Judge says whether a permit may be removed, and what it had consumed. It calls
// nothing of the store.
type Judge func(*Record) (Pruned, bool)

// Swept is what one Prune of a store did.
type Swept struct {
	Removed Pruned
	Kept    int64  // permits older than the horizon that the judge kept
	Total   Pruned // removed in all the store's time, this time included
}

// PruneQuery says what may be forgotten, who decides it and why. It is recorded.
type PruneQuery struct {
	// Before, or OlderThan behind the store's clock: permits with older ids may go. At
	// least an hour back.
	Before    time.Time
	OlderThan time.Duration
	Actor     string
	Reason    string
}

// pruneAge is how old what is forgotten must be at least: by then no honest attempt is
// being repeated, and a clock that goes back a little does not come to the horizon.
const pruneAge = time.Hour

// PruneReport is what Prune did.
type PruneReport struct {
	Horizon     int64 // µs; ids older than this are answered with ErrPruned, unless kept
	Removed     Pruned
	Kept        int64        // older permits that are open, uncertain, overrun or of a frozen account, or whose account differs
	Total       Pruned       // removed in all the store's time
	Accounts    int64        // accounts that were recomputed, and found right unless they are listed here:
	Differences []Difference // nothing of these accounts was removed
}

// Prune forgets old permits. First it raises the horizon: from then on older ids are
// refused with ErrPruned. Then it recomputes every account from all entries that are
// still there, folds those of older permits into the account's checkpoint, which
// stays as the proof of what they add up to, and at last removes the permits: never
// one that is open, uncertain or overrun, nor one of an account that is frozen or
// does not add up. Those that stay are settled, listed and resolved as ever.
//
// Time: the store's clock. The store may round the horizon down.
// Concurrency: safe while admissions and settlements go on, and beside other calls of
// Prune and Verify.
// Retry: safe after any error and any crash; the horizon never falls. What is
// reported together with an error was done.
// Errors: ErrInvalid, ErrUnavailable (together with ErrLockTimeout when others used
// what was to be emptied: repeat it), ErrUnknownOutcome, ErrCorrupt, ErrClosed.
//
// Source: internal/docs/guarantees.md "Forgetting".
func (g *Governor) Prune(ctx context.Context, q PruneQuery) (PruneReport, error) {
	var report PruneReport
	if err := validOperator(q.Actor, q.Reason); err != nil {
		return report, err
	}
	if g.isClosed() {
		return report, ErrClosed
	}
	loaded, err := g.store.View(ctx, &Plan{})
	if err != nil {
		return report, err
	}
	before, err := q.instant(loaded.Now)
	if err != nil {
		return report, err
	}
	note := Note{Actor: q.Actor, Action: "prune", Reason: q.Reason, Before: describeHorizon(loaded.Horizon), After: describeHorizon(max(before, loaded.Horizon))}
	if err := g.alone(ctx, &noting{note: note}); err != nil {
		return report, err
	}
	memory, err := g.store.Forget(ctx, before)
	if err != nil {
		return report, err
	}
	report.Horizon, report.Total = memory.Horizon, memory.Total
	p := &pruning{horizon: memory.Horizon, held: map[AccountKey][]PermitID{}}
	if err := g.retire(ctx, memory.Horizon); err != nil {
		return report, err
	}
	if err := g.foldAll(ctx, p, &report); err != nil {
		return report, err
	}
	swept, err := g.store.Prune(ctx, p.judge)
	report.Removed, report.Kept = swept.Removed, swept.Kept
	report.Total = memory.Total.Add(swept.Removed)
	if swept.Total != (Pruned{}) {
		report.Total = swept.Total
	}
	if report.Removed != (Pruned{}) {
		note.Action, note.Before, note.After = "pruned", memory.Total.describe(memory.Horizon), report.Total.describe(memory.Horizon)
		err = errors.Join(err, g.alone(ctx, &noting{note: note}))
	}
	if errors.Is(err, ErrLockTimeout) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return report, err
}

// instant is where the horizon shall be.
func (q *PruneQuery) instant(now int64) (int64, error) {
	if q.Before.IsZero() == (q.OlderThan == 0) {
		return 0, invalid("before", "say either an instant, or how old")
	}
	before := now - q.OlderThan.Microseconds()
	if !q.Before.IsZero() {
		before = q.Before.UnixMicro()
	}
	if before > now-pruneAge.Microseconds() || q.OlderThan < 0 {
		return 0, invalid("before", "must lie at least an hour back by the store's clock")
	}
	if before <= 0 {
		return 0, invalid("before", "must lie behind 1970")
	}
	return before / 1000 * 1000, nil // ids have milliseconds
}

// pruning is what the judge knows.
type pruning struct {
	horizon int64
	folded  []AccountKey              // accounts that are right and not frozen, sorted
	held    map[AccountKey][]PermitID // permits that these name one by one, where there are any
	decoded map[string][]AccountKey   // accounts by terms, of which there are few
}

// foldAll recomputes and folds every account that may have old permits.
func (g *Governor) foldAll(ctx context.Context, p *pruning, report *PruneReport) error {
	if p.horizon <= 0 {
		return nil
	}
	return g.everyAccount(ctx, func(c *Cell) error {
		if c.Key.WindowStart >= p.horizon {
			return nil // it is younger than every permit that may go
		}
		o, err := g.audit(ctx, &audit{account: c.Key, kind: c.Kind, before: p.horizon})
		report.Accounts++
		switch {
		case errors.Is(err, ErrCorrupt):
			o.difference = &Difference{Account: c.Key, Kind: c.Kind, Stored: c.Account, Why: err.Error()}
		case err != nil:
			return err
		}
		if o.difference != nil {
			report.Differences = append(report.Differences, *o.difference)
			return nil
		}
		if o.frozen || !o.folded {
			return nil
		}
		p.folded = append(p.folded, c.Key)
		if len(o.next.floor.pending) > 0 {
			p.held[c.Key] = o.next.floor.pending
		}
		return g.trim(ctx, o)
	})
}

// judge says whether a permit may go.
func (p *pruning) judge(rec *Record) (Pruned, bool) {
	if !rec.final() || rec.Flags&FlagOverrun != 0 || (rec.Flags&FlagInvalid != 0 && rec.State != StateResolved) ||
		rec.At >= p.horizon || !rec.ID.older(p.horizon) {
		return Pruned{}, false
	}
	accounts, ok := p.accounts(rec.Terms)
	if !ok {
		return Pruned{}, false
	}
	for _, key := range accounts {
		if _, folded := slices.BinarySearchFunc(p.folded, key, AccountKey.Compare); !folded {
			return Pruned{}, false
		}
		if f := (fold{pending: p.held[key]}); f.names(rec.ID) {
			return Pruned{}, false // it has ended since: the next time
		}
	}
	tokens, err := rec.share(KindTokenQuota)
	cost, also := rec.share(KindMoney)
	if err != nil || also != nil {
		return Pruned{}, false
	}
	if rec.Flags&FlagFree != 0 {
		cost.Consumed = 0
	}
	return Pruned{1, tokens.Consumed, cost.Consumed}, true
}

// accounts are those in which permits of these terms reserved.
func (p *pruning) accounts(encoded []byte) ([]AccountKey, bool) {
	if list, ok := p.decoded[string(encoded)]; ok {
		return list, true
	}
	t, err := decodeTerms(encoded)
	if err != nil {
		return nil, false
	}
	var list []AccountKey
	for i := range t.holds {
		if t.holds[i].kind.isAccount() {
			list = append(list, t.holds[i].account())
		}
	}
	if p.decoded == nil || len(p.decoded) > 4096 {
		p.decoded = map[string][]AccountKey{}
	}
	p.decoded[string(encoded)] = list
	return list, true
}

// trimStep is how many entries one transaction removes.
const trimStep = 1000

// trim removes the entries that nobody will read again.
func (g *Governor) trim(ctx context.Context, o *audit) error {
	for c := o.next; c.trimmed < c.floor.through; {
		t := &trimming{account: o.account}
		if err := g.alone(ctx, t); err != nil {
			return err
		}
		c = t.checkpoint
	}
	return nil
}

// trimming removes some entries that are folded.
type trimming struct {
	account    AccountKey
	checkpoint checkpoint
	err        error
}

func (o *trimming) plan(p *planner) {
	p.constraints = append(p.constraints, o.account.Constraint)
	p.checkpoint = &o.account
}
func (o *trimming) decide(s *sheet)     { s.trim(o) }
func (o *trimming) fail(err error)      { o.err = err }
func (o *trimming) failed() error       { return o.err }
func (o *trimming) subject() string     { return "" }
func (o *trimming) patient() bool       { return true }
func (o *trimming) replayable() bool    { return true }
func (o *trimming) abandoned(*Governor) {}

func (s *sheet) trim(o *trimming) {
	i, ok := s.position(o.account.Constraint)
	if !ok || !s.current[i].locked {
		o.err = ErrUnavailable
		return
	}
	if o.checkpoint, o.err = decodeCheckpoint(s.loaded.Checkpoint); o.err != nil {
		return
	}
	c := &o.checkpoint
	after := c.trimmed
	if c.trimmed = min(after+trimStep, c.floor.through); c.trimmed > after {
		s.checkpoint = &Checkpoint{Account: o.account, Data: c.append(nil), Trim: Trim{after, c.trimmed}}
	}
}

// noting records what an operator did.
type noting struct {
	note Note
	err  error
}

func (o *noting) plan(*planner) {}
func (o *noting) decide(s *sheet) {
	note := o.note
	note.At = s.now
	s.notes = append(s.notes, note)
}
func (o *noting) fail(err error)      { o.err = err }
func (o *noting) failed() error       { return o.err }
func (o *noting) subject() string     { return "" }
func (o *noting) patient() bool       { return true }
func (o *noting) replayable() bool    { return false } // it would be noted twice
func (o *noting) abandoned(*Governor) {}

// stamp is the time for ids that are made in a step, in ms. A clock that went back
// makes none that are forgotten already.
func (l *Loaded) stamp() int64 { return max(l.Now, l.Horizon+999) / 1000 }

func describeHorizon(us int64) string { return fmt.Sprintf(`{"horizon_us":%d}`, us) }

// describe is what a note says of everything that was removed.
func (p Pruned) describe(horizon int64) string {
	text, _ := json.Marshal(struct {
		Horizon int64 `json:"horizon_us"`
		Permits int64 `json:"permits"`
		Tokens  int64 `json:"tokens"`
		Cost    int64 `json:"cost_microusd"`
	}{horizon, p.Permits, p.Tokens, p.Cost})
	return string(text)
}
