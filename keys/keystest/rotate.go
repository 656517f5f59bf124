package keystest

import (
	"errors"
	"math"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

var rotateCases = []suiteCase{
	{name: "RotateKey/KeepsIdentity", run: rotateIdentity},
	{name: "RotateKey/NoGraceEndsTheOldTokenAtOnce", run: rotateNoGrace},
	{name: "RotateKey/GraceAcceptsBothThenOnlyTheNew", needs: Features{Clock: true}, run: rotateGrace},
	{name: "RotateKey/ALaterRotationOnlyShortensAGrace", needs: Features{Clock: true}, run: rotateShortens},
	{name: "RotateKey/RetiredTokenDoesNotLiveOnInItsPrincipal", needs: Features{Clock: true}, run: rotatePrincipal},
	{name: "RotateKey/ReplayChangesNothing", run: rotateReplay},
	{name: "RotateKey/ReplayAfterALaterRotation", run: rotateReplayLater},
	{name: "RotateKey/OtherTermsConflict", run: rotateTerms},
	{name: "RotateKey/CallersTokenCanBeRepeated", run: rotateOwnToken},
	{name: "RotateKey/TokenIsUsedOnce", run: rotateTokenTaken},
	{name: "RotateKey/ComparesTheRevision", run: rotateStale},
	{name: "RotateKey/NotWhenExpired", run: rotateExpired},
	{name: "RotateKey/RotationIDsBelongToTheirKey", run: rotateScoped},
	{name: "RotateKey/BadInputChangesNothing", run: rotateInvalid},
	{name: "RotateKey/SurvivesARestart", needs: Features{Handles: true}, run: rotateRestart},
}

func (k *kit) rotate(id, rotation string, grace time.Duration) keys.RotatedKey {
	k.Helper()
	key := must(k.s.Key(k.ctx, id))(k)
	return must(k.s.RotateKey(k.ctx, keys.RotateKey{ID: id, RotationID: rotation, IfRevision: key.Revision, Grace: grace}))(k)
}

func rotateIdentity(k *kit) {
	k.team("red")
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{
		ID: "k", TeamID: "red", Owner: "ann", Limits: fullLimits(), Metadata: map[string]string{"a": "b"}, ExpiresAt: inDays(9),
	}))(k)
	rotated := k.rotate("k", "r", time.Hour)
	want := made.Key
	want.Revision, want.UpdatedAt = rotated.Key.Revision, rotated.Key.UpdatedAt
	same(k, rotated.Key, want, "a rotation changes the token and the revision, nothing that is counted or limited")
	k.truth(rotated.Key.Revision > made.Key.Revision && !rotated.Replayed, "a rotation gives another revision")
	k.truth(!rotated.Token.IsZero() && rotated.Token.Reveal() != made.Token.Reveal(), "the new token is another one, shown once")
	a, b := k.resolve(made.Token), k.resolve(rotated.Token)
	k.truth(a.KeyID == "k" && b.KeyID == "k" && a.User == b.User && a.Revision() == b.Revision(), "both tokens are one identity")
}

func rotateNoGrace(k *kit) {
	made := k.one()
	p := k.resolve(made.Token)
	rotated := k.rotate("k", "r", 0)
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "without grace the old token is refused at once")
	k.is(keys.DefinitionOf(rotated.Key, p.Team).Check(&p, p.At.UnixMicro()), keys.ErrStale, "a principal of the old token is stale")
	fails(k.s.Reload(k.ctx, p))(k, keys.ErrRevoked, "and cannot be reloaded through its key")
	k.truth(must(k.s.Reload(k.ctx, k.resolve(rotated.Token)))(k).KeyID == "k", "the new one can")
}

func rotateGrace(k *kit) {
	made := k.one()
	rotated := k.rotate("k", "r", time.Hour)
	k.advance(58 * time.Minute)
	k.resolve(made.Token)
	k.resolve(rotated.Token)
	k.advance(2 * time.Minute)
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "after the grace the old token is refused")
	k.resolve(rotated.Token)
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"}))(k)
	fails(k.s.Resolve(k.ctx, rotated.Token.Reveal()))(k, keys.ErrRevoked, "after the revocation the new one too")
}

func rotateShortens(k *kit) {
	made := k.one()
	first := k.rotate("k", "r1", 2*time.Hour)
	second := k.rotate("k", "r2", 10*time.Hour)
	k.advance(time.Hour)
	k.resolve(made.Token)
	k.resolve(first.Token)
	k.advance(61 * time.Minute)
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "a later, longer grace does not lengthen an earlier one")
	k.resolve(first.Token)
	third := k.rotate("k", "r3", 0)
	for _, old := range []keys.Token{made.Token, first.Token, second.Token} {
		fails(k.s.Resolve(k.ctx, old.Reveal()))(k, keys.ErrRevoked, "a rotation without grace ends all earlier tokens")
	}
	k.resolve(third.Token)
}

func rotatePrincipal(k *kit) {
	made := k.one()
	k.rotate("k", "r", time.Hour)
	p := k.resolve(made.Token)
	definition := keys.DefinitionOf(p.Key, p.Team)
	k.truth(definition.Check(&p, p.At.UnixMicro()) == nil, "within the grace the old token's principal holds")
	end := p.At.Add(time.Hour).UnixMicro()
	k.is(definition.Check(&p, end), keys.ErrRevoked, "after it it does not, though no revision changed")
	k.advance(61 * time.Minute)
	fails(k.s.Reload(k.ctx, p))(k, keys.ErrRevoked, "nor can it be reloaded")
	fails(k.s.RevokeSelf(k.ctx, p))(k, keys.ErrRevoked, "nor revoke the key")
}

func rotateReplay(k *kit) {
	made := k.one()
	ask := keys.RotateKey{ID: "k", RotationID: "r", IfRevision: made.Key.Revision, Grace: time.Hour + time.Nanosecond}
	first := must(k.s.RotateKey(k.ctx, ask))(k)
	again := must(k.s.RotateKey(k.ctx, ask))(k)
	k.truth(again.Replayed && again.Token.IsZero(), "a replay says so and shows no plaintext")
	same(k, again.Key, first.Key, "a replay changes nothing")
	k.resolve(made.Token)
	k.resolve(first.Token)
}

func rotateReplayLater(k *kit) {
	made := k.one()
	ask := keys.RotateKey{ID: "k", RotationID: "r1", IfRevision: made.Key.Revision}
	must(k.s.RotateKey(k.ctx, ask))(k)
	second := k.rotate("k", "r2", 0)
	again := must(k.s.RotateKey(k.ctx, ask))(k)
	k.truth(again.Replayed, "an old rotation id stays used")
	same(k, again.Key, second.Key, "its replay gives the key as it is now")
	k.resolve(second.Token)
	gone := must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"}))(k)
	same(k, must(k.s.RotateKey(k.ctx, ask))(k).Key, gone, "and does not revive a revoked key")
}

func rotateTerms(k *kit) {
	made := k.one()
	ask := keys.RotateKey{ID: "k", RotationID: "r", IfRevision: made.Key.Revision, Grace: time.Hour}
	first := must(k.s.RotateKey(k.ctx, ask))(k)
	longer, other := ask, ask
	longer.Grace, other.Token = 2*time.Hour, mint(k)
	fails(k.s.RotateKey(k.ctx, longer))(k, keys.ErrConflict, "the same rotation id with another grace")
	fails(k.s.RotateKey(k.ctx, other))(k, keys.ErrConflict, "the same rotation id with another token")
	fails(k.s.Resolve(k.ctx, other.Token.Reveal()))(k, keys.ErrUnknown, "a refused rotation stores no secret")
	same(k, must(k.s.Key(k.ctx, "k"))(k), first.Key, "a refused rotation changes nothing")
}

func rotateOwnToken(k *kit) {
	made := k.one()
	ask := keys.RotateKey{ID: "k", RotationID: "r", IfRevision: made.Key.Revision, Token: mint(k)}
	first := must(k.s.RotateKey(k.ctx, ask))(k)
	k.truth(first.Token.Reveal() == ask.Token.Reveal(), "the caller's own token is the key's")
	again := must(k.s.RotateKey(k.ctx, ask))(k)
	k.truth(again.Replayed, "a lost answer can be asked for again")
	k.resolve(ask.Token)
}

func rotateTokenTaken(k *kit) {
	made := k.one()
	other := k.key("other", "red")
	for name, token := range map[string]keys.Token{"the key's own token": made.Token, "another key's token": other.Token} {
		fails(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: made.Key.Revision, Token: token}))(k, keys.ErrConflict, name)
	}
	same(k, k.resolve(made.Token).Key, made.Key, "a refused rotation changes nothing")
	k.truth(k.resolve(other.Token).KeyID == "other", "and nobody's token moves")
}

func rotateStale(k *kit) {
	made := k.one()
	key := must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: made.Key.Revision, Name: keys.Set("x")}))(k)
	_, err := k.s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: made.Key.Revision})
	k.is(err, keys.ErrConflict, "a rotation that lost to another edit")
	k.truth(errors.Is(err, keys.ErrStale), "it must be stale too, so that callers can treat all edits alike: %v", err)
	same(k, k.resolve(made.Token).Key, key, "a refused rotation changes nothing")
}

func rotateExpired(k *kit) {
	made := k.one()
	key := must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: made.Key.Revision, ExpiresAt: keys.Set(inDays(-1))}))(k)
	fails(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: key.Revision}))(k, keys.ErrExpired, "an expired key")
}

func rotateScoped(k *kit) {
	k.one()
	k.key("other", "red")
	a, b := k.rotate("k", "r", 0), k.rotate("other", "r", 0)
	k.truth(!a.Replayed && !b.Replayed, "two keys may use the same rotation id")
	k.truth(k.resolve(a.Token).KeyID == "k" && k.resolve(b.Token).KeyID == "other", "each gets its own token")
}

func rotateInvalid(k *kit) {
	made := k.one()
	at := func(r keys.RotateKey) keys.RotateKey {
		r.ID, r.IfRevision = "k", made.Key.Revision
		return r
	}
	for name, r := range map[string]keys.RotateKey{
		"no id":             {RotationID: "r", IfRevision: 1},
		"no revision":       {ID: "k", RotationID: "r"},
		"no rotation id":    at(keys.RotateKey{}),
		"bad rotation id":   at(keys.RotateKey{RotationID: "a b"}),
		"negative grace":    at(keys.RotateKey{RotationID: "r", Grace: -1}),
		"grace of for ever": at(keys.RotateKey{RotationID: "r", Grace: math.MaxInt64}),
	} {
		fails(k.s.RotateKey(k.ctx, r))(k, keys.ErrInvalid, name)
	}
	fails(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "never", RotationID: "r", IfRevision: 1}))(k, keys.ErrNotFound, "a key that never was")
	same(k, k.resolve(made.Token).Key, made.Key, "a refused rotation changes nothing")
}

func rotateRestart(k *kit) {
	made := k.one()
	ask := keys.RotateKey{ID: "k", RotationID: "r", IfRevision: made.Key.Revision}
	first := must(k.s.RotateKey(k.ctx, ask))(k)
	k.s = k.reopen()
	k.truth(must(k.s.RotateKey(k.ctx, ask))(k).Replayed, "a restart remembers rotation ids")
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "and retired tokens")
	k.resolve(first.Token)
}
