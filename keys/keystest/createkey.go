package keystest

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

var createKeyCases = []suiteCase{
	{name: "CreateKey/ReadBackEqualsWrite", run: createKeyRoundTrip},
	{name: "CreateKey/TokenIsShownOnce", run: createKeyShownOnce},
	{name: "CreateKey/CallersToken", run: createKeyOwnToken},
	{name: "CreateKey/ImportedHash", run: createKeyImported},
	{name: "CreateKey/TokenIsUsedOnce", run: createKeyTokenTaken},
	{name: "CreateKey/IDIsTakenForEver", run: createKeyTaken},
	{name: "CreateKey/TeamMustExist", run: createKeyTeam},
	{name: "CreateKey/OwnerIsExact", run: createKeyOwner},
	{name: "CreateKey/BadInputChangesNothing", run: createKeyInvalid},
	{name: "CreateKey/ForeignTokens", needs: Features{Formats: true}, run: createKeyForeign},
}

func inDays(n int) *time.Time {
	return ptr(time.Now().AddDate(0, 0, n).UTC().Truncate(time.Microsecond))
}

func mint(k *kit) keys.Token {
	k.Helper()
	return must(keys.Mint(nil))(k)
}

func createKeyRoundTrip(k *kit) {
	k.team("red")
	want := keys.CreateKey{
		ID: "Key.1", TeamID: "red", Owner: "ann@example.com", Name: "CI", Limits: fullLimits(), AllowedModels: []string{},
		AllowedRegions: awkward, Metadata: map[string]string{"a": "b"}, DefaultMaxTokens: ptr[int64](1), ExpiresAt: inDays(3),
	}
	made := must(k.s.CreateKey(k.ctx, want))(k)
	key := made.Key
	same(k, key.Limits, want.Limits, "limits are kept to the last bit")
	same(k, key.AllowedRegions, want.AllowedRegions, "list entries are kept exactly and in order")
	k.truth(key.AllowedModels != nil && len(key.AllowedModels) == 0, "an empty list allows nothing and must not turn into nil")
	k.truth(key.ID == want.ID && key.TeamID == "red" && key.Owner == want.Owner && key.Name == want.Name, "fields are kept")
	k.truth(key.ExpiresAt.Equal(*want.ExpiresAt), "an expiry is an instant, to the microsecond, tied to no calendar")
	k.truth(key.Revision > 0 && key.RevokedAt == nil && !key.CreatedAt.IsZero(), "a new key has a revision, its time and no tombstone")
	same(k, must(k.s.Key(k.ctx, want.ID))(k), key, "reading back gives what was written")
	bare := k.key("", "red").Key
	k.truth(bare.ID != "" && bare.ExpiresAt == nil && bare.AllowedModels == nil && bare.Limits == (keys.Limits{}), "what is absent stays absent")

	zoned := time.Now().Add(time.Hour).In(time.FixedZone("far", 13*3600)).Add(999 * time.Nanosecond)
	key = must(k.s.CreateKey(k.ctx, keys.CreateKey{TeamID: "red", ExpiresAt: &zoned}))(k).Key
	k.truth(key.ExpiresAt.Equal(zoned.Truncate(time.Microsecond)) && !key.ExpiresAt.After(zoned), "an expiry is rounded down, whatever its zone")
}

func createKeyShownOnce(k *kit) {
	made := k.one()
	plain, hash := made.Token.Reveal(), made.Token.Hash()
	k.truth(len(plain) == 53 && strings.HasPrefix(plain, keys.DefaultPrefix), "a new token has the published form")
	again := must(k.s.Key(k.ctx, "k"))(k)
	page := must(k.s.Keys(k.ctx, keys.ListKeys{}))(k)
	p := k.resolve(made.Token)
	for _, v := range []any{again, page, p, made, made.Token, hash} {
		encoded := string(must(json.Marshal(v))(k))
		printed := fmt.Sprintf("%v %+v %#v %s %q %x %d", v, v, v, v, v, v, v)
		for _, secret := range []string{plain, plain[4:], fmt.Sprintf("%x", [32]byte(hash))} {
			k.truth(!strings.Contains(encoded, secret) && !strings.Contains(printed, secret), "a secret shows in %T", v)
		}
	}
}

func createKeyOwnToken(k *kit) {
	k.team("red")
	token := mint(k)
	fails(k.s.Resolve(k.ctx, token.Reveal()))(k, keys.ErrUnknown, "a token before its key")
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "red", Token: token}))(k)
	k.truth(made.Token.Reveal() == token.Reveal(), "the caller's own token is the key's")
	k.truth(k.resolve(token).KeyID == "k", "an unknown token is not remembered as unknown")
}

func createKeyImported(k *kit) {
	k.team("red")
	token := mint(k)
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "red", Hash: ptr(token.Hash())}))(k)
	k.truth(made.Token.IsZero(), "nobody knows the token of an imported hash")
	k.truth(k.resolve(token).KeyID == "k", "whoever holds the token is let in")
}

func createKeyTokenTaken(k *kit) {
	token := k.one().Token
	fails(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "b", TeamID: "red", Token: token}))(k, keys.ErrConflict, "a token in use")
	fails(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "b", TeamID: "red", Hash: ptr(token.Hash())}))(k, keys.ErrConflict, "a hash in use")
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"}))(k)
	fails(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "b", TeamID: "red", Token: token}))(k, keys.ErrConflict, "a revoked key's token")
	fails(k.s.Key(k.ctx, "b"))(k, keys.ErrNotFound, "a refused create stores nothing")
	fails(k.s.Resolve(k.ctx, token.Reveal()))(k, keys.ErrRevoked, "a revoked token is not revived")
}

func createKeyTaken(k *kit) {
	made := k.one()
	token := mint(k)
	again := keys.CreateKey{ID: "k", TeamID: "red", Token: token}
	fails(k.s.CreateKey(k.ctx, again))(k, keys.ErrExists, "an id is used once")
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"}))(k)
	fails(k.s.CreateKey(k.ctx, again))(k, keys.ErrExists, "a declaration does not revive a revoked key")
	fails(k.s.Resolve(k.ctx, token.Reveal()))(k, keys.ErrUnknown, "a refused create stores no secret")
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "the revoked one stays revoked")
}

func createKeyTeam(k *kit) {
	k.team("red")
	fails(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "blue"}))(k, keys.ErrNotFound, "a team that never was")
	fails(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "RED"}))(k, keys.ErrNotFound, "a team of another case")
	fails(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k"}))(k, keys.ErrInvalid, "no team")
	fails(k.s.Key(k.ctx, "k"))(k, keys.ErrNotFound, "a refused create stores nothing")
}

func createKeyOwner(k *kit) {
	k.team("red")
	for _, owner := range awkward {
		made := must(k.s.CreateKey(k.ctx, keys.CreateKey{TeamID: "red", Owner: owner}))(k)
		p := k.resolve(made.Token)
		k.truth(p.User == owner && p.Key.Owner == owner, "the user is the owner, byte by byte: %q became %q", owner, p.User)
	}
}

func createKeyInvalid(k *kit) {
	k.team("red")
	huge := strings.Repeat("x", 5000)
	foreign := ptr(mint(k).Hash())
	for name, c := range map[string]keys.CreateKey{
		"negative limit":    {Limits: keys.Limits{TokensPerDay: keys.Limit(-5)}},
		"negative cost":     {Limits: keys.Limits{CostPerMonth: keys.Cost(amount.MicroUSD(math.MinInt64))}},
		"bad id":            {ID: "no spaces please"},
		"owner too long":    {Owner: strings.Repeat("x", keys.MaxOwnerBytes+1)},
		"owner control":     {Owner: "a\tb"},
		"owner not UTF-8":   {Owner: "\xc3("},
		"owner replaced":    {Owner: "a\ufffd"},
		"name too long":     {Name: huge},
		"metadata too big":  {Metadata: map[string]string{"a": huge}},
		"empty region":      {AllowedRegions: []string{""}},
		"expired already":   {ExpiresAt: inDays(-1)},
		"expiry before all": {ExpiresAt: &time.Time{}},
		"expiry too far":    {ExpiresAt: ptr(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
		"expiry wraps":      {ExpiresAt: ptr(time.Date(300000, 1, 1, 0, 0, 0, 0, time.UTC))},
		"default of zero":   {DefaultMaxTokens: ptr[int64](0)},
		"hash and token":    {Token: mint(k), Hash: foreign},
		"hash of nothing":   {Hash: &keys.Hash{}},
	} {
		c.TeamID = "red"
		fails(k.s.CreateKey(k.ctx, c))(k, keys.ErrInvalid, name)
	}
	k.truth(len(must(k.s.Keys(k.ctx, keys.ListKeys{}))(k).Keys) == 0, "a refused create stores nothing")
}

func createKeyForeign(k *kit) {
	f := keys.Format{Prefixes: []string{"acme_", keys.DefaultPrefix}, Foreign: []string{"sk-"}}
	k.s = k.h.NewWith(k, f)
	made := k.one()
	k.truth(strings.HasPrefix(made.Token.Reveal(), "acme_"), "the first prefix is minted")
	k.truth(k.resolve(made.Token).KeyID == "k", "and accepted")
	old := mint(k)
	must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "old", TeamID: "red", Token: old}))(k)
	k.truth(k.resolve(old).KeyID == "old", "an older prefix is accepted still")
	foreign := must(f.Parse("sk-ABCDEFGHIJKLMNOP_1234"))(k)
	must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "imported", TeamID: "red", Hash: ptr(foreign.Hash())}))(k)
	k.truth(k.resolve(foreign).KeyID == "imported", "a foreign token finds the imported hash")
	hash := foreign.Hash()
	for _, presented := range []string{fmt.Sprintf("%x", [32]byte(hash)), fmt.Sprintf("sk-%x", [32]byte(hash))} {
		fails(k.s.Resolve(k.ctx, presented))(k, keys.ErrUnknown, "presenting a hash never authenticates")
	}
}
