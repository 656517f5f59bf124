package governancetest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tallystick-go/tallystick/governance"
)

// everyPermit reads all permits, in small pages.
func (e *env) everyPermit(q governance.PermitQuery) []governance.Record {
	e.Helper()
	var all []governance.Record
	q.Limit = 50
	for {
		page, err := e.store.Permits(e.ctx, q)
		e.ok(err)
		for i := range page {
			if comparePermitIDs(page[i].ID, q.After) <= 0 {
				e.Fatalf("permit %s was listed behind %s", page[i].ID, q.After)
			}
			q.After = page[i].ID
		}
		all = append(all, page...)
		if len(page) < q.Limit {
			return all
		}
	}
}

// everyAccount reads all account cells, in small pages.
func (e *env) everyAccount() []governance.Cell {
	e.Helper()
	var all []governance.Cell
	q := governance.AccountQuery{Limit: 20, After: governance.AccountKey{WindowStart: math.MinInt64}}
	for {
		page, err := e.store.Accounts(e.ctx, q)
		e.ok(err)
		for i := range page {
			if page[i].Key.Compare(q.After) <= 0 {
				e.Fatalf("account %v was listed behind %v", page[i].Key, q.After)
			}
			q.After = page[i].Key
		}
		all = append(all, page...)
		if len(page) < q.Limit {
			return all
		}
	}
}

// snapshot is all that a store shows of itself: permits, accounts, and the rates
// and slots of the constraints that are given.
func (e *env) snapshot(constraints ...governance.ConstraintID) []string {
	e.Helper()
	var lines []string
	for _, rec := range e.everyPermit(governance.PermitQuery{}) {
		lines = append(lines, describeRecord(&rec))
	}
	for _, c := range e.everyAccount() {
		lines = append(lines, e.describeCell(&c))
	}
	if len(constraints) > 0 {
		loaded, err := e.store.View(e.ctx, &governance.Plan{Constraints: sorted(constraints)})
		e.ok(err)
		for i := range loaded.Current {
			lines = append(lines, fmt.Sprintf("window %v of %s", loaded.Current[i].Window, loaded.Current[i].Cell.Key.Constraint), e.describeCell(&loaded.Current[i].Cell))
		}
	}
	return lines
}

// unchanged compares with an earlier snapshot.
func (e *env) unchanged(before []string, constraints ...governance.ConstraintID) {
	e.Helper()
	if after := e.snapshot(constraints...); !slices.Equal(before, after) {
		e.Fatalf("something changed:\n- %s\n+ %s", strings.Join(before, "\n- "), strings.Join(after, "\n+ "))
	}
}

func (e *env) describeCell(c *governance.Cell) string {
	e.Helper()
	state, err := c.AppendState(nil)
	e.ok(err)
	return fmt.Sprintf("cell %s %d-%d kind %d account %+v entries %d state %x", c.Key.Constraint, c.Key.WindowStart, c.End, c.Kind, c.Account, c.Entries, state)
}

func describeRecord(rec *governance.Record) string {
	return fmt.Sprintf("permit %s batch %s terms %x owner %x fingerprint %x at %d ended %d state %d flags %d version %d tokens %d cost %d segments %x outcome %+v resolution %+v",
		rec.ID, rec.Batch, rec.Terms, rec.Owner, rec.Fingerprint, rec.At, rec.EndedAt, rec.State, rec.Flags, rec.Version, rec.Tokens, rec.Cost, rec.Segments, rec.Outcome, rec.Resolution)
}
