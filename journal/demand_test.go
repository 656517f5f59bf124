package journal

import (
	"testing"

	"github.com/tallystick-go/tallystick/escrow"
)

// What was denied holds for as long as what the authority says besides agrees with it.
func TestDenialIsOutdated(t *testing.T) {
	def := &escrow.Definition{Limit: 100}
	for _, c := range []struct {
		name   string
		denied escrow.DenialReason
		b      *escrow.Budget
		want   bool
	}{
		{"nothing is said", escrow.Spent, nil, false},
		{"still spent", escrow.Spent, &escrow.Budget{Consumed: 80, Uncertain: 11, Granted: 9}, false},
		{"there is as much again", escrow.Spent, &escrow.Budget{Consumed: 80, Uncertain: 10, Granted: 10}, true},
		{"still frozen", escrow.Frozen, &escrow.Budget{Frozen: true}, false},
		{"released", escrow.Frozen, &escrow.Budget{Consumed: 100}, true},
		{"others hold it", escrow.NoRoom, &escrow.Budget{}, false},
	} {
		d := denial{escrow.Denial{Reason: c.denied}, 10}
		if got := d.outdated(def, c.b); got != c.want {
			t.Errorf("%s: outdated is %v", c.name, got)
		}
	}
}

// Of several denials by one answer, that the rest is spent counts for all that need as much.
func TestDenialsTogether(t *testing.T) {
	many, few := denial{escrow.Denial{Reason: escrow.Spent}, 10}, denial{escrow.Denial{Reason: escrow.Spent}, 1}
	room := denial{escrow.Denial{Reason: escrow.NoRoom}, 1}
	for i, got := range []denial{many.or(room), room.or(many), many.or(many), (denial{}).or(many)} {
		if got != many {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if many.or(few) != few || few.or(many) != few {
		t.Error("less is spent too")
	}
	if many.of(9) != escrow.NoRoom || many.of(10) != escrow.Spent {
		t.Error("who needs less is told that nothing is left")
	}
}
