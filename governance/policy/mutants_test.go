package policy_test

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	places     = "TestDecodeNamesThePlace"
	meaning    = "TestGenerationIsTheMeaning"
	canon      = "TestPropertyEncodingIsCanonical"
	scan       = "TestPropertyMatchIsTheNaiveScan"
	table      = "TestProfiles"
	vanish     = "TestPropertyNoMandatoryRuleVanishes"
	latches    = "TestPropertyTierLatch"
	pending    = "TestPendingMoneySwitchesNoMeter"
	strictness = "TestStrictRulesGoFirst"
	suite      = "TestMemory"
	following  = "TestFollow"
)

var mutants = []mutate.Mutant{
	{Name: "unknown fields are passed over", File: "json.go", Test: places,
		Old: "return refuse(v.path, \"unknown field\")", New: "continue"},
	{Name: "the last of two fields counts", File: "json.go", Test: places,
		Old: "case slices.Contains(n.names[:i], name):", New: "case false:"},
	{Name: "null is as good as absent", File: "json.go", Test: places,
		Old: "return refuse(v.path, \"must not be null; leave it out\")", New: "continue"},
	{Name: "an empty list is a list", File: "json.go", Test: places,
		Old: "if len(n.list) == 0 {", New: "if false {"},
	{Name: "numbers wrap around", File: "json.go", Test: places,
		Old: "case int64(T(v)) != v:", New: "case false:"},
	{Name: "a forgotten limit is one of zero", File: "decode.go", Test: places,
		Old: "case !limited && !b.Unlimited:", New: "case false:"},
	{Name: "money overflows", File: "validate.go", Test: places,
		Old: "if milli > MaxMilliUSD {", New: "if false {"},
	{Name: "negative is unlimited", File: "validate.go", Test: places,
		Old: "if n < 0 {", New: "if false {"},
	{Name: "two rules share an account", File: "validate.go", Test: places,
		Old: "if names[r.Name] {", New: "if false {"},
	{Name: "a hard cap may fail open", File: "validate.go", Test: places,
		Old: "r.Budget.HardCap && r.FailurePolicy != FailClosed", New: "false"},
	{Name: "a quota may fail open", File: "validate.go", Test: places,
		Old: "if err == nil && r.FailurePolicy != FailClosed {", New: "if false {"},
	{Name: "a limit may stand beside unlimited", File: "decode.go", Test: places,
		Old: "case limited && b.Unlimited:", New: "case false:"},
	{Name: "substitutions may go in a circle", File: "routing.go", Test: places,
		Old: "if replaceAll(so, from, false) == from {", New: "if replaceAll(so, from, false) == \"\" {"},
	{Name: "the order of documents counts", File: "set.go", Test: canon,
		Old: "slices.SortFunc(entries, func(a, b *prepared) int { return cmp.Compare(a.document.Name, b.document.Name) })", New: ""},
	{Name: "the order of rules counts", File: "canonical.go", Test: canon,
		Old: "slices.SortFunc(out.Rules, func(a, b Rule) int { return cmp.Compare(a.Name, b.Name) })", New: ""},
	{Name: "the order of models counts", File: "canonical.go", Test: meaning,
		Old: "slices.Sorted(slices.Values(r.ModelAccess.Allow))", New: "slices.Clone(r.ModelAccess.Allow)"},
	{Name: "UTC is two zones", File: "canonical.go", Test: meaning,
		Old: "if c.Zone == \"UTC\" {", New: "if false {"},
	{Name: "the zone is no part of the meaning", File: "encode.go", Test: meaning,
		Old: "e.text(\"timezone\", c.Zone)", New: ""},
	{Name: "strictness is no part of the meaning", File: "encode.go", Test: meaning,
		Old: "e.flag(\"strict\", t.Strict)", New: ""},
	{Name: "the alias is written", File: "encode.go", Test: "TestTheAliasIsTheSameDocument",
		Old: "e.text(\"apiVersion\", APIVersion)", New: "e.text(\"apiVersion\", AliasVersion)"},
	{Name: "quotes are not escaped", File: "encode.go", Test: canon,
		Old: "if s[i] == '\"' || s[i] == '\\\\' {", New: "if s[i] == '\\\\' {"},
	{Name: "a user counts in one team only", File: "match.go", Test: scan,
		Old: "out := [3]Subject{{Team: team}, {User: user}}", New: "out := [3]Subject{{Team: team}, {}}"},
	{Name: "a document about both is about either", File: "match.go", Test: scan,
		Old: "\tif team != \"\" && user != \"\" {\n\t\tout[2] = Subject{Team: team, User: user}\n\t}\n", New: ""},
	{Name: "unlimited erases what stands beside it", File: "match.go", Test: "TestUnlimitedErasesNothing",
		Old: "\tcase r.unlimited():\n\t\treturn nil\n", New: "\tcase r.unlimited():\n\t\treturn []Limit{{Kind: LimitMoney}}\n"},
	{Name: "a meter is a hard cap", File: "match.go", Test: "TestUnlimitedErasesNothing",
		Old: "Hard: r.Budget.HardCap}}", New: "Hard: true}}"},
	{Name: "one list of models is enough", File: "match.go", Test: "TestModelsAreIntersected",
		Old: "if _, ok := slices.BinarySearch(list, model); !ok {\n\t\t\treturn false\n\t\t}\n\t}\n\treturn true", New: "if _, ok := slices.BinarySearch(list, model); ok {\n\t\t\treturn true\n\t\t}\n\t}\n\treturn len(a.lists) == 0"},
	{Name: "users have rates everywhere", File: "enforce.go", Test: table,
		Old: "case s != ScopeTeam:", New: "case false:"},
	{Name: "quotas are kept everywhere", File: "enforce.go", Test: table,
		Old: "if p != Shared {", New: "if false {"},
	{Name: "nodes have zones", File: "enforce.go", Test: table,
		Old: "case b.Calendar.Zone != \"\":", New: "case false:"},
	{Name: "rates of nodes are said to be global", File: "enforce.go", Test: table,
		Old: "return ReachNode, \"\"", New: "return ReachFleet, \"\""},
	{Name: "a rejected rule gates nobody", File: "enforce.go", Test: vanish,
		Old: "if !v.Enforced && v.Mandatory && gate == nil {", New: "if false {"},
	{Name: "an optional rule gates", File: "enforce.go", Test: vanish,
		Old: "if !v.Enforced && v.Mandatory && gate == nil {", New: "if !v.Enforced && gate == nil {"},
	{Name: "the rest of a rejected document stays", File: "enforce.go", Test: "TestADocumentIsRejectedAsAWhole",
		Old: "if v := &verdicts[i]; v.Enforced {", New: "if v := &verdicts[i]; false {"},
	{Name: "an unknown profile enforces", File: "enforce.go", Test: table,
		Old: "if p < Local || p > Shared {", New: "if false {"},
	{Name: "pending money switches meters", File: "tier.go", Test: pending,
		Old: "if b.HardCap && err == nil {", New: "if err == nil {"},
	{Name: "grants switch nothing", File: "tier.go", Test: pending,
		Old: "amount.Sum(taken, a.Reserved, a.Granted)", New: "amount.Sum(taken, a.Reserved)"},
	{Name: "uncertain money switches nothing", File: "tier.go", Test: pending,
		Old: "amount.Sum(a.Consumed, a.Uncertain)", New: "amount.Sum(a.Consumed)"},
	{Name: "a latch follows its account", File: "tier.go", Test: latches,
		Old: "return max(stored, now)", New: "return now"},
	{Name: "a tier begins one too late", File: "tier.go", Test: latches,
		Old: "return err == nil && taken >= need", New: "return err == nil && taken > need"},
	{Name: "the first threshold is the tier", File: "tier.go", Test: latches,
		Old: "if t > highest && reaches", New: "if highest == 0 && reaches"},
	{Name: "optional rules may undo strict ones", File: "routing.go", Test: strictness,
		Old: "\tc.apply(order, left, true)\n\tc.Required = c.Model\n\tc.apply(order, left, false)\n", New: "\tc.apply(order, left, false)\n\tc.Required = c.Model\n"},
	{Name: "models come back", File: "routing.go", Test: "TestPropertySubstitutionsHold",
		Old: "if to == c.Model || left[to] {", New: "if to == c.Model {"},
	{Name: "the lower threshold goes first", File: "routing.go", Test: strictness,
		Old: "return cmp.Compare(b.Reached, a.Reached) })", New: "return cmp.Compare(a.Reached, b.Reached) })"},
	{Name: "another period is the same account", File: "diff.go", Test: "TestDiffSaysWhatHappensToAccounts",
		Old: "account := name == \"period\" && counts", New: "account := name == \"none\" && counts"},
	{Name: "another limit is another account", File: "diff.go", Test: "TestDiffSaysWhatHappensToAccounts",
		Old: "account := name == \"period\" && counts", New: "account := counts"},
	{Name: "generations are not compared", File: "edit.go", Test: suite,
		Old: "\tif !expected {\n", New: "\tif false {\n"},
	{Name: "an edit in force is a conflict", File: "edit.go", Test: suite,
		Old: "if next != nil && next.generation == now.Set.Generation() {", New: "if expected && next != nil && next.generation == now.Set.Generation() {"},
	{Name: "a misspelled deletion succeeds", File: "edit.go", Test: suite,
		Old: "case missing > 0 && expected:\n\t\treturn nil, ErrNotFound", New: "case missing > 0 && expected:\n\t\treturn now.Set, nil"},
	{Name: "an edit forgets the others", File: "edit.go", Test: suite,
		Old: "if now != nil && !e.whole {", New: "if now != nil && e.whole {"},
	{Name: "an edit does not wait", File: "memory.go", Test: suite,
		Old: "for _, h := range old {\n\t\tselect {", New: "for _, h := range old[:0] {\n\t\tselect {"},
	{Name: "a repeated edit does not wait", File: "memory.go", Test: suite,
		Old: "\tif next == now.Set {\n\t\treturn now, m.holding(), nil", New: "\tif next == now.Set {\n\t\treturn now, nil, nil"},
	{Name: "revisions stand still", File: "memory.go", Test: suite,
		Old: "next.generation, now.Revision+1", New: "next.generation, now.Revision"},
	{Name: "what follows an authority is edited", File: "memory.go", Test: following,
		Old: "\tif m.follower {", New: "\tif false {"},
	{Name: "whoever has a set of its own follows", File: "follow.go", Test: following,
		Old: "\tcase !m.follower:", New: "\tcase false:"},
	{Name: "an authority that went back is followed", File: "follow.go", Test: following,
		Old: "next.Revision <= m.Revision:", New: "false:"},
	{Name: "another authority is followed", File: "follow.go", Test: following,
		Old: "\tcase m.Namespace != next.Namespace,", New: "\tcase false,"},
	{Name: "documents of another generation are followed", File: "follow.go", Test: following,
		Old: "\tcase set.Generation() != mark.Generation:", New: "\tcase false:"},
	{Name: "following waits for nobody", File: "follow.go", Test: following,
		Old: "\told := m.holding()\n", New: "\tvar old []*held\n"},
	{Name: "a cancelled context is no reason", File: "memory.go", Test: suite,
		Old: "\tif err := ctx.Err(); err != nil {\n\t\treturn Snapshot{}, fmt.Errorf(\"%w: %w\", ErrUnavailable, err)\n\t}\n\tnow, old", New: "\tnow, old"},
}

// Every mistake makes its test fail.
func TestMutants(t *testing.T) {
	mutate.Run(t, mutate.Suite{
		Files:   []string{"decode_test.go", "property_test.go", "enforce_test.go", "routing_test.go", "diff_test.go", "memory_test.go", "follow_test.go", "example_test.go"},
		Checks:  300,
		Mutants: mutants,
	})
}
