package keystest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tallystick-go/tallystick/keys"
)

var raceCases = []suiteCase{
	{name: "CreateTeam/RaceHasOneWinner", told: true, run: raceCreateTeam},
	{name: "CreateKey/RaceForATokenHasOneWinner", told: true, run: raceToken},
	{name: "CreateKey/RaceWithTheTeamsDeletion", told: true, run: raceDeletion},
	{name: "UpdateTeam/RaceHasOneWinner", told: true, run: raceUpdateTeam},
	{name: "UpdateKey/RaceHasOneWinner", told: true, run: raceUpdateKey},
	{name: "UpdateKey/RaceWithRevocationNeverRevives", told: true, run: raceRevive},
	{name: "RotateKey/RaceHasOneWinner", told: true, run: raceRotate},
	{name: "RotateKey/RaceOfOneRotationShowsOneToken", told: true, run: raceReplay},
	{name: "Resolve/SnapshotIsNeverTorn", told: true, run: raceTorn},
}

const racers = 12

// race runs try at once from both handles and returns the errors by racer.
func (k *kit) race(try func(i int, s keys.Store) error) []error {
	handles := k.handles()
	errs := make([]error, racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			<-start
			errs[i] = try(i, handles[i%2])
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// winner checks that exactly one racer won and all others got lost.
func (k *kit) winner(errs []error, lost error, rule string) int {
	k.Helper()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			k.Fatalf("%s: racers %d and %d both won", rule, won, i)
		case err == nil:
			won = i
		default:
			k.is(err, lost, rule)
		}
	}
	k.truth(won >= 0, "%s: nobody won", rule)
	return won
}

func raceCreateTeam(k *kit) {
	errs := k.race(func(i int, s keys.Store) error {
		_, err := s.CreateTeam(k.ctx, keys.CreateTeam{ID: "red", Name: fmt.Sprint(i)})
		return err
	})
	won := k.winner(errs, keys.ErrExists, "one id")
	k.truth(must(k.s.Team(k.ctx, "red"))(k).Name == fmt.Sprint(won), "the winner's team is stored")
}

func raceToken(k *kit) {
	k.team("red")
	token := mint(k)
	errs := k.race(func(i int, s keys.Store) error {
		_, err := s.CreateKey(k.ctx, keys.CreateKey{ID: fmt.Sprint("k", i), TeamID: "red", Token: token})
		return err
	})
	won := k.winner(errs, keys.ErrConflict, "one token")
	k.truth(k.resolve(token).KeyID == fmt.Sprint("k", won), "the winner has the token")
	k.truth(len(must(k.s.Keys(k.ctx, keys.ListKeys{}))(k).Keys) == 1, "the losers stored nothing")
}

func raceDeletion(k *kit) {
	k.team("red")
	tokens := make([]keys.Token, racers)
	for i := range tokens {
		tokens[i] = mint(k)
	}
	errs := k.race(func(i int, s keys.Store) error {
		if i == racers/2 {
			_, err := s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red"})
			return err
		}
		_, err := s.CreateKey(k.ctx, keys.CreateKey{ID: fmt.Sprint("k", i), TeamID: "red", Token: tokens[i]})
		return err
	})
	for i, err := range errs {
		if i == racers/2 {
			k.truth(err == nil, "the deletion failed: %v", err)
			continue
		}
		want := keys.ErrRevoked
		if err != nil {
			k.is(err, keys.ErrRevoked, "a key for a deleted team")
			want = keys.ErrUnknown
		}
		fails(k.s.Resolve(k.ctx, tokens[i].Reveal()))(k, want, "no key of a deleted team is let in")
	}
}

func raceUpdateTeam(k *kit) {
	team := k.team("red")
	errs := k.race(func(i int, s keys.Store) error {
		_, err := s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: team.Revision, Name: keys.Set(fmt.Sprint(i))})
		return err
	})
	won := k.winner(errs, keys.ErrStale, "edits of one revision")
	k.truth(must(k.s.Team(k.ctx, "red"))(k).Name == fmt.Sprint(won), "the winner's edit is stored")
}

func raceUpdateKey(k *kit) {
	made := k.one()
	errs := k.race(func(i int, s keys.Store) error {
		_, err := s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: made.Key.Revision, Name: keys.Set(fmt.Sprint(i))})
		return err
	})
	won := k.winner(errs, keys.ErrStale, "edits of one revision")
	k.truth(k.resolve(made.Token).Key.Name == fmt.Sprint(won), "the winner's edit is stored")
}

func raceRevive(k *kit) {
	made := k.one()
	errs := k.race(func(i int, s keys.Store) error {
		if i == racers/2 {
			_, err := s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"})
			return err
		}
		for n := range 20 {
			key, err := s.Key(k.ctx, "k")
			if err != nil {
				return err
			}
			_, err = s.UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: key.Revision, Name: keys.Set(fmt.Sprint(i, n)), ExpiresAt: keys.Set(inDays(n + 1))})
			if err != nil && !errors.Is(err, keys.ErrStale) {
				return err
			}
		}
		return nil
	})
	for i, err := range errs {
		if i == racers/2 {
			k.truth(err == nil, "the revocation failed: %v", err)
		} else if err != nil {
			k.is(err, keys.ErrRevoked, "an edit after the revocation")
		}
	}
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "no edit brings a revoked key back")
}

func raceRotate(k *kit) {
	made := k.one()
	tokens := make([]keys.Token, racers)
	errs := k.race(func(i int, s keys.Store) error {
		rotated, err := s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: fmt.Sprint("r", i), IfRevision: made.Key.Revision})
		tokens[i] = rotated.Token
		return err
	})
	won := k.winner(errs, keys.ErrConflict, "two rotations must not leave two live tokens")
	for i, token := range tokens {
		k.truth(token.IsZero() == (i != won), "only the winner is given a token")
	}
	k.resolve(tokens[won])
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "the old token")
}

func raceReplay(k *kit) {
	made := k.one()
	tokens := make([]keys.Token, racers)
	errs := k.race(func(i int, s keys.Store) error {
		rotated, err := s.RotateKey(k.ctx, keys.RotateKey{ID: "k", RotationID: "r", IfRevision: made.Key.Revision})
		tokens[i] = rotated.Token
		return err
	})
	shown := 0
	for i, err := range errs {
		k.truth(err == nil, "one rotation repeated at once failed: %v", err)
		if !tokens[i].IsZero() {
			shown++
			k.resolve(tokens[i])
		}
	}
	k.truth(shown == 1, "one rotation showed %d tokens", shown)
}

// raceTorn edits key and team by turns and checks that no reader sees the later of
// two edits without the earlier.
func raceTorn(k *kit) {
	made := k.one()
	handles := k.handles()
	var done atomic.Bool
	var edits error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer done.Store(true)
		for n := int64(1); n <= 40; n++ {
			if _, edits = handles[0].UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: n, Name: keys.Set(fmt.Sprint(n))}); edits != nil {
				return
			}
			if _, edits = handles[0].UpdateKey(k.ctx, keys.UpdateKey{ID: "k", IfRevision: n, Name: keys.Set(fmt.Sprint(n))}); edits != nil {
				return
			}
		}
	})
	torn := ""
	for !done.Load() && torn == "" {
		p, err := handles[1].Resolve(k.ctx, made.Token.Reveal())
		if err != nil {
			torn = err.Error()
		} else if r := p.Revision(); r.Team != r.Key && r.Team != r.Key+1 {
			torn = fmt.Sprintf("team at revision %d, key at %d", r.Team, r.Key)
		}
	}
	wg.Wait()
	k.truth(edits == nil, "an edit failed: %v", edits)
	k.truth(torn == "", "key and team are not of one snapshot: %s", torn)
}
