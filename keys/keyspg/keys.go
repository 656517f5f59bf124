package keyspg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/keys"
)

// CreateKey implements keys.Store.
func (s *Store) CreateKey(ctx context.Context, c keys.CreateKey) (keys.CreatedKey, error) {
	c, err := c.Prepare(s.format)
	if err != nil {
		return keys.CreatedKey{}, err
	}
	var key keys.Key
	err = s.edit(ctx, func(ctx context.Context, tx *pgtx.Tx) ([]keys.Event, error) {
		team, err := scanTeam(tx.QueryRow(ctx, s.sql.keepTeam, c.TeamID))
		if err != nil {
			return nil, err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return nil, err
		}
		var secret keys.Secret
		if key, secret, err = c.Apply(team, now); err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, s.sql.insertKey, key.Columns()...); err != nil {
			return nil, taken(err, keys.ErrExists)
		}
		_, err = tx.Exec(ctx, s.sql.insertSecret, secret.Columns()...)
		return []keys.Event{key.CreationEvent()}, taken(err, keys.ErrConflict)
	})
	return orZero(keys.CreatedKey{Key: key, Token: c.Token}, err)
}

// UpdateKey implements keys.Store.
func (s *Store) UpdateKey(ctx context.Context, u keys.UpdateKey) (keys.Key, error) {
	if err := u.Validate(); err != nil {
		return keys.Key{}, err
	}
	return s.editKey(ctx, u.ID, keys.Key.EditEvent, func(_ context.Context, _ *pgtx.Tx, current keys.Key, now time.Time) (keys.Key, bool, error) {
		return u.Apply(current, now)
	})
}

// RevokeKey implements keys.Store.
func (s *Store) RevokeKey(ctx context.Context, r keys.RevokeKey) (keys.Key, error) {
	if err := r.Validate(); err != nil {
		return keys.Key{}, err
	}
	return s.editKey(ctx, r.ID, keys.Key.EditEvent, func(_ context.Context, _ *pgtx.Tx, current keys.Key, now time.Time) (keys.Key, bool, error) {
		return r.Apply(current, now)
	})
}

// RevokeSelf implements keys.Store.
func (s *Store) RevokeSelf(ctx context.Context, p keys.Principal) (keys.Key, error) {
	if keys.ValidID(p.KeyID) != nil {
		return keys.Key{}, keys.ErrUnknown
	}
	key, err := s.editKey(ctx, p.KeyID, keys.Key.EditEvent, func(ctx context.Context, tx *pgtx.Tx, current keys.Key, now time.Time) (keys.Key, bool, error) {
		team, err := scanTeam(tx.QueryRow(ctx, s.sql.selectTeam, current.TeamID))
		if err != nil {
			return keys.Key{}, false, err
		}
		return p.RevokeSelf(current, team, now)
	})
	if errors.Is(err, keys.ErrNotFound) {
		err = keys.ErrUnknown
	}
	return key, err
}

type keyEdit func(ctx context.Context, tx *pgtx.Tx, current keys.Key, now time.Time) (next keys.Key, changed bool, err error)

func (s *Store) editKey(ctx context.Context, id string, told func(next, current keys.Key) keys.Event, apply keyEdit) (keys.Key, error) {
	var next keys.Key
	err := s.edit(ctx, func(ctx context.Context, tx *pgtx.Tx) ([]keys.Event, error) {
		current, err := scanKey(tx.QueryRow(ctx, s.sql.lockKey, id))
		if err != nil {
			return nil, err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return nil, err
		}
		var changed bool
		next, changed, err = apply(ctx, tx, current, now)
		if err != nil || !changed {
			return nil, err
		}
		return []keys.Event{told(next, current)}, one(ctx, tx, s.sql.updateKey, append(next.Columns(), current.Revision))
	})
	return confirm(ctx, s, next, err)
}

// RotateKey implements keys.Store.
func (s *Store) RotateKey(ctx context.Context, r keys.RotateKey) (keys.RotatedKey, error) {
	r, err := r.Prepare(s.format)
	if err != nil {
		return keys.RotatedKey{}, err
	}
	var done keys.Rotation
	told := func(keys.Key, keys.Key) keys.Event { return done.Event() }
	_, err = s.editKey(ctx, r.ID, told, func(ctx context.Context, tx *pgtx.Tx, current keys.Key, now time.Time) (keys.Key, bool, error) {
		earlier, err := scanRotation(tx.QueryRow(ctx, s.sql.selectRotation, r.ID, r.RotationID))
		if err != nil {
			return keys.Key{}, false, err
		}
		done, err = r.Apply(current, earlier, now)
		if err != nil || done.Replayed {
			return keys.Key{}, false, err
		}
		if _, err := tx.Exec(ctx, s.sql.retireSecrets, r.ID, done.RetireAt.UnixMicro()); err != nil {
			return keys.Key{}, false, err
		}
		_, err = tx.Exec(ctx, s.sql.insertSecret, done.Secret.Columns()...)
		return done.Key, true, taken(err, keys.ErrConflict)
	})
	if err != nil && !errors.Is(err, keys.ErrUnconfirmed) {
		return keys.RotatedKey{}, err
	}
	return r.Answer(done), err
}

// Key implements keys.Store.
func (s *Store) Key(ctx context.Context, id string) (keys.Key, error) {
	if err := keys.ValidID(id); err != nil {
		return keys.Key{}, err
	}
	var row keys.KeyRow
	if err := s.row(ctx, row.Targets(), s.sql.selectKey, id); err != nil {
		return keys.Key{}, coreError(found(err, keys.ErrNotFound))
	}
	return orZero(row.Key())
}

// Keys implements keys.Store.
func (s *Store) Keys(ctx context.Context, l keys.ListKeys) (keys.KeyPage, error) {
	l, err := l.Prepare()
	if err != nil {
		return keys.KeyPage{}, err
	}
	sql, args := s.sql.selectKeys, []any{l.After, l.Limit + 1}
	switch {
	case l.TeamID != "" && l.Owner != "":
		sql, args = s.sql.selectKeysOfTeamAndOwner, append(args, l.TeamID, l.Owner)
	case l.TeamID != "":
		sql, args = s.sql.selectKeysOfTeam, append(args, l.TeamID)
	case l.Owner != "":
		sql, args = s.sql.selectKeysOfOwner, append(args, l.Owner)
	}
	page, err := list(ctx, s, scanKey, sql, args...)
	if err != nil {
		return keys.KeyPage{}, err
	}
	return l.Page(page), nil
}

func scanKey(row pgx.Row) (keys.Key, error) {
	var r keys.KeyRow
	if err := row.Scan(r.Targets()...); err != nil {
		return keys.Key{}, found(err, keys.ErrNotFound)
	}
	return r.Key()
}

func scanRotation(row pgx.Row) (*keys.Secret, error) {
	var r keys.SecretRow
	if err := row.Scan(r.Targets()...); err != nil {
		return nil, found(err, nil)
	}
	secret, err := r.Secret()
	return &secret, err
}
