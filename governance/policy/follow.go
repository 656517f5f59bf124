package policy

import (
	"context"
	"errors"
	"fmt"
)

// ErrFollows: the documents are an authority's, which sends them. They are edited there.
var ErrFollows = errors.New("policy: the set follows an authority's: edit it there")

// ErrRegressed: an authority's history went back. See [RegressedError].
var ErrRegressed = errors.New("policy: the authority's history went back")

// RegressedError is ErrRegressed with what is in force and what was offered in its place.
// Nothing changed. Where it is another authority, the node holds what the first one
// granted; otherwise a database was restored from a copy.
type RegressedError struct {
	Now     Mark
	Offered Mark
}

func (e *RegressedError) Error() string {
	if e.Now.Namespace != e.Offered.Namespace {
		return fmt.Sprintf("%s: authority %s was followed, and this is %s", ErrRegressed, e.Now.Namespace, e.Offered.Namespace)
	}
	return fmt.Sprintf("%s: revision %d is in force, and %d was offered", ErrRegressed, e.Now.Revision, e.Offered.Revision)
}

// Is makes errors.Is(err, ErrRegressed) hold.
func (e *RegressedError) Is(target error) bool { return target == ErrRegressed }

// NewFollower makes a Memory that has no set of its own: what an authority sends is put
// in force by Follow, and Apply, Delete and Replace are ErrFollows. Until it follows one, its mark
// has no namespace, and nothing may be admitted by it.
func NewFollower() *Memory {
	set, err := NewSet(nil)
	if err != nil {
		panic(err) // nothing is always a set
	}
	m := &Memory{old: map[*held]bool{}, follower: true}
	m.now = &held{snapshot: Snapshot{Mark: Mark{Generation: set.generation}, Set: set}, ended: make(chan struct{})}
	return m
}

// Follow puts an authority's set in force, under the authority's mark. The first one that
// is followed is followed for good.
//
// Concurrency: as an edit of Store: it returns nil when every step that read an older set has ended.
// Retry: safe. The mark that is in force changes nothing and waits again.
// Errors: *Error for a Memory with a set of its own and for documents that are not the mark's,
// *RegressedError for an older mark or another authority, ErrUnavailable: nothing
// changed. ErrUnconfirmed: it is in force, and the waiting failed.
//
// Source: ADR-045 "What a node decides".
func (m *Memory) Follow(ctx context.Context, mark Mark, set *Set) error {
	switch {
	case !m.follower:
		return refuse("", "a store with documents of its own follows nobody")
	case mark.Namespace.IsZero() || mark.Revision < 1:
		return refuse("mark", "must be an authority's")
	case set.Generation() != mark.Generation:
		return refuse("documents", "must be those of the mark's generation")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	m.mu.Lock()
	now := m.now.snapshot.Mark
	if err := now.Precedes(mark); err != nil {
		m.mu.Unlock()
		return err
	}
	if mark != now {
		m.put(Snapshot{Mark: mark, Set: set})
	}
	old := m.holding()
	m.mu.Unlock()
	return m.confirm(ctx, old)
}

// Precedes refuses a mark that neither is this one nor comes after it. Every mark comes after
// the zero Mark, and after that of a Memory that has followed nobody yet.
//
// Errors: *RegressedError.
func (m Mark) Precedes(next Mark) error {
	switch {
	case m.Namespace.IsZero(), m == next:
		return nil
	case m.Namespace != next.Namespace, next.Revision <= m.Revision:
		return &RegressedError{Now: m, Offered: next}
	}
	return nil
}
