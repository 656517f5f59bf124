package keystest

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

var importCases = []suiteCase{
	{name: "Import/RowsAreKeptAsTheyAre", needs: Features{Rows: true}, run: importExact},
	{name: "Import/RepeatingChangesNothing", needs: Features{Rows: true}, run: importRepeats},
	{name: "Import/ConflictRollsBack", needs: Features{Rows: true}, run: importConflict},
	{name: "Import/AnEditedRowIsAConflict", needs: Features{Rows: true}, run: importEdited},
	{name: "Import/ABrokenSequenceRollsBack", needs: Features{Rows: true}, run: importBroken},
	{name: "Import/BadRowsAreRefused", needs: Features{Rows: true}, run: importInvalid},
	{name: "Import/BatchesBuildOnEachOther", needs: Features{Rows: true}, run: importBatches},
	{name: "Import/RaceOfTheSame", needs: Features{Rows: true}, run: raceImport},
	{name: "Export/GivesEverythingAway", needs: Features{Rows: true}, run: exportAll},
}

// batches is a sequence of them.
func batches(list ...keys.Rows) iter.Seq2[keys.Rows, error] {
	return func(yield func(keys.Rows, error) bool) {
		for _, rows := range list {
			if !yield(rows, nil) {
				return
			}
		}
	}
}

func (k *kit) importer() keys.Importer {
	k.Helper()
	in, ok := k.s.(keys.Importer)
	k.truth(ok, "Features.Rows is claimed by a store that is no keys.Importer")
	return in
}

// history is what a store may have come to hold: everything that a listing for
// callers leaves out is in it. The tokens are of the key that lives, old and new,
// and of the revoked one.
func history(k *kit) (rows keys.Rows, old, current, revoked keys.Token) {
	k.Helper()
	old, current, revoked = mint(k), mint(k), mint(k)
	at := func(hours int) time.Time {
		return time.Now().Add(time.Duration(hours) * time.Hour).UTC().Truncate(time.Microsecond)
	}
	rows = keys.Rows{
		Teams: []keys.Team{
			{ID: "red", Name: "Red", Limits: fullLimits(), AllowedModels: []string{}, AllowedRegions: awkward, Guardrail: "g", Metadata: map[string]string{"a": "b"}, DefaultMaxTokens: ptr[int64](3), Revision: 7, CreatedAt: at(-900), UpdatedAt: at(-9)},
			{ID: "gone", Revision: 2, CreatedAt: at(-90), UpdatedAt: at(-8), DeletedAt: ptr(at(-8))},
		},
		Keys: []keys.Key{
			{ID: "k", TeamID: "red", Owner: "ann", Name: "K", Limits: fullLimits(), AllowedModels: awkward, Metadata: map[string]string{"c": "d"}, Revision: 12, CreatedAt: at(-800), UpdatedAt: at(-1), ExpiresAt: ptr(at(48))},
			{ID: "old", TeamID: "red", Revision: 3, CreatedAt: at(-700), UpdatedAt: at(-7), RevokedAt: ptr(at(-7))},
			{ID: "late", TeamID: "red", Revision: 1, CreatedAt: at(-700), UpdatedAt: at(-700), ExpiresAt: ptr(at(-1))},
			{ID: "orphan", TeamID: "gone", Revision: 1, CreatedAt: at(-80), UpdatedAt: at(-80)},
		},
		Secrets: []keys.Secret{
			{Hash: old.Hash(), KeyID: "k", CreatedAt: at(-800), RetiresAt: ptr(at(24))},
			{Hash: current.Hash(), KeyID: "k", RotationID: "r1", Grace: 25 * time.Hour, CreatedAt: at(-1)},
			{Hash: revoked.Hash(), KeyID: "old", CreatedAt: at(-700)},
			{Hash: mint(k).Hash(), KeyID: "late", CreatedAt: at(-700)},
			{Hash: mint(k).Hash(), KeyID: "orphan", CreatedAt: at(-80)},
		},
	}
	return rows, old, current, revoked
}

func importExact(k *kit) {
	rows, old, current, revoked := history(k)
	done := must(k.importer().Import(k.ctx, batches(rows)))(k)
	same(k, done, keys.Imported{Added: rows.Count()}, "what was added is counted")
	for _, team := range rows.Teams {
		same(k, must(k.s.Team(k.ctx, team.ID))(k), team, "a team is kept as it was")
	}
	for _, key := range rows.Keys {
		same(k, must(k.s.Key(k.ctx, key.ID))(k), key, "a key is kept as it was")
	}
	k.truth(k.resolve(old).KeyID == "k" && k.resolve(current).KeyID == "k", "a rotation's grace goes on")
	fails(k.s.Resolve(k.ctx, revoked.Reveal()))(k, keys.ErrRevoked, "what was revoked comes along, revoked")
	again := must(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "r1", IfRevision: 11, Grace: 25 * time.Hour}))(k)
	k.truth(again.Replayed, "a rotation that was done is known")
	fails(k.s.CreateTeam(k.ctx, keys.CreateTeam{ID: "gone"}))(k, keys.ErrExists, "a tombstone's id stays taken")
	fails(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "new", TeamID: "red", Token: revoked}))(k, keys.ErrConflict, "a revoked token stays taken")
	k.truth(must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: 12, Name: keys.Set("x")}))(k).Revision == 13, "revisions go on")
	if !k.h.Features.Clock {
		return
	}
	k.advance(25 * time.Hour)
	fails(k.s.Resolve(k.ctx, old.Reveal()))(k, keys.ErrRevoked, "a grace ends when it was to end")
}

func importRepeats(k *kit) {
	rows, _, _, _ := history(k)
	must(k.importer().Import(k.ctx, batches(rows)))(k)
	same(k, must(k.importer().Import(k.ctx, batches(rows)))(k), keys.Imported{Same: rows.Count()}, "a repetition adds nothing")
	extra := keys.Rows{Teams: []keys.Team{{ID: "blue", Revision: 1}}}
	same(k, must(k.importer().Import(k.ctx, batches(rows, extra)))(k), keys.Imported{Added: extra.Count(), Same: rows.Count()}, "what is missing is added")
	same(k, must(k.importer().Import(k.ctx, batches()))(k), keys.Imported{}, "nothing is nothing to do")
}

func importConflict(k *kit) {
	made := k.one()
	key := keys.Name{Kind: keys.KindKey, ID: "k"}
	first := keys.Rows{Teams: []keys.Team{{ID: "blue", Revision: 1}}, Keys: []keys.Key{{ID: "b", TeamID: "blue", Revision: 1}}}
	team, row := must(k.s.Team(k.ctx, "red"))(k), made.Key.Clone()
	team.Name, row.Owner = "Other", "other"
	secret := keys.Secret{Hash: made.Token.Hash(), KeyID: "b", CreatedAt: row.CreatedAt}
	for name, c := range map[string]struct {
		rows   keys.Rows
		about  keys.Name
		fields []string
	}{
		"a team":          {keys.Rows{Teams: []keys.Team{team}}, redTeam, []string{"name"}},
		"a key":           {keys.Rows{Keys: []keys.Key{row}}, key, []string{"owner"}},
		"a token in use":  {keys.Rows{Secrets: []keys.Secret{secret}}, keys.Name{Kind: keys.KindKey, ID: "b"}, []string{"token"}},
		"another token":   {keys.Rows{Secrets: []keys.Secret{{Hash: mint(k).Hash(), KeyID: "k", CreatedAt: row.CreatedAt}}}, key, []string{"token"}},
		"a missing team":  {keys.Rows{Keys: []keys.Key{{ID: "n", TeamID: "none", Revision: 1}}}, keys.Name{Kind: keys.KindKey, ID: "n"}, []string{"team_id"}},
		"a missing key":   {keys.Rows{Secrets: []keys.Secret{{Hash: mint(k).Hash(), KeyID: "none"}}}, keys.Name{Kind: keys.KindKey, ID: "none"}, []string{"id"}},
		"an expiry lost":  {keys.Rows{Keys: []keys.Key{func() keys.Key { r := made.Key.Clone(); r.ExpiresAt = inDays(1); return r }()}}, key, []string{"expires_us"}},
		"a list narrowed": {keys.Rows{Keys: []keys.Key{func() keys.Key { r := made.Key.Clone(); r.AllowedModels = []string{}; return r }()}}, key, []string{"allowed_models"}},
	} {
		_, err := k.importer().Import(k.ctx, batches(first, c.rows))
		k.is(err, keys.ErrConflict, name)
		k.names(err, c.about, name, c.fields...)
	}
	fails(k.s.Team(k.ctx, "blue"))(k, keys.ErrNotFound, "a conflict takes back what came before it")
	fails(k.s.Key(k.ctx, "b"))(k, keys.ErrNotFound, "a conflict takes back what came before it")
	same(k, k.resolve(made.Token).Key, made.Key, "a conflict changes nothing")
}

func importEdited(k *kit) {
	rows, _, current, _ := history(k)
	must(k.importer().Import(k.ctx, batches(rows)))(k)
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"}))(k)
	_, err := k.importer().Import(k.ctx, batches(rows))
	k.is(err, keys.ErrConflict, "an import over a later edit")
	fails(k.s.Resolve(k.ctx, current.Reveal()))(k, keys.ErrRevoked, "an import never takes a revocation back")
}

func importBroken(k *kit) {
	rows, _, current, _ := history(k)
	broken := errors.New("the source broke")
	_, err := k.importer().Import(k.ctx, func(yield func(keys.Rows, error) bool) {
		if yield(rows, nil) {
			yield(keys.Rows{}, broken)
		}
	})
	k.truth(errors.Is(err, broken), "the source's error is told: %v", err)
	fails(k.s.Team(k.ctx, "red"))(k, keys.ErrNotFound, "half an import is none")
	fails(k.s.Resolve(k.ctx, current.Reveal()))(k, keys.ErrUnknown, "half an import is none")
}

func importInvalid(k *kit) {
	good, _, _, _ := history(k)
	for name, bad := range map[string]keys.Rows{
		"no id":          {Teams: []keys.Team{{Revision: 1}}},
		"no revision":    {Teams: []keys.Team{{ID: "t"}}},
		"negative limit": {Keys: []keys.Key{{ID: "n", TeamID: "red", Revision: 1, Limits: keys.Limits{TokensPerDay: keys.Limit(-1)}}}},
		"no team":        {Keys: []keys.Key{{ID: "n", Revision: 1}}},
		"bad expiry":     {Keys: []keys.Key{{ID: "n", TeamID: "red", Revision: 1, ExpiresAt: &time.Time{}}}},
		"no hash":        {Secrets: []keys.Secret{{KeyID: "k"}}},
		"hash of none":   {Secrets: []keys.Secret{{KeyID: "k", Hash: keys.Token{}.Hash()}}},
		"negative grace": {Secrets: []keys.Secret{{KeyID: "k", Hash: mint(k).Hash(), RotationID: "x", Grace: -1}}},
		"no kind":        {Declarations: []keys.Declared{{Name: keys.Name{ID: "k"}, Fingerprint: "{}"}}},
		"no fingerprint": {Declarations: []keys.Declared{{Name: ciKey, Fingerprint: "x"}}},
	} {
		fails(k.importer().Import(k.ctx, batches(good, bad)))(k, keys.ErrInvalid, name)
	}
	fails(k.s.Team(k.ctx, "red"))(k, keys.ErrNotFound, "bad rows keep the good ones out")
}

func importBatches(k *kit) {
	rows, old, current, _ := history(k)
	b, _, _ := declared(mint(k))
	var parts []keys.Rows
	for _, t := range rows.Teams {
		parts = append(parts, keys.Rows{Teams: []keys.Team{t}})
	}
	for _, key := range rows.Keys {
		parts = append(parts, keys.Rows{Keys: []keys.Key{key}})
	}
	for _, s := range rows.Secrets {
		parts = append(parts, keys.Rows{Secrets: []keys.Secret{s}})
	}
	same(k, must(k.importer().Import(k.ctx, batches(parts...)))(k), keys.Imported{Added: rows.Count()}, "small batches add up")
	k.truth(k.resolve(old).KeyID == "k" && k.resolve(current).KeyID == "k", "every batch arrived")
	k.conflict(b, redTeam, "what an import brought was not declared here", "id")
}

func raceImport(k *kit) {
	rows, _, current, _ := history(k)
	errs := k.race(func(_ int, s keys.Store) error {
		_, err := s.(keys.Importer).Import(k.ctx, batches(rows))
		return err
	})
	for _, err := range errs {
		k.truth(err == nil, "the same import at once must succeed: %v", err)
	}
	k.resolve(current)
}

// exportAll moves a store that has lived into an empty one and compares the two.
func exportAll(k *kit) {
	out, ok := k.s.(keys.Exporter)
	if !ok {
		return // taking rows in is an ability of its own
	}
	token := mint(k)
	b, _, _ := declared(token)
	k.bootstrap(b)
	rotated := must(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "ci", RotationID: "r", IfRevision: 1, Grace: time.Hour}))(k)
	for i := range 7 {
		k.key(fmt.Sprint("k", i), "red")
	}
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k3"}))(k)
	k.team("gone")
	must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "gone"}))(k)

	fresh := k.h.New(k)
	move := func() (done keys.Imported) {
		err := out.Export(k.ctx, func(rows iter.Seq2[keys.Rows, error]) (err error) {
			done, err = fresh.(keys.Importer).Import(k.ctx, rows)
			return err
		})
		k.truth(err == nil, "moving a store failed: %v", err)
		return done
	}
	all := keys.Count{Teams: 2, Keys: 8, Secrets: 9, Declarations: 2}
	same(k, move(), keys.Imported{Added: all}, "everything is given away, tombstones and retiring secrets too")
	same(k, move(), keys.Imported{Same: all}, "giving it away again changes nothing")
	same(k, must(fresh.Keys(k.ctx, keys.ListKeys{}))(k), must(k.s.Keys(k.ctx, keys.ListKeys{}))(k), "both stores hold the same keys")
	same(k, must(fresh.Teams(k.ctx, keys.ListTeams{}))(k), must(k.s.Teams(k.ctx, keys.ListTeams{}))(k), "both stores hold the same teams")
	for _, t := range []keys.Token{token, rotated.Token} {
		k.truth(must(fresh.Resolve(k.ctx, t.Reveal()))(k).KeyID == "ci", "tokens go along")
	}
	same(k, must(fresh.Bootstrap(k.ctx, b))(k).Unchanged, 2, "what was declared is known there too")
	stop := errors.New("stop")
	err := out.Export(k.ctx, func(iter.Seq2[keys.Rows, error]) error { return stop })
	k.truth(errors.Is(err, stop), "the user's error comes back: %v", err)
	k.truth(slices.Contains(must(k.s.Bootstrap(k.ctx, keys.Bootstrap{Declarations: []keys.Declaration{{Team: &keys.CreateTeam{ID: "later"}}}}))(k).Created,
		keys.Name{Kind: keys.KindTeam, ID: "later"}), "a store that was exported can be written again")
}
