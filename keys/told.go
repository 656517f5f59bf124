package keys

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Told is what an event says.
type Told struct {
	Type string
	// Key or Team is the record after the edit; both are nil in an import's.
	Key  *Key
	Team *Team
	// Changed names the fields that differ, in JSON names such as "limits.tokens_per_day", in order. A creation names none, and
	// revision and times are not named.
	Changed  []string
	Revision int64     // the record's; 0 for an import
	At       time.Time // the store's time of the edit, which never goes back for one record
	// RotationID is the rotation's, and RetireAt the store's time from which its earlier tokens are refused.
	RotationID string
	RetireAt   *time.Time
	// Imported counts what one import's transaction added.
	Imported *Count
}

// told is Told as it is written.
type told struct {
	Key        *Key       `json:"key,omitempty"`
	Team       *Team      `json:"team,omitempty"`
	Changed    []string   `json:"changed,omitempty"`
	Revision   int64      `json:"revision,omitempty"`
	At         time.Time  `json:"at"`
	RotationID string     `json:"rotation_id,omitempty"`
	RetireAt   *time.Time `json:"retire_at,omitempty"`
	Added      *Count     `json:"added,omitempty"`
}

// ParseEvent reads an event of this package. A field that it does not know passes: a later version may have added it. What an event of
// its type must have and has not is refused, as is a record that would allow more than was written.
//
// Whoever keeps something by a key or a team needs no more than the stream: see [Cache.Follow].
//
// Errors: *FieldError.
func ParseEvent(kind string, data []byte) (Told, error) {
	out := Told{Type: kind}
	fields := map[string]any{"at": &out.At}
	required := []string{"at"}
	var record func(json.RawMessage) error
	switch kind {
	case KeyCreated, KeyUpdated, KeyRotated, KeyRevoked:
		record, required = func(raw json.RawMessage) (err error) { out.Key, err = tellKey(raw); return err }, append(required, "key", "revision")
	case TeamCreated, TeamUpdated, TeamDeleted:
		record, required = func(raw json.RawMessage) (err error) { out.Team, err = tellTeam(raw); return err }, append(required, "team", "revision")
	case KeysImported:
		required = append(required, "added")
	default:
		return Told{}, refuse("type", "must be one of this package's events")
	}
	fields["revision"], fields["changed"] = &out.Revision, &out.Changed
	fields["rotation_id"], fields["retire_at"] = &out.RotationID, &out.RetireAt
	if kind == KeyRotated {
		required = append(required, "rotation_id", "retire_at")
	}
	err := decodeKnown(data, required, func(name string, raw json.RawMessage) error {
		switch {
		case name == "added" && record == nil:
			out.Imported = &Count{}
			return tellCount(raw, out.Imported)
		case (name == "key" || name == "team") && record != nil && strings.HasPrefix(kind, name+"."):
			return record(raw)
		case fields[name] != nil:
			return within(name, decodeValue(raw, fields[name]))
		}
		return nil
	})
	if err == nil {
		err = out.sound()
	}
	if err != nil {
		return Told{}, err
	}
	return out, nil
}

// sound holds the event against its record.
func (t Told) sound() error {
	revision := t.Revision
	switch {
	case t.Key != nil:
		revision = t.Key.Revision
	case t.Team != nil:
		revision = t.Team.Revision
	}
	switch {
	case t.At.IsZero():
		return refuse("at", "must be a time")
	case t.Revision != revision:
		return refuse("revision", "must be the record's")
	case t.Type == KeyRotated && t.RetireAt == nil:
		return refuse("retire_at", "must be a time")
	case (t.Type == KeyRevoked) != (t.Key != nil && t.Key.RevokedAt != nil):
		return refuse("key.revoked_at", "must be there when the key was revoked, and only then")
	case (t.Type == TeamDeleted) != (t.Team != nil && t.Team.DeletedAt != nil):
		return refuse("team.deleted_at", "must be there when the team was deleted, and only then")
	}
	return nil
}

// alwaysThere are the fields that every record has. A list that is missing would allow everything.
var alwaysThere = []string{"id", "name", "limits", "allowed_models", "allowed_regions", "revision", "created_at", "updated_at"}

func tellKey(raw json.RawMessage) (*Key, error) {
	var k Key
	err := within("key", decodeFields(raw, append([]string{"team_id", "owner"}, alwaysThere...), map[string]any{
		"id": &k.ID, "team_id": &k.TeamID, "owner": &k.Owner, "name": &k.Name, "limits": &k.Limits,
		"allowed_models": &k.AllowedModels, "allowed_regions": &k.AllowedRegions, "metadata": &k.Metadata, "default_max_tokens": &k.DefaultMaxTokens,
		"revision": &k.Revision, "created_at": &k.CreatedAt, "updated_at": &k.UpdatedAt, "expires_at": &k.ExpiresAt, "revoked_at": &k.RevokedAt,
	}))
	if err == nil {
		err = Rows{Keys: []Key{k}}.Validate()
	}
	return &k, err
}

func tellTeam(raw json.RawMessage) (*Team, error) {
	var t Team
	err := within("team", decodeFields(raw, append([]string{"guardrail"}, alwaysThere...), map[string]any{
		"id": &t.ID, "name": &t.Name, "limits": &t.Limits, "allowed_models": &t.AllowedModels, "allowed_regions": &t.AllowedRegions,
		"guardrail": &t.Guardrail, "metadata": &t.Metadata, "default_max_tokens": &t.DefaultMaxTokens,
		"revision": &t.Revision, "created_at": &t.CreatedAt, "updated_at": &t.UpdatedAt, "deleted_at": &t.DeletedAt,
	}))
	if err == nil {
		err = Rows{Teams: []Team{t}}.Validate()
	}
	return &t, err
}

func tellCount(raw json.RawMessage, c *Count) error {
	each := map[string]*int64{"teams": new(int64), "keys": new(int64), "secrets": new(int64), "declarations": new(int64)}
	fields := map[string]any{}
	for name, n := range each {
		fields[name] = n
	}
	if err := decodeFields(raw, slices.Sorted(maps.Keys(each)), fields); err != nil {
		return within("added", err)
	}
	for name, n := range each {
		if *n < 0 || *n > 1<<31-1 {
			return refuse("added."+name, "must be a count")
		}
	}
	*c = Count{int(*each["teams"]), int(*each["keys"]), int(*each["secrets"]), int(*each["declarations"])}
	return nil
}

func decodeFields(data []byte, required []string, fields map[string]any) error {
	return decodeKnown(data, required, func(name string, raw json.RawMessage) error {
		target, known := fields[name]
		if !known {
			return nil
		}
		return within(name, decodeValue(raw, target))
	})
}

// decodeKnown reads one JSON object of which visit knows some members. Those that are required must be there.
func decodeKnown(data []byte, required []string, visit func(name string, raw json.RawMessage) error) error {
	there := map[string]bool{}
	if err := eachMember(data, func(name string, raw json.RawMessage) error {
		there[name] = true
		return visit(name, raw)
	}); err != nil {
		return err
	}
	for _, name := range required {
		if !there[name] {
			return refuse(name, "must be there")
		}
	}
	return nil
}
