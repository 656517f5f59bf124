package keystest

import (
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

var revokeCases = []suiteCase{
	{name: "RevokeKey/IsFinal", run: revokeFinal},
	{name: "RevokeKey/IsIdempotent", run: revokeIdempotent},
	{name: "RevokeKey/ComparesTheRevision", run: revokeStale},
	{name: "RevokeKey/IsSeenByEveryHandle", needs: Features{Handles: true}, run: revokeSeen},
	{name: "RevokeKey/BadInputChangesNothing", run: revokeInvalid},
	{name: "RevokeSelf/EndsTheKey", run: revokeSelfEnds},
	{name: "RevokeSelf/ComparesTheRevision", run: revokeSelfStale},
	{name: "RevokeSelf/FailsClosed", run: revokeSelfClosed},
	{name: "RevokeSelf/NotAfterTheTokenRetired", run: revokeSelfRetired},
	{name: "RevokeSelf/NotAfterExpiry", needs: Features{Clock: true}, run: revokeSelfExpired},
}

func revokeFinal(k *kit) {
	made := k.one()
	p := k.resolve(made.Token)
	gone := must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k", IfRevision: made.Key.Revision}))(k)
	k.truth(gone.RevokedAt != nil && gone.Revision > made.Key.Revision, "a revoked key is a tombstone with a revision of its own")
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "its token is refused")
	fails(k.s.Reload(k.ctx, p))(k, keys.ErrRevoked, "its principals are refused")
	fails(k.s.Reload(k.ctx, keys.Principal{KeyID: "k"}))(k, keys.ErrRevoked, "by id too")
	fails(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: gone.Revision}))(k, keys.ErrRevoked, "a rotation does not revive it")
	same(k, must(k.s.Key(k.ctx, "k"))(k), gone, "it can still be read, with its team")
}

func revokeIdempotent(k *kit) {
	made := k.one()
	gone := must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"}))(k)
	for _, revision := range []int64{0, made.Key.Revision, gone.Revision} {
		same(k, must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k", IfRevision: revision}))(k), gone, "revoking again keeps the first time and revision")
	}
}

func revokeStale(k *kit) {
	made := k.one()
	fails(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k", IfRevision: made.Key.Revision + 1}))(k, keys.ErrStale, "another revision")
	same(k, k.resolve(made.Token).Key, made.Key, "a refused revocation changes nothing")
}

func revokeSeen(k *kit) {
	made := k.one()
	other := k.reopen()
	p := must(other.Resolve(k.ctx, made.Token.Reveal()))(k)
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"}))(k)
	fails(other.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "the first resolve after a revocation refuses, on every handle")
	fails(other.Reload(k.ctx, p))(k, keys.ErrRevoked, "and so for principals made before")
	key := must(other.Key(k.ctx, "k"))(k)
	k.is(keys.DefinitionOf(key, p.Team).Check(&p, p.At.UnixMicro()), keys.ErrRevoked, "the definition says so")
}

func revokeInvalid(k *kit) {
	made := k.one()
	fails(k.s.RevokeKey(k.ctx, keys.RevokeKey{}))(k, keys.ErrInvalid, "no id")
	fails(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k", IfRevision: -1}))(k, keys.ErrInvalid, "a negative revision")
	fails(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "never"}))(k, keys.ErrNotFound, "revoking nothing must not look like a revocation")
	same(k, k.resolve(made.Token).Key, made.Key, "a refused revocation changes nothing")
}

func revokeSelfEnds(k *kit) {
	made := k.one()
	p := k.resolve(made.Token)
	gone := must(k.s.RevokeSelf(k.ctx, p))(k)
	k.truth(gone.RevokedAt != nil, "the key is revoked")
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "its token is refused")
	same(k, must(k.s.RevokeSelf(k.ctx, p))(k), gone, "revoking again changes nothing")
}

func revokeSelfStale(k *kit) {
	made := k.one()
	p := k.resolve(made.Token)
	must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: p.Key.Revision, Name: keys.Set("x")}))(k)
	fails(k.s.RevokeSelf(k.ctx, p))(k, keys.ErrStale, "the key changed since the principal was authorized")
	p = k.resolve(made.Token)
	must(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: p.Team.Revision, Name: keys.Set("x")}))(k)
	fails(k.s.RevokeSelf(k.ctx, p))(k, keys.ErrStale, "the team changed since the principal was authorized")
	must(k.s.RevokeSelf(k.ctx, must(k.s.Reload(k.ctx, p))(k)))(k)
}

func revokeSelfClosed(k *kit) {
	k.one()
	fails(k.s.RevokeSelf(k.ctx, keys.Principal{}))(k, keys.ErrUnknown, "nobody")
	fails(k.s.RevokeSelf(k.ctx, keys.Principal{KeyID: "never"}))(k, keys.ErrUnknown, "a key that never was")
	fails(k.s.RevokeSelf(k.ctx, keys.Principal{KeyID: "k"}))(k, keys.ErrStale, "a principal without a revision was not authorized")
	k.truth(must(k.s.Key(k.ctx, "k"))(k).RevokedAt == nil, "a refused revocation changes nothing")
}

func revokeSelfRetired(k *kit) {
	made := k.one()
	p := k.resolve(made.Token)
	rotated := must(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: made.Key.Revision}))(k)
	_, err := k.s.RevokeSelf(k.ctx, p)
	k.is(err, keys.ErrStale, "a rotation moves the revision on")
	k.resolve(rotated.Token)
}

func revokeSelfExpired(k *kit) {
	k.team("red")
	made := must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "k", TeamID: "red", ExpiresAt: inDays(1)}))(k)
	p := k.resolve(made.Token)
	k.advance(25 * time.Hour)
	fails(k.s.RevokeSelf(k.ctx, p))(k, keys.ErrExpired, "an expired principal revokes nothing")
}
