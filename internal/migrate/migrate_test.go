package migrate

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func files(kv ...string) fstest.MapFS {
	fs := fstest.MapFS{}
	for i := 0; i < len(kv); i += 2 {
		fs[kv[i]] = &fstest.MapFile{Data: []byte(kv[i+1])}
	}
	return fs
}

func TestParse(t *testing.T) {
	set, err := Parse(Source{"keyspg", files(
		"migrations/001_start.up.sql", "-- CREATE TABLE {{schema}}.not_this (i int)\nCREATE TABLE {{schema}}.a (i int);\ncreate table if not exists {{schema}}.\"B\" (i int);\n",
		"migrations/001_start.down.sql", "DROP TABLE {{schema}}.a;",
		"migrations/002_more.up.sql", "CREATE UNLOGGED TABLE {{schema}}.c PARTITION OF {{schema}}.a;\nDROP TABLE IF EXISTS {{schema}}.a;\nALTER TABLE {{schema}}.c RENAME TO d; ALTER TABLE {{schema}}.d RENAME COLUMN x TO y",
		"migrations/README", "not sql",
	)})
	require.NoError(t, err)
	require.Equal(t, 2, set.Latest())
	require.Equal(t, []string{"a", "b"}, set.TablesAt(1))
	require.Equal(t, []string{"b", "d"}, set.TablesAt(2))
	require.Empty(t, set.TablesAt(0))
	require.Equal(t, "start", set.Steps[0].Name)
	require.NotEmpty(t, set.Steps[0].Down)
	require.Empty(t, set.Steps[1].Down)
}

func TestChecksumIgnoresLineEndings(t *testing.T) {
	sum := func(body string) string {
		set, err := Parse(Source{"x", files("001_a.up.sql", body)})
		require.NoError(t, err)
		return set.Steps[0].Checksum
	}
	want := sum("CREATE TABLE a (\n\ti int\n);\n")
	for _, same := range []string{"CREATE TABLE a (\r\n\ti int\r\n);\r\n", "\ufeffCREATE TABLE a (\n\ti int\n);\n", "CREATE TABLE a (\n\ti int\n);"} {
		require.Equal(t, want, sum(same), "%q", same)
	}
	require.NotEqual(t, want, sum("CREATE TABLE a (\n\ti bigint\n);\n"))
}

func TestParseRefuses(t *testing.T) {
	for name, src := range map[string]Source{
		"no files":        {"x", files("README.md", "x")},
		"nil files":       {"x", nil},
		"empty":           {"x", files("001_a.up.sql", " \n")},
		"gap":             {"x", files("001_a.up.sql", "a", "003_b.up.sql", "b")},
		"from zero":       {"x", files("000_a.up.sql", "a")},
		"no up":           {"x", files("001_a.down.sql", "a")},
		"two names":       {"x", files("001_a.up.sql", "a", "001_b.up.sql", "b")},
		"down name":       {"x", files("001_a.up.sql", "a", "001_b.down.sql", "b")},
		"two of a number": {"x", files("001_a.up.sql", "a", "0001_a.up.sql", "b")},
		"odd name":        {"x", files("001_a.up.sql", "a", "fix.sql", "b")},
		"quote in name":   {"x", files("001_a'.up.sql", "a")},
		"no package":      {"", files("001_a.up.sql", "a")},
		"odd package":     {"x'y", files("001_a.up.sql", "a")},
	} {
		_, err := Parse(src)
		require.Error(t, err, name)
	}
	one := Source{"x", files("001_a.up.sql", "CREATE TABLE a (i int)")}
	_, err := ParseAll(one, one)
	require.ErrorContains(t, err, "twice")
	_, err = ParseAll(one, Source{"y", one.FS})
	require.ErrorContains(t, err, "both create")
}

func TestMissing(t *testing.T) {
	set, err := Parse(Source{"x", files("001_a.up.sql", "CREATE TABLE a (i int)", "002_b.up.sql", "CREATE TABLE b (i int)")})
	require.NoError(t, err)
	row := func(v int) Applied { return Applied{"x", v, set.Steps[v-1].Name, set.Steps[v-1].Checksum} }
	alter := func(a Applied, fn func(*Applied)) Applied { fn(&a); return a }
	stranger := Applied{"other", 7, "z", "z"}
	for _, c := range []struct {
		name    string
		st      State
		missing int
		kind    error // of Missing
		check   error
	}{
		{"nothing yet", State{}, 2, nil, ErrOlder},
		{"marker of another package only", State{Marker: true, Applied: []Applied{stranger}, Tables: []string{"z"}}, 2, nil, ErrOlder},
		{"older", State{Marker: true, Applied: []Applied{row(1), stranger}, Tables: []string{"a"}}, 1, nil, ErrOlder},
		{"current, any order", State{Marker: true, Applied: []Applied{row(2), row(1)}, Tables: []string{"b", "a", "z"}}, 0, nil, nil},
		{"newer", State{Marker: true, Applied: []Applied{row(1), row(2), {"x", 3, "c", "c"}}, Tables: []string{"a", "b", "c"}}, 0, nil, nil},
		{"newer by two", State{Marker: true, Applied: []Applied{row(1), row(2), {"x", 3, "c", "c"}, {"x", 4, "d", "d"}}, Tables: []string{"a", "b"}}, 0, nil, nil},
		{"alien marker", State{Marker: true, Alien: true}, 0, ErrForeign, ErrForeign},
		{"our table without a marker", State{Tables: []string{"b"}}, 0, ErrForeign, ErrForeign},
		{"our table unrecorded", State{Marker: true, Applied: []Applied{stranger}, Tables: []string{"a"}}, 0, ErrForeign, ErrForeign},
		{"the next table stands already", State{Marker: true, Applied: []Applied{row(1)}, Tables: []string{"a", "b"}}, 0, ErrForeign, ErrForeign},
		{"other checksum", State{Marker: true, Applied: []Applied{alter(row(1), func(a *Applied) { a.Checksum = "0" })}, Tables: []string{"a"}}, 0, ErrForeign, ErrForeign},
		{"other name", State{Marker: true, Applied: []Applied{alter(row(1), func(a *Applied) { a.Name = "0" })}, Tables: []string{"a"}}, 0, ErrForeign, ErrForeign},
		{"hole", State{Marker: true, Applied: []Applied{row(2)}, Tables: []string{"a", "b"}}, 0, ErrForeign, ErrForeign},
		{"hole above", State{Marker: true, Applied: []Applied{row(1), row(2), {"x", 4, "d", "d"}}, Tables: []string{"a", "b"}}, 0, ErrForeign, ErrForeign},
		{"table gone", State{Marker: true, Applied: []Applied{row(1), row(2)}, Tables: []string{"a"}}, 0, ErrForeign, ErrForeign},
	} {
		missing, err := set.Missing(c.st)
		if c.kind != nil {
			require.ErrorIs(t, err, c.kind, c.name)
			var detail *SchemaError
			require.True(t, errors.As(err, &detail), c.name)
			require.Equal(t, "x", detail.Package)
		} else {
			require.NoError(t, err, c.name)
			require.Len(t, missing, c.missing, c.name)
		}
		err = set.Check(c.st)
		require.ErrorIs(t, err, c.check, c.name)
		if c.check == ErrOlder {
			require.ErrorContains(t, err, "run Migrate", c.name)
		}
	}
}

func TestScript(t *testing.T) {
	set, err := Parse(Source{"x", files("001_a.up.sql", "CREATE TABLE {{schema}}.a (i int);", "001_a.down.sql", "DROP TABLE {{schema}}.a;")})
	require.NoError(t, err)
	out := Script("CREATE TABLE IF NOT EXISTS {{schema}}.tallystick_migrations (x int);", func(s string) string { return strings.ReplaceAll(s, Placeholder, `"s"`) }, set)
	require.Len(t, out, 1)
	require.Contains(t, out[0].Up, `INSERT INTO "s".tallystick_migrations (package, version, name, checksum) VALUES ('x', 1, 'a', '`+set.Steps[0].Checksum)
	require.Contains(t, out[0].Down, `DELETE FROM "s".tallystick_migrations WHERE package = 'x' AND version = 1`)
	require.NotContains(t, out[0].Up+out[0].Down, Placeholder)

	exported, err := Export(out)
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(exported, "x/001_a.up.sql", "x/001_a.down.sql"))
	body, err := fs.ReadFile(exported, "x/001_a.up.sql")
	require.NoError(t, err)
	require.Equal(t, out[0].Up, string(body))
}
