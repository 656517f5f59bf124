package customstore

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tallystick-go/tallystick/keys"
)

// storedDeclaration is a declaration without its name, which is its key in the
// bucket. A fingerprint never marshals itself.
type storedDeclaration struct {
	Fingerprint string
	CreatedAt   time.Time
}

// Bootstrap implements keys.Store.
func (k *Keys) Bootstrap(ctx context.Context, b keys.Bootstrap) (keys.Bootstrapped, error) {
	b, err := b.Prepare(keys.Format{})
	if err != nil {
		return keys.Bootstrapped{}, err
	}
	return inside(ctx, k, k.file.Update, func(tx *bbolt.Tx, now time.Time) (keys.Bootstrapped, error) {
		have, err := rows(tx, b.Names())
		if err != nil {
			return keys.Bootstrapped{}, err
		}
		add, done, err := b.Apply(have, now)
		if err != nil {
			return keys.Bootstrapped{}, err
		}
		for _, team := range add.Teams {
			err = errors.Join(err, put(tx, teams, []byte(team.ID), team))
		}
		for _, key := range add.Keys {
			err = errors.Join(err, put(tx, people, []byte(key.ID), key))
		}
		for _, secret := range add.Secrets {
			err = errors.Join(err, putSecret(tx, secret))
		}
		for _, d := range add.Declarations {
			err = errors.Join(err, put(tx, declared, []byte(d.Name.String()), storedDeclaration{string(d.Fingerprint), d.CreatedAt}))
		}
		return done, err
	})
}

// rows reads what is there of what a bootstrap names. It adds keys, and to no key
// that is there a secret: secrets are looked up by their hash alone.
func rows(tx *bbolt.Tx, n keys.Names) (have keys.Rows, err error) {
	if have.Teams, err = present[keys.Team](tx, teams, n.Teams); err != nil {
		return have, err
	}
	if have.Keys, err = present[keys.Key](tx, people, n.Keys); err != nil {
		return have, err
	}
	for _, hash := range n.Hashes {
		if v := tx.Bucket(secrets).Get(hash[:]); v != nil {
			secret, err := getSecret(hash[:], v)
			if err != nil {
				return have, err
			}
			have.Secrets = append(have.Secrets, secret)
		}
	}
	for _, name := range n.Declared {
		var d storedDeclaration
		err := read(tx, declared, []byte(name.String()), &d)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return have, err
		}
		have.Declarations = append(have.Declarations, keys.Declared{Name: name, Fingerprint: keys.Fingerprint(d.Fingerprint), CreatedAt: d.CreatedAt})
	}
	return have, nil
}

func present[T any](tx *bbolt.Tx, bucket []byte, ids []string) (list []T, err error) {
	for _, id := range ids {
		row, err := get[T](tx, bucket, id)
		if errors.Is(err, keys.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, row)
	}
	return list, nil
}
