package keys

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
)

// The rows of the tables as SQL stores keep them. Instants are microseconds
// since 1970, lists JSON arrays, metadata a JSON object, NULL is unlimited,
// everything or none. The order of the columns, of Targets and of Columns is:
const (
	TeamColumns = `id, name, requests_per_minute, tokens_per_minute, tokens_per_day, concurrency, cost_per_day_microusd, cost_per_month_microusd, ` +
		`allowed_models, allowed_regions, guardrail, metadata, default_max_tokens, revision, created_us, updated_us, deleted_us`
	KeyColumns = `id, team_id, owner, name, requests_per_minute, tokens_per_minute, tokens_per_day, concurrency, cost_per_day_microusd, cost_per_month_microusd, ` +
		`allowed_models, allowed_regions, metadata, default_max_tokens, revision, created_us, updated_us, expires_us, revoked_us`
	SecretColumns     = `hash, key_id, rotation_id, grace_us, created_us, retires_us`
	DeclaredColumns   = `kind, id, fingerprint, created_us`
	DefinitionColumns = `position, key_revision, team_revision, revoked_us, expires_us, deleted_us`
)

// TeamRow scans TeamColumns. The zero value is ready.
type TeamRow struct {
	team             Team
	limits           limitsRow
	lists            listsRow
	created, updated int64
	deleted          *int64
}

// Targets are where to scan the columns to.
func (r *TeamRow) Targets() []any {
	out := append(make([]any, 0, 17), &r.team.ID, &r.team.Name)
	return append(append(out, r.limits.targets()...),
		&r.lists.models, &r.lists.regions, &r.team.Guardrail, &r.lists.metadata, &r.team.DefaultMaxTokens,
		&r.team.Revision, &r.created, &r.updated, &r.deleted)
}

// Team is what was scanned. It fails rather than to widen a list.
func (r *TeamRow) Team() (Team, error) {
	t := r.team
	t.Limits = r.limits.limits()
	t.CreatedAt, t.UpdatedAt, t.DeletedAt = instant(r.created), instant(r.updated), fromMicros(r.deleted)
	err := r.lists.decode(&t.AllowedModels, &t.AllowedRegions, &t.Metadata)
	return t, err
}

// Columns are the values of TeamColumns.
func (t Team) Columns() []any {
	out := append(make([]any, 0, 17), t.ID, t.Name)
	return append(append(out, limitColumns(t.Limits)...),
		encodeList(t.AllowedModels), encodeList(t.AllowedRegions), t.Guardrail, encodeMetadata(t.Metadata), t.DefaultMaxTokens,
		t.Revision, t.CreatedAt.UnixMicro(), t.UpdatedAt.UnixMicro(), micros(t.DeletedAt))
}

// KeyRow scans KeyColumns. The zero value is ready.
type KeyRow struct {
	key              Key
	limits           limitsRow
	lists            listsRow
	created, updated int64
	expires, revoked *int64
}

// Targets are where to scan the columns to.
func (r *KeyRow) Targets() []any {
	out := append(make([]any, 0, 19), &r.key.ID, &r.key.TeamID, &r.key.Owner, &r.key.Name)
	return append(append(out, r.limits.targets()...),
		&r.lists.models, &r.lists.regions, &r.lists.metadata, &r.key.DefaultMaxTokens,
		&r.key.Revision, &r.created, &r.updated, &r.expires, &r.revoked)
}

// Key is what was scanned. It fails rather than to widen a list, and an expiry
// that cannot be right is one in the past.
func (r *KeyRow) Key() (Key, error) {
	k := r.key
	k.Limits = r.limits.limits()
	k.CreatedAt, k.UpdatedAt = instant(r.created), instant(r.updated)
	k.ExpiresAt, k.RevokedAt = fromMicros(r.expires), fromMicros(r.revoked)
	err := r.lists.decode(&k.AllowedModels, &k.AllowedRegions, &k.Metadata)
	return k, err
}

// Columns are the values of KeyColumns.
func (k Key) Columns() []any {
	out := append(make([]any, 0, 19), k.ID, k.TeamID, k.Owner, k.Name)
	return append(append(out, limitColumns(k.Limits)...),
		encodeList(k.AllowedModels), encodeList(k.AllowedRegions), encodeMetadata(k.Metadata), k.DefaultMaxTokens,
		k.Revision, k.CreatedAt.UnixMicro(), k.UpdatedAt.UnixMicro(), micros(k.ExpiresAt), micros(k.RevokedAt))
}

// SecretRow scans SecretColumns. The zero value is ready.
type SecretRow struct {
	secret         Secret
	hash           []byte
	grace, created int64
	retires        *int64
}

// Targets are where to scan the columns to.
func (r *SecretRow) Targets() []any {
	return []any{&r.hash, &r.secret.KeyID, &r.secret.RotationID, &r.grace, &r.created, &r.retires}
}

// Secret is what was scanned.
func (r *SecretRow) Secret() (Secret, error) {
	s := r.secret
	if copy(s.Hash[:], r.hash) != len(s.Hash) || len(r.hash) != len(s.Hash) {
		return Secret{}, errCorrupt
	}
	s.Grace = time.Duration(r.grace) * time.Microsecond
	s.CreatedAt, s.RetiresAt = instant(r.created), fromMicros(r.retires)
	return s, nil
}

// Columns are the values of SecretColumns.
func (s Secret) Columns() []any {
	return []any{s.Hash[:], s.KeyID, s.RotationID, s.Grace.Microseconds(), s.CreatedAt.UnixMicro(), micros(s.RetiresAt)}
}

// DeclaredRow scans DeclaredColumns. The zero value is ready.
type DeclaredRow struct {
	declared    Declared
	fingerprint string
	created     int64
}

// Targets are where to scan the columns to.
func (r *DeclaredRow) Targets() []any {
	return []any{(*string)(&r.declared.Kind), &r.declared.ID, &r.fingerprint, &r.created}
}

// Declared is what was scanned.
func (r *DeclaredRow) Declared() Declared {
	return Declared{Name: r.declared.Name, Fingerprint: Fingerprint(r.fingerprint), CreatedAt: instant(r.created)}
}

// Columns are the values of DeclaredColumns.
func (d Declared) Columns() []any {
	return []any{string(d.Kind), d.ID, string(d.Fingerprint), d.CreatedAt.UnixMicro()}
}

// DefinitionRow scans DefinitionColumns. The zero value is ready and may be
// scanned into again and again.
type DefinitionRow struct {
	position                  int64
	keyRevision, teamRevision int64
	revoked, expires, deleted *int64
}

// Targets are where to scan the columns to.
func (r *DefinitionRow) Targets() []any {
	return []any{&r.position, &r.keyRevision, &r.teamRevision, &r.revoked, &r.expires, &r.deleted}
}

// Definition is what was scanned, and the place of its key, from 0, among those
// that were asked for.
func (r *DefinitionRow) Definition() (position int, d Definition) {
	return int(r.position), Definition{
		Found: true, KeyRevision: r.keyRevision, TeamRevision: r.teamRevision,
		RevokedAt: storedMicros(r.revoked), ExpiresAt: storedMicros(r.expires), TeamDeleted: r.deleted != nil,
	}
}

type limitsRow struct{ rpm, tpm, tpd, concurrency, day, month *int64 }

func (r *limitsRow) targets() []any {
	return []any{&r.rpm, &r.tpm, &r.tpd, &r.concurrency, &r.day, &r.month}
}

func (r *limitsRow) limits() Limits {
	return Limits{
		RequestsPerMinute: r.rpm, TokensPerMinute: r.tpm, TokensPerDay: r.tpd, Concurrency: r.concurrency,
		CostPerDay: (*amount.MicroUSD)(r.day), CostPerMonth: (*amount.MicroUSD)(r.month),
	}
}

func limitColumns(l Limits) []any {
	return []any{l.RequestsPerMinute, l.TokensPerMinute, l.TokensPerDay, l.Concurrency, (*int64)(l.CostPerDay), (*int64)(l.CostPerMonth)}
}

type listsRow struct{ models, regions, metadata *string }

func (r *listsRow) decode(models, regions *[]string, metadata *map[string]string) error {
	for _, list := range []struct {
		stored *string
		to     *[]string
	}{{r.models, models}, {r.regions, regions}} {
		if list.stored == nil {
			continue // nil allows everything
		}
		if err := json.Unmarshal([]byte(*list.stored), list.to); err != nil || *list.to == nil || slices.Contains(*list.to, "") {
			return errCorrupt
		}
	}
	if r.metadata != nil && json.Unmarshal([]byte(*r.metadata), metadata) != nil {
		return errCorrupt
	}
	return nil
}

var errCorrupt = fmt.Errorf("%w: a stored row is not what a store writes", ErrUnavailable)

func encodeList(list []string) *string {
	if list == nil {
		return nil
	}
	return encodeJSON(list)
}

func encodeMetadata(metadata map[string]string) *string {
	if len(metadata) == 0 {
		return nil
	}
	return encodeJSON(metadata)
}

func encodeJSON(v any) *string {
	data, err := json.Marshal(v)
	if err != nil {
		panic("keys: strings always encode: " + err.Error())
	}
	text := string(data)
	return &text
}

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

func micros(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

// fromMicros reads any stored value as an instant, a corrupt one as the beginning
// of 1970: an expiry that cannot be right must not read as no expiry.
func fromMicros(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := instant(0)
	if *us > 0 && *us <= maxMicros {
		t = instant(*us)
	}
	return &t
}

// storedMicros is a stored instant in a Definition: 0 for none, and never 0 for
// one that is there.
func storedMicros(us *int64) int64 {
	switch {
	case us == nil:
		return 0
	case *us <= 0 || *us > maxMicros:
		return -1
	}
	return *us
}
