package keys

import (
	"maps"
	"time"
)

// Key is a virtual key without its secrets. Owner is the user that it counts
// for: opaque, exact to the byte, set by administrators only. Nil lists allow
// everything that the team allows, empty lists nothing.
type Key struct {
	ID               string            `json:"id"`
	TeamID           string            `json:"team_id"`
	Owner            string            `json:"owner"`
	Name             string            `json:"name"`
	Limits           Limits            `json:"limits"`
	AllowedModels    []string          `json:"allowed_models"`
	AllowedRegions   []string          `json:"allowed_regions"`
	Metadata         map[string]string `json:"metadata,omitempty"`
	DefaultMaxTokens *int64            `json:"default_max_tokens,omitempty"`
	Revision         int64             `json:"revision"`
	CreatedAt        time.Time         `json:"created_at"`
	UpdatedAt        time.Time         `json:"updated_at"`
	ExpiresAt        *time.Time        `json:"expires_at,omitempty"`
	RevokedAt        *time.Time        `json:"revoked_at,omitempty"`
}

// Secret is what a store keeps of one token of a key: never the token itself. A
// key has one that does not retire, and during a rotation's grace older ones.
type Secret struct {
	Hash       Hash
	KeyID      string
	RotationID string // empty for the key's first secret
	Grace      time.Duration
	CreatedAt  time.Time
	RetiresAt  *time.Time // nil: accepted as long as the key is
}

// CreateKey describes a new key. An empty ID is made up, and so is the token
// unless the caller brings its own Token or the Hash of one made elsewhere.
type CreateKey struct {
	ID               string
	TeamID           string
	Owner            string
	Name             string
	Limits           Limits
	AllowedModels    []string
	AllowedRegions   []string
	Metadata         map[string]string
	DefaultMaxTokens *int64
	ExpiresAt        *time.Time
	Token            Token
	Hash             *Hash
}

// UnmarshalJSON decodes strictly, with the JSON names of [Key]; tokens and hashes
// are not part of the document. Call it directly and every failure is a
// *FieldError.
func (c *CreateKey) UnmarshalJSON(data []byte) error {
	var out CreateKey
	if err := decodeObject(data, map[string]any{
		"id":                 &out.ID,
		"team_id":            &out.TeamID,
		"owner":              &out.Owner,
		"name":               &out.Name,
		"limits":             &out.Limits,
		"allowed_models":     &out.AllowedModels,
		"allowed_regions":    &out.AllowedRegions,
		"metadata":           &out.Metadata,
		"default_max_tokens": &out.DefaultMaxTokens,
		"expires_at":         &out.ExpiresAt,
	}); err != nil {
		return err
	}
	*c = out
	return nil
}

// Prepare validates c and fills in what was left open: the id, and a token of
// format. Call it before a transaction opens. Errors: *FieldError.
func (c CreateKey) Prepare(format Format) (CreateKey, error) {
	if c.ID == "" {
		c.ID = mintID("key_")
	}
	err := firstError(
		validID("id", c.ID),
		validID("team_id", c.TeamID),
		validText("owner", c.Owner, MaxOwnerBytes),
		validText("name", c.Name, MaxNameBytes),
		within("limits", c.Limits.Validate()),
		validList("allowed_models", c.AllowedModels),
		validList("allowed_regions", c.AllowedRegions),
		validMetadata("metadata", c.Metadata),
		validDefaultMaxTokens(c.DefaultMaxTokens),
		validExpiry(c.ExpiresAt),
	)
	if err != nil {
		return CreateKey{}, err
	}
	if c.Hash != nil {
		if !c.Token.IsZero() {
			return CreateKey{}, refuse("hash", "must not come with a token")
		}
		if *c.Hash == (Hash{}) || c.Hash.Equal(Token{}.Hash()) {
			return CreateKey{}, refuse("hash", "must be the SHA-256 of a token")
		}
		return c, nil
	}
	c.Token, err = prepareToken(c.Token, format)
	return c, err
}

// Apply makes the rows to insert: a key of team, which must have been read under
// a lock that keeps it from being deleted meanwhile, and its first secret. The
// insert must fail with ErrExists where the id is taken and with ErrConflict
// where the secret is.
//
// Errors: ErrRevoked (the team is deleted), *FieldError (expired already).
func (c CreateKey) Apply(team Team, now time.Time) (Key, Secret, error) {
	if team.DeletedAt != nil {
		return Key{}, Secret{}, ErrRevoked
	}
	now = micro(now)
	key := Key{
		ID: c.ID, TeamID: team.ID, Owner: c.Owner, Name: c.Name, Limits: c.Limits.clone(),
		AllowedModels: cloneList(c.AllowedModels), AllowedRegions: cloneList(c.AllowedRegions),
		Metadata: cloneMetadata(c.Metadata), DefaultMaxTokens: clonePtr(c.DefaultMaxTokens),
		Revision: 1, CreatedAt: now, UpdatedAt: now, ExpiresAt: microPtr(c.ExpiresAt),
	}
	if key.expired(now) {
		return Key{}, Secret{}, refuse("expires_at", "must be in the future")
	}
	return key, Secret{Hash: c.secretHash(), KeyID: key.ID, CreatedAt: now}, nil
}

// secretHash is the hash of the first token.
func (c CreateKey) secretHash() Hash {
	if c.Hash != nil {
		return *c.Hash
	}
	return c.Token.Hash()
}

// UpdateKey changes single fields of a key that is still at IfRevision.
type UpdateKey struct {
	ID               string                    `json:"-"`
	IfRevision       int64                     `json:"if_revision"`
	Owner            Change[string]            `json:"owner,omitzero"`
	Name             Change[string]            `json:"name,omitzero"`
	Limits           LimitsChange              `json:"limits,omitzero"`
	AllowedModels    Change[[]string]          `json:"allowed_models,omitzero"`
	AllowedRegions   Change[[]string]          `json:"allowed_regions,omitzero"`
	Metadata         Change[map[string]string] `json:"metadata,omitzero"`
	DefaultMaxTokens Change[*int64]            `json:"default_max_tokens,omitzero"`
	ExpiresAt        Change[*time.Time]        `json:"expires_at,omitzero"`
}

// UnmarshalJSON decodes strictly; what is absent is left alone. Call it directly
// and every failure is a *FieldError. The ID is not part of the document.
func (u *UpdateKey) UnmarshalJSON(data []byte) error {
	out := UpdateKey{ID: u.ID}
	if err := decodeObject(data, map[string]any{
		"if_revision":        &out.IfRevision,
		"owner":              &out.Owner,
		"name":               &out.Name,
		"limits":             &out.Limits,
		"allowed_models":     &out.AllowedModels,
		"allowed_regions":    &out.AllowedRegions,
		"metadata":           &out.Metadata,
		"default_max_tokens": &out.DefaultMaxTokens,
		"expires_at":         &out.ExpiresAt,
	}); err != nil {
		return err
	}
	*u = out
	return nil
}

// Validate checks u without any row. Errors: *FieldError.
func (u UpdateKey) Validate() error {
	return firstError(
		validID("id", u.ID),
		validRevision(u.IfRevision, true),
		validText("owner", u.Owner.To, MaxOwnerBytes),
		validText("name", u.Name.To, MaxNameBytes),
		u.Limits.validate(),
		validList("allowed_models", u.AllowedModels.To),
		validList("allowed_regions", u.AllowedRegions.To),
		validMetadata("metadata", u.Metadata.To),
		validDefaultMaxTokens(u.DefaultMaxTokens.To),
		validExpiry(u.ExpiresAt.To),
	)
}

// Apply returns the row after the edit. changed is false where the edit is in
// force already, whatever the revision: there is nothing to write, but the
// barrier must be passed again.
//
// Errors: ErrRevoked, ErrStale.
func (u UpdateKey) Apply(current Key, now time.Time) (next Key, changed bool, err error) {
	if current.RevokedAt != nil {
		return Key{}, false, ErrRevoked
	}
	u.ExpiresAt.To = microPtr(u.ExpiresAt.To)
	next = current.Clone()
	changed = anyOf(
		assign(&next.Owner, u.Owner, sameValue),
		assign(&next.Name, u.Name, sameValue),
		u.Limits.apply(&next.Limits),
		assign(&next.AllowedModels, u.AllowedModels, sameList),
		assign(&next.AllowedRegions, u.AllowedRegions, sameList),
		assign(&next.Metadata, u.Metadata, maps.Equal),
		assign(&next.DefaultMaxTokens, u.DefaultMaxTokens, samePtr),
		assign(&next.ExpiresAt, u.ExpiresAt, samePtr),
	)
	if !changed {
		return current, false, nil
	}
	if current.Revision != u.IfRevision {
		return Key{}, false, ErrStale
	}
	next = next.Clone() // the edit's own lists and pointers stay the caller's
	next.Revision++
	next.UpdatedAt = later(now, current.UpdatedAt)
	return next, true, nil
}

// RevokeKey ends a key for good. IfRevision 0 revokes whatever revision there is.
type RevokeKey struct {
	ID         string
	IfRevision int64
}

// Validate checks r without any row. Errors: *FieldError.
func (r RevokeKey) Validate() error {
	return firstError(validID("id", r.ID), validRevision(r.IfRevision, false))
}

// Apply returns the row after the revocation; changed is false where it was
// revoked before, whatever the revision. Errors: ErrStale.
func (r RevokeKey) Apply(current Key, now time.Time) (next Key, changed bool, err error) {
	if current.RevokedAt != nil {
		return current, false, nil
	}
	if r.IfRevision != 0 && current.Revision != r.IfRevision {
		return Key{}, false, ErrStale
	}
	next = current.Clone()
	next.Revision++
	next.UpdatedAt = later(now, current.UpdatedAt)
	next.RevokedAt = &next.UpdatedAt
	return next.Clone(), true, nil
}

// RevokeSelf is the revocation of a key by whoever presented it. key and team are
// the rows read under lock; the principal must still hold against them. A key
// that is revoked already stays so without an error.
//
// Errors: ErrStale, ErrExpired, ErrRevoked (the team is deleted or the presented
// token retired).
func (p Principal) RevokeSelf(key Key, team Team, now time.Time) (next Key, changed bool, err error) {
	if key.RevokedAt != nil {
		return key, false, nil
	}
	if err := DefinitionOf(key, team).Check(&p, now.UnixMicro()); err != nil {
		return Key{}, false, err
	}
	return RevokeKey{ID: key.ID}.Apply(key, now)
}

// Clone returns a copy that shares nothing with k.
func (k Key) Clone() Key {
	k.Limits = k.Limits.clone()
	k.AllowedModels = cloneList(k.AllowedModels)
	k.AllowedRegions = cloneList(k.AllowedRegions)
	k.Metadata = cloneMetadata(k.Metadata)
	k.DefaultMaxTokens = clonePtr(k.DefaultMaxTokens)
	k.ExpiresAt = clonePtr(k.ExpiresAt)
	k.RevokedAt = clonePtr(k.RevokedAt)
	return k
}

func (k Key) expired(now time.Time) bool {
	return k.ExpiresAt != nil && reached(k.ExpiresAt.UnixMicro(), now.UnixMicro())
}
