package keystest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

var bootstrapCases = []suiteCase{
	{name: "Bootstrap/CreatesWhatIsDeclared", run: bootstrapCreates},
	{name: "Bootstrap/RepeatingChangesNothing", run: bootstrapRepeats},
	{name: "Bootstrap/KeepsLaterEdits", run: bootstrapKeepsEdits},
	{name: "Bootstrap/BringsNothingBack", run: bootstrapTombstones},
	{name: "Bootstrap/KeepsARotation", run: bootstrapRotated},
	{name: "Bootstrap/SpellingIsNoConflict", run: bootstrapSpelling},
	{name: "Bootstrap/AnotherDeclarationIsAConflict", run: bootstrapConflict},
	{name: "Bootstrap/WhatOthersHaveIsAConflict", run: bootstrapTaken},
	{name: "Bootstrap/NeedsItsTeam", run: bootstrapTeam},
	{name: "Bootstrap/BadInputChangesNothing", run: bootstrapInvalid},
	{name: "Bootstrap/IsKnownAfterItsExpiry", needs: Features{Clock: true}, run: bootstrapExpired},
	{name: "Bootstrap/SurvivesARestart", needs: Features{Handles: true}, run: bootstrapRestart},
	{name: "Bootstrap/RaceOfEqualReplicas", told: true, run: raceBootstrap},
	{name: "Bootstrap/RaceOfConflictingReplicas", told: true, run: raceConflicting},
	{name: "Bootstrap/RaceWithACreate", told: true, run: raceBootstrapCreate},
}

// declared is one team with one key, in the order that needs more care.
func declared(token keys.Token) (keys.Bootstrap, *keys.CreateTeam, *keys.CreateKey) {
	team := &keys.CreateTeam{
		ID: "red", Name: "Red", Limits: fullLimits(), AllowedModels: []string{"a", "b"}, Guardrail: "strict", Metadata: map[string]string{"a": "b"},
	}
	key := &keys.CreateKey{
		ID: "ci", TeamID: "red", Owner: "ann", Name: "CI", Limits: keys.Limits{RequestsPerMinute: keys.Limit(5)}, AllowedModels: []string{},
		Metadata: map[string]string{"c": "d"}, DefaultMaxTokens: ptr[int64](9), ExpiresAt: inDays(3), Token: token,
	}
	return keys.Bootstrap{Declarations: []keys.Declaration{{Key: key}, {Team: team}}}, team, key
}

func (k *kit) bootstrap(b keys.Bootstrap) keys.Bootstrapped {
	k.Helper()
	return must(k.s.Bootstrap(k.ctx, b))(k)
}

// conflict checks that b is refused for what it says of a name, and of which fields.
func (k *kit) conflict(b keys.Bootstrap, n keys.Name, rule string, fields ...string) {
	k.Helper()
	_, err := k.s.Bootstrap(k.ctx, b)
	k.is(err, keys.ErrConflict, rule)
	k.names(err, n, rule, fields...)
}

func (k *kit) names(err error, n keys.Name, rule string, fields ...string) {
	k.Helper()
	var c *keys.ConflictError
	k.truth(errors.As(err, &c), "%s: %v is no *ConflictError", rule, err)
	k.truth(c.Name == n && slices.Equal(c.Fields, fields), "%s: the conflict is about %s %v, want %s %v", rule, c.Name, c.Fields, n, fields)
}

var (
	redTeam = keys.Name{Kind: keys.KindTeam, ID: "red"}
	ciKey   = keys.Name{Kind: keys.KindKey, ID: "ci"}
)

func bootstrapCreates(k *kit) {
	token := mint(k)
	b, team, key := declared(token)
	done := k.bootstrap(b)
	same(k, done, keys.Bootstrapped{Created: []keys.Name{redTeam, ciKey}}, "what was created is reported, teams first")
	p := k.resolve(token)
	k.truth(p.KeyID == "ci" && p.TeamID == "red" && p.User == "ann", "the declared token is the key's")
	same(k, p.Team.Limits, team.Limits, "the team's limits are kept")
	same(k, p.Key.Limits, key.Limits, "the key's limits are kept")
	same(k, p.Key.AllowedModels, key.AllowedModels, "an empty list allows nothing")
	k.truth(p.Key.ExpiresAt.Equal(*key.ExpiresAt) && p.Key.Revision == 1 && p.Team.Revision == 1, "what is declared is as if it were created")
	same(k, k.bootstrap(keys.Bootstrap{}).Created, []keys.Name{}, "nothing declared is nothing to do")
}

func bootstrapRepeats(k *kit) {
	token := mint(k)
	b, _, _ := declared(token)
	k.bootstrap(b)
	before := k.resolve(token)
	for range 3 {
		same(k, k.bootstrap(b), keys.Bootstrapped{Created: []keys.Name{}, Unchanged: 2}, "a repetition creates nothing")
	}
	after := k.resolve(token)
	same(k, after.Key, before.Key, "a repetition changes nothing")
	same(k, after.Team, before.Team, "a repetition changes nothing")
	b.Declarations = append(b.Declarations, keys.Declaration{Team: &keys.CreateTeam{ID: "blue"}})
	same(k, k.bootstrap(b), keys.Bootstrapped{Created: []keys.Name{{Kind: keys.KindTeam, ID: "blue"}}, Unchanged: 2}, "what is new is created beside what is known")
}

func bootstrapKeepsEdits(k *kit) {
	token := mint(k)
	b, _, _ := declared(token)
	k.bootstrap(b)
	must(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: 1, Limits: keys.LimitsChange{TokensPerDay: keys.Set(keys.Limit(1))}}))(k)
	must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "ci", IfRevision: 1, Owner: keys.Set("bob"), ExpiresAt: keys.Set[*time.Time](nil)}))(k)
	before := k.resolve(token)
	k.bootstrap(b)
	after := k.resolve(token)
	same(k, after.Key, before.Key, "an edit outlives the next start")
	same(k, after.Team, before.Team, "an edit outlives the next start")
}

func bootstrapTombstones(k *kit) {
	token, other := mint(k), mint(k)
	b, _, key := declared(token)
	second := *key
	second.ID, second.Token = "cd", other
	b.Declarations = append(b.Declarations, keys.Declaration{Key: &second})
	k.bootstrap(b)
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "ci"}))(k)
	k.bootstrap(b)
	fails(k.s.Resolve(k.ctx, token.Reveal()))(k, keys.ErrRevoked, "a revoked key stays revoked")
	must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red"}))(k)
	same(k, k.bootstrap(b), keys.Bootstrapped{Created: []keys.Name{}, Unchanged: 3}, "a deleted team is not created again")
	fails(k.s.Resolve(k.ctx, other.Reveal()))(k, keys.ErrRevoked, "the keys of a deleted team stay refused")
	k.truth(must(k.s.Team(k.ctx, "red"))(k).DeletedAt != nil, "a deleted team stays deleted")
}

func bootstrapRotated(k *kit) {
	token := mint(k)
	b, _, _ := declared(token)
	k.bootstrap(b)
	rotated := must(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "ci", RotationID: "r", IfRevision: 1}))(k)
	k.bootstrap(b)
	k.resolve(rotated.Token)
	fails(k.s.Resolve(k.ctx, token.Reveal()))(k, keys.ErrRevoked, "the declared token stays retired")
}

func bootstrapSpelling(k *kit) {
	token := mint(k)
	b, team, key := declared(token)
	k.bootstrap(b)
	team.AllowedModels = []string{"b", "a"}
	key.Token, key.Hash = keys.Token{}, ptr(token.Hash())
	key.ExpiresAt = ptr(key.ExpiresAt.Add(999 * time.Nanosecond).In(time.FixedZone("far", 13*3600)))
	key.AllowedRegions = nil
	slices.Reverse(b.Declarations)
	same(k, k.bootstrap(b).Unchanged, 2, "the same in other words is the same")
}

func bootstrapConflict(k *kit) {
	token, other := mint(k), mint(k)
	first, _, _ := declared(token)
	k.bootstrap(first)
	before := k.resolve(token)
	for field, change := range map[string]func(*keys.CreateTeam, *keys.CreateKey){
		"team name":                        func(t *keys.CreateTeam, _ *keys.CreateKey) { t.Name = "" },
		"team limits.concurrency":          func(t *keys.CreateTeam, _ *keys.CreateKey) { t.Limits.Concurrency = nil },
		"team limits.tokens_per_day":       func(t *keys.CreateTeam, _ *keys.CreateKey) { t.Limits.TokensPerDay = keys.Limit(0) },
		"team allowed_models":              func(t *keys.CreateTeam, _ *keys.CreateKey) { t.AllowedModels = append(t.AllowedModels, "c") },
		"team allowed_regions":             func(t *keys.CreateTeam, _ *keys.CreateKey) { t.AllowedRegions = []string{} },
		"team guardrail":                   func(t *keys.CreateTeam, _ *keys.CreateKey) { t.Guardrail = "lax" },
		"team metadata":                    func(t *keys.CreateTeam, _ *keys.CreateKey) { t.Metadata = map[string]string{"a": "c"} },
		"team default_max_tokens":          func(t *keys.CreateTeam, _ *keys.CreateKey) { t.DefaultMaxTokens = ptr[int64](1) },
		"key owner":                        func(_ *keys.CreateTeam, c *keys.CreateKey) { c.Owner = "Ann" },
		"key limits.requests_per_minute":   func(_ *keys.CreateTeam, c *keys.CreateKey) { c.Limits.RequestsPerMinute = keys.Limit(6) },
		"key limits.cost_per_day_microusd": func(_ *keys.CreateTeam, c *keys.CreateKey) { c.Limits.CostPerDay = keys.Cost(1) },
		"key allowed_models":               func(_ *keys.CreateTeam, c *keys.CreateKey) { c.AllowedModels = nil },
		"key expires_at":                   func(_ *keys.CreateTeam, c *keys.CreateKey) { c.ExpiresAt = inDays(4) },
		"key default_max_tokens":           func(_ *keys.CreateTeam, c *keys.CreateKey) { c.DefaultMaxTokens = nil },
		"key token":                        func(_ *keys.CreateTeam, c *keys.CreateKey) { c.Token = other },
	} {
		b, team, key := declared(token)
		key.ExpiresAt = before.Key.ExpiresAt
		change(team, key)
		b.Declarations = append(b.Declarations, keys.Declaration{Team: &keys.CreateTeam{ID: "blue"}})
		kind, name, _ := strings.Cut(field, " ")
		about := redTeam
		if kind == "key" {
			about = ciKey
		}
		k.conflict(b, about, field, name)
	}
	fails(k.s.Team(k.ctx, "blue"))(k, keys.ErrNotFound, "a conflict keeps the rest out too")
	fails(k.s.Resolve(k.ctx, other.Reveal()))(k, keys.ErrUnknown, "a conflict stores no token")
	after := k.resolve(token)
	same(k, after.Key, before.Key, "a conflict changes nothing")
	same(k, after.Team, before.Team, "a conflict changes nothing")

	b, team, key := declared(token)
	team.Name, key.ExpiresAt, key.Token = "Other", before.Key.ExpiresAt, other
	_, err := k.s.Bootstrap(k.ctx, b)
	k.is(err, keys.ErrConflict, "two conflicts")
	for _, part := range []string{"team red", "name", "key ci", "token"} {
		k.truth(strings.Contains(err.Error(), part), "all conflicts are told at once: %q is missing in %q", part, err)
	}
	k.truth(!strings.Contains(err.Error(), fmt.Sprintf("%x", other.Hash())), "a conflict shows no hash")
}

func bootstrapTaken(k *kit) {
	token, other := mint(k), mint(k)
	k.team("red")
	b, _, key := declared(token)
	k.conflict(b, redTeam, "a team that was created by hand", "id")
	must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red"}))(k)
	k.conflict(b, redTeam, "the tombstone of a team", "id")

	k.team("blue")
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "ci", TeamID: "blue", Token: other}))(k)
	key.TeamID = "blue"
	b.Declarations = []keys.Declaration{{Key: key}}
	k.conflict(b, ciKey, "a key that was created by hand", "id")
	key.ID, key.Token = "cd", other
	cd := keys.Name{Kind: keys.KindKey, ID: "cd"}
	k.conflict(b, cd, "a token in use", "token")
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "ci"}))(k)
	k.conflict(b, cd, "a revoked key's token", "token")
	fails(k.s.Key(k.ctx, "cd"))(k, keys.ErrNotFound, "a conflict creates nothing")
	same(k, must(k.s.Key(k.ctx, "ci"))(k).TeamID, made.Key.TeamID, "what others have stays theirs")
}

func bootstrapTeam(k *kit) {
	b, _, key := declared(mint(k))
	b.Declarations = []keys.Declaration{{Key: key}}
	k.conflict(b, ciKey, "no such team", "team_id")
	k.team("red")
	must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red"}))(k)
	k.conflict(b, ciKey, "a deleted team", "team_id")
	k.team("blue")
	key.TeamID = "blue"
	same(k, k.bootstrap(b).Created, []keys.Name{ciKey}, "a team that is there need not be declared")
}

func bootstrapInvalid(k *kit) {
	token := mint(k)
	for name, change := range map[string]func(*keys.Bootstrap, *keys.CreateTeam, *keys.CreateKey){
		"neither":         func(b *keys.Bootstrap, _ *keys.CreateTeam, _ *keys.CreateKey) { b.Declarations[0] = keys.Declaration{} },
		"both":            func(b *keys.Bootstrap, t *keys.CreateTeam, _ *keys.CreateKey) { b.Declarations[0].Team = t },
		"team without id": func(_ *keys.Bootstrap, t *keys.CreateTeam, _ *keys.CreateKey) { t.ID = "" },
		"key without id":  func(_ *keys.Bootstrap, _ *keys.CreateTeam, c *keys.CreateKey) { c.ID = "" },
		"no token":        func(_ *keys.Bootstrap, _ *keys.CreateTeam, c *keys.CreateKey) { c.Token = keys.Token{} },
		"negative limit":  func(_ *keys.Bootstrap, _ *keys.CreateTeam, c *keys.CreateKey) { c.Limits.Concurrency = keys.Limit(-1) },
		"expired":         func(_ *keys.Bootstrap, _ *keys.CreateTeam, c *keys.CreateKey) { c.ExpiresAt = inDays(-1) },
		"twice": func(b *keys.Bootstrap, _ *keys.CreateTeam, c *keys.CreateKey) {
			again := *c
			again.Token = mint(k)
			b.Declarations = append(b.Declarations, keys.Declaration{Key: &again})
		},
		"one token twice": func(b *keys.Bootstrap, _ *keys.CreateTeam, c *keys.CreateKey) {
			again := *c
			again.ID = "cd"
			b.Declarations = append(b.Declarations, keys.Declaration{Key: &again})
		},
	} {
		b, team, key := declared(token)
		change(&b, team, key)
		fails(k.s.Bootstrap(k.ctx, b))(k, keys.ErrInvalid, name)
	}
	fails(k.s.Team(k.ctx, "red"))(k, keys.ErrNotFound, "bad input changes nothing")
	fails(k.s.Resolve(k.ctx, token.Reveal()))(k, keys.ErrUnknown, "bad input changes nothing")
}

func bootstrapExpired(k *kit) {
	token := mint(k)
	b, _, _ := declared(token)
	k.bootstrap(b)
	k.advance(4 * 24 * time.Hour)
	same(k, k.bootstrap(b).Unchanged, 2, "an expired key is known again")
	fails(k.s.Resolve(k.ctx, token.Reveal()))(k, keys.ErrExpired, "and stays expired")
}

func bootstrapRestart(k *kit) {
	token := mint(k)
	b, team, _ := declared(token)
	k.bootstrap(b)
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "ci"}))(k)
	k.s = k.reopen()
	same(k, k.bootstrap(b).Unchanged, 2, "declarations are kept with the data")
	fails(k.s.Resolve(k.ctx, token.Reveal()))(k, keys.ErrRevoked, "a restart brings nothing back")
	team.Name = "Other"
	k.conflict(b, redTeam, "after a restart", "name")
}

func raceBootstrap(k *kit) {
	token := mint(k)
	b, _, _ := declared(token)
	created := make([]int, racers)
	errs := k.race(func(i int, s keys.Store) error {
		done, err := s.Bootstrap(k.ctx, b)
		created[i] = len(done.Created)
		return err
	})
	sum := 0
	for i, err := range errs {
		k.truth(err == nil, "a replica that declares the same as the others must start: %v", err)
		sum += created[i]
	}
	k.truth(sum == 2, "two rows were created %d times", sum)
	k.resolve(token)
}

func raceConflicting(k *kit) {
	token := mint(k)
	errs := k.race(func(i int, s keys.Store) error {
		b, team, key := declared(token)
		key.ExpiresAt = nil
		team.Name = fmt.Sprint("Team ", i%3)
		_, err := s.Bootstrap(k.ctx, b)
		return err
	})
	won := k.resolve(token).Team.Name
	for i, err := range errs {
		if fmt.Sprint("Team ", i%3) == won {
			k.truth(err == nil, "a replica that declares what is in force must start: %v", err)
			continue
		}
		k.is(err, keys.ErrConflict, "a replica that declares something else must not start")
		k.names(err, redTeam, "what differs is named", "name")
	}
}

func raceBootstrapCreate(k *kit) {
	k.team("blue")
	b, _, _ := declared(mint(k))
	errs := k.race(func(i int, s keys.Store) error {
		if i%3 == 0 {
			_, err := s.CreateKey(k.ctx, keys.CreateKey{ID: "ci", TeamID: "blue", Owner: "by hand"})
			return err
		}
		_, err := s.Bootstrap(k.ctx, b)
		return err
	})
	byHand := must(k.s.Key(k.ctx, "ci"))(k).Owner == "by hand"
	created := 0
	for i, err := range errs {
		switch {
		case i%3 == 0 && err == nil:
			created++
		case i%3 == 0:
			k.is(err, keys.ErrExists, "the id of a declared key")
		case byHand:
			k.is(err, keys.ErrConflict, "the id of a created key")
		default:
			k.truth(err == nil, "a bootstrap that came first must go on to succeed: %v", err)
		}
	}
	k.truth(created == 1 == byHand, "the id has one owner")
}
