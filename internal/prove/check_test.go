package prove

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// history is what happened to one team.
type history struct {
	Team       string
	Limits     limits
	Keys       []limits // that it began with
	operations []*operation
}

// prepare makes the checker's operations of a history, without those of which it is
// proved that nothing was done.
func (h *history) prepare() (list []porcupine.Operation, permits int, err error) {
	places := map[string]int{}
	for _, o := range h.operations {
		if o.Verb != verbAdmit {
			continue
		}
		id := o.request.Permit
		if id == "" {
			id = o.answer.Permit
		}
		if id != "" {
			places[id] = len(places)
		}
	}
	add := func(o *operation, p part, e event) {
		e.operation, e.part = o, p
		list = append(list, porcupine.Operation{ClientId: o.Client, Input: &e, Call: o.Call, Return: o.Return})
	}
	for _, o := range h.operations {
		e := event{permit: -1}
		if o.Said == saidNothing {
			continue
		}
		switch o.Verb {
		case verbResolve, verbUsage, verbHolds:
			if o.Said == saidLost {
				continue
			}
		}
		if id := o.request.Permit + o.answer.Permit; id != "" {
			at, known := places[id]
			if !known {
				return nil, 0, fmt.Errorf("%s: nobody admitted it", o)
			}
			e.permit = at
		} else if o.Verb == verbAdmit && o.Said == saidLost {
			return nil, 0, fmt.Errorf("%s: a lost admission needs an id of its caller's", o)
		}
		if o.Holds != nil {
			e.holds = map[int]int{}
			for i, held := range o.Holds {
				at, known := places[held.Permit]
				if !known {
					return nil, 0, fmt.Errorf("%s: nobody admitted %s", o, held.Permit)
				}
				e.holds[at] = i
			}
		}
		switch {
		case slices.Contains([]string{verbEditKey, verbEditTeam, verbRevoke, verbDelete}, o.Verb) && (o.Said == saidOK || o.Said == saidLost):
			add(o, isSeen, e)
			add(o, isForce, e)
		case o.Verb == verbAdmit && o.Said == saidLost:
			add(o, whole, e)
			add(o, isOrphan, e)
		default:
			add(o, whole, e)
		}
	}
	return list, len(places), nil
}

// late returns an error when a key was used to admit something after its revocation, or its team's deletion, had
// returned: what the model says too, without it.
func (h *history) late() error {
	ended := map[int]int64{} // by key; 0 is the team
	for _, o := range h.operations {
		if (o.Verb == verbRevoke || o.Verb == verbDelete) && o.Said == saidOK {
			if at, known := ended[o.Key]; !known || o.Return < at {
				ended[o.Key] = o.Return
			}
		}
	}
	for _, o := range h.operations {
		if o.Verb != verbAdmit || o.Said != saidOK {
			continue
		}
		for _, i := range []int{0, o.Key} {
			if at, over := ended[i]; over && o.Call > at {
				return fmt.Errorf("team %s: after what was revoked at %d: %s", h.Team, at/1000, o)
			}
		}
	}
	return nil
}

// check tells whether the history is one that the model allows: porcupine.Unknown when that was not decided within the time.
func (h *history) check(within time.Duration) (porcupine.CheckResult, error) {
	list, permits, err := h.prepare()
	if err != nil {
		return porcupine.Illegal, fmt.Errorf("team %s: %w", h.Team, err)
	}
	return porcupine.CheckOperationsTimeout(modelOf(h.Limits, h.Keys, permits), list, within), nil
}

// allowed fails the test, with an explanation, unless the history is one that the model allows.
func (h *history) allowed(t *testing.T) {
	t.Helper()
	require.NoError(t, h.late())
	result, err := h.check(patience)
	require.NoError(t, err)
	switch result {
	case porcupine.Illegal:
		t.Fatalf("team %s: no order of these operations explains all answers\n%s", h.Team, h.explain(patience))
	case porcupine.Unknown:
		t.Fatalf("team %s: too many orders to try within %v", h.Team, patience)
	}
}

// explain shows how far an order of the operations came, and leaves a picture.
func (h *history) explain(within time.Duration) string {
	list, permits, err := h.prepare()
	if err != nil {
		return err.Error()
	}
	model := modelOf(h.Limits, h.Keys, permits)
	result, info := porcupine.CheckOperationsVerbose(model, list, within)
	var b strings.Builder
	if f, err := os.CreateTemp("", "history-*.html"); err == nil && result == porcupine.Illegal {
		if porcupine.Visualize(model, info, f) == nil && f.Close() == nil {
			fmt.Fprintf(&b, "picture: %s\n", f.Name())
		}
	}
	var longest []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	state, in := model.Init(), map[*event]bool{}
	for i, o := range longest {
		e := o.Input.(*event)
		in[e] = true
		_, state = model.Step(state, e, nil)
		if i >= len(longest)-12 {
			fmt.Fprintf(&b, "  %s\n", e)
		}
	}
	fmt.Fprintf(&b, "the longest order has %d of %d, and ends in %s\nthen none of these fits:\n", len(longest), len(list), state.(fmt.Stringer))
	slices.SortFunc(list, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	shown := 0
	for _, o := range list {
		if e := o.Input.(*event); !in[e] && shown < 8 {
			fmt.Fprintf(&b, "  %s\n", e)
			shown++
		}
	}
	return b.String()
}

func (o *operation) String() string {
	var b strings.Builder
	until := "never"
	if o.Return != never {
		until = fmt.Sprint(o.Return / 1000)
	}
	fmt.Fprintf(&b, "[%d..%s µs, client %d] %s", o.Call/1000, until, o.Client, o.Verb)
	r, a := &o.request, &o.answer
	if r.Key > 0 {
		fmt.Fprintf(&b, " key %d", r.Key)
	}
	if id := r.Permit + a.Permit; id != "" {
		fmt.Fprintf(&b, " permit %s", short(id))
	}
	switch o.Verb {
	case verbAdmit, verbRaise, verbFind:
		fmt.Fprintf(&b, " %d tokens %d microUSD", r.Tokens, r.Cost)
	case verbSettle:
		fmt.Fprintf(&b, " %d tokens (unknown: %v) %d microUSD (unknown: %v) unsent: %v", r.Tokens, r.BlurTokens, r.Cost, r.BlurCost, r.Unsent)
	case verbEditKey, verbEditTeam, verbCreate:
		fmt.Fprintf(&b, " to %v if %d", r.Limits, r.IfRevision)
	}
	fmt.Fprintf(&b, " -> %s", a.Said)
	if a.Revision > 0 {
		fmt.Fprintf(&b, " revision %d %v, team %d %v", a.Revision, a.Limits, a.TeamRevision, a.TeamLimits)
	}
	if len(a.Counts) > 0 {
		fmt.Fprintf(&b, " %+v", a.Counts)
	}
	for _, h := range a.Holds {
		fmt.Fprintf(&b, " {%s open %v, %d tokens (unknown: %v), %d microUSD (unknown: %v)}", short(h.Permit), h.Open, h.Tokens, h.BlurTokens, h.Cost, h.BlurCost)
	}
	return b.String()
}

// short is the end of an id, which is random.
func short(id string) string { return id[max(0, len(id)-6):] }

func (e *event) String() string {
	switch e.part {
	case isSeen:
		return "seen: " + e.operation.String()
	case isForce:
		return "in force: " + e.operation.String()
	case isOrphan:
		return "cancelled: " + e.operation.String()
	}
	return e.operation.String()
}

func (s *state) String() string {
	var b strings.Builder
	for i := range s.seen {
		if s.seen[i].revision > 0 {
			fmt.Fprintf(&b, "\n  %d: seen %+v, in force %+v, sums %+v", i, s.seen[i], s.force[i], s.sums[i])
		}
	}
	fmt.Fprintf(&b, "\n  permits open:")
	for i := range len(s.permits) / permitBytes {
		if p := s.permit(i); p[atCondition] == open {
			fmt.Fprintf(&b, " %v", p)
		}
	}
	return b.String()
}
