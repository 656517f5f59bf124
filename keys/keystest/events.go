package keystest

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// Besides these, what races and random operations have done is held against what was told of it: see kit.audit.
var eventCases = []suiteCase{
	{name: "Events/OneForEveryChange", needs: Features{Events: true}, run: eventsOne},
	{name: "Events/NoneWhereNothingChanged", needs: Features{Events: true}, run: eventsNone},
	{name: "Events/BootstrapTellsOfEach", needs: Features{Events: true}, run: eventsBootstrap},
	{name: "Events/ImportTellsOnce", needs: Features{Events: true, Rows: true}, run: eventsImport},
	{name: "Events/RaceKeepsTheOrderOfRevisions", needs: Features{Events: true}, run: eventsRace},
	{name: "Events/NoSecretIsTold", needs: Features{Events: true}, run: eventsSecret},
}

// told is what the store has told so far.
func (k *kit) told() []keys.Event {
	k.Helper()
	return k.h.Events(k, k.s)
}

// tells checks what was told since there were n events.
func (k *kit) tells(n int, rule string, want ...string) []keys.Told {
	k.Helper()
	var got []string
	var out []keys.Told
	for _, e := range k.told()[n:] {
		out = append(out, must(keys.ParseEvent(e.Type, e.Data))(k))
		got = append(got, e.Type+" "+e.Stream)
	}
	k.truth(strings.Join(got, ", ") == strings.Join(want, ", "), "%s:\n got %v\nwant %v", rule, got, want)
	return out
}

// audit holds all events against the rows that there are.
func (k *kit) audit() {
	k.Helper()
	at, times, last, imported := map[string]int64{}, map[string]time.Time{}, map[string]keys.Told{}, false
	for _, e := range k.told() {
		told := must(keys.ParseEvent(e.Type, e.Data))(k)
		if told.Imported != nil {
			imported = true
			continue
		}
		before, known := at[e.Stream]
		k.truth(told.Revision == before+1 || imported && !known, "%s: revision %d was told after %d", e.Stream, told.Revision, before)
		k.truth(!told.At.Before(times[e.Stream]), "%s: its time went back", e.Stream)
		k.truth(e.ID == fmt.Sprintf("%s/%d", e.Stream, told.Revision), "%s: the event's id is %s", e.Stream, e.ID)
		at[e.Stream], times[e.Stream], last[e.Stream] = told.Revision, told.At, told
	}
	for teams, after := (keys.TeamPage{Next: "-"}), ""; teams.Next != ""; after = teams.Next {
		teams = must(k.s.Teams(k.ctx, keys.ListTeams{After: after, Limit: keys.MaxPage}))(k)
		for _, team := range teams.Teams {
			told, known := last["team/"+team.ID]
			k.truth(known || imported, "nobody was told of team %s", team.ID)
			if known {
				same(k, *told.Team, team, "the last that was told of the team is how it is")
			}
		}
	}
	for page, after := (keys.KeyPage{Next: "-"}), ""; page.Next != ""; after = page.Next {
		page = must(k.s.Keys(k.ctx, keys.ListKeys{After: after, Limit: keys.MaxPage}))(k)
		for _, key := range page.Keys {
			told, known := last["key/"+key.ID]
			k.truth(known || imported, "nobody was told of key %s", key.ID)
			if known {
				same(k, *told.Key, key, "the last that was told of the key is how it is")
			}
		}
	}
}

func eventsOne(k *kit) {
	made := k.one()
	k.tells(0, "creations", "team.created team/red", "key.created key/k")
	n := len(k.told())
	key := must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: 1, Owner: keys.Set("ann"), AllowedModels: keys.Set([]string{}), Limits: keys.LimitsChange{TokensPerDay: keys.Set(keys.Limit(5))}}))(k)
	told := k.tells(n, "an update", "key.updated key/k")[0]
	same(k, told.Changed, []string{"allowed_models", "limits.tokens_per_day", "owner"}, "what changed is named")
	same(k, *told.Key, key, "the record is the one after the edit")
	k.truth(told.At.Equal(key.UpdatedAt), "the time is the store's")
	n++
	must(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: 2, Grace: time.Hour}))(k)
	told = k.tells(n, "a rotation", "key.rotated key/k")[0]
	k.truth(told.RotationID == "r" && told.RetireAt != nil && told.RetireAt.Sub(told.At) == time.Hour, "a rotation's terms are told: %+v", told)
	n++
	must(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: 1, Guardrail: keys.Set("g")}))(k)
	same(k, k.tells(n, "a team's update", "team.updated team/red")[0].Changed, []string{"guardrail"}, "what changed is named")
	n++
	must(k.s.RevokeSelf(k.ctx, k.resolve(made.Token)))(k)
	told = k.tells(n, "a revocation by the key itself", "key.revoked key/k")[0]
	same(k, told.Changed, []string{"revoked_at"}, "what changed is named")
	n++
	k.key("other", "red")
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "other"}))(k)
	must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red"}))(k)
	k.tells(n, "what ends", "key.created key/other", "key.revoked key/other", "team.deleted team/red")
}

func eventsNone(k *kit) {
	made := k.one()
	k.key("gone", "red")
	rotate := keys.RotateKey{ID: "k", RotationID: "r", IfRevision: 1, Grace: time.Hour}
	must(k.s.RotateKey(k.ctx, rotate))(k)
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "gone"}))(k)
	k.team("past")
	must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "past"}))(k)
	n := len(k.told())

	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "gone"}))(k)
	must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "past"}))(k)
	must(k.s.RotateKey(k.ctx, rotate))(k)
	must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: 1, Name: keys.Set("")}))(k)
	must(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: 9, Name: keys.Set("Team red")}))(k)
	k.tells(n, "what is in force already is not told again")

	fails(k.s.CreateTeam(k.ctx, keys.CreateTeam{ID: "red"}))(k, keys.ErrExists, "a team that is there")
	fails(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "red"}))(k, keys.ErrExists, "a key that is there")
	fails(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "new", TeamID: "red", Token: made.Token}))(k, keys.ErrConflict, "a token that is used")
	fails(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: 1, Name: keys.Set("x")}))(k, keys.ErrStale, "a stale edit")
	fails(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k", IfRevision: 1}))(k, keys.ErrStale, "a stale revocation")
	fails(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "past", IfRevision: 2, Name: keys.Set("x")}))(k, keys.ErrRevoked, "an edit of a tombstone")
	_, err := k.s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "other", IfRevision: 2, Token: made.Token})
	k.is(err, keys.ErrConflict, "a rotation to a token that is used")
	k.tells(n, "what is refused is not told")
}

func eventsBootstrap(k *kit) {
	token := mint(k)
	b := keys.Bootstrap{Declarations: []keys.Declaration{
		{Key: &keys.CreateKey{ID: "k", TeamID: "red", Token: token}}, {Team: &keys.CreateTeam{ID: "red"}}, {Team: &keys.CreateTeam{ID: "blue"}},
	}}
	must(k.s.Bootstrap(k.ctx, b))(k)
	k.tells(0, "a bootstrap", "team.created team/red", "team.created team/blue", "key.created key/k")
	must(k.s.Bootstrap(k.ctx, b))(k)
	b.Declarations[1].Team.Name = "other"
	b.Declarations = append(b.Declarations, keys.Declaration{Team: &keys.CreateTeam{ID: "green"}})
	fails(k.s.Bootstrap(k.ctx, b))(k, keys.ErrConflict, "another declaration")
	k.tells(3, "repeated and refused bootstraps tell nothing")
}

func eventsImport(k *kit) {
	rows, _, _, _ := history(k)
	in := k.importer()
	done := must(in.Import(k.ctx, batches(rows)))(k)
	told := k.tells(0, "an import", "keys.imported keys")[0]
	k.truth(told.Imported != nil && *told.Imported == done.Added, "an import tells what it added: %+v", told.Imported)
	must(in.Import(k.ctx, batches(rows)))(k)
	k.tells(1, "an import of what is there tells nothing")
	must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: 12, Name: keys.Set("x")}))(k)
	k.truth(k.tells(1, "an edit of what was imported", "key.updated key/k")[0].Revision == 13, "revisions go on from the imported one")
}

func eventsRace(k *kit) {
	k.one()
	errs := k.race(func(i int, s keys.Store) error {
		for range 200 {
			key, err := s.Key(k.ctx, "k")
			if err != nil {
				return err
			}
			if _, err = s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: key.Revision, Name: keys.Set(fmt.Sprint("name ", i))}); err == nil {
				return nil
			}
			k.is(err, keys.ErrStale, "another came first")
		}
		return keys.ErrStale
	})
	for i, err := range errs {
		k.truth(err == nil, "racer %d: %v", i, err)
	}
	names := map[string]bool{}
	for _, e := range k.told()[2:] {
		told := must(keys.ParseEvent(e.Type, e.Data))(k)
		k.truth(!names[told.Key.Name], "%s was told twice", told.Key.Name)
		names[told.Key.Name] = true
	}
	k.truth(len(names) == racers, "%d of %d edits were told", len(names), racers)
}

func eventsSecret(k *kit) {
	brought, declared, fresh := mint(k), mint(k), mint(k)
	k.team("red")
	must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "red", Token: brought}))(k)
	minted := k.key("minted", "red")
	must(k.s.Bootstrap(k.ctx, keys.Bootstrap{Declarations: []keys.Declaration{{Key: &keys.CreateKey{ID: "declared", TeamID: "red", Token: declared}}}}))(k)
	must(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: 1, Token: fresh}))(k)
	must(k.s.RevokeSelf(k.ctx, k.resolve(fresh)))(k)
	for _, e := range k.told() {
		text := strings.ToLower(fmt.Sprintf("%s %s %s %s", e.ID, e.Type, e.Stream, e.Data))
		for _, token := range []keys.Token{brought, minted.Token, declared, fresh} {
			hash := token.Hash()
			for _, secret := range []string{token.Reveal()[4:], hex.EncodeToString(hash[:12]), base64.StdEncoding.EncodeToString(hash[:12])} {
				k.truth(!strings.Contains(text, strings.ToLower(secret)), "%s gives a secret away", e.ID)
			}
		}
		k.truth(!strings.Contains(text, "hash") && !strings.Contains(text, "fingerprint"), "%s speaks of secrets", e.ID)
	}
}
