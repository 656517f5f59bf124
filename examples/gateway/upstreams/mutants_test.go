package upstreams

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	again   = "TestPropertySaidAgain"
	checked = "TestChecked"
	stale   = "TestWhoLostTheLeaseTakesNothingAway"
	missing = "TestWithoutARecordNothingIsInvented"
)

// TestMutants plants mistakes in what a registration may say, and what of it is news.
func TestMutants(t *testing.T) {
	mutate.Run(t, mutate.Suite{Files: []string{"record_test.go"}, Checks: 500, Mutants: []mutate.Mutant{
		{Name: "who says it is news", File: "record.go", Test: again,
			Old: `r.RegisteredAt, "", r.Decision`, New: `r.RegisteredAt, "", n.Decision`},
		{Name: "what probes found is news", File: "record.go", Test: again,
			Old: "n.Health, n.RegisteredAt, n.Gone, n.Decision = r.Health, r.RegisteredAt,", New: "n.Health, n.RegisteredAt, n.Gone, n.Decision = n.Health, r.RegisteredAt,"},
		{Name: "nothing is news", File: "record.go", Test: again,
			Old: "return err == nil && err2 == nil && one == two", New: "return err == nil && err2 == nil && len(one) == len(two)"},
		{Name: "a row has another's record", File: "record.go", Test: again,
			Old: "err == nil && r.Name == name {", New: "err == nil {"},
		{Name: "a record is whole without its models", File: "record.go", Test: again,
			Old: ` && r.BaseURL != "" && len(r.Models) > 0`, New: ` && r.BaseURL != ""`},
		{Name: "a process of one gateway is the fleet's", File: "record.go", Test: checked,
			Old: "\tcase config.Subprocess:\n\t\treturn &coordination.FieldError{", New: "\tcase config.Subprocess:\n\t\t_ = &coordination.FieldError{"},
		{Name: "what is misspelt in the file is left out", File: "manage.go", Test: "TestTheFileIsStrict",
			Old: "\td.DisallowUnknownFields()\n", New: ""},
		{Name: "what was mended is declined for ever", File: "upstreams.go", Test: "TestMendedIsNotDeclined",
			Old: "if u.view.Has(name, version) {", New: "if version < 0 {"},
		{Name: "any tenure will do", File: "record.go", Test: checked,
			Old: "|| r.TTLMS > longestTTL.Milliseconds()", New: "|| r.TTLMS > longestTTL.Microseconds()"},
		{Name: "an upstream of the configuration can be overlaid", File: "record.go", Test: checked,
			Old: "if c.Upstreams[i].Name == r.Name {", New: "if c.Upstreams[i].Name == r.Name && i < 0 {"},
		{Name: "a registration brings a credential", File: "record.go", Test: checked,
			Old: "!s.IsSet() {", New: "!s.IsSet() && r.Credential == \"\" {"},
		{Name: "who decided may be of any length", File: "record.go", Test: checked,
			Old: "case len(f.value) > f.most:", New: "case len(f.value) > 2*f.most:"},
	}})
}

// TestMutantsOfTheManager plants them in what needs a database, each with a server of its own: for who changes it.
func TestMutantsOfTheManager(t *testing.T) {
	mutate.Run(t, mutate.Suite{Files: []string{"record_test.go", "upstreams_test.go"}, Checks: 20, Mutants: []mutate.Mutant{
		{Name: "who lost the lease deregisters", File: "manage.go", Test: stale,
			Old: "return m.u.base.Fenced(ctx, held, func(ctx context.Context, tx *coordination.Tx) error {\n\t\trows, err",
			New: "return m.u.base.Edit(ctx, func(ctx context.Context, tx *coordination.Tx) error {\n\t\trows, err"},
		{Name: "who lost the lease forgets", File: "manage.go", Test: stale,
			Old: "err := m.u.base.Fenced(ctx, held, func(ctx context.Context, tx *coordination.Tx) error {\n\t\told =",
			New: "err := m.u.base.Edit(ctx, func(ctx context.Context, tx *coordination.Tx) error {\n\t\told ="},
		{Name: "what is here to stay is deregistered", File: "manage.go", Test: "TestTheFleet",
			Old: "where gone_us is null and expires_us <= $1 order", New: "where gone_us is null and (expires_us <= $1 or true) order"},
		{Name: "an unreadable row keeps the others", File: "manage.go", Test: missing,
			Old: "return readable(name, text), err", New: "if err == nil {\n\t\t\t\treturn decode([]byte(text))\n\t\t\t}\n\t\t\treturn readable(name, text), err"},
		{Name: "an event without its record is an upstream", File: "upstreams.go", Test: missing,
			Old: `err != nil || r.Name != name || r.Gone == "" && !r.whole() {` + "\n\t\tu.mu", New: "err != nil {\n\t\tu.mu"},
		{Name: "who joins late invents", File: "upstreams.go", Test: missing,
			Old: `if err != nil || r.Name != name || r.Gone == "" && !r.whole() {` + "\n\t\t\t\tmissing", New: "if err != nil {\n\t\t\t\tmissing"},
		{Name: "who decided is not kept", File: "upstreams.go", Test: "TestHowTheyStand",
			Old: `r.Gone, r.Decision = "an operator deregistered it", by`, New: `r.Gone, r.Decision = "an operator deregistered it", Decision{}`},
		{Name: "another's process is used", File: "upstreams.go", Test: "TestAnothersProcessIsNotLaunched",
			Old: `|| r.Health == Unhealthy || r.check(u.config) != nil {`, New: "|| r.Health == Unhealthy {"},
	}})
}
