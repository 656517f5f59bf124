package keyssqlite

import (
	"context"
	"time"

	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/keys"
)

// CreateKey implements keys.Store.
func (s *Store) CreateKey(ctx context.Context, c keys.CreateKey) (keys.CreatedKey, error) {
	c, err := c.Prepare(s.format)
	if err != nil {
		return keys.CreatedKey{}, err
	}
	var key keys.Key
	err = s.telling(ctx, func(tx *sqlitetx.Tx) ([]keys.Event, error) {
		team, err := readTeam(tx, c.TeamID)
		if err != nil {
			return nil, err
		}
		var secret keys.Secret
		if key, secret, err = c.Apply(team, now(tx)); err != nil {
			return nil, err
		}
		if _, err := tx.Exec(insertKey, key.Columns()...); err != nil {
			return nil, taken(err, keys.ErrExists)
		}
		_, err = tx.Exec(insertSecret, secret.Columns()...)
		return []keys.Event{key.CreationEvent()}, taken(err, keys.ErrConflict)
	})
	return orZero(keys.CreatedKey{Key: key, Token: c.Token}, err)
}

// UpdateKey implements keys.Store.
func (s *Store) UpdateKey(ctx context.Context, u keys.UpdateKey) (keys.Key, error) {
	if err := u.Validate(); err != nil {
		return keys.Key{}, err
	}
	return s.editKey(ctx, u.ID, u.Apply)
}

// RevokeKey implements keys.Store.
func (s *Store) RevokeKey(ctx context.Context, r keys.RevokeKey) (keys.Key, error) {
	if err := r.Validate(); err != nil {
		return keys.Key{}, err
	}
	return s.editKey(ctx, r.ID, r.Apply)
}

func (s *Store) editKey(ctx context.Context, id string, apply func(keys.Key, time.Time) (keys.Key, bool, error)) (keys.Key, error) {
	return edit(ctx, s, func(tx *sqlitetx.Tx) (keys.Key, error) { return readKey(tx, id) }, apply, keys.Key.EditEvent, writeKey)
}

// RevokeSelf implements keys.Store.
func (s *Store) RevokeSelf(ctx context.Context, p keys.Principal) (keys.Key, error) {
	if keys.ValidID(p.KeyID) != nil {
		return keys.Key{}, keys.ErrUnknown
	}
	var next keys.Key
	err := s.telling(ctx, func(tx *sqlitetx.Tx) ([]keys.Event, error) {
		current, team, err := readKeyAndTeam(tx, p.KeyID)
		if err != nil {
			return nil, err
		}
		var changed bool
		next, changed, err = p.RevokeSelf(current, team, now(tx))
		if err != nil || !changed {
			return nil, err
		}
		return []keys.Event{next.EditEvent(current)}, writeKey(tx, next, current)
	})
	return orZero(next, err)
}

// RotateKey implements keys.Store.
func (s *Store) RotateKey(ctx context.Context, r keys.RotateKey) (keys.RotatedKey, error) {
	r, err := r.Prepare(s.format)
	if err != nil {
		return keys.RotatedKey{}, err
	}
	var done keys.Rotation
	err = s.telling(ctx, func(tx *sqlitetx.Tx) ([]keys.Event, error) {
		current, err := readKey(tx, r.ID)
		if err != nil {
			return nil, err
		}
		earlier, err := readRotation(tx, r.ID, r.RotationID)
		if err != nil {
			return nil, err
		}
		done, err = r.Apply(current, earlier, now(tx))
		if err != nil || done.Replayed {
			return nil, err
		}
		if _, err := tx.Exec(retireSecrets, r.ID, done.RetireAt.UnixMicro()); err != nil {
			return nil, err
		}
		if _, err := tx.Exec(insertSecret, done.Secret.Columns()...); err != nil {
			return nil, taken(err, keys.ErrConflict)
		}
		return []keys.Event{done.Event()}, writeKey(tx, done.Key, current)
	})
	return orZero(r.Answer(done), err)
}

// Key implements keys.Store.
func (s *Store) Key(ctx context.Context, id string) (keys.Key, error) {
	if err := keys.ValidID(id); err != nil {
		return keys.Key{}, err
	}
	var key keys.Key
	err := s.read(ctx, func(tx *sqlitetx.Tx) (err error) {
		key, err = readKey(tx, id)
		return err
	})
	return orZero(key, err)
}

// Keys implements keys.Store.
func (s *Store) Keys(ctx context.Context, l keys.ListKeys) (keys.KeyPage, error) {
	l, err := l.Prepare()
	if err != nil {
		return keys.KeyPage{}, err
	}
	query, args := selectKeys, []any{l.After, l.Limit + 1}
	switch {
	case l.TeamID != "" && l.Owner != "":
		query, args = selectKeysOfTeamAndOwner, append(args, l.TeamID, l.Owner)
	case l.TeamID != "":
		query, args = selectKeysOfTeam, append(args, l.TeamID)
	case l.Owner != "":
		query, args = selectKeysOfOwner, append(args, l.Owner)
	}
	var list []keys.Key
	err = s.read(ctx, func(tx *sqlitetx.Tx) error {
		return each(tx, query, args, collect(scanKey, &list))
	})
	if err != nil {
		return keys.KeyPage{}, err
	}
	return l.Page(list), nil
}

func readKey(tx *sqlitetx.Tx, id string) (keys.Key, error) {
	return scanKey(tx.QueryRow(selectKey, id))
}

func readRotation(tx *sqlitetx.Tx, keyID, rotationID string) (*keys.Secret, error) {
	var row keys.SecretRow
	if err := tx.QueryRow(selectRotation, keyID, rotationID).Scan(row.Targets()...); err != nil {
		return nil, found(err, nil)
	}
	secret, err := row.Secret()
	return &secret, err
}

func writeKey(tx *sqlitetx.Tx, next, current keys.Key) error {
	return one(tx.Exec(updateKey, append(next.Columns(), next.ID, current.Revision)...))
}
