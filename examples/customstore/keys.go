package customstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tallystick-go/tallystick/keys"
)

// Keys keeps teams and keys.
type Keys struct{ *store }

// inside runs fn in a writing or reading transaction at the store's time.
func inside[T any](ctx context.Context, k *Keys, transact func(func(*bbolt.Tx) error) error, fn func(tx *bbolt.Tx, now time.Time) (T, error)) (T, error) {
	var out T
	if err := ctx.Err(); err != nil {
		return out, fmt.Errorf("%w: %w", keys.ErrUnavailable, err)
	}
	var own error // what the core said; the file's errors are not told
	err := transact(func(tx *bbolt.Tx) error {
		out, own = fn(tx, k.now())
		return own
	})
	if err != nil {
		var none T
		if own == nil || errors.Is(own, errAbsent) {
			return none, fmt.Errorf("%w: the file cannot be used", keys.ErrUnavailable)
		}
		return none, own
	}
	return out, nil
}

// CreateTeam implements keys.Store.
func (k *Keys) CreateTeam(ctx context.Context, c keys.CreateTeam) (keys.Team, error) {
	c, err := c.Prepare()
	if err != nil {
		return keys.Team{}, err
	}
	return inside(ctx, k, k.file.Update, func(tx *bbolt.Tx, now time.Time) (keys.Team, error) {
		if tx.Bucket(teams).Get([]byte(c.ID)) != nil {
			return keys.Team{}, keys.ErrExists
		}
		team := c.Apply(now)
		return team, put(tx, teams, []byte(team.ID), team)
	})
}

// UpdateTeam implements keys.Store.
func (k *Keys) UpdateTeam(ctx context.Context, u keys.UpdateTeam) (keys.Team, error) {
	if err := u.Validate(); err != nil {
		return keys.Team{}, err
	}
	return edit(ctx, k, teams, u.ID, u.Apply)
}

// DeleteTeam implements keys.Store.
func (k *Keys) DeleteTeam(ctx context.Context, d keys.DeleteTeam) (keys.Team, error) {
	if err := d.Validate(); err != nil {
		return keys.Team{}, err
	}
	return edit(ctx, k, teams, d.ID, d.Apply)
}

// edit applies one of the core's pure edits to one row.
func edit[T any](ctx context.Context, k *Keys, bucket []byte, id string, apply func(T, time.Time) (T, bool, error)) (T, error) {
	return inside(ctx, k, k.file.Update, func(tx *bbolt.Tx, now time.Time) (T, error) {
		current, err := get[T](tx, bucket, id)
		if err != nil {
			return current, err
		}
		next, changed, err := apply(current, now)
		if err != nil || !changed {
			return next, err
		}
		return next, put(tx, bucket, []byte(id), next)
	})
}

func get[T any](tx *bbolt.Tx, bucket []byte, id string) (row T, err error) {
	if err = read(tx, bucket, []byte(id), &row); errors.Is(err, errAbsent) {
		err = keys.ErrNotFound
	}
	return row, err
}

// one reads one row by its id.
func one[T any](ctx context.Context, k *Keys, bucket []byte, id string) (T, error) {
	if err := keys.ValidID(id); err != nil {
		var none T
		return none, err
	}
	return inside(ctx, k, k.file.View, func(tx *bbolt.Tx, _ time.Time) (T, error) { return get[T](tx, bucket, id) })
}

// page reads one row more than the limit, behind a key, in the order of the ids.
func page[T any](tx *bbolt.Tx, bucket []byte, after string, limit int, match func(T) bool) (rows []T, err error) {
	cursor := tx.Bucket(bucket).Cursor()
	for id, _ := cursor.Seek([]byte(after)); id != nil && len(rows) <= limit; id, _ = cursor.Next() {
		if bytes.Equal(id, []byte(after)) {
			continue
		}
		row, err := get[T](tx, bucket, string(id))
		if err != nil {
			return nil, err
		}
		if match(row) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// Team implements keys.Store.
func (k *Keys) Team(ctx context.Context, id string) (keys.Team, error) {
	return one[keys.Team](ctx, k, teams, id)
}

// Teams implements keys.Store.
func (k *Keys) Teams(ctx context.Context, l keys.ListTeams) (keys.TeamPage, error) {
	l, err := l.Prepare()
	if err != nil {
		return keys.TeamPage{}, err
	}
	return inside(ctx, k, k.file.View, func(tx *bbolt.Tx, _ time.Time) (keys.TeamPage, error) {
		rows, err := page(tx, teams, l.After, l.Limit, func(keys.Team) bool { return true })
		return l.Page(rows), err
	})
}

// CreateKey implements keys.Store.
func (k *Keys) CreateKey(ctx context.Context, c keys.CreateKey) (keys.CreatedKey, error) {
	c, err := c.Prepare(keys.Format{})
	if err != nil {
		return keys.CreatedKey{}, err
	}
	return inside(ctx, k, k.file.Update, func(tx *bbolt.Tx, now time.Time) (keys.CreatedKey, error) {
		team, err := get[keys.Team](tx, teams, c.TeamID)
		if err != nil {
			return keys.CreatedKey{}, err
		}
		key, secret, err := c.Apply(team, now)
		switch {
		case err != nil:
			return keys.CreatedKey{}, err
		case tx.Bucket(people).Get([]byte(key.ID)) != nil:
			return keys.CreatedKey{}, keys.ErrExists
		case tx.Bucket(secrets).Get(secret.Hash[:]) != nil:
			return keys.CreatedKey{}, keys.ErrConflict
		}
		if err := put(tx, people, []byte(key.ID), key); err != nil {
			return keys.CreatedKey{}, err
		}
		return keys.CreatedKey{Key: key, Token: c.Token}, putSecret(tx, secret)
	})
}

// UpdateKey implements keys.Store.
func (k *Keys) UpdateKey(ctx context.Context, u keys.UpdateKey) (keys.Key, error) {
	if err := u.Validate(); err != nil {
		return keys.Key{}, err
	}
	return edit(ctx, k, people, u.ID, u.Apply)
}

// RevokeKey implements keys.Store.
func (k *Keys) RevokeKey(ctx context.Context, r keys.RevokeKey) (keys.Key, error) {
	if err := r.Validate(); err != nil {
		return keys.Key{}, err
	}
	return edit(ctx, k, people, r.ID, r.Apply)
}

// RevokeSelf implements keys.Store.
func (k *Keys) RevokeSelf(ctx context.Context, p keys.Principal) (keys.Key, error) {
	return inside(ctx, k, k.file.Update, func(tx *bbolt.Tx, now time.Time) (keys.Key, error) {
		key, team, err := keyAndTeam(tx, p.KeyID)
		if errors.Is(err, keys.ErrNotFound) {
			return keys.Key{}, keys.ErrUnknown
		}
		if err != nil {
			return keys.Key{}, err
		}
		next, changed, err := p.RevokeSelf(key, team, now)
		if err != nil || !changed {
			return next, err
		}
		return next, put(tx, people, []byte(key.ID), next)
	})
}

// Key implements keys.Store.
func (k *Keys) Key(ctx context.Context, id string) (keys.Key, error) {
	return one[keys.Key](ctx, k, people, id)
}

// Keys implements keys.Store.
func (k *Keys) Keys(ctx context.Context, l keys.ListKeys) (keys.KeyPage, error) {
	l, err := l.Prepare()
	if err != nil {
		return keys.KeyPage{}, err
	}
	return inside(ctx, k, k.file.View, func(tx *bbolt.Tx, _ time.Time) (keys.KeyPage, error) {
		rows, err := page(tx, people, l.After, l.Limit, func(key keys.Key) bool {
			return (l.TeamID == "" || key.TeamID == l.TeamID) && (l.Owner == "" || key.Owner == l.Owner)
		})
		return l.Page(rows), err
	})
}

func keyAndTeam(tx *bbolt.Tx, id string) (keys.Key, keys.Team, error) {
	key, err := get[keys.Key](tx, people, id)
	if err != nil {
		return keys.Key{}, keys.Team{}, err
	}
	team, err := get[keys.Team](tx, teams, key.TeamID)
	return key, team, err
}
