package keystest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

var storeCases = []suiteCase{
	{name: "Store/CancelledContextChangesNothing", run: storeCancelled},
	{name: "Store/ErrorsGiveNothingAway", run: storeLeaks},
	{name: "Store/SurvivesARestart", needs: Features{Handles: true}, run: storeRestart},
	{name: "Store/RandomOperations", told: true, run: storeRandom},
	{name: "Store/RandomOperationsOnTwoHandles", needs: Features{Handles: true}, told: true, run: storeRandomHandles},
}

// everyCall calls every method once on team "red" and key "k".
func (k *kit) everyCall(ctx context.Context, p keys.Principal, token keys.Token) map[string]error {
	out := make(map[string]error)
	note := func(name string, err error) { out[name] = err }
	var err error
	_, err = k.s.Bootstrap(ctx, keys.Bootstrap{Declarations: []keys.Declaration{{Team: &keys.CreateTeam{ID: "declared"}}}})
	note("Bootstrap", err)
	_, err = k.s.CreateTeam(ctx, keys.CreateTeam{ID: "new"})
	note("CreateTeam", err)
	_, err = k.s.UpdateTeam(ctx, keys.UpdateTeam{ID: "red", IfRevision: p.Team.Revision, Name: keys.Set("x")})
	note("UpdateTeam", err)
	_, err = k.s.DeleteTeam(ctx, keys.DeleteTeam{ID: "red"})
	note("DeleteTeam", err)
	_, err = k.s.Team(ctx, "red")
	note("Team", err)
	_, err = k.s.Teams(ctx, keys.ListTeams{})
	note("Teams", err)
	_, err = k.s.CreateKey(ctx, keys.CreateKey{ID: "new", TeamID: "red"})
	note("CreateKey", err)
	_, err = k.s.UpdateKey(ctx, keys.UpdateKey{ID: "k", IfRevision: p.Key.Revision, Name: keys.Set("x")})
	note("UpdateKey", err)
	_, err = k.s.RotateKey(ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: p.Key.Revision})
	note("RotateKey", err)
	_, err = k.s.RevokeSelf(ctx, p)
	note("RevokeSelf", err)
	_, err = k.s.RevokeKey(ctx, keys.RevokeKey{ID: "k"})
	note("RevokeKey", err)
	_, err = k.s.Key(ctx, "k")
	note("Key", err)
	_, err = k.s.Keys(ctx, keys.ListKeys{})
	note("Keys", err)
	_, err = k.s.Resolve(ctx, token.Reveal())
	note("Resolve", err)
	_, err = k.s.Reload(ctx, p)
	note("Reload", err)
	return out
}

func storeCancelled(k *kit) {
	made := k.one()
	p := k.resolve(made.Token)
	gone, cancel := context.WithCancel(k.ctx)
	cancel()
	late, cancelLate := context.WithDeadline(k.ctx, time.Unix(0, 0))
	defer cancelLate()
	for ctx, cause := range map[context.Context]error{gone: context.Canceled, late: context.DeadlineExceeded} {
		for method, err := range k.everyCall(ctx, p, made.Token) {
			k.truth(errors.Is(err, cause), "%s does not name the context's error: %v", method, err)
			k.is(err, keys.ErrUnavailable, method+" must not look like a refusal")
		}
	}
	same(k, k.resolve(made.Token).Key, made.Key, "the key is as it was")
	same(k, must(k.s.Team(k.ctx, "red"))(k), p.Team, "the team is as it was")
	fails(k.s.Team(k.ctx, "new"))(k, keys.ErrNotFound, "no team was made")
	fails(k.s.Key(k.ctx, "new"))(k, keys.ErrNotFound, "no key was made")
}

func storeLeaks(k *kit) {
	made := k.one()
	const marker = "OwnerThatNobodyShouldSee"
	token := mint(k)
	must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "other", TeamID: "red", Owner: marker, Token: token}))(k)
	fail := func(_ any, err error) error { return err }
	for _, err := range []error{
		fail(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "z", TeamID: "red", Token: token})),
		fail(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "other", TeamID: "red", Owner: marker})),
		fail(k.s.CreateKey(k.ctx, keys.CreateKey{TeamID: "red", Owner: marker + "\x00"})),
		fail(k.s.CreateTeam(k.ctx, keys.CreateTeam{ID: "red", Name: marker})),
		fail(k.s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: made.Key.Revision, Token: token})),
		fail(k.s.Resolve(k.ctx, token.Reveal()+"x")),
		fail(k.s.Resolve(k.ctx, mint(k).Reveal())),
	} {
		k.truth(err != nil, "a call that must fail did not")
		text := fmt.Sprintf("%v %+v %#v", err, err, err)
		for _, secret := range []string{marker, token.Reveal(), token.Reveal()[4:], fmt.Sprintf("%x", [32]byte(token.Hash()))} {
			k.truth(!strings.Contains(text, secret), "an error repeats what it was given: %v", err)
		}
		for _, word := range []string{"INSERT", "SELECT", "insert", "select", "postgres://", "password", "sslmode"} {
			k.truth(!strings.Contains(text, word), "an error shows how the store works: %v", err)
		}
	}
}

func storeRestart(k *kit) {
	k.team("red")
	kept := must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: "kept", TeamID: "red", Owner: "ann", Limits: fullLimits(), AllowedModels: []string{}}))(k)
	gone := k.key("gone", "red")
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "gone"}))(k)
	k.team("blue")
	must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "blue"}))(k)
	k.s = k.reopen()
	same(k, k.resolve(kept.Token).Key, kept.Key, "a key survives")
	fails(k.s.Resolve(k.ctx, gone.Token.Reveal()))(k, keys.ErrRevoked, "a revocation survives")
	fails(k.s.CreateTeam(k.ctx, keys.CreateTeam{ID: "blue"}))(k, keys.ErrExists, "a tombstone survives")
}
