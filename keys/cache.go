package keys

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"
)

// CacheOptions bound a [Cache]. Zero fields take the defaults.
type CacheOptions struct {
	Size   int           // principals kept, default 10 000
	MaxAge time.Duration // of a principal by this process's clock, default 1 minute
}

// Cache keeps the principals of tokens that were resolved before.
//
// It is safe only where an admission follows that compares the principal's
// revision under its own lock: what it returns may be edited, expired or revoked
// by now. Endpoints that admit nothing must resolve at the store. Refusals are
// never kept, so a key works as soon as it is made. Principals are found by the
// hash of the token, and no token is kept.
//
// Concurrency: safe; callers who miss on the same token share one look-up.
type Cache struct {
	store  Resolver
	size   int
	maxAge time.Duration
	now    func() time.Time

	mu      sync.Mutex
	entries map[Hash]*list.Element // of *cached
	recent  *list.List             // front is the most recently used
	byKey   map[string]map[Hash]bool
	flights map[Hash]*flight
	evicted uint64 // counts Evict calls: a look-up begun before one is not kept
}

type cached struct {
	hash      Hash
	principal Principal
	until     time.Time
}

type flight struct {
	done      chan struct{}
	principal Principal
	err       error
	abandoned bool // its caller left: the result says nothing about the store
}

// NewCache returns an empty cache in front of store.
func NewCache(store Resolver, o *CacheOptions) *Cache {
	c := &Cache{
		store: store, size: 10_000, maxAge: time.Minute, now: time.Now,
		entries: make(map[Hash]*list.Element), recent: list.New(),
		byKey: make(map[string]map[Hash]bool), flights: make(map[Hash]*flight),
	}
	if o != nil && o.Size > 0 {
		c.size = o.Size
	}
	if o != nil && o.MaxAge > 0 {
		c.maxAge = o.MaxAge
	}
	return c
}

var _ Resolver = (*Cache)(nil)

// Resolve returns the kept principal, or asks the store. Errors: the store's.
func (c *Cache) Resolve(ctx context.Context, presented string) (Principal, error) {
	if len(presented) > maxTokenBytes {
		return Principal{}, ErrUnknown
	}
	hash := Hash(sha256.Sum256([]byte(presented)))
	for {
		c.mu.Lock()
		if p, ok := c.lookUp(hash); ok {
			c.mu.Unlock()
			return p, nil
		}
		f, shared := c.flights[hash]
		if !shared {
			f = &flight{done: make(chan struct{})}
			c.flights[hash] = f
			evicted := c.evicted
			c.mu.Unlock()
			return c.fly(ctx, f, hash, presented, evicted)
		}
		c.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return Principal{}, errors.Join(ErrUnavailable, ctx.Err())
		}
		if !f.abandoned {
			return f.principal, f.err
		}
	}
}

// fly asks the store for everyone who waits on f. A panic in the store must not
// leave them waiting.
func (c *Cache) fly(ctx context.Context, f *flight, hash Hash, presented string, evicted uint64) (Principal, error) {
	f.abandoned = true
	defer func() {
		c.mu.Lock()
		delete(c.flights, hash)
		if !f.abandoned && f.err == nil && c.evicted == evicted {
			c.keep(hash, f.principal)
		}
		c.mu.Unlock()
		close(f.done)
	}()
	f.principal, f.err = c.store.Resolve(ctx, presented)
	f.abandoned = f.err != nil && ctx.Err() != nil
	return f.principal, f.err
}

// Reload asks the store and keeps nothing. Errors: the store's.
func (c *Cache) Reload(ctx context.Context, p Principal) (Principal, error) {
	return c.store.Reload(ctx, p)
}

// Evict forgets every principal of a key, those now being looked up included.
func (c *Cache) Evict(keyID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evicted++
	for hash := range c.byKey[keyID] {
		c.drop(c.entries[hash])
	}
}

// Len returns how many principals are kept.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.Len()
}

func (c *Cache) lookUp(hash Hash) (Principal, bool) {
	element, ok := c.entries[hash]
	if !ok {
		return Principal{}, false
	}
	entry := element.Value.(*cached)
	if !c.now().Before(entry.until) {
		c.drop(element)
		return Principal{}, false
	}
	c.recent.MoveToFront(element)
	return entry.principal, true
}

func (c *Cache) keep(hash Hash, p Principal) {
	if old, ok := c.entries[hash]; ok {
		c.drop(old)
	}
	c.entries[hash] = c.recent.PushFront(&cached{hash: hash, principal: p, until: c.now().Add(c.maxAge)})
	if c.byKey[p.KeyID] == nil {
		c.byKey[p.KeyID] = make(map[Hash]bool)
	}
	c.byKey[p.KeyID][hash] = true
	for c.recent.Len() > c.size {
		c.drop(c.recent.Back())
	}
}

func (c *Cache) drop(element *list.Element) {
	entry := c.recent.Remove(element).(*cached)
	delete(c.entries, entry.hash)
	keyID := entry.principal.KeyID
	delete(c.byKey[keyID], entry.hash)
	if len(c.byKey[keyID]) == 0 {
		delete(c.byKey, keyID)
	}
}
