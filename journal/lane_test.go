package journal_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journaltest"
	"github.com/tallystick-go/tallystick/quota"
)

var meter = escrow.Account{
	Policy: "p", Rule: "r", Subject: policy.Subject{Team: "t"}, Period: quota.Day,
	Window: quota.Window{Start: 1_785_542_400_000_000, End: 1_785_628_800_000_000},
}

func one(n amount.MicroUSD) journal.Reservation {
	return journal.Reservation{ID: journal.NewID(), Needs: []journal.Need{{Account: meter, Amount: n, Soft: true}}}
}

// doubtful loses the answers to commits: of the first times, and with or without the commit.
type doubtful struct {
	*journaltest.Memory
	times   int
	commits bool
	gate    chan struct{} // when set, a transaction waits for it
	began   chan struct{}
}

func (d *doubtful) Step(ctx context.Context, plan *journal.Plan, decide func(*journal.Loaded) (*journal.Changes, error)) error {
	if d.gate != nil {
		d.began <- struct{}{}
		<-d.gate
	}
	if d.times <= 0 {
		return d.Memory.Step(ctx, plan, decide)
	}
	d.times--
	if d.commits {
		if err := d.Memory.Step(ctx, plan, decide); err != nil {
			return err
		}
		return journal.ErrUnknownOutcome
	}
	l, err := d.View(ctx, plan)
	if err == nil {
		_, err = decide(l)
	}
	if err != nil {
		return err
	}
	return journal.ErrUnknownOutcome
}

func openOn(t *testing.T, s journal.Store) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), s, &journal.Options{Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func reserved(t *testing.T, s journal.Store) (n int64) {
	t.Helper()
	l, err := s.View(t.Context(), &journal.Plan{Everything: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range l.Grants {
		n += int64(g.Reserved)
	}
	return n
}

func TestLostCommitAnswerIsFoundOut(t *testing.T) {
	for _, commits := range []bool{false, true} {
		s := &doubtful{Memory: journaltest.NewMemory(), commits: commits}
		j := openOn(t, s)
		s.times = 1
		r := one(7)
		if err := j.Reserve(t.Context(), r); err != nil || reserved(t, s) != 7 {
			t.Fatalf("commits %v: %v, %d reserved", commits, err, reserved(t, s))
		}
		s.times = 1
		if err := j.Settle(t.Context(), r.ID, journal.Used(3)); err != nil || reserved(t, s) != 0 {
			t.Fatalf("commits %v: %v, %d reserved", commits, err, reserved(t, s))
		}
	}
}

func TestInDoubtIsGivenBackLater(t *testing.T) {
	for _, commits := range []bool{false, true} {
		s := &doubtful{Memory: journaltest.NewMemory(), commits: commits}
		j := openOn(t, s)
		s.times = 2
		if err := j.Reserve(t.Context(), one(7)); !errors.Is(err, journal.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		if err := j.Reserve(t.Context(), one(2)); err != nil { // the store is well again
			t.Fatal(err)
		}
		if n := reserved(t, s); n != 2 {
			t.Fatalf("commits %v: %d are reserved", commits, n)
		}
	}
}

func TestStorageErrorDeniesAndKeeps(t *testing.T) {
	s := journaltest.NewMemory()
	j := openOn(t, s)
	r := one(7)
	if err := j.Reserve(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, committing := range []bool{false, true} {
		s.Fail = func(c bool) error {
			if c == committing {
				return journal.ErrUnavailable
			}
			return nil
		}
		if err := j.Reserve(t.Context(), one(1)); !errors.Is(err, journal.ErrUnavailable) {
			t.Fatal(err)
		}
		if err := j.Settle(t.Context(), r.ID, journal.NotSent()); !errors.Is(err, journal.ErrUnavailable) {
			t.Fatal(err)
		}
		if _, err := j.Next(t.Context(), false); !errors.Is(err, journal.ErrUnavailable) && committing == false {
			t.Fatal(err)
		}
		if n := reserved(t, s); n != 7 {
			t.Fatalf("%d are reserved", n)
		}
	}
	s.Fail = nil
	if err := j.Settle(t.Context(), r.ID, journal.NotSent()); err != nil || reserved(t, s) != 0 {
		t.Fatal(err)
	}
}

// TestCallersShareACommit: whoever comes while a commit is on its way goes with the next one;
// who leaves before that has no part in it, and who leaves meanwhile holds nothing.
func TestCallersShareACommit(t *testing.T) {
	s := &doubtful{Memory: journaltest.NewMemory()}
	j := openOn(t, s)
	s.gate, s.began = make(chan struct{}), make(chan struct{})
	leaving, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup // of everybody
	first := make(chan error, 1)
	wg.Go(func() { first <- j.Reserve(leaving, one(1)) })
	<-s.began
	const others = 20
	entered := make(chan struct{}, others+1)
	results := make(chan error, others+1)
	for range others {
		wg.Go(func() {
			entered <- struct{}{}
			results <- j.Reserve(t.Context(), one(1))
		})
	}
	wg.Go(func() {
		entered <- struct{}{}
		results <- j.Reserve(leaving, one(100))
	})
	for range others + 1 {
		<-entered
	}
	leave()
	steps := 0
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	s.gate <- struct{}{}
	for alive := true; alive; {
		select {
		case <-s.began:
			steps++
			s.gate <- struct{}{}
		case <-done:
			alive = false
		case <-time.After(time.Minute):
			t.Fatal("somebody waits for ever")
		}
	}
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Fatalf("the first was told %v", err)
	}
	gone := 0
	for range others + 1 {
		if err := <-results; errors.Is(err, context.Canceled) {
			gone++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if gone != 1 || steps > others+2 {
		t.Fatalf("%d have gone; %d commits", gone, steps)
	}
	s.gate = nil
	if n := reserved(t, s); n != others {
		t.Fatalf("%d are reserved by %d callers", n, others)
	}
}

func TestClosed(t *testing.T) {
	j := openOn(t, journaltest.NewMemory())
	if err := errors.Join(j.Close(), j.Close()); err != nil {
		t.Fatal(err)
	}
	if err := j.Reserve(t.Context(), one(1)); !errors.Is(err, journal.ErrClosed) {
		t.Fatal(err)
	}
	if err := j.Settle(t.Context(), journal.NewID(), journal.Used(1)); !errors.Is(err, journal.ErrClosed) {
		t.Fatal(err)
	}
	for _, bad := range []*journal.Options{{Receipts: -1}, {BatchLimit: 5000}, {StepTimeout: time.Hour}} {
		if _, err := journal.Open(t.Context(), journaltest.NewMemory(), bad); !errors.Is(err, journal.ErrInvalid) {
			t.Fatal(err)
		}
	}
}
