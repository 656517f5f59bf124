package governancemem

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// Keys keeps teams and keys. Every edit is the core's own pure function.
type Keys struct{ d *data }

// under runs f under the mutex at the store's time.
func under[T any](ctx context.Context, k *Keys, f func(d *data, now time.Time) (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, fmt.Errorf("%w: %w", keys.ErrUnavailable, err)
	}
	k.d.mu.Lock()
	defer k.d.mu.Unlock()
	return f(k.d, k.d.now())
}

// CreateTeam implements keys.Store.
func (k *Keys) CreateTeam(ctx context.Context, c keys.CreateTeam) (keys.Team, error) {
	c, err := c.Prepare()
	if err != nil {
		return keys.Team{}, err
	}
	return under(ctx, k, func(d *data, now time.Time) (keys.Team, error) {
		if _, ok := d.teams[c.ID]; ok {
			return keys.Team{}, keys.ErrExists
		}
		team := c.Apply(now)
		d.teams[team.ID] = team
		return team.Clone(), nil
	})
}

// UpdateTeam implements keys.Store.
func (k *Keys) UpdateTeam(ctx context.Context, u keys.UpdateTeam) (keys.Team, error) {
	if err := u.Validate(); err != nil {
		return keys.Team{}, err
	}
	return under(ctx, k, func(d *data, now time.Time) (keys.Team, error) { return d.editTeam(u.ID, now, u.Apply) })
}

// DeleteTeam implements keys.Store.
func (k *Keys) DeleteTeam(ctx context.Context, t keys.DeleteTeam) (keys.Team, error) {
	if err := t.Validate(); err != nil {
		return keys.Team{}, err
	}
	return under(ctx, k, func(d *data, now time.Time) (keys.Team, error) { return d.editTeam(t.ID, now, t.Apply) })
}

func (d *data) editTeam(id string, now time.Time, apply func(keys.Team, time.Time) (keys.Team, bool, error)) (keys.Team, error) {
	current, ok := d.teams[id]
	if !ok {
		return keys.Team{}, keys.ErrNotFound
	}
	next, changed, err := apply(current, now)
	if err != nil {
		return keys.Team{}, err
	}
	if changed {
		d.teams[id] = next
	}
	return next.Clone(), nil
}

// Team implements keys.Store.
func (k *Keys) Team(ctx context.Context, id string) (keys.Team, error) {
	if err := keys.ValidID(id); err != nil {
		return keys.Team{}, err
	}
	return under(ctx, k, func(d *data, _ time.Time) (keys.Team, error) {
		team, ok := d.teams[id]
		if !ok {
			return keys.Team{}, keys.ErrNotFound
		}
		return team.Clone(), nil
	})
}

// Teams implements keys.Store.
func (k *Keys) Teams(ctx context.Context, l keys.ListTeams) (keys.TeamPage, error) {
	l, err := l.Prepare()
	if err != nil {
		return keys.TeamPage{}, err
	}
	return under(ctx, k, func(d *data, _ time.Time) (keys.TeamPage, error) {
		return l.Page(page(d.teams, l.After, l.Limit, func(keys.Team) bool { return true }, keys.Team.Clone)), nil
	})
}

// page reads one row more than the limit, in the order of the ids.
func page[T any](rows map[string]T, after string, limit int, match func(T) bool, clone func(T) T) []T {
	var list []T
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		if id > after && match(rows[id]) {
			if list = append(list, clone(rows[id])); len(list) > limit {
				break
			}
		}
	}
	return list
}

// CreateKey implements keys.Store.
func (k *Keys) CreateKey(ctx context.Context, c keys.CreateKey) (keys.CreatedKey, error) {
	c, err := c.Prepare(k.d.format)
	if err != nil {
		return keys.CreatedKey{}, err
	}
	return under(ctx, k, func(d *data, now time.Time) (keys.CreatedKey, error) {
		team, ok := d.teams[c.TeamID]
		if !ok {
			return keys.CreatedKey{}, keys.ErrNotFound
		}
		key, secret, err := c.Apply(team, now)
		if err != nil {
			return keys.CreatedKey{}, err
		}
		if _, ok := d.keys[key.ID]; ok {
			return keys.CreatedKey{}, keys.ErrExists
		}
		if _, ok := d.secrets[secret.Hash]; ok {
			return keys.CreatedKey{}, keys.ErrConflict
		}
		d.keys[key.ID], d.secrets[secret.Hash] = key, secret
		return keys.CreatedKey{Key: key.Clone(), Token: c.Token}, nil
	})
}

// UpdateKey implements keys.Store.
func (k *Keys) UpdateKey(ctx context.Context, u keys.UpdateKey) (keys.Key, error) {
	if err := u.Validate(); err != nil {
		return keys.Key{}, err
	}
	return under(ctx, k, func(d *data, now time.Time) (keys.Key, error) { return d.editKey(u.ID, now, u.Apply) })
}

// RevokeKey implements keys.Store.
func (k *Keys) RevokeKey(ctx context.Context, r keys.RevokeKey) (keys.Key, error) {
	if err := r.Validate(); err != nil {
		return keys.Key{}, err
	}
	return under(ctx, k, func(d *data, now time.Time) (keys.Key, error) { return d.editKey(r.ID, now, r.Apply) })
}

func (d *data) editKey(id string, now time.Time, apply func(keys.Key, time.Time) (keys.Key, bool, error)) (keys.Key, error) {
	current, ok := d.keys[id]
	if !ok {
		return keys.Key{}, keys.ErrNotFound
	}
	next, changed, err := apply(current, now)
	if err != nil {
		return keys.Key{}, err
	}
	if changed {
		d.keys[id] = next
	}
	return next.Clone(), nil
}

// RevokeSelf implements keys.Store.
func (k *Keys) RevokeSelf(ctx context.Context, p keys.Principal) (keys.Key, error) {
	return under(ctx, k, func(d *data, now time.Time) (keys.Key, error) {
		key, ok := d.keys[p.KeyID]
		if !ok {
			return keys.Key{}, keys.ErrUnknown
		}
		next, changed, err := p.RevokeSelf(key, d.teams[key.TeamID], now)
		if err != nil {
			return keys.Key{}, err
		}
		if changed {
			d.keys[key.ID] = next
		}
		return next.Clone(), nil
	})
}

// RotateKey implements keys.Store.
func (k *Keys) RotateKey(ctx context.Context, r keys.RotateKey) (keys.RotatedKey, error) {
	r, err := r.Prepare(k.d.format)
	if err != nil {
		return keys.RotatedKey{}, err
	}
	return under(ctx, k, func(d *data, now time.Time) (keys.RotatedKey, error) {
		current, ok := d.keys[r.ID]
		if !ok {
			return keys.RotatedKey{}, keys.ErrNotFound
		}
		var earlier *keys.Secret
		for _, s := range d.secrets {
			if s.KeyID == r.ID && s.RotationID == r.RotationID {
				earlier = &s
			}
		}
		done, err := r.Apply(current, earlier, now)
		if err != nil {
			return keys.RotatedKey{}, err
		}
		if !done.Replayed {
			if _, taken := d.secrets[done.Secret.Hash]; taken {
				return keys.RotatedKey{}, keys.ErrConflict
			}
			for hash, s := range d.secrets {
				if s.KeyID == r.ID && (s.RetiresAt == nil || s.RetiresAt.After(done.RetireAt)) {
					at := done.RetireAt
					s.RetiresAt = &at
					d.secrets[hash] = s
				}
			}
			d.keys[r.ID], d.secrets[done.Secret.Hash] = done.Key, done.Secret
		}
		done.Key = done.Key.Clone()
		return r.Answer(done), nil
	})
}

// Key implements keys.Store.
func (k *Keys) Key(ctx context.Context, id string) (keys.Key, error) {
	if err := keys.ValidID(id); err != nil {
		return keys.Key{}, err
	}
	return under(ctx, k, func(d *data, _ time.Time) (keys.Key, error) {
		key, ok := d.keys[id]
		if !ok {
			return keys.Key{}, keys.ErrNotFound
		}
		return key.Clone(), nil
	})
}

// Keys implements keys.Store.
func (k *Keys) Keys(ctx context.Context, l keys.ListKeys) (keys.KeyPage, error) {
	l, err := l.Prepare()
	if err != nil {
		return keys.KeyPage{}, err
	}
	match := func(key keys.Key) bool {
		return (l.TeamID == "" || key.TeamID == l.TeamID) && (l.Owner == "" || key.Owner == l.Owner)
	}
	return under(ctx, k, func(d *data, _ time.Time) (keys.KeyPage, error) {
		return l.Page(page(d.keys, l.After, l.Limit, match, keys.Key.Clone)), nil
	})
}

// Resolve implements keys.Store.
func (k *Keys) Resolve(ctx context.Context, presented string) (keys.Principal, error) {
	token, err := k.d.format.Parse(presented)
	if err != nil {
		return keys.Principal{}, keys.ErrUnknown
	}
	return under(ctx, k, func(d *data, now time.Time) (keys.Principal, error) { return d.authenticate(token.Hash(), now) })
}

// Reload implements keys.Store.
func (k *Keys) Reload(ctx context.Context, p keys.Principal) (keys.Principal, error) {
	return under(ctx, k, func(d *data, now time.Time) (keys.Principal, error) {
		if hash, ok := p.SecretHash(); ok {
			return d.authenticate(hash, now)
		}
		key, ok := d.keys[p.KeyID]
		if !ok {
			return keys.Principal{}, keys.ErrUnknown
		}
		return keys.Identify(key.Clone(), d.teams[key.TeamID].Clone(), now)
	})
}

func (d *data) authenticate(hash keys.Hash, now time.Time) (keys.Principal, error) {
	secret, ok := d.secrets[hash]
	if !ok {
		return keys.Principal{}, keys.ErrUnknown
	}
	key := d.keys[secret.KeyID]
	return keys.Authenticate(hash, secret, key.Clone(), d.teams[key.TeamID].Clone(), now)
}
