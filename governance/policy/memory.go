package policy

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"
)

// Memory is a Store in the process, for a gateway that reads its documents from files. What
// it holds ends with the process. It is safe for concurrent use; make it with NewMemory, or, where
// the documents are an authority's, with NewFollower.
type Memory struct {
	mu  sync.Mutex
	now *held
	old map[*held]bool // versions that some step still holds

	follower bool // the set is an authority's
}

var _ Store = (*Memory)(nil)

// held is one version of the set, and how many steps hold it.
type held struct {
	snapshot Snapshot
	holders  int
	ended    chan struct{} // closed when it is an old version and its last holder has ended
}

// confirmWait bounds how long an edit waits for steps, whatever the context allows.
const confirmWait = 10 * time.Second

// NewMemory makes an empty store, with a namespace of its own.
func NewMemory() *Memory {
	set, err := NewSet(nil)
	if err != nil {
		panic(err) // nothing is always a set
	}
	m := &Memory{old: map[*held]bool{}}
	m.now = &held{snapshot: Snapshot{Mark: Mark{Generation: set.generation, Revision: 1}, Set: set}, ended: make(chan struct{})}
	_, _ = rand.Read(m.now.snapshot.Namespace[:]) // never fails
	return m
}

// Hold pins the set that is in force until release is called, which may be done more than once. An
// edit that is made meanwhile is in force for whoever holds after it, and returns when
// all who held before it have released. Whoever edits while holding waits for itself.
func (m *Memory) Hold() (now Snapshot, release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.now
	h.holders++
	return h.snapshot, sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		h.holders--
		m.end(h)
	})
}

// end forgets a version that is neither in force nor held.
func (m *Memory) end(h *held) {
	if h.holders == 0 && m.old[h] {
		delete(m.old, h)
		close(h.ended)
	}
}

// Load implements Store.
func (m *Memory) Load(ctx context.Context) (Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.snapshot, nil
}

// Mark implements Store.
func (m *Memory) Mark(ctx context.Context) (Mark, error) {
	now, err := m.Load(ctx)
	return now.Mark, err
}

// Apply implements Store.
func (m *Memory) Apply(ctx context.Context, a Apply) (Snapshot, error) { return m.edit(ctx, a.Prepare) }

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, d Delete) (Snapshot, error) {
	return m.edit(ctx, d.Prepare)
}

// Replace implements Store.
func (m *Memory) Replace(ctx context.Context, r Replace) (Snapshot, error) {
	return m.edit(ctx, r.Prepare)
}

func (m *Memory) edit(ctx context.Context, prepare func() (*Edit, error)) (Snapshot, error) {
	if m.follower {
		return Snapshot{}, ErrFollows
	}
	e, err := prepare()
	if err != nil {
		return Snapshot{}, err
	}
	if err := ctx.Err(); err != nil {
		return Snapshot{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	now, old, err := m.commit(e)
	if err != nil {
		return Snapshot{}, err
	}
	return now, m.confirm(ctx, old)
}

// confirm waits until the last holders of older versions have ended.
func (m *Memory) confirm(ctx context.Context, old []*held) error {
	ctx, cancel := context.WithTimeout(ctx, confirmWait)
	defer cancel()
	for _, h := range old {
		select {
		case <-h.ended:
		case <-ctx.Done():
			return fmt.Errorf("%w: steps that hold the older set are still running; repeat the edit to wait again: %w", ErrUnconfirmed, ctx.Err())
		}
	}
	return nil
}

// commit puts the edited set in force, and lists the older versions that are still held.
func (m *Memory) commit(e *Edit) (Snapshot, []*held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now.snapshot
	next, err := e.On(now)
	if err != nil {
		return Snapshot{}, nil, err
	}
	if next == now.Set {
		return now, m.holding(), nil
	}
	now.Set, now.Generation, now.Revision = next, next.generation, now.Revision+1
	m.put(now)
	return now, m.holding(), nil
}

// put puts a version in the place of the one that is in force. The lock is held.
func (m *Memory) put(next Snapshot) {
	was := m.now
	m.now = &held{snapshot: next, ended: make(chan struct{})}
	m.old[was] = true
	m.end(was)
}

// holding lists the older versions that are still held. The lock is held.
func (m *Memory) holding() []*held {
	old := make([]*held, 0, len(m.old))
	for h := range m.old {
		old = append(old, h)
	}
	return old
}
