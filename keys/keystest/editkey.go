package keystest

import (
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

var editKeyCases = []suiteCase{
	{name: "UpdateKey/ChangesOnlyWhatIsSet", run: updateKeyScoped},
	{name: "UpdateKey/UnlimitedIsNotLeftAlone", run: updateKeyUnlimited},
	{name: "UpdateKey/ComparesTheRevision", run: updateKeyStale},
	{name: "UpdateKey/InForceAlreadyIsNoError", run: updateKeyRepeat},
	{name: "UpdateKey/NeverRevivesARevokedKey", run: updateKeyRevoked},
	{name: "UpdateKey/BadInputChangesNothing", run: updateKeyInvalid},
	{name: "UpdateKey/IsSeenByEveryHandle", needs: Features{Handles: true}, run: updateKeySeen},
	{name: "UpdateKey/ExpiryInThePastEndsAtOnce", run: updateKeyExpire},
}

func updateKeyScoped(k *kit) {
	k.team("red")
	before := must(k.s.CreateKey(k.ctx, keys.CreateKey{
		ID: "k", TeamID: "red", Owner: "ann", Name: "CI", Limits: fullLimits(), AllowedModels: []string{"a"},
		Metadata: map[string]string{"a": "b"}, ExpiresAt: inDays(2),
	}))(k)
	after := must(k.s.UpdateKey(k.ctx, keys.UpdateKey{
		ID: "k", IfRevision: before.Key.Revision, Owner: keys.Set("bob"), Limits: keys.LimitsChange{Concurrency: keys.Set(keys.Limit(9))},
	}))(k)
	want := before.Key
	want.Owner, want.Limits.Concurrency = "bob", keys.Limit(9)
	want.Revision, want.UpdatedAt = after.Revision, after.UpdatedAt
	k.truth(after.Revision > before.Key.Revision, "an edit gives another revision")
	same(k, after, want, "an edit changes what it sets and nothing else")
	same(k, must(k.s.Key(k.ctx, "k"))(k), after, "the edit is stored")
	k.truth(k.resolve(before.Token).User == "bob", "the token stays, its principal is the new one")
}

func updateKeyUnlimited(k *kit) {
	k.team("red")
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{
		ID: "k", TeamID: "red", Limits: fullLimits(), AllowedModels: []string{"a"}, AllowedRegions: []string{"eu"},
		Metadata: map[string]string{"a": "b"}, DefaultMaxTokens: ptr[int64](5), ExpiresAt: inDays(2),
	}))(k)
	after := must(k.s.UpdateKey(k.ctx, keys.UpdateKey{
		ID: "k", IfRevision: made.Key.Revision, Limits: keys.LimitsChange{TokensPerMinute: keys.Set[*int64](nil)},
		AllowedModels: keys.Set[[]string](nil), AllowedRegions: keys.Set([]string{}), Metadata: keys.Set[map[string]string](nil),
		DefaultMaxTokens: keys.Set[*int64](nil), ExpiresAt: keys.Set[*time.Time](nil),
	}))(k)
	want := fullLimits()
	want.TokensPerMinute = nil
	same(k, after.Limits, want, "nil takes one limit away")
	k.truth(after.AllowedModels == nil && after.AllowedRegions != nil && len(after.AllowedRegions) == 0, "nil is everything, empty nothing")
	k.truth(len(after.Metadata) == 0 && after.DefaultMaxTokens == nil && after.ExpiresAt == nil, "nil takes the rest away")
	same(k, must(k.s.Key(k.ctx, "k"))(k), after, "the edit is stored")
}

func updateKeyStale(k *kit) {
	made := k.one()
	next := must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: made.Key.Revision, Name: keys.Set("one")}))(k)
	fails(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: made.Key.Revision, Name: keys.Set("two")}))(k, keys.ErrStale, "an old revision")
	fails(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: next.Revision + 1, Name: keys.Set("two")}))(k, keys.ErrStale, "a future revision")
	fails(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "K", IfRevision: next.Revision, Name: keys.Set("two")}))(k, keys.ErrNotFound, "an id of another case")
	same(k, must(k.s.Key(k.ctx, "k"))(k), next, "a refused edit changes nothing")
}

func updateKeyRepeat(k *kit) {
	made := k.one()
	edit := keys.UpdateKey{
		ID: "k", IfRevision: made.Key.Revision, Owner: keys.Set("ann"), ExpiresAt: keys.Set(ptr(inDays(1).Add(3 * time.Nanosecond))),
		Limits: keys.LimitsChange{CostPerDay: keys.Set(keys.Cost(5))},
	}
	once := must(k.s.UpdateKey(k.ctx, edit))(k)
	same(k, must(k.s.UpdateKey(k.ctx, edit))(k), once, "an edit in force can be repeated and changes nothing")
}

func updateKeyRevoked(k *kit) {
	made := k.one()
	gone := must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"}))(k)
	for _, revision := range []int64{made.Key.Revision, gone.Revision} {
		fails(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: revision, ExpiresAt: keys.Set[*time.Time](nil), Name: keys.Set("alive")}))(
			k, keys.ErrRevoked, "a revoked key cannot be edited")
	}
	same(k, must(k.s.Key(k.ctx, "k"))(k), gone, "a revoked key stays as it was revoked")
}

func updateKeyInvalid(k *kit) {
	made := k.one()
	at := func(u keys.UpdateKey) keys.UpdateKey {
		u.ID, u.IfRevision = "k", made.Key.Revision
		return u
	}
	for name, u := range map[string]keys.UpdateKey{
		"no revision":       {ID: "k", Name: keys.Set("x")},
		"negative revision": {ID: "k", IfRevision: -1},
		"no id":             {IfRevision: 1},
		"bad id":            {ID: "k\x00", IfRevision: 1},
		"negative limit":    at(keys.UpdateKey{Limits: keys.LimitsChange{RequestsPerMinute: keys.Set(keys.Limit(-1))}}),
		"owner too long":    at(keys.UpdateKey{Owner: keys.Set(strings.Repeat("o", keys.MaxOwnerBytes+1))}),
		"expiry of zero":    at(keys.UpdateKey{ExpiresAt: keys.Set(&time.Time{})}),
		"model twice":       at(keys.UpdateKey{AllowedModels: keys.Set([]string{"a", "a"})}),
	} {
		fails(k.s.UpdateKey(k.ctx, u))(k, keys.ErrInvalid, name)
	}
	fails(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "never", IfRevision: 1}))(k, keys.ErrNotFound, "a key that never was")
	same(k, must(k.s.Key(k.ctx, "k"))(k), made.Key, "a refused edit changes nothing")
}

func updateKeySeen(k *kit) {
	made := k.one()
	other := k.reopen()
	p := must(other.Resolve(k.ctx, made.Token.Reveal()))(k)
	must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: made.Key.Revision, AllowedModels: keys.Set([]string{})}))(k)
	now := must(other.Resolve(k.ctx, made.Token.Reveal()))(k)
	k.truth(!now.AllowsModel("any") && now.Revision() != p.Revision(), "the first resolve after an edit sees it, on every handle")
	k.is(keys.DefinitionOf(now.Key, now.Team).Check(&p, now.At.UnixMicro()), keys.ErrStale, "a principal from before the edit is stale")
	team := must(other.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: now.Team.Revision, AllowedRegions: keys.Set([]string{"eu"})}))(k)
	q := k.resolve(made.Token)
	k.truth(q.Revision() == keys.Revision{Key: now.Key.Revision, Team: team.Revision} && !q.AllowsRegion("us"), "and so for the team")
	k.is(keys.DefinitionOf(q.Key, q.Team).Check(&now, q.At.UnixMicro()), keys.ErrStale, "a principal from before the team's edit is stale")
}

func updateKeyExpire(k *kit) {
	made := k.one()
	key := must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: made.Key.Revision, ExpiresAt: keys.Set(inDays(-1))}))(k)
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrExpired, "an expiry in the past")
	must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: key.Revision, ExpiresAt: keys.Set(inDays(1))}))(k)
	k.resolve(made.Token) // expired is not revoked: an administrator may extend it
}
