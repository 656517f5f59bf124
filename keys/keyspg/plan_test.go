package keyspg_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

var parameter = regexp.MustCompile(`\$(\d+)`)

// plan explains a statement as the server would run it once it no longer looks at
// the parameters, or with args when there are any.
func plan(t *testing.T, c *pgx.Conn, sql string, args ...string) string {
	t.Helper()
	ctx := context.Background()
	if len(args) == 0 {
		count := map[string]bool{}
		for _, m := range parameter.FindAllString(sql, -1) {
			count[m] = true
		}
		for range count {
			args = append(args, "null")
		}
	}
	_, err := c.Exec(ctx, "prepare q as "+sql)
	require.NoError(t, err)
	rows, err := c.Query(ctx, "explain execute q("+strings.Join(args, ", ")+")", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	_, err = c.Exec(ctx, "deallocate q")
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

func fill(t *testing.T, db *pgtest.DB, from, to int) {
	t.Helper()
	for _, sql := range []string{
		`insert into {}.teams (id, name, guardrail, revision, created_us, updated_us)
		 select distinct 't' || i/10, '', '', 1, 1, 1 from generate_series(%d, %d) i on conflict do nothing`,
		`insert into {}.keys (id, team_id, owner, name, revision, created_us, updated_us)
		 select 'k' || md5(i::text), case when i %% 2 = 0 then 't0' else 't' || i/10 end, 'u' || i%%10, '', 1, 1, 1 from generate_series(%d, %d) i`,
		`insert into {}.key_secrets (hash, key_id, rotation_id, grace_us, created_us)
		 select sha256(i::text::bytea), 'k' || md5(i::text), '', 0, 1 from generate_series(%d, %d) i`,
	} {
		_, err := db.Pool.Exec(t.Context(), strings.ReplaceAll(fmt.Sprintf(sql, from, to), "{}", db.Schema))
		require.NoError(t, err)
	}
}

func analyze(t *testing.T, db *pgtest.DB) {
	t.Helper()
	for _, table := range []string{"teams", "keys", "key_secrets"} {
		_, err := db.Pool.Exec(t.Context(), "analyze "+db.Schema+"."+table)
		require.NoError(t, err)
	}
}

// TestPlans checks that no statement walks or sorts a table: not while it is empty,
// when a connection may cache its plan, not when it is full. (A table of a page or two
// that was analyzed is read whole, rightly; it is planned anew when it grew and is
// analyzed again.) Inside an admission it must not happen at any size.
func TestPlans(t *testing.T) {
	ctx := t.Context()
	db := pgtest.New(t)
	s, err := keyspg.New(db.Pool, &keyspg.Options{Schema: db.Schema})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(ctx))
	conn, err := db.Pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	c := conn.Conn()
	_, err = c.Exec(ctx, "set plan_cache_mode = force_generic_plan")
	require.NoError(t, err)

	indexed := func(when string, statements ...string) {
		for _, name := range statements {
			got := plan(t, c, s.Statements()[name])
			require.NotRegexp(t, `Seq Scan|Sort|Hash Join|Merge Join`, got, "%s, %s", name, when)
			require.Contains(t, got, "Index", "%s, %s", name, when)
		}
	}
	definitions := func(when string) {
		_, err := c.Exec(ctx, "begin; set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off")
		require.NoError(t, err)
		indexed(when+", in an admission", "definitions")
		_, err = c.Exec(ctx, "rollback")
		require.NoError(t, err)
	}
	lookUps := []string{"resolve", "reload", "rotation", "retire"}
	indexed("empty", append(lookUps, "definitions")...)
	definitions("empty")
	fill(t, db, 0, 9)
	indexed("few", append(lookUps, "definitions")...)
	analyze(t, db)
	definitions("few, analyzed")
	fill(t, db, 10, 100_000)
	_, err = c.Exec(ctx, `insert into `+db.Schema+`.key_declarations (kind, id, fingerprint, created_us) select 'key', 'k' || i, '{}', 1 from generate_series(1, 10000) i`)
	require.NoError(t, err)
	analyze(t, db)
	indexed("full", append(lookUps, "definitions")...)
	definitions("full")

	_, err = c.Exec(ctx, "set plan_cache_mode = force_custom_plan") // how pages are asked for
	require.NoError(t, err)
	for name, args := range map[string][]string{
		"keys": {"''", "101"}, "keys of team": {"'k4'", "101", "'t0'"}, "keys of owner": {"'k4'", "101", "'u7'"},
		"keys of both": {"'k4'", "101", "'t0'", "'u8'"},
	} {
		got := plan(t, c, s.Statements()[name], args...)
		require.NotRegexp(t, `Seq Scan|Sort`, got, "%s: a page is a range of an index, in order", name)
		require.Regexp(t, `Index Cond: .*id > '`, got, "%s: a page begins where the last one ended", name)
	}
	// What an import reads of a batch, while the tables grow under it.
	for name, args := range map[string][]string{
		"teams by id": {"array['t1', 't2']"}, "keys by id": {"array['k1', 'k2']"}, "secrets": {`array['\x01'::bytea]`, "array['k1', 'k2']"},
		"declared": {"array['key', 'team']", "array['k1', 'k2']"},
	} {
		got := plan(t, c, s.Statements()[name], args...)
		require.NotRegexp(t, `Seq Scan`, got, "%s: a batch is looked up, not searched for", name)
		require.Contains(t, got, "Index", name)
	}
}
