package keys_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/keys"
)

var eventTime = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)

// everyEvent has one of each type, of records that have something of everything.
func everyEvent(t testing.TB) map[string]keys.Event {
	t.Helper()
	team := keys.CreateTeam{ID: "red", Name: `R "\`, Limits: keys.Limits{CostPerDay: keys.Cost(7)}, AllowedModels: []string{}, Guardrail: "g"}.Apply(eventTime)
	create, err := keys.CreateKey{ID: "k", TeamID: "red", Owner: "ann", Metadata: map[string]string{"a": "b"}}.Prepare(keys.Format{})
	require.NoError(t, err)
	key, _, err := create.Apply(team, eventTime)
	require.NoError(t, err)
	later := eventTime.Add(time.Second)
	updated, _, err := keys.UpdateKey{ID: "k", IfRevision: 1, Name: keys.Set("n"), Limits: keys.LimitsChange{Concurrency: keys.Set(keys.Limit(1))}}.Apply(key, later)
	require.NoError(t, err)
	rotate, err := keys.RotateKey{ID: "k", RotationID: "r", IfRevision: 2, Grace: time.Minute}.Prepare(keys.Format{})
	require.NoError(t, err)
	rotated, err := rotate.Apply(updated, nil, later)
	require.NoError(t, err)
	revoked, _, err := keys.RevokeKey{ID: "k"}.Apply(rotated.Key, later)
	require.NoError(t, err)
	renamed, _, err := keys.UpdateTeam{ID: "red", IfRevision: 1, Name: keys.Set("x"), AllowedModels: keys.Set[[]string](nil)}.Apply(team, later)
	require.NoError(t, err)
	deleted, _, err := keys.DeleteTeam{ID: "red"}.Apply(renamed, later)
	require.NoError(t, err)
	imported := keys.Imported{Added: keys.Count{Teams: 1, Keys: 2, Secrets: 3, Declarations: 4}}.Events(later)
	require.Len(t, imported, 1)
	require.Empty(t, keys.Imported{Same: keys.Count{Teams: 1}}.Events(later))
	return map[string]keys.Event{
		keys.TeamCreated: team.CreationEvent(), keys.TeamUpdated: renamed.EditEvent(team), keys.TeamDeleted: deleted.EditEvent(renamed),
		keys.KeyCreated: key.CreationEvent(), keys.KeyUpdated: updated.EditEvent(key), keys.KeyRotated: rotated.Event(), keys.KeyRevoked: revoked.EditEvent(rotated.Key),
		keys.KeysImported: imported[0],
	}
}

func TestEventsSayWhatChanged(t *testing.T) {
	for kind, want := range map[string]struct {
		id      string
		changed []string
	}{
		keys.TeamCreated:  {"team/red/1", nil},
		keys.TeamUpdated:  {"team/red/2", []string{"allowed_models", "name"}},
		keys.TeamDeleted:  {"team/red/3", []string{"deleted_at"}},
		keys.KeyCreated:   {"key/k/1", nil},
		keys.KeyUpdated:   {"key/k/2", []string{"limits.concurrency", "name"}},
		keys.KeyRotated:   {"key/k/3", nil},
		keys.KeyRevoked:   {"key/k/4", []string{"revoked_at"}},
		keys.KeysImported: {"", nil},
	} {
		e := everyEvent(t)[kind]
		require.Equal(t, kind, e.Type)
		require.Equal(t, want.id, e.ID)
		require.Equal(t, 1, e.Schema)
		if want.id == "" {
			require.Equal(t, "keys", e.Stream)
		} else {
			require.Equal(t, want.id, fmt.Sprintf("%s/%c", e.Stream, e.ID[len(e.ID)-1]))
		}
		told, err := keys.ParseEvent(e.Type, e.Data)
		require.NoError(t, err, kind)
		require.Equal(t, want.changed, told.Changed, kind)
		require.Equal(t, strings.HasPrefix(kind, "key."), told.Key != nil, kind)
		require.Equal(t, strings.HasPrefix(kind, "team."), told.Team != nil, kind)
	}
	rotated, err := keys.ParseEvent(keys.KeyRotated, everyEvent(t)[keys.KeyRotated].Data)
	require.NoError(t, err)
	require.Equal(t, "r", rotated.RotationID)
	require.Equal(t, eventTime.Add(time.Second+time.Minute), *rotated.RetireAt)
	require.Equal(t, eventTime.Add(time.Second), rotated.At)
	in, err := keys.ParseEvent(keys.KeysImported, everyEvent(t)[keys.KeysImported].Data)
	require.NoError(t, err)
	require.Equal(t, keys.Count{Teams: 1, Keys: 2, Secrets: 3, Declarations: 4}, *in.Imported)
}

// TestPropertyEventsAreTheRecord: whatever an edit does, its event reads back as the row that was written, and names
// exactly the fields that it was asked to change and that were different.
func TestPropertyEventsAreTheRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "b", "<é>", `"\`})
		list := rapid.SampledFrom([][]string{nil, {}, {"a"}, {"a", "b"}})
		limit := rapid.SampledFrom([]*int64{nil, keys.Limit(0), keys.Limit(1 << 62)})
		before := keys.Key{
			ID: "k", TeamID: "red", Revision: 4, CreatedAt: eventTime, UpdatedAt: eventTime, Owner: text.Draw(t, "owner"), Name: text.Draw(t, "name"),
			AllowedModels: list.Draw(t, "models"), Limits: keys.Limits{TokensPerDay: limit.Draw(t, "tokens"), Concurrency: limit.Draw(t, "slots")},
		}
		u := keys.UpdateKey{ID: "k", IfRevision: 4}
		var want []string
		if u.AllowedModels = (keys.Change[[]string]{Set: rapid.Bool().Draw(t, "m"), To: list.Draw(t, "to models")}); u.AllowedModels.Set {
			if fmt.Sprintf("%#v", u.AllowedModels.To) != fmt.Sprintf("%#v", before.AllowedModels) {
				want = append(want, "allowed_models")
			}
		}
		for _, l := range []struct {
			name   string
			was    *int64
			change *keys.Change[*int64]
		}{{"limits.concurrency", before.Limits.Concurrency, &u.Limits.Concurrency}, {"limits.tokens_per_day", before.Limits.TokensPerDay, &u.Limits.TokensPerDay}} {
			*l.change = keys.Change[*int64]{Set: rapid.Bool().Draw(t, l.name), To: limit.Draw(t, "to "+l.name)}
			if to := l.change.To; l.change.Set && ((to == nil) != (l.was == nil) || to != nil && *to != *l.was) {
				want = append(want, l.name)
			}
		}
		for _, f := range []struct {
			name, was string
			change    *keys.Change[string]
		}{{"name", before.Name, &u.Name}, {"owner", before.Owner, &u.Owner}} {
			*f.change = keys.Change[string]{Set: rapid.Bool().Draw(t, f.name), To: text.Draw(t, "to "+f.name)}
			if f.change.Set && f.change.To != f.was {
				want = append(want, f.name)
			}
		}
		next, changed, err := u.Apply(before, eventTime.Add(time.Hour))
		require.NoError(t, err)
		require.Equal(t, len(want) > 0, changed)
		if !changed {
			return
		}
		told, err := keys.ParseEvent(keys.KeyUpdated, next.EditEvent(before).Data)
		require.NoError(t, err)
		require.Equal(t, next, *told.Key)
		require.Equal(t, want, told.Changed)
	})
}

// TestEventsOfBrokenRows: a row that was written by hand can be revoked, and that is told.
func TestEventsOfBrokenRows(t *testing.T) {
	key := keys.Key{ID: "k", TeamID: "red", Revision: 1, CreatedAt: time.UnixMicro(1<<62 - 1), UpdatedAt: time.UnixMicro(-1 << 62), ExpiresAt: &[]time.Time{time.UnixMicro(1 << 62)}[0]}
	next, changed, err := keys.RevokeKey{ID: "k"}.Apply(key, eventTime)
	require.NoError(t, err)
	require.True(t, changed)
	told, err := keys.ParseEvent(keys.KeyRevoked, next.EditEvent(key).Data)
	require.NoError(t, err)
	require.Equal(t, []string{"revoked_at"}, told.Changed)
}

func TestParseEventRefuses(t *testing.T) {
	change := func(kind string, edit func(map[string]any)) error {
		var fields map[string]any
		require.NoError(t, json.Unmarshal(everyEvent(t)[kind].Data, &fields))
		edit(fields)
		data, err := json.Marshal(fields)
		require.NoError(t, err)
		_, err = keys.ParseEvent(kind, data)
		return err
	}
	record := func(kind string, edit func(map[string]any)) error {
		return change(kind, func(fields map[string]any) { edit(fields[strings.Split(kind, ".")[0]].(map[string]any)) })
	}
	without := func(name string) func(map[string]any) { return func(m map[string]any) { delete(m, name) } }
	with := func(name string, v any) func(map[string]any) { return func(m map[string]any) { m[name] = v } }
	refused := func(err error, field string) {
		t.Helper()
		var got *keys.FieldError
		require.ErrorAs(t, err, &got, field)
		require.Equal(t, field, got.Field)
	}
	refused(change(keys.KeyUpdated, without("key")), "key")
	refused(change(keys.KeyUpdated, without("at")), "at")
	refused(change(keys.KeyUpdated, with("at", nil)), "at")
	refused(change(keys.KeyUpdated, without("revision")), "revision")
	refused(change(keys.KeyUpdated, with("revision", 7)), "revision")
	refused(change(keys.KeyRotated, without("rotation_id")), "rotation_id")
	refused(change(keys.KeyRotated, with("retire_at", nil)), "retire_at")
	refused(change(keys.KeysImported, without("added")), "added")
	refused(change(keys.KeysImported, with("added", map[string]any{"teams": -1, "keys": 0, "secrets": 0, "declarations": 0})), "added.teams")
	refused(change(keys.KeysImported, with("added", map[string]any{"teams": 1})), "added.declarations")
	for _, name := range []string{"id", "team_id", "owner", "name", "limits", "allowed_models", "allowed_regions", "revision", "created_at", "updated_at"} {
		refused(record(keys.KeyCreated, without(name)), "key."+name)
	}
	refused(record(keys.TeamCreated, without("guardrail")), "team.guardrail")
	refused(record(keys.TeamCreated, without("allowed_models")), "team.allowed_models")
	refused(record(keys.KeyRevoked, without("revoked_at")), "key.revoked_at")
	refused(record(keys.KeyUpdated, with("revoked_at", eventTime)), "key.revoked_at")
	refused(record(keys.TeamDeleted, without("deleted_at")), "team.deleted_at")
	refused(record(keys.KeyCreated, with("limits", map[string]any{"unheard_of": 1})), "key.limits.unheard_of")
	refused(record(keys.KeyCreated, with("id", "no/id")), "keys[?].id")
	for _, data := range []string{"", "null", "[]", "1", `{"at":1}`, `{"a":1,"a":2}`, "{}x"} {
		_, err := keys.ParseEvent(keys.KeyCreated, []byte(data))
		require.ErrorIs(t, err, keys.ErrInvalid, data)
	}
	_, err := keys.ParseEvent("key.forgotten", everyEvent(t)[keys.KeyCreated].Data)
	require.ErrorIs(t, err, keys.ErrInvalid)

	require.NoError(t, change(keys.KeyUpdated, with("later", "a field of a later version")))
	require.NoError(t, change(keys.KeyUpdated, with("team", 5)), "what is no part of the type's event is no part of it now")
	require.NoError(t, record(keys.KeyUpdated, with("later", nil)))
}

// FuzzParseEvent: what is read is what a store would write, and reads the same again.
func FuzzParseEvent(f *testing.F) {
	var kinds []string
	for kind, e := range everyEvent(f) {
		kinds = append(kinds, kind)
		f.Add(kind, e.Data)
	}
	slices.Sort(kinds)
	f.Add(keys.KeyCreated, []byte(`{"key":{},"revision":1,"at":"2026-01-01T00:00:00Z"}`))
	f.Add(keys.KeysImported, []byte(`{"added":{"teams":1e3},"at":"2026-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		told, err := keys.ParseEvent(kind, data)
		if err != nil {
			require.ErrorIs(t, err, keys.ErrInvalid)
			require.Zero(t, told)
			return
		}
		require.Contains(t, kinds, kind)
		require.Equal(t, kind, told.Type)
		switch {
		case told.Key != nil:
			require.NoError(t, keys.Rows{Keys: []keys.Key{*told.Key}}.Validate())
			require.Equal(t, told.Key.Revision, told.Revision)
		case told.Team != nil:
			require.NoError(t, keys.Rows{Teams: []keys.Team{*told.Team}}.Validate())
			require.Equal(t, told.Team.Revision, told.Revision)
		default:
			require.NotNil(t, told.Imported)
		}
	})
}
