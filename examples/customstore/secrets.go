package customstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
)

// storedSecret is a secret without its hash, which is its key in the bucket. A
// hash never marshals itself.
type storedSecret struct {
	KeyID      string
	RotationID string
	Grace      time.Duration
	CreatedAt  time.Time
	RetiresAt  *time.Time
}

func putSecret(tx *bbolt.Tx, s keys.Secret) error {
	return put(tx, secrets, s.Hash[:], storedSecret{s.KeyID, s.RotationID, s.Grace, s.CreatedAt, s.RetiresAt})
}

func getSecret(hash, v []byte) (keys.Secret, error) {
	var s storedSecret
	if err := json.Unmarshal(v, &s); err != nil {
		return keys.Secret{}, fmt.Errorf("%w: a secret cannot be read", governance.ErrCorrupt)
	}
	out := keys.Secret{KeyID: s.KeyID, RotationID: s.RotationID, Grace: s.Grace, CreatedAt: s.CreatedAt, RetiresAt: s.RetiresAt}
	copy(out.Hash[:], hash)
	return out, nil
}

// RotateKey implements keys.Store.
func (k *Keys) RotateKey(ctx context.Context, r keys.RotateKey) (keys.RotatedKey, error) {
	r, err := r.Prepare(keys.Format{})
	if err != nil {
		return keys.RotatedKey{}, err
	}
	return inside(ctx, k, k.file.Update, func(tx *bbolt.Tx, now time.Time) (keys.RotatedKey, error) {
		current, err := get[keys.Key](tx, people, r.ID)
		if err != nil {
			return keys.RotatedKey{}, err
		}
		var mine []keys.Secret
		var earlier *keys.Secret
		err = tx.Bucket(secrets).ForEach(func(hash, v []byte) error {
			s, err := getSecret(hash, v)
			if err == nil && s.KeyID == r.ID {
				mine = append(mine, s)
				if s.RotationID == r.RotationID {
					earlier = &s
				}
			}
			return err
		})
		if err != nil {
			return keys.RotatedKey{}, err
		}
		done, err := r.Apply(current, earlier, now)
		if err != nil || done.Replayed {
			return r.Answer(done), err
		}
		if tx.Bucket(secrets).Get(done.Secret.Hash[:]) != nil {
			return keys.RotatedKey{}, keys.ErrConflict
		}
		for _, s := range mine {
			if s.RetiresAt == nil || s.RetiresAt.After(done.RetireAt) {
				s.RetiresAt = &done.RetireAt
				if err := putSecret(tx, s); err != nil {
					return keys.RotatedKey{}, err
				}
			}
		}
		if err := putSecret(tx, done.Secret); err != nil {
			return keys.RotatedKey{}, err
		}
		return r.Answer(done), put(tx, people, []byte(r.ID), done.Key)
	})
}

// Resolve implements keys.Store.
func (k *Keys) Resolve(ctx context.Context, presented string) (keys.Principal, error) {
	token, err := keys.Parse(presented)
	if err != nil {
		return keys.Principal{}, keys.ErrUnknown
	}
	return inside(ctx, k, k.file.View, func(tx *bbolt.Tx, now time.Time) (keys.Principal, error) {
		return authenticate(tx, token.Hash(), now)
	})
}

// Reload implements keys.Store.
func (k *Keys) Reload(ctx context.Context, p keys.Principal) (keys.Principal, error) {
	return inside(ctx, k, k.file.View, func(tx *bbolt.Tx, now time.Time) (keys.Principal, error) {
		if hash, ok := p.SecretHash(); ok {
			return authenticate(tx, hash, now)
		}
		key, team, err := keyAndTeam(tx, p.KeyID)
		if errors.Is(err, keys.ErrNotFound) {
			return keys.Principal{}, keys.ErrUnknown
		}
		if err != nil {
			return keys.Principal{}, err
		}
		return keys.Identify(key, team, now)
	})
}

func authenticate(tx *bbolt.Tx, hash keys.Hash, now time.Time) (keys.Principal, error) {
	v := tx.Bucket(secrets).Get(hash[:])
	if v == nil {
		return keys.Principal{}, keys.ErrUnknown
	}
	secret, err := getSecret(hash[:], v)
	if err != nil {
		return keys.Principal{}, err
	}
	key, team, err := keyAndTeam(tx, secret.KeyID)
	if err != nil {
		return keys.Principal{}, err
	}
	return keys.Authenticate(hash, secret, key, team, now)
}
