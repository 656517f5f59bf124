package keystest_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keystest"
)

// memory is a whole store in little code: load, decide in the core, write. With a
// mistake planted it shows that the suite finds it.
type memory struct {
	mu      *sync.Mutex
	mistake string
	format  keys.Format
	ahead   *time.Duration
	teams   map[string]keys.Team
	keys    map[string]keys.Key
	secrets map[keys.Hash]keys.Secret
	unknown map[string]bool // a mistake's memory

	declared map[keys.Name]keys.Declared
	told     *[]keys.Event
}

func newMemory(mistake string, format keys.Format) *memory {
	return &memory{
		mu: new(sync.Mutex), mistake: mistake, format: format, ahead: new(time.Duration),
		teams: map[string]keys.Team{}, keys: map[string]keys.Key{}, secrets: map[keys.Hash]keys.Secret{}, unknown: map[string]bool{},
		declared: map[keys.Name]keys.Declared{}, told: new([]keys.Event),
	}
}

// tell keeps what an edit says of itself.
func (m *memory) tell(events ...keys.Event) {
	if m.mistake == "a creation is not told" {
		events = slices.DeleteFunc(events, func(e keys.Event) bool { return strings.HasSuffix(e.Type, ".created") })
	}
	*m.told = append(*m.told, events...)
	if m.mistake == "the newest is told first" {
		slices.Reverse(*m.told)
	}
}

// under runs do alone, at the store's time.
func under[T any](ctx context.Context, m *memory, do func(now time.Time) (T, error)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil && m.mistake != "ignores the context" {
		if m.mistake == "an outage is a refusal" {
			return zero, keys.ErrUnknown
		}
		return zero, fmt.Errorf("%w: %w", keys.ErrUnavailable, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, err := do(time.Now().Add(*m.ahead))
	if err != nil {
		return zero, err
	}
	return v, nil
}

func (m *memory) CreateTeam(ctx context.Context, c keys.CreateTeam) (keys.Team, error) {
	c, err := c.Prepare()
	if err != nil {
		return keys.Team{}, err
	}
	return under(ctx, m, func(now time.Time) (keys.Team, error) {
		if old, ok := m.teams[c.ID]; ok && (old.DeletedAt == nil || m.mistake != "a tombstone's id is free") {
			return keys.Team{}, keys.ErrExists
		}
		team := c.Apply(now)
		if m.mistake == "lists are joined by commas" && team.AllowedModels != nil {
			team.AllowedModels = strings.Split(strings.Join(team.AllowedModels, ","), ",")
		}
		if m.mistake == "an empty list is none" && len(team.AllowedRegions) == 0 {
			team.AllowedRegions = nil
		}
		m.teams[c.ID] = team
		m.tell(team.CreationEvent())
		return team.Clone(), nil
	})
}

func (m *memory) UpdateTeam(ctx context.Context, u keys.UpdateTeam) (keys.Team, error) {
	if err := u.Validate(); err != nil {
		return keys.Team{}, err
	}
	return m.editTeam(ctx, u.ID, u.Apply)
}

func (m *memory) DeleteTeam(ctx context.Context, d keys.DeleteTeam) (keys.Team, error) {
	if err := d.Validate(); err != nil {
		return keys.Team{}, err
	}
	return m.editTeam(ctx, d.ID, d.Apply)
}

func (m *memory) editTeam(ctx context.Context, id string, apply func(keys.Team, time.Time) (keys.Team, bool, error)) (keys.Team, error) {
	return under(ctx, m, func(now time.Time) (keys.Team, error) {
		current, ok := m.teams[id]
		if !ok {
			return keys.Team{}, keys.ErrNotFound
		}
		next, changed, err := apply(current, now)
		if err == nil {
			m.teams[id] = next
		}
		if err == nil && (changed || m.mistake == "a repetition is told") {
			m.tell(next.EditEvent(current))
		}
		return next.Clone(), err
	})
}

func (m *memory) Team(ctx context.Context, id string) (keys.Team, error) {
	if err := keys.ValidID(id); err != nil {
		return keys.Team{}, err
	}
	return under(ctx, m, func(time.Time) (keys.Team, error) {
		team, ok := m.teams[id]
		if !ok {
			return keys.Team{}, keys.ErrNotFound
		}
		return team.Clone(), nil
	})
}

func (m *memory) Teams(ctx context.Context, l keys.ListTeams) (keys.TeamPage, error) {
	l, err := l.Prepare()
	if err != nil {
		return keys.TeamPage{}, err
	}
	return under(ctx, m, func(time.Time) (keys.TeamPage, error) {
		var out []keys.Team
		for _, team := range m.teams {
			if team.ID > l.After {
				out = append(out, team.Clone())
			}
		}
		slices.SortFunc(out, func(a, b keys.Team) int { return cmp.Compare(a.ID, b.ID) })
		return l.Page(out), nil
	})
}

func (m *memory) CreateKey(ctx context.Context, c keys.CreateKey) (keys.CreatedKey, error) {
	c, err := c.Prepare(m.format)
	if err != nil {
		return keys.CreatedKey{}, err
	}
	return under(ctx, m, func(now time.Time) (keys.CreatedKey, error) {
		team, ok := m.teams[c.TeamID]
		if !ok {
			return keys.CreatedKey{}, keys.ErrNotFound
		}
		if m.mistake == "a deleted team gets keys" {
			team.DeletedAt = nil
		}
		key, secret, err := c.Apply(team, now)
		if err != nil {
			return keys.CreatedKey{}, err
		}
		if old, taken := m.keys[key.ID]; taken && (old.RevokedAt == nil || m.mistake != "a declaration revives") {
			return keys.CreatedKey{}, keys.ErrExists
		}
		if _, taken := m.secrets[secret.Hash]; taken && m.mistake != "a token is used twice" {
			if m.mistake == "errors repeat their input" {
				return keys.CreatedKey{}, fmt.Errorf("%w: duplicate key value (hash)=(%x)", keys.ErrConflict, [32]byte(secret.Hash))
			}
			return keys.CreatedKey{}, keys.ErrConflict
		}
		m.keys[key.ID], m.secrets[secret.Hash] = key, secret
		m.tell(key.CreationEvent())
		return keys.CreatedKey{Key: key.Clone(), Token: c.Token}, nil
	})
}

func (m *memory) UpdateKey(ctx context.Context, u keys.UpdateKey) (keys.Key, error) {
	if err := u.Validate(); err != nil && m.mistake != "negative limits pass on update" {
		return keys.Key{}, err
	}
	return m.editKey(ctx, u.ID, keys.Key.EditEvent, func(current keys.Key, now time.Time) (keys.Key, bool, error) {
		switch m.mistake {
		case "an edit revives":
			current.RevokedAt = nil
		case "edits do not compare the revision":
			u.IfRevision = current.Revision
		}
		return u.Apply(current, now)
	})
}

func (m *memory) RevokeKey(ctx context.Context, r keys.RevokeKey) (keys.Key, error) {
	if err := r.Validate(); err != nil {
		return keys.Key{}, err
	}
	key, err := m.editKey(ctx, r.ID, keys.Key.EditEvent, func(current keys.Key, now time.Time) (keys.Key, bool, error) {
		if m.mistake == "revoking again stamps again" {
			current.RevokedAt = nil
		}
		return r.Apply(current, now)
	})
	if m.mistake == "revoking nothing is a success" && err != nil {
		return keys.Key{}, nil
	}
	return key, err
}

func (m *memory) RevokeSelf(ctx context.Context, p keys.Principal) (keys.Key, error) {
	key, err := m.editKey(ctx, p.KeyID, keys.Key.EditEvent, func(current keys.Key, now time.Time) (keys.Key, bool, error) {
		if m.mistake == "self-revocation compares nothing" {
			return keys.RevokeKey{ID: p.KeyID}.Apply(current, now)
		}
		return p.RevokeSelf(current, m.teams[current.TeamID], now)
	})
	if err == keys.ErrNotFound {
		err = keys.ErrUnknown
	}
	return key, err
}

func (m *memory) editKey(ctx context.Context, id string, told func(next, current keys.Key) keys.Event, apply func(keys.Key, time.Time) (keys.Key, bool, error)) (keys.Key, error) {
	return under(ctx, m, func(now time.Time) (keys.Key, error) {
		current, ok := m.keys[id]
		if !ok {
			return keys.Key{}, keys.ErrNotFound
		}
		if m.mistake == "edits are not alone" {
			m.mu.Unlock()
			time.Sleep(time.Millisecond)
			m.mu.Lock()
		}
		next, changed, err := apply(current, now)
		if err == nil {
			m.keys[id] = next
		}
		if err != nil && m.mistake == "a refusal is told" {
			m.tell(current.EditEvent(current))
		}
		if err == nil && changed {
			m.tell(told(next, current))
		}
		if m.mistake == "results are shared" {
			return next, err
		}
		return next.Clone(), err
	})
}

func (m *memory) RotateKey(ctx context.Context, r keys.RotateKey) (keys.RotatedKey, error) {
	r, err := r.Prepare(m.format)
	if err != nil {
		return keys.RotatedKey{}, err
	}
	var done keys.Rotation
	told := func(_, _ keys.Key) keys.Event {
		e := done.Event()
		if m.mistake != "a hash is told" {
			return e
		}
		e.Data = fmt.Appendf(nil, `{"x":"%x",%s`, [32]byte(done.Secret.Hash), e.Data[1:])
		return e
	}
	_, err = m.editKey(ctx, r.ID, told, func(current keys.Key, now time.Time) (keys.Key, bool, error) {
		var earlier *keys.Secret
		for _, s := range m.secrets {
			if (s.KeyID == r.ID || m.mistake == "rotation ids are global") && s.RotationID == r.RotationID && m.mistake != "a replay rotates again" {
				earlier = &s
			}
		}
		if m.mistake == "two rotations win" {
			r.IfRevision = current.Revision
		}
		var err error
		if done, err = r.Apply(current, earlier, now); err != nil || done.Replayed {
			return current, false, err
		}
		if _, taken := m.secrets[done.Secret.Hash]; taken {
			return keys.Key{}, false, keys.ErrConflict
		}
		for hash, s := range m.secrets {
			if s.KeyID == r.ID && (s.RetiresAt == nil || s.RetiresAt.After(done.RetireAt) || m.mistake == "a grace is lengthened") && m.mistake != "the old token stays" {
				s.RetiresAt = &done.RetireAt
				m.secrets[hash] = s
			}
		}
		m.secrets[done.Secret.Hash] = done.Secret
		if m.mistake == "a rotation resets the key" {
			done.Key.Limits = keys.Limits{}
		}
		return done.Key, true, nil
	})
	if err != nil {
		return keys.RotatedKey{}, err
	}
	return r.Answer(done), nil
}

func (m *memory) Key(ctx context.Context, id string) (keys.Key, error) {
	if err := keys.ValidID(id); err != nil {
		return keys.Key{}, err
	}
	return under(ctx, m, func(time.Time) (keys.Key, error) {
		key, ok := m.keys[id]
		if !ok {
			return keys.Key{}, keys.ErrNotFound
		}
		return key.Clone(), nil
	})
}

func (m *memory) Keys(ctx context.Context, l keys.ListKeys) (keys.KeyPage, error) {
	l, err := l.Prepare()
	if err != nil {
		return keys.KeyPage{}, err
	}
	return under(ctx, m, func(time.Time) (keys.KeyPage, error) {
		var out []keys.Key
		for _, key := range m.keys {
			owned := key.Owner == l.Owner || m.mistake == "owners compare without case" && strings.EqualFold(key.Owner, l.Owner)
			if key.ID > l.After && (l.TeamID == "" || key.TeamID == l.TeamID) && (l.Owner == "" || owned) &&
				(key.RevokedAt == nil || m.mistake != "listings drop the revoked") {
				out = append(out, key.Clone())
			}
		}
		order := func(a, b keys.Key) int { return cmp.Compare(a.ID, b.ID) }
		if m.mistake == "ids are ordered without case" {
			order = func(a, b keys.Key) int { return cmp.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID)) }
		}
		slices.SortFunc(out, order)
		page := l.Page(out)
		if m.mistake == "a full last page points on" && page.Next == "" && len(page.Keys) == l.Limit {
			page.Next = page.Keys[0].ID
		}
		return page, nil
	})
}

func (m *memory) Resolve(ctx context.Context, presented string) (keys.Principal, error) {
	if m.mistake == "space around a token is trimmed" {
		presented = strings.TrimSpace(presented)
	}
	token, err := m.format.Parse(presented)
	if err != nil && m.mistake != "a hash authenticates" {
		if m.mistake == "unknown says why" {
			return keys.Principal{}, fmt.Errorf("%w: malformed", keys.ErrUnknown)
		}
		return keys.Principal{}, err
	}
	return under(ctx, m, func(now time.Time) (keys.Principal, error) {
		hash := token.Hash()
		if err != nil {
			for h := range m.secrets {
				if fmt.Sprintf("%x", [32]byte(h)) == presented {
					hash = h
				}
			}
		}
		if m.unknown[presented] {
			return keys.Principal{}, keys.ErrUnknown
		}
		if _, ok := m.secrets[hash]; !ok && m.mistake == "unknown is remembered" {
			m.unknown[presented] = true
		}
		return m.authenticate(hash, now)
	})
}

func (m *memory) Reload(ctx context.Context, p keys.Principal) (keys.Principal, error) {
	return under(ctx, m, func(now time.Time) (keys.Principal, error) {
		if hash, ok := p.SecretHash(); ok && m.mistake != "a reload goes by the key" {
			return m.authenticate(hash, now)
		}
		key, ok := m.keys[p.KeyID]
		if !ok {
			return keys.Principal{}, keys.ErrUnknown
		}
		return keys.Identify(key.Clone(), m.teams[key.TeamID].Clone(), now)
	})
}

func (m *memory) authenticate(hash keys.Hash, now time.Time) (keys.Principal, error) {
	secret, ok := m.secrets[hash]
	if !ok {
		return keys.Principal{}, keys.ErrUnknown
	}
	key := m.keys[secret.KeyID]
	team := m.teams[key.TeamID]
	switch m.mistake {
	case "a deleted team's keys work":
		team.DeletedAt = nil
	case "expiry by the caller's clock":
		now = now.Add(-*m.ahead)
	case "expiry is not looked at":
		key.ExpiresAt = nil
	}
	return keys.Authenticate(hash, secret, key.Clone(), team.Clone(), now)
}

func harness(mistake string) keystest.Harness {
	with := func(_ testing.TB, f keys.Format) keys.Store { return newMemory(mistake, f) }
	return keystest.Harness{
		Features: keystest.Features{Handles: true, Clock: true, Formats: true, Rows: true, Events: true},
		New:      func(t testing.TB) keys.Store { return with(t, keys.Format{}) },
		NewWith:  with,
		Telling:  func(t testing.TB) keys.Store { return with(t, keys.Format{}) },
		Reopen: func(_ testing.TB, s keys.Store) keys.Store {
			again := *s.(*memory)
			if mistake == "revocations live in memory" {
				again.keys = map[string]keys.Key{}
				for id, key := range s.(*memory).keys {
					key.RevokedAt = nil
					again.keys[id] = key
				}
			}
			return &again
		},
		Advance: func(_ testing.TB, s keys.Store, d time.Duration) { *s.(*memory).ahead += d },
		Events: func(_ testing.TB, s keys.Store) []keys.Event {
			m := s.(*memory)
			m.mu.Lock()
			defer m.mu.Unlock()
			return slices.Clone(*m.told)
		},
	}
}
