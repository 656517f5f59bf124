package policytest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tallystick-go/tallystick/governance/policy"
)

var raceCases = []suiteCase{
	{name: "Apply/RaceHasOneWinner", run: raceApply},
	{name: "Apply/RaceOfOneEditIsOneChange", run: raceSame},
	{name: "Apply/RaceLosesNoEdit", run: raceCounter},
	{name: "Delete/RaceWithAnEditHasOneWinner", run: raceDelete},
	{name: "Load/SnapshotIsNeverTorn", run: raceTorn},
}

const racers = 12

// race runs try at once from both handles and returns the errors by racer.
func (k *kit) race(try func(i int, s policy.Store) error) []error {
	handles := k.handles()
	errs := make([]error, racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			<-start
			errs[i] = try(i, handles[i%2])
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// winner checks that exactly one racer won and all others met a conflict.
func (k *kit) winner(errs []error, rule string) int {
	k.Helper()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			k.Fatalf("%s: racers %d and %d both won", rule, won, i)
		case err == nil:
			won = i
		default:
			k.is(err, policy.ErrConflict, rule)
		}
	}
	k.truth(won >= 0, "%s: nobody won", rule)
	return won
}

func raceApply(k *kit) {
	was := k.load()
	errs := k.race(func(i int, s policy.Store) error {
		_, err := s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("a", int64(i))}, Expect: was.Generation})
		return err
	})
	won := k.winner(errs, "edits of one generation")
	k.holds(k.load(), doc("a", int64(won)))
}

func raceSame(k *kit) {
	was := k.load()
	errs := k.race(func(_ int, s policy.Store) error {
		_, err := s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("a", 1), rich("b")}, Expect: was.Generation})
		return err
	})
	k.truth(errors.Join(errs...) == nil, "the same edit is no conflict: %v", errors.Join(errs...))
	k.truth(k.load().Revision == was.Revision+1, "the same edit is one change")
}

// raceCounter has every racer add its own document to whatever set it finds.
func raceCounter(k *kit) {
	was := k.load()
	errs := k.race(func(i int, s policy.Store) error {
		for {
			now, err := s.Load(k.ctx)
			if err != nil {
				return err
			}
			_, err = s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc(fmt.Sprintf("d%02d", i), 1)}, Expect: now.Generation})
			if !errors.Is(err, policy.ErrConflict) {
				return err
			}
		}
	})
	k.truth(errors.Join(errs...) == nil, "%v", errors.Join(errs...))
	now := k.load()
	k.truth(now.Set.Len() == racers && now.Revision == was.Revision+racers, "%d edits left %d documents at revision %d after %d",
		racers, now.Set.Len(), now.Revision, was.Revision)
}

func raceDelete(k *kit) {
	was := k.apply(doc("a", 1))
	errs := k.race(func(i int, s policy.Store) error {
		if i%3 == 0 {
			_, err := s.Delete(k.ctx, policy.Delete{Names: []string{"a"}, Expect: was.Generation})
			return err
		}
		_, err := s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("a", int64(i+10))}, Expect: was.Generation})
		return err
	})
	now := k.load()
	if now.Set.Len() == 0 { // every deletion that came after the first found itself in force
		for i, err := range errs {
			if i%3 == 0 {
				k.truth(err == nil, "the deletion that is in force: %v", err)
				errs[i] = policy.ErrConflict
			}
		}
		errs[0] = nil
	}
	won := k.winner(errs, "an edit and a deletion")
	if won%3 == 0 {
		k.holds(now)
	} else {
		k.holds(now, doc("a", int64(won+10)))
	}
}

// raceTorn reads while two documents are always changed together.
func raceTorn(k *kit) {
	k.apply(doc("a", 0), doc("b", 0))
	var stop atomic.Bool
	errs := k.race(func(i int, s policy.Store) error {
		if i == 0 {
			defer stop.Store(true)
			for n := range int64(30) {
				now, err := s.Load(k.ctx)
				if err == nil {
					_, err = s.Apply(k.ctx, policy.Apply{Documents: []policy.Document{doc("a", n+1), doc("b", n+1)}, Expect: now.Generation})
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		var last policy.Mark
		for !stop.Load() {
			now, err := s.Load(k.ctx)
			if err != nil {
				return err
			}
			a, _ := now.Set.Document("a")
			b, _ := now.Set.Document("b")
			switch {
			case now.Set.Generation() != now.Generation:
				return errors.New("the mark is of another set")
			case *a.Rules[0].Rate.RPM != *b.Rules[0].Rate.RPM:
				return errors.New("half of an edit was read")
			case now.Revision < last.Revision || (now.Revision == last.Revision && last != (policy.Mark{}) && now.Mark != last):
				return fmt.Errorf("after %+v came %+v", last, now.Mark)
			}
			last = now.Mark
		}
		return nil
	})
	k.truth(errors.Join(errs...) == nil, "%v", errors.Join(errs...))
}
