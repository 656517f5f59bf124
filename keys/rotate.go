package keys

import (
	"fmt"
	"time"
)

// RotateKey gives a key a new token. Identity, limits and everything counted stay.
//
// RotationID makes it repeatable: the same id with the same terms changes nothing
// and answers with the key as it is, without a plaintext. A caller that must be
// able to repeat a lost answer brings its own Token. After Grace, by the store's
// time, only the new token is accepted, however long earlier graces were meant
// to last.
type RotateKey struct {
	ID         string
	RotationID string
	IfRevision int64
	Grace      time.Duration
	Token      Token

	minted bool // Token is Prepare's, not the caller's
}

// UnmarshalJSON decodes strictly; ID and Token are not part of the document. Call
// it directly and every failure is a *FieldError.
func (r *RotateKey) UnmarshalJSON(data []byte) error {
	out := RotateKey{ID: r.ID, Token: r.Token}
	var grace int64
	if err := decodeObject(data, map[string]any{
		"rotation_id":   &out.RotationID,
		"if_revision":   &out.IfRevision,
		"grace_seconds": &grace,
	}); err != nil {
		return err
	}
	if grace < 0 || grace > int64(MaxGrace/time.Second) {
		return refuse("grace_seconds", graceRule)
	}
	out.Grace = time.Duration(grace) * time.Second
	*r = out
	return nil
}

var graceRule = fmt.Sprintf("must be between 0 and %d days", MaxGrace/(24*time.Hour))

// Prepare validates r and mints a token of format unless the caller brought one.
// Call it before a transaction opens. Errors: *FieldError.
func (r RotateKey) Prepare(format Format) (RotateKey, error) {
	err := firstError(
		validID("id", r.ID),
		validID("rotation_id", r.RotationID),
		validRevision(r.IfRevision, true),
	)
	if err == nil && (r.Grace < 0 || r.Grace > MaxGrace) {
		err = refuse("grace", graceRule)
	}
	if err != nil {
		return RotateKey{}, err
	}
	r.Grace = r.Grace.Truncate(time.Microsecond)
	r.minted = r.Token.IsZero()
	r.Token, err = prepareToken(r.Token, format)
	return r, err
}

// Rotation is what a store writes for a rotation: the key's row, the new secret,
// and RetireAt for every other secret of the key that does not retire earlier. A
// replay writes nothing; the barrier must be passed again.
type Rotation struct {
	Replayed bool
	Key      Key
	Secret   Secret
	RetireAt time.Time
}

// Apply decides a prepared rotation of current, the row read under lock. earlier
// is the secret of the same key that the same rotation id made, or nil.
//
// Errors: ErrConflict (the id was used with other terms, or, together with
// ErrStale, another edit came first), ErrRevoked, ErrExpired.
func (r RotateKey) Apply(current Key, earlier *Secret, now time.Time) (Rotation, error) {
	if earlier != nil {
		if earlier.Grace != r.Grace || !r.minted && !earlier.Hash.Equal(r.Token.Hash()) {
			return Rotation{}, ErrConflict
		}
		return Rotation{Replayed: true, Key: current}, nil
	}
	if current.RevokedAt != nil {
		return Rotation{}, ErrRevoked
	}
	if current.expired(now) {
		return Rotation{}, ErrExpired
	}
	if current.Revision != r.IfRevision {
		return Rotation{}, fmt.Errorf("%w: %w", ErrConflict, ErrStale)
	}
	now = micro(now)
	next := current.Clone()
	next.Revision++
	next.UpdatedAt = later(now, current.UpdatedAt)
	return Rotation{
		Key:      next,
		Secret:   Secret{Hash: r.Token.Hash(), KeyID: current.ID, RotationID: r.RotationID, Grace: r.Grace, CreatedAt: now},
		RetireAt: now.Add(r.Grace),
	}, nil
}

// Answer is what the caller of a prepared rotation gets: the plaintext only when
// this call made the token current.
func (r RotateKey) Answer(done Rotation) RotatedKey {
	out := RotatedKey{Key: done.Key, Replayed: done.Replayed}
	if !done.Replayed {
		out.Token = r.Token
	}
	return out
}

// prepareToken mints a token, or checks that the one the caller brought is one
// that Resolve would look up.
func prepareToken(brought Token, format Format) (Token, error) {
	if brought.IsZero() {
		return format.Mint(nil)
	}
	if _, err := format.Parse(brought.Reveal()); err != nil {
		return Token{}, refuse("token", "must have a form that the store accepts")
	}
	return brought, nil
}
