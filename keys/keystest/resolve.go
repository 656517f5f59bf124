package keystest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

var resolveCases = []suiteCase{
	{name: "Resolve/OneSnapshot", run: resolveSnapshot},
	{name: "Resolve/UnknownNeverSaysWhy", run: resolveUnknown},
	{name: "Resolve/OneSpellingOnly", run: resolveSpelling},
	{name: "Resolve/AHashNeverAuthenticates", run: resolveHash},
	{name: "Resolve/ExpiredFromTheInstantOn", needs: Features{Clock: true}, run: resolveExpiry},
	{name: "Resolve/RevisionAndSnapshotAreNotSerialized", run: resolveSerialized},
	{name: "Resolve/ResultsAreNotShared", run: resolveShared},
	{name: "Resolve/RightsOfKeyAndTeam", run: resolveRights},
	{name: "Reload/SeesEdits", run: reloadEdits},
	{name: "Reload/ByID", run: reloadByID},
}

func resolveSnapshot(k *kit) {
	k.team("red")
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "red", Owner: "ann", Limits: fullLimits(), ExpiresAt: inDays(5)}))(k)
	team := must(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: 1, Guardrail: keys.Set("g"), Limits: keys.LimitsChange{TokensPerDay: keys.Set(keys.Limit(3))}}))(k)
	p := k.resolve(made.Token)
	k.truth(p.KeyID == "k" && p.TeamID == "red" && p.User == "ann", "the identifiers")
	same(k, p.Key, made.Key, "the key as it is stored")
	same(k, p.Team, team, "the team as it is stored")
	k.truth(p.Revision() == keys.Revision{Key: made.Key.Revision, Team: team.Revision}, "the revisions of both")
	k.truth(!p.At.Before(team.UpdatedAt), "the snapshot's time is the store's")
}

func resolveUnknown(k *kit) {
	made := k.one()
	plain := made.Token.Reveal()
	for name, presented := range map[string]string{
		"empty": "", "prefix": keys.DefaultPrefix, "never minted": mint(k).Reveal(), "junk": "junk", "very long": strings.Repeat("x", 1<<20),
		"zero byte": "tly_\x00", "not UTF-8": "\xff\xfe", "SQL": "' OR 1=1 --", "key id": "k", "wildcard": "tly_%", "foreign": "sk-ABCDEFGHIJKLMNOPQRST",
		"checksum": plain[:len(plain)-1] + flip(plain[len(plain)-1]), "body": plain[:10] + flip(plain[10]) + plain[11:],
	} {
		_, err := k.s.Resolve(k.ctx, presented)
		k.is(err, keys.ErrUnknown, name)
		k.truth(err.Error() == keys.ErrUnknown.Error(), "%s: the error says more than unknown: %v", name, err)
	}
}

func flip(c byte) string {
	if c == '0' {
		return "1"
	}
	return "0"
}

func resolveSpelling(k *kit) {
	made := k.one()
	plain := made.Token.Reveal()
	for name, presented := range map[string]string{
		"one more": plain + "0", "newline": plain + "\n", "leading space": " " + plain, "one less": plain[:len(plain)-1],
		"upper case": strings.ToUpper(plain), "upper prefix": "TLY_" + plain[4:], "no prefix": plain[4:], "zero more": "tly_0" + plain[4:],
		"twice": plain + plain, "bearer": "Bearer " + plain, "NUL": plain + "\x00",
	} {
		fails(k.s.Resolve(k.ctx, presented))(k, keys.ErrUnknown, name)
	}
}

func resolveHash(k *kit) {
	hash := [32]byte(k.one().Token.Hash())
	for _, presented := range []string{
		fmt.Sprintf("%x", hash), fmt.Sprintf("%X", hash), string(hash[:]), fmt.Sprintf("tly_%x", hash), `\x` + fmt.Sprintf("%x", hash),
		base64.StdEncoding.EncodeToString(hash[:]), base64.RawURLEncoding.EncodeToString(hash[:]),
		must(keys.Mint(strings.NewReader(string(hash[:]))))(k).Reveal(),
	} {
		fails(k.s.Resolve(k.ctx, presented))(k, keys.ErrUnknown, "presenting a hash")
	}
}

func resolveExpiry(k *kit) {
	k.team("red")
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "red", ExpiresAt: ptr(time.Now().Add(12 * time.Hour))}))(k)
	left := made.Key.ExpiresAt.Sub(made.Key.CreatedAt)
	k.advance(left - 2*time.Minute)
	p := k.resolve(made.Token)
	k.advance(2 * time.Minute)
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrExpired, "from the expiry on, by the store's time")
	fails(k.s.Reload(k.ctx, p))(k, keys.ErrExpired, "reloaded too")
	definition := keys.DefinitionOf(made.Key, p.Team)
	end := made.Key.ExpiresAt.UnixMicro()
	k.truth(definition.Check(&p, end-1) == nil, "a microsecond before, it holds")
	k.is(definition.Check(&p, end), keys.ErrExpired, "at the instant, it is expired")
}

func resolveSerialized(k *kit) {
	k.team("red")
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "red", Owner: "ann", Metadata: map[string]string{"inner": "secret"}}))(k)
	p := k.resolve(made.Token)
	encoded := string(must(json.Marshal(p))(k))
	k.truth(encoded == `{"key_id":"k","team_id":"red","user":"ann"}`, "a principal shows more than its identifiers: %s", encoded)
	k.truth(!strings.Contains(fmt.Sprintf("%v %+v", p, p), "secret"), "printing it shows the snapshot")
}

func resolveShared(k *kit) {
	k.team("red")
	list, metadata, limit := []string{"a", "b"}, map[string]string{"a": "b"}, keys.Limit(5)
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{
		ID: "k", TeamID: "red", AllowedModels: list, Metadata: metadata, Limits: keys.Limits{TokensPerDay: limit}, ExpiresAt: inDays(3),
	}))(k)
	list[0], metadata["a"], *limit = "changed", "changed", 99
	spoil := func(key keys.Key) {
		key.AllowedModels[0], key.Metadata["a"], *key.Limits.TokensPerDay, *key.ExpiresAt = "changed", "changed", 99, time.Time{}
	}
	p := k.resolve(made.Token)
	k.truth(p.Key.AllowedModels[0] == "a" && *p.Key.Limits.TokensPerDay == 5 && p.Key.Metadata["a"] == "b", "a store keeps no reference to what it was given")
	spoil(made.Key)
	spoil(p.Key)
	spoil(must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: made.Key.Revision, Name: keys.Set("x")}))(k))
	spoil(must(k.s.Key(k.ctx, "k"))(k))
	spoil(must(k.s.Keys(k.ctx, keys.ListKeys{}))(k).Keys[0])
	p = k.resolve(made.Token)
	k.truth(p.Key.AllowedModels[0] == "a" && *p.Key.Limits.TokensPerDay == 5 && p.Key.Metadata["a"] == "b", "a store hands out no reference to what it keeps")
}

func resolveRights(k *kit) {
	must(k.s.CreateTeam(k.ctx, keys.CreateTeam{ID: "red", AllowedModels: []string{"a", "b,c"}, AllowedRegions: []string{"eu"}, DefaultMaxTokens: ptr[int64](10)}))(k)
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "red", AllowedModels: []string{"b,c", "d", "Alias"}}))(k)
	p := k.resolve(made.Token)
	for model, allowed := range map[string]bool{"a": false, "b,c": true, "b": false, "c": false, "d": false, "B,C": false, "": false} {
		k.truth(p.AllowsModel(model) == allowed, "model %q: key and team must both allow it, byte by byte", model)
	}
	canonical := func(name string) string {
		return map[string]string{"Alias": "a", "other": "a"}[name] + strings.TrimPrefix(name, map[string]string{"Alias": "Alias", "other": "other"}[name])
	}
	k.truth(p.AllowsModelAs(canonical, "other") && p.AllowsModelAs(canonical, "a") && !p.AllowsModelAs(canonical, "d"), "aliases count as what they name, on both sides")
	k.truth(p.AllowsRegion("eu") && !p.AllowsRegion("us"), "the team's regions bind a key that names none")
	n, ok := p.DefaultMaxTokens()
	k.truth(ok && n == 10, "the team's default serves a key without one")
	own := must(k.s.CreateKey(k.ctx, keys.CreateKey{TeamID: "red", DefaultMaxTokens: ptr[int64](3)}))(k)
	n, ok = k.resolve(own.Token).DefaultMaxTokens()
	k.truth(ok && n == 3, "the key's own default comes first")
}

func reloadEdits(k *kit) {
	made := k.one()
	p := k.resolve(made.Token)
	must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: p.Key.Revision, Owner: keys.Set("bob")}))(k)
	again := must(k.s.Reload(k.ctx, p))(k)
	k.truth(again.User == "bob" && again.Revision() != p.Revision(), "a reload sees the edit")
	same(k, must(k.s.Reload(k.ctx, again))(k), again, "and can be reloaded in turn")
}

func reloadByID(k *kit) {
	made := k.one()
	p := must(k.s.Reload(k.ctx, keys.Principal{KeyID: "k"}))(k)
	k.truth(p.TeamID == "red" && p.Revision() == k.resolve(made.Token).Revision(), "a trusted caller gets a principal by the key's id")
	for _, id := range []string{"never", "K", "", "a b", "\x00"} {
		_, err := k.s.Reload(k.ctx, keys.Principal{KeyID: id})
		k.is(err, keys.ErrUnknown, "a key that never was")
	}
}
