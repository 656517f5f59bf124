package governance

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// turns is a lane with waiting tasks and no Governor behind it.
func turns(batchLimit int) *lane {
	return &lane{g: &Governor{options: Options{QueueLimit: 1 << 20, BatchLimit: batchLimit, StepTimeout: time.Hour}}, queues: map[string]*queue{}}
}

func (l *lane) add(subject string, number int) *waiter {
	w := &waiter{task: &stub{team: subject, number: number}, wake: make(chan turn, 1), since: time.Now()}
	l.enqueue(w)
	return w
}

// next cuts the batch that the lane's leader would.
func (l *lane) next() (names []string) {
	for _, w := range l.cut(l.ring.front().first) {
		s := w.task.(*stub)
		names = append(names, fmt.Sprint(s.team, s.number))
	}
	return names
}

func TestTurns(t *testing.T) {
	l := turns(4)
	for i := range 6 {
		l.add("loud", i)
	}
	l.add("a", 0)
	l.add("b", 0)
	l.add("b", 1)
	for _, want := range []string{"[loud0 a0 b0 loud1]", "[b1 loud2 loud3 loud4]", "[loud5]"} {
		if have := fmt.Sprint(l.next()); have != want {
			t.Fatalf("batch %s, want %s", have, want)
		}
	}
	if l.length != 0 || len(l.queues) != 0 || l.ring != (ring{}) {
		t.Fatalf("left behind: %+v", l)
	}
}

// With more subjects than a batch holds, none waits longer than a round.
func TestTurnsOfMoreSubjectsThanABatchHolds(t *testing.T) {
	const subjects, limit = 10, 3
	l := turns(limit)
	for i := range 20 {
		for s := range subjects {
			l.add(fmt.Sprint("s", s, "."), i)
		}
	}
	served := map[string]int{}
	for range subjects { // so many batches are three rounds
		for _, name := range l.next() {
			served[name[:3]]++
		}
	}
	for s := range subjects {
		if n := served[fmt.Sprint("s", s, ".")]; n != limit {
			t.Fatalf("served %v", served)
		}
	}
}

// Who has waited for longer than a transaction may take is told so, and takes no
// place in a batch.
func TestTurnsThatCameTooLate(t *testing.T) {
	l := turns(2)
	l.add("b", 0)
	l.add("b", 1)
	var late []*waiter
	for i := range 3 {
		late = append(late, l.add("a", i))
		late[i].since = time.Now().Add(-2 * time.Hour)
	}
	if have := fmt.Sprint(l.next()); have != "[b0 b1]" {
		t.Fatal(have)
	}
	if late[0].task.failed() == nil || l.length != 2 {
		t.Fatal("the first that came too late was not told", l.length)
	}
	if have := fmt.Sprint(l.next()); have != "[a1]" || l.length != 0 { // a leader is not late for itself
		t.Fatal(have, l.length)
	}
	for _, w := range []*waiter{late[0], late[2]} {
		if turn := <-w.wake; turn != turnDone || !errors.Is(w.task.failed(), ErrUnavailable) {
			t.Fatal(turn, w.task.failed())
		}
	}
}

func TestTurnsOneByOne(t *testing.T) {
	l := turns(1)
	for i := range 3 {
		l.add("a", i)
		l.add("b", i)
	}
	have := ""
	for l.length > 0 {
		have += fmt.Sprint(l.next())
	}
	if have != "[a0][b0][a1][b1][a2][b2]" {
		t.Fatal(have)
	}
}

// Whatever comes, leaves and is cut: the order within a subject stays, nobody is
// lost or served twice, and between two turns of a subject every other one that
// waits has one.
func TestPropertyTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "batch limit")
		l := turns(limit)
		waiting := map[string][]*waiter{}
		owed := map[string]map[string]bool{} // since a subject's last turn: who had one
		count := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			subject := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "subject")
			switch mine := waiting[subject]; rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1, 2:
				waiting[subject] = append(mine, l.add(subject, count))
				count++
			case 3:
				if len(mine) > 0 {
					i := rapid.IntRange(0, len(mine)-1).Draw(t, "who leaves")
					l.remove(mine[i])
					waiting[subject] = append(append([]*waiter(nil), mine[:i]...), mine[i+1:]...)
				}
			default:
				if l.length == 0 {
					continue
				}
				total := l.length
				batch := l.cut(l.ring.front().first)
				if len(batch) != min(total, limit) {
					t.Fatalf("a batch of %d of %d waiting", len(batch), total)
				}
				for _, w := range batch {
					s := w.task.subject()
					if len(waiting[s]) == 0 || waiting[s][0] != w || !w.cut {
						t.Fatalf("%s is served out of order", s)
					}
					waiting[s] = waiting[s][1:]
					for other, list := range waiting {
						if had := owed[s]; had != nil && other != s && len(list) > 0 && had[other] {
							t.Fatalf("%s has its second turn while %s waits for its first", s, other)
						}
					}
					owed[s] = map[string]bool{}
					for other, list := range waiting {
						if other != s && len(list) > 0 {
							owed[s][other] = true // waits now, and must come before s does again
						}
					}
					for _, had := range owed {
						delete(had, s)
					}
				}
			}
			n := 0
			for s, list := range waiting {
				n += len(list)
				if len(list) == 0 {
					for _, had := range owed {
						delete(had, s)
					}
				}
			}
			if n != l.length {
				t.Fatalf("%d wait, the lane counts %d", n, l.length)
			}
		}
	})
}
