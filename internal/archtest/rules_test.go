package archtest

import (
	"go/parser"
	"go/token"
	"testing"
)

// A rule that never says no is none: each line here is a mistake that must be refused, or a right that must stand.
func TestTheRulesBite(t *testing.T) {
	m := module + "/"
	tr := &tree{files: []file{
		{dir: "governance", imports: []string{m + "governance/amount", m + "keys", m + "quota"}},
		{dir: "keys", imports: []string{m + "governance/amount"}},
		{dir: "governance/policy", imports: []string{m + "governance/amount", m + "quota"}},
	}}
	for _, c := range []struct {
		dir, imp string
		ok       bool
	}{
		{"keys", "crypto/sha256", true},
		{"keys", m + "governance/amount", true},
		{"keys", "database/sql", false},
		{"keys", "github.com/shopspring/decimal", false},
		{"keys", m + "internal/pgtx", false},
		{"keys", m + "keys/keyspg", false},
		{"keys", "testing", false},
		{"governance", m + "governance/governancemem", false},
		{"governance/amount", m + "keys", false},
		{"governance/pricing", "github.com/shopspring/decimal", true},
		{"governance/usage", "github.com/shopspring/decimal", false},
		{"governance/policy", m + "quota", true},
		{"governance/policy", m + "keys", false},
		{"governance/policy", m + "governance", false},
		{"governance/policy", "go.yaml.in/yaml/v3", false},
		{"governance/policy", m + "governance/policy/policypg", false},
		{"governance/policy/policyyaml", "go.yaml.in/yaml/v3", true},
		{"governance/policy/policyyaml", "gopkg.in/yaml.v3", false},
		{"governance/policy/policypg", m + "governance/policy", true},
		{"governance/policy/policypg", m + "internal/pgtx", true},
		{"governance/policy/policypg", m + "keys", false},
		{"governance/policy/policypg", m + "governance", false},
		{"governance/policy/policytest", m + "governance/policy", true},
		{"governance/policy/policytest", m + "governance/policy/policypg", false},
		{"governance/governancepg", m + "governance/policy/policypg", true},
		{"governance/governancesqlite", m + "governance/policy/policypg", false},
		{"keys/keyspg", m + "keys", true},
		{"keys/keyspg", m + "governance/amount", true},
		{"keys/keyspg", m + "internal/pgtx", true},
		{"keys/keyspg", m + "internal/migrate/migratepg", true},
		{"keys/keyspg", "github.com/jackc/pgx/v5/pgxpool", true},
		{"keys/keyspg", m + "internal/sqlitetx", false},
		{"keys/keyspg", m + "internal/migrate/migratesqlite", false},
		{"keys/keyspg", m + "internal/pgtest", false},
		{"keys/keyspg", m + "quota", false},
		{"keys/keyspg", m + "eventlog", true},
		{"keys/keyspg", m + "eventlog/eventlogpg", true},
		{"keys/keyspg", m + "eventlog/eventlogsqlite", false},
		{"keys/keyspg", m + "governance/governancepg", false},
		{"keys/keyspg", "github.com/stretchr/testify/require", false},
		{"keys/keyssqlite", "database/sql", true},
		{"keys/keyssqlite", m + "internal/sqlitetx", true},
		{"keys/keyssqlite", "modernc.org/sqlite", false},
		{"keys/keyssqlite", m + "eventlog/eventlogsqlite", true},
		{"keys/keyssqlite", m + "eventlog/eventlogpg", false},
		{"keys/keyssqlite", "github.com/jackc/pgx/v5", false},
		{"governance/governancepg", m + "keys/keyspg", true},
		{"governance/governancepg", m + "quota", true},
		{"governance/governancepg", m + "keys/keyssqlite", false},
		{"governance/governancesqlite", m + "keys/keyssqlite", true},
		{"governance/governancesqlite", m + "keys/keyspg", false},
		{"keys/keystest", "testing", true},
		{"keys/keystest", m + "keys", true},
		{"keys/keystest", m + "internal/pgtest", false},
		{"keys/keystest", "github.com/stretchr/testify/require", false},
		{"governance/governancetest", m + "keys/keystest", true},
		{"governance/governancetest", m + "governance/governancepg", false},
		{"eventlog", m + "lease", true},
		{"eventlog", "github.com/jackc/pgx/v5", false},
		{"eventlog/eventlogpg", m + "eventlog", true},
		{"eventlog/eventlogpg", "github.com/jackc/pgx/v5/pgconn", true},
		{"eventlog/eventlogpg", m + "lease", false},
		{"eventlog/eventlogsqlite", "database/sql", true},
		{"eventlog/eventlogsqlite", m + "eventlog/eventlogpg", false},
		{"eventlog/eventlogtest", m + "eventlog", true},
		{"eventlog/eventlogtest", m + "eventlog/eventlogsqlite", false},
		{"internal/pgtx", "testing", false},
		{"internal/pgtx", m + "keys", false},
		{"internal/pgtx", "github.com/jackc/pgx/v5", true},
		{"internal/sqlitetx", "github.com/jackc/pgx/v5", false},
		{"internal/migrate", m + "internal/pgtx", false},
		{"internal/migrate/migratesqlite", m + "internal/pgtx", false},
		{"internal/migrate/migratepg", m + "internal/sqlitetx", false},
		{"internal/pgtest", "testing", true},
		{"internal/mutate", "testing", true},
		{"internal/pgtest/pgserver", "testing", false},
		{"internal/bench", m + "governance/governancepg", true},
		{"examples/gateway", m + "internal/pgtx", false},
		{"examples/gateway", m + "governance/governancesqlite", true},
		{"examples/customstore", m + "governance/governancepg", false},
		{"examples/customstore", m + "governance", true},
		{"examples/customstore", "go.etcd.io/bbolt", true},
		{".", m + "keys", false},
	} {
		if why := forbidden(tr, c.dir, c.imp); (why == "") != c.ok {
			t.Errorf("%s importing %s: %q", c.dir, c.imp, why)
		}
	}
	for dir, want := range map[string]kind{
		".": root, "keys": core, "keys/keyspg": pg, "keys/leasepg": stranger, "keys/keyssqlite": sqlite, "keys/keystest": suite,
		"governance/governancetest": suite, "governance/policy/policytest": suite, "governance/policy/policypg": pg, "governance/policy/policymem": stranger, "governance/cache": stranger, "internal/x/y": inner, "examples/a": example, "pkg": stranger,
	} {
		if got := kindOf(dir); got != want {
			t.Errorf("%s is taken for kind %d", dir, got)
		}
	}
	for src, runs := range map[string]bool{
		"package p\nfunc ExampleX() {\n\t// Output: 1\n}": true,
		"package p\nfunc ExampleX() {\n}\n// Output: 1":   false,
		"package p\nfunc TestX() {\n\t// Output: 1\n}":    false,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if hasExample(f, true) != runs {
			t.Errorf("%q: example that runs: %v", src, !runs)
		}
	}
}
