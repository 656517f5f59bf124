package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind says what a declaration or a conflict is about.
type Kind string

// The kinds, as stores keep them.
const (
	KindTeam Kind = "team"
	KindKey  Kind = "key"
)

// Name names a team or a key.
type Name struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id"`
}

func (n Name) String() string { return string(n.Kind) + " " + n.ID }

// Declaration is a team or a key as a configuration declares it: one of the two.
// Both need an ID, and a key needs a Token or a Hash that is known beforehand: a
// token made up at start-up would be seen by nobody.
type Declaration struct {
	Team *CreateTeam
	Key  *CreateKey
}

// Declared is what a store keeps of a declaration, for good: whatever becomes of
// the team or key, the same declaration is known again.
type Declared struct {
	Name
	Fingerprint Fingerprint
	CreatedAt   time.Time
}

// Fingerprint identifies the content of a declaration, field by field, so that a
// conflict can name what differs. It holds digests only, and prints and encodes
// as "[redacted]" all the same; convert it to a string to store it.
type Fingerprint string

// String hides the digests, and so do all other ways to print or encode them.
func (f Fingerprint) String() string { return redacted }

// GoString hides the digests.
func (f Fingerprint) GoString() string { return redacted }

// Format hides the digests for every verb.
func (f Fingerprint) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redacted) }

// MarshalText hides the digests.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue hides the digests.
func (f Fingerprint) LogValue() slog.Value { return slog.StringValue(redacted) }

// ConflictError says which team or key a bootstrap or an import could not bring
// in because the store has another one. It is ErrConflict, nothing was changed,
// and it never repeats a value.
type ConflictError struct {
	Name
	Fields []string // what differs, in JSON names; "token" stands for its hash
	Why    string
}

func (e *ConflictError) Error() string {
	return "keys: conflict: " + e.Name.String() + " (" + strings.Join(e.Fields, ", ") + "): " + e.Why
}

// Is makes errors.Is(err, ErrConflict) hold.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// name returns what a prepared declaration is about.
func (d Declaration) name() Name {
	if d.Team != nil {
		return Name{KindTeam, d.Team.ID}
	}
	return Name{KindKey, d.Key.ID}
}

func (d Declaration) prepare(format Format) (Declaration, error) {
	switch {
	case (d.Team == nil) == (d.Key == nil):
		return d, refuse("", "must be a team or a key")
	case d.Team != nil:
		if d.Team.ID == "" {
			return d, refuse("id", "must not be empty: what is declared is known again by it")
		}
		team, err := d.Team.Prepare()
		return Declaration{Team: &team}, err
	case d.Key.ID == "":
		return d, refuse("id", "must not be empty: what is declared is known again by it")
	case d.Key.Token.IsZero() && d.Key.Hash == nil:
		return d, refuse("token", "must be given: nobody would see one that is made up")
	}
	key, err := d.Key.Prepare(format)
	return Declaration{Key: &key}, err
}

// fingerprint digests every field that is there. What is absent is left out, so
// that a program that knows more fields makes the same of the same declaration.
// The order of a list means nothing.
func (d Declaration) fingerprint() Fingerprint {
	fields := make(map[string]any)
	limits := func(l Limits) {
		var each map[string]json.Number
		if err := json.Unmarshal([]byte(*encodeJSON(l)), &each); err != nil {
			panic("keys: limits always decode: " + err.Error())
		}
		for name, n := range each {
			fields["limits."+name] = n
		}
	}
	shared := func(name string, models, regions []string, metadata map[string]string, most *int64) {
		if name != "" {
			fields["name"] = name
		}
		if models != nil {
			fields["allowed_models"] = slices.Sorted(slices.Values(models))
		}
		if regions != nil {
			fields["allowed_regions"] = slices.Sorted(slices.Values(regions))
		}
		if len(metadata) > 0 {
			fields["metadata"] = metadata
		}
		if most != nil {
			fields["default_max_tokens"] = *most
		}
	}
	if t := d.Team; t != nil {
		limits(t.Limits)
		shared(t.Name, t.AllowedModels, t.AllowedRegions, t.Metadata, t.DefaultMaxTokens)
		if t.Guardrail != "" {
			fields["guardrail"] = t.Guardrail
		}
		return digests(fields)
	}
	k := d.Key
	limits(k.Limits)
	shared(k.Name, k.AllowedModels, k.AllowedRegions, k.Metadata, k.DefaultMaxTokens)
	fields["team_id"] = k.TeamID
	if k.Owner != "" {
		fields["owner"] = k.Owner
	}
	if k.ExpiresAt != nil {
		fields["expires_at"] = k.ExpiresAt.UnixMicro()
	}
	hash := k.secretHash()
	fields["token"] = hash[:]
	return digests(fields)
}

// valid reports whether f is the form that digests makes.
func (f Fingerprint) valid() bool {
	var fields map[string]string
	return json.Unmarshal([]byte(f), &fields) == nil && fields != nil && *encodeJSON(fields) == string(f)
}

func digests(fields map[string]any) Fingerprint {
	out := make(map[string]string, len(fields))
	for name, value := range fields {
		sum := sha256.Sum256([]byte(name + "\x00" + *encodeJSON(value)))
		out[name] = hex.EncodeToString(sum[:16])
	}
	return Fingerprint(*encodeJSON(out)) // the names in order
}

// differences names the fields in which two fingerprints differ.
func differences(a, b Fingerprint) []string {
	var left, right map[string]string
	if json.Unmarshal([]byte(a), &left) != nil || json.Unmarshal([]byte(b), &right) != nil {
		return []string{"fingerprint"}
	}
	names := maps.Clone(left)
	maps.Copy(names, right)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if l, in := left[name]; !in || l != right[name] {
			out = append(out, name)
		}
	}
	return out
}
