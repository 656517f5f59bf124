package keys

import (
	"log/slog"
	"slices"
	"time"
)

// Principal is who a presented token belongs to: key and team in one snapshot at
// the store's time. It is a value to read, never to edit. Only the three
// identifiers are ever serialized; revision, snapshot and secret stay inside.
//
// Source: ADR-046 "Shared identity".
type Principal struct {
	KeyID  string `json:"key_id"`
	TeamID string `json:"team_id"`
	User   string `json:"user,omitempty"` // the key's owner

	Key  Key       `json:"-"`
	Team Team      `json:"-"`
	At   time.Time `json:"-"` // the snapshot's time

	// The secret that was presented; nil when the principal was read by its id.
	// Pointers, so that printing the struct shows addresses.
	secret   *Hash
	retireAt *time.Time
}

// Revision identifies the two rows that a principal was made from.
type Revision struct{ Key, Team int64 }

// Revision returns the revisions of the snapshot.
func (p Principal) Revision() Revision { return Revision{Key: p.Key.Revision, Team: p.Team.Revision} }

// SecretHash returns the hash of the presented token, for stores that reload.
func (p Principal) SecretHash() (Hash, bool) {
	if p.secret == nil {
		return Hash{}, false
	}
	return *p.secret, true
}

// lasts is for how long from its snapshot on the principal is good by itself, at most as long as given: until the key
// expires, or the grace of the token's rotation ends. Edits are another matter.
func (p Principal) lasts(most time.Duration) time.Duration {
	for _, end := range []*time.Time{p.Key.ExpiresAt, p.retireAt} {
		if end != nil {
			most = min(most, end.Sub(p.At))
		}
	}
	return most
}

// AllowsModel reports whether both key and team allow the model. Names are
// compared byte by byte: pass the canonical one, or use AllowsModelAs.
func (p Principal) AllowsModel(model string) bool {
	return allows(p.Key.AllowedModels, model, nil) && allows(p.Team.AllowedModels, model, nil)
}

// AllowsModelAs is AllowsModel with canonical applied to the asked name and to
// every name in the lists, so that an alias neither locks out nor lets through.
func (p Principal) AllowsModelAs(canonical func(string) string, model string) bool {
	return allows(p.Key.AllowedModels, model, canonical) && allows(p.Team.AllowedModels, model, canonical)
}

// AllowsRegion reports whether both key and team allow the region.
func (p Principal) AllowsRegion(region string) bool {
	return allows(p.Key.AllowedRegions, region, nil) && allows(p.Team.AllowedRegions, region, nil)
}

// DefaultMaxTokens is the key's default for requests that name no maximum, else
// the team's, else absent.
func (p Principal) DefaultMaxTokens() (int64, bool) {
	for _, n := range []*int64{p.Key.DefaultMaxTokens, p.Team.DefaultMaxTokens} {
		if n != nil {
			return *n, true
		}
	}
	return 0, false
}

// String names the key and the team and nothing else.
func (p Principal) String() string { return "key " + p.KeyID + " of team " + p.TeamID }

// LogValue logs the identifiers and nothing else.
func (p Principal) LogValue() slog.Value {
	return slog.GroupValue(slog.String("key_id", p.KeyID), slog.String("team_id", p.TeamID), slog.String("user", p.User))
}

func allows(list []string, name string, canonical func(string) string) bool {
	if list == nil {
		return true
	}
	if canonical == nil {
		return slices.Contains(list, name)
	}
	name = canonical(name)
	return slices.ContainsFunc(list, func(entry string) bool { return canonical(entry) == name })
}

// Authenticate decides whether presented, the hash of a token, is the given
// secret of the given key at now, all read in one snapshot.
//
// Errors: ErrUnknown, ErrRevoked, ErrExpired.
func Authenticate(presented Hash, secret Secret, key Key, team Team, now time.Time) (Principal, error) {
	if !presented.Equal(secret.Hash) || secret.KeyID != key.ID || key.TeamID != team.ID {
		return Principal{}, ErrUnknown
	}
	p := principal(key, team, now)
	p.secret, p.retireAt = &secret.Hash, secret.RetiresAt
	return checked(p)
}

// Identify makes the principal of a key that a trusted caller names by its id.
//
// Errors: ErrUnknown, ErrRevoked, ErrExpired.
func Identify(key Key, team Team, now time.Time) (Principal, error) {
	if key.TeamID != team.ID {
		return Principal{}, ErrUnknown
	}
	return checked(principal(key, team, now))
}

func principal(key Key, team Team, now time.Time) Principal {
	return Principal{KeyID: key.ID, TeamID: team.ID, User: key.Owner, Key: key, Team: team, At: micro(now)}
}

func checked(p Principal) (Principal, error) {
	if err := DefinitionOf(p.Key, p.Team).Check(&p, p.At.UnixMicro()); err != nil {
		return Principal{}, err
	}
	return p, nil
}

// Definition is what an admission reads of a key and its team under its own lock,
// to see whether the principal it was given still holds. The zero value is a key
// that does not exist.
//
// Units: RevokedAt and ExpiresAt are microseconds since 1970, 0 for none. An
// expiry outside the years 1970 to 9999 is corrupt and counts as reached.
type Definition struct {
	Found        bool
	KeyRevision  int64
	TeamRevision int64
	RevokedAt    int64
	ExpiresAt    int64
	TeamDeleted  bool
}

// DefinitionOf returns the definition that the two rows make.
func DefinitionOf(key Key, team Team) Definition {
	return Definition{
		Found: true, KeyRevision: key.Revision, TeamRevision: team.Revision, TeamDeleted: team.DeletedAt != nil,
		RevokedAt: storedMicros(micros(key.RevokedAt)), ExpiresAt: storedMicros(micros(key.ExpiresAt)),
	}
}

// Check compares p with the definition at nowMicros, the store's time. A
// principal whose token retires is refused from that instant on; a rotation that
// moved the instant has changed the revision too.
//
// Errors: ErrUnknown, ErrRevoked, ErrExpired (all three final), ErrStale (reload
// and decide again).
func (d Definition) Check(p *Principal, nowMicros int64) error {
	switch {
	case !d.Found:
		return ErrUnknown
	case d.RevokedAt != 0, d.TeamDeleted:
		return ErrRevoked
	case d.ExpiresAt != 0 && reached(d.ExpiresAt, nowMicros):
		return ErrExpired
	case p.retireAt != nil && reached(p.retireAt.UnixMicro(), nowMicros):
		return ErrRevoked
	case p.Key.Revision != d.KeyRevision, p.Team.Revision != d.TeamRevision:
		return ErrStale
	}
	return nil
}

// reached reports whether an end is reached; an end that no store of ours could
// have written is.
func reached(endMicros, nowMicros int64) bool {
	return endMicros <= 0 || endMicros > maxMicros || nowMicros >= endMicros
}
