package keystest

import (
	"fmt"
	"slices"

	"github.com/tallystick-go/tallystick/keys"
)

var listCases = []suiteCase{
	{name: "Keys/PagesCoverEverythingOnce", run: keysPages},
	{name: "Keys/FiltersAreExact", run: keysFilters},
	{name: "Keys/RevokedAreListed", run: keysRevoked},
	{name: "Keys/OrderIsByBytes", run: keysOrder},
	{name: "Keys/PagesStayPutWhileKeysAreMade", run: keysStable},
	{name: "Keys/BadInput", run: keysInvalid},
	{name: "Teams/PagesCoverEverythingOnce", run: teamsPages},
	{name: "Teams/TombstonesAreListed", run: teamsTombstones},
	{name: "Teams/BadInput", run: teamsInvalid},
}

// idsInOrder sort differently by byte, by case-blind and by language rules.
var idsInOrder = []string{"0", "10", "9", "A", "B", "Z", "a", "a-b", "a.b", "a:b", "aB", "a_b", "ab", "b", "z"}

func (k *kit) listKeys(l keys.ListKeys) (ids []string) {
	k.Helper()
	for range 1000 {
		page := must(k.s.Keys(k.ctx, l))(k)
		for _, key := range page.Keys {
			ids = append(ids, key.ID)
		}
		k.truth(l.Limit == 0 || len(page.Keys) <= l.Limit, "a page has %d keys, more than the %d asked for", len(page.Keys), l.Limit)
		if page.Next == "" {
			return ids
		}
		k.truth(len(page.Keys) > 0, "a page that is not the last is empty")
		l.After = page.Next
	}
	k.Fatal("pages go on for ever")
	return nil
}

func keysPages(k *kit) {
	k.team("red")
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprintf("k%02d", i))
	}
	for i := range want {
		k.key(want[(i*7)%25], "red")
	}
	for _, limit := range []int{0, 1, 2, 5, 24, 25, 26, keys.MaxPage} {
		same(k, k.listKeys(keys.ListKeys{Limit: limit}), want, fmt.Sprintf("pages of %d", limit))
		same(k, k.listKeys(keys.ListKeys{Limit: limit, TeamID: "red"}), want, fmt.Sprintf("pages of %d of a team", limit))
	}
	last := must(k.s.Keys(k.ctx, keys.ListKeys{After: "k24"}))(k)
	k.truth(len(last.Keys) == 0 && last.Next == "", "behind the last key there is nothing")
	same(k, k.listKeys(keys.ListKeys{After: "k10x", Limit: 3}), want[11:], "a cursor need not be a key that exists")
	same(k, must(k.s.Keys(k.ctx, keys.ListKeys{Limit: 1}))(k).Keys[0], must(k.s.Key(k.ctx, "k00"))(k), "a listed key is the whole key")
}

func keysFilters(k *kit) {
	k.team("red")
	k.team("RED")
	owners := append(slices.Clone(awkward), "ann", "Ann", "ann ", "an", "ann%", "_nn")
	for _, team := range []string{"red", "RED"} {
		for i, owner := range owners {
			must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: fmt.Sprintf("%s-%02d", team, i), TeamID: team, Owner: owner}))(k)
		}
	}
	for i, owner := range owners {
		a, b := fmt.Sprintf("RED-%02d", i), fmt.Sprintf("red-%02d", i)
		same(k, k.listKeys(keys.ListKeys{Owner: owner, Limit: 1}), []string{a, b}, "one owner, byte by byte")
		same(k, k.listKeys(keys.ListKeys{Owner: owner, TeamID: "red"}), []string{b}, "one owner of one team")
	}
	k.truth(len(k.listKeys(keys.ListKeys{TeamID: "red", Limit: 4})) == len(owners), "one team, byte by byte")
	k.truth(len(k.listKeys(keys.ListKeys{TeamID: "blue"})) == 0 && len(k.listKeys(keys.ListKeys{Owner: "bob"})) == 0, "no such team, no such owner")
	key := must(k.s.Key(k.ctx, "red-00"))(k)
	must(k.s.UpdateKey(k.ctx, keys.UpdateKey{ID: "red-00", IfRevision: key.Revision, Owner: keys.Set("moved")}))(k)
	same(k, k.listKeys(keys.ListKeys{Owner: "moved"}), []string{"red-00"}, "a new owner is found at once")
	same(k, k.listKeys(keys.ListKeys{Owner: owners[0]}), []string{"RED-00"}, "and the old one no longer")
}

func keysRevoked(k *kit) {
	k.one()
	gone := must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"}))(k)
	page := must(k.s.Keys(k.ctx, keys.ListKeys{TeamID: "red"}))(k)
	k.truth(len(page.Keys) == 1, "a copy made from listings must not lose revocations")
	same(k, page.Keys[0], gone, "a revoked key is listed as it is")
}

func keysOrder(k *kit) {
	k.team("red")
	for i := range idsInOrder {
		must(k.s.CreateKey(k.ctx, keys.CreateKey{ID: idsInOrder[(i*4)%15], TeamID: "red", Owner: "ann"}))(k)
	}
	for _, l := range []keys.ListKeys{{Limit: 2}, {Limit: 2, TeamID: "red"}, {Limit: 2, Owner: "ann"}, {Limit: 2, TeamID: "red", Owner: "ann"}} {
		same(k, k.listKeys(l), idsInOrder, "ids are ordered by their bytes")
	}
}

func keysStable(k *kit) {
	k.team("red")
	for _, id := range []string{"b", "d", "f"} {
		k.key(id, "red")
	}
	first := must(k.s.Keys(k.ctx, keys.ListKeys{Limit: 2}))(k)
	k.key("a", "red")
	k.key("e", "red")
	same(k, k.listKeys(keys.ListKeys{After: first.Next}), []string{"e", "f"}, "a page goes on where the last one ended: nothing twice, nothing lost")
}

func keysInvalid(k *kit) {
	for name, l := range map[string]keys.ListKeys{
		"negative": {Limit: -1}, "too many": {Limit: keys.MaxPage + 1}, "cursor": {After: "a b"}, "team": {TeamID: "a'b"}, "owner": {Owner: "a\x00"},
	} {
		fails(k.s.Keys(k.ctx, l))(k, keys.ErrInvalid, name)
	}
}

func teamsPages(k *kit) {
	for i := range idsInOrder {
		k.team(idsInOrder[(i*4)%15])
	}
	for _, limit := range []int{0, 1, 4, 14, 15, 16} {
		var ids []string
		l := keys.ListTeams{Limit: limit}
		for range 100 {
			page := must(k.s.Teams(k.ctx, l))(k)
			for _, team := range page.Teams {
				ids = append(ids, team.ID)
			}
			if l.After = page.Next; l.After == "" {
				break
			}
		}
		same(k, ids, idsInOrder, fmt.Sprintf("pages of %d, ordered by bytes", limit))
	}
}

func teamsTombstones(k *kit) {
	k.team("red")
	gone := must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red"}))(k)
	page := must(k.s.Teams(k.ctx, keys.ListTeams{}))(k)
	k.truth(len(page.Teams) == 1, "a deleted team is listed")
	same(k, page.Teams[0], gone, "as it is")
}

func teamsInvalid(k *kit) {
	for name, l := range map[string]keys.ListTeams{"negative": {Limit: -1}, "too many": {Limit: keys.MaxPage + 1}, "cursor": {After: "é"}} {
		fails(k.s.Teams(k.ctx, l))(k, keys.ErrInvalid, name)
	}
}
