package keys

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"strings"
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
// Where an admission follows that compares the principal's revision under its own lock, as in the profile shared, what the
// cache returns decides nothing, and its age is harmless. Everything else sees a key as it was: by at most the time in which the
// event log is followed ([Cache.Follow], [Cache.Clear]; in Postgres keyspg.Following does both), or MaxAge where nobody follows it or
// following fails. That a key expires, or the grace of a rotation ends, is no event: a principal is kept until then and no longer.
// Endpoints that cannot bear the age of an edit resolve at the store. Refusals are never kept, so a key works as soon as it is made.
// Principals are found by the hash of the token, and no token is kept.
//
// Concurrency: safe; callers who miss on the same token share one look-up. A look-up that was under way when its key, its team or everything
// was evicted is neither kept nor given to anybody who comes afterwards.
//
// Source: ADR-020 "Events of keys, teams and policies".
type Cache struct {
	store  Resolver
	size   int
	maxAge time.Duration
	now    func() time.Time

	mu      sync.Mutex
	entries map[Hash]*list.Element // of *cached
	recent  *list.List             // front is the most recently used
	byKey   map[string]map[Hash]bool
	byTeam  map[string]map[Hash]bool
	flights map[Hash]*flight // those that may be joined, and kept
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

// NewCache returns an empty cache in front of store; nil options are the defaults.
func NewCache(store Resolver, o *CacheOptions) *Cache {
	c := &Cache{
		store: store, size: 10_000, maxAge: time.Minute, now: time.Now,
		entries: make(map[Hash]*list.Element), recent: list.New(),
		byKey: make(map[string]map[Hash]bool), byTeam: make(map[string]map[Hash]bool), flights: make(map[Hash]*flight),
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
			c.mu.Unlock()
			return c.fly(ctx, f, hash, presented)
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
func (c *Cache) fly(ctx context.Context, f *flight, hash Hash, presented string) (Principal, error) {
	f.abandoned = true
	began := c.now()
	defer func() {
		c.mu.Lock()
		if c.flights[hash] == f { // else something was evicted meanwhile, and what was read may be older than that
			delete(c.flights, hash)
			if !f.abandoned && f.err == nil {
				c.keep(hash, f.principal, began)
			}
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

// Evict forgets every principal of a key.
func (c *Cache) Evict(keyID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(c.byKey[keyID])
}

// EvictTeam forgets every principal of a team's keys.
func (c *Cache) EvictTeam(teamID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(c.byTeam[teamID])
}

// Clear forgets everything: for who has missed events, or cannot know.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
	clear(c.byKey)
	clear(c.byTeam)
	c.recent.Init()
	c.forget(nil)
}

// Follow forgets what an event may have changed and reports whether that is this package's business. It goes by the
// stream alone, so that it also obeys an event that only a later version can read. An event that comes late, or twice, costs a look-up.
func (c *Cache) Follow(stream string) bool {
	if id, is := strings.CutPrefix(stream, keyStream); is {
		c.Evict(id)
		return true
	}
	if id, is := strings.CutPrefix(stream, teamStream); is {
		c.EvictTeam(id)
		return true
	}
	return stream == importStream // an import adds, and what was not there is not kept
}

// forget drops entries. Whose principals are under way nobody knows yet, so none of them is kept or joined from now on.
func (c *Cache) forget(hashes map[Hash]bool) {
	for hash := range hashes {
		c.drop(c.entries[hash])
	}
	clear(c.flights)
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

func (c *Cache) keep(hash Hash, p Principal, began time.Time) {
	if old, ok := c.entries[hash]; ok {
		c.drop(old)
	}
	c.entries[hash] = c.recent.PushFront(&cached{hash: hash, principal: p, until: began.Add(p.lasts(c.maxAge))})
	index(c.byKey, p.KeyID, hash)
	index(c.byTeam, p.TeamID, hash)
	for c.recent.Len() > c.size {
		c.drop(c.recent.Back())
	}
}

func (c *Cache) drop(element *list.Element) {
	entry := c.recent.Remove(element).(*cached)
	delete(c.entries, entry.hash)
	unindex(c.byKey, entry.principal.KeyID, entry.hash)
	unindex(c.byTeam, entry.principal.TeamID, entry.hash)
}

func index(by map[string]map[Hash]bool, id string, hash Hash) {
	if by[id] == nil {
		by[id] = make(map[Hash]bool)
	}
	by[id][hash] = true
}

func unindex(by map[string]map[Hash]bool, id string, hash Hash) {
	delete(by[id], hash)
	if len(by[id]) == 0 {
		delete(by, id)
	}
}
