package keys_test

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	resurrect = "TestCacheDoesNotResurrect"
	streams   = "TestCacheFollowsStreams"
	saying    = "TestEventsSayWhatChanged"
	refusing  = "TestParseEventRefuses"
	record    = "TestPropertyEventsAreTheRecord"
)

var mutants = []mutate.Mutant{
	{Name: "who comes after an eviction joins a look-up from before it", File: "cache.go", Test: resurrect,
		Old: "\tclear(c.flights)\n", New: ""},
	{Name: "a look-up from before an eviction is kept", File: "cache.go", Test: "TestCacheKeepsNothingOfALookUpThatWasEvicted",
		Old: "if c.flights[hash] == f {", New: "if c.flights[hash] == f || c.flights[hash] == nil {"},
	{Name: "a look-up from before an eviction overwrites", File: "cache.go", Test: resurrect,
		Old: "if c.flights[hash] == f {", New: "if true {"},
	{Name: "a key that is nowhere in the cache evicts no look-up", File: "cache.go", Test: resurrect,
		Old: "func (c *Cache) forget(hashes map[Hash]bool) {\n", New: "func (c *Cache) forget(hashes map[Hash]bool) {\n\tif len(hashes) == 0 {\n\t\treturn\n\t}\n"},
	{Name: "keys are not found by their team", File: "cache.go", Test: streams,
		Old: "\tindex(c.byTeam, p.TeamID, hash)\n", New: ""},
	{Name: "a team's event evicts the key of its name", File: "cache.go", Test: streams,
		Old: "\t\tc.EvictTeam(id)\n\t\treturn true\n", New: "\t\tc.Evict(id)\n\t\treturn true\n"},
	{Name: "clearing leaves the index", File: "cache.go", Test: streams,
		Old: "\tclear(c.byTeam)\n\tc.recent.Init()\n", New: "\tclear(c.byTeam)\n"},
	{Name: "a revocation is an update", File: "event.go", Test: saying,
		Old: "\t\tkind = KeyRevoked\n", New: ""},
	{Name: "limits change as one", File: "event.go", Test: saying,
		Old: "\tdelete(fields, \"limits\")\n", New: ""},
	{Name: "what was there and is gone did not change", File: "event.go", Test: saying,
		Old: "\tmaps.Copy(names, a)\n", New: ""},
	{Name: "no limit and a limit of zero are the same", File: "event.go", Test: record,
		Old: "left == right && bytes.Equal(b[name], a[name])", New: "left == right && bytes.Equal(b[name], a[name]) || left != right"},
	{Name: "an import of nothing is told", File: "event.go", Test: saying,
		Old: "if i.Added == (Count{}) {", New: "if false {"},
	{Name: "a list that is missing allows everything", File: "told.go", Test: refusing,
		Old: "\"limits\", \"allowed_models\", \"allowed_regions\", \"revision\"", New: "\"limits\", \"allowed_regions\", \"revision\""},
	{Name: "a revision is not the record's", File: "told.go", Test: refusing,
		Old: "case t.Revision != revision:", New: "case t.Revision < revision:"},
	{Name: "what is required may be missing", File: "told.go", Test: refusing,
		Old: "if !there[name] {", New: "if false {"},
	{Name: "records are not validated", File: "told.go", Test: refusing,
		Old: "err = Rows{Keys: []Key{k}}.Validate()", New: "err = nil"},
	{Name: "a field of a later version is refused", File: "told.go", Test: refusing,
		Old: "\t\tif !known {\n\t\t\treturn nil\n\t\t}\n", New: "\t\tif !known {\n\t\t\treturn refuse(name, \"unknown field\")\n\t\t}\n"},
}

// Every mistake makes its test fail.
func TestMutants(t *testing.T) {
	mutate.Run(t, mutate.Suite{
		Files:   []string{"cache_test.go", "event_test.go"},
		Checks:  200,
		Mutants: mutants,
	})
}
