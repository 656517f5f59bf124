package eventlogpg_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/internal/pgtest"
)

var parameter = regexp.MustCompile(`\$(\d+)`)

// explain is how the server would run a statement without a look at its parameters, or runs it with them.
func explain(t *testing.T, c *pgx.Conn, how, sql string, args ...string) string {
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
	call := "explain (" + how + ") execute q"
	if len(args) > 0 {
		call += "(" + strings.Join(args, ", ") + ")"
	}
	rows, err := c.Query(ctx, call, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	_, err = c.Exec(ctx, "deallocate q")
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// fill makes rows of a thousand streams, each of a transaction of its own.
func fill(t *testing.T, db *pgtest.DB, from, to int) {
	t.Helper()
	_, err := db.Pool.Exec(t.Context(), strings.ReplaceAll(fmt.Sprintf(`insert into {}.events (xid, version, schema, stream, id, type, producer, data)
		select (i::text)::xid8, 1 + i / 1000, 1, 's' || i %% 1000, 'i' || i, 't', 'p', '\x00' from generate_series(%d, %d) i order by i`, from, to), "{}", db.Schema))
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), "analyze "+db.Schema+".events")
	require.NoError(t, err)
}

// large is how many rows the full table has. Three million take half a minute to make.
func large() int {
	if os.Getenv("TALLYSTICK_TEST_LARGE") != "" {
		return 3_000_000
	}
	return 60_000
}

// TestPlans: no statement walks or sorts the table, while it is empty, when a connection may keep its plan, nor when it is full.
func TestPlans(t *testing.T) {
	ctx := t.Context()
	s, db := fresh(t)
	conn, err := db.Pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	c := conn.Conn()
	_, err = c.Exec(ctx, "set plan_cache_mode = force_generic_plan")
	require.NoError(t, err)

	check := func(when string, names ...string) {
		for _, name := range names {
			got := explain(t, c, "costs off", s.Statements()[name])
			require.NotRegexp(t, `Seq Scan on (events|event_asides|event_streams)\b`, got, "%s, %s", name, when)
			require.Contains(t, got, "Index", "%s, %s", name, when)
			if name == "fresh" || name == "stream" || name == "asides" {
				require.NotContains(t, got, "Sort", "%s, %s: a page is a range of an index, in order", name, when)
			}
		}
	}
	appending := []string{"insert", "insert one", "record", "ids", "versions"}
	reading := []string{"stream", "fresh", "late", "view", "old", "next", "newest", "keep versions", "delete old", "asides"}
	pinned := func(when string) { // as reads and retention run
		_, err := c.Exec(ctx, "begin; set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off")
		require.NoError(t, err)
		check(when, reading...)
		_, err = c.Exec(ctx, "rollback")
		require.NoError(t, err)
	}
	check("empty", appending...)
	pinned("empty")
	n := large()
	_, err = c.Exec(ctx, "select 1")
	require.NoError(t, err)
	fill(t, db, 1000, 1000+n)
	check("full", appending...)
	pinned("full")

	// What a page costs does not depend on how far behind it is, nor on how much is open.
	_, err = c.Exec(ctx, "begin; set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off")
	require.NoError(t, err)
	buffers := func(sql string, args ...string) (n int) {
		got := explain(t, c, "analyze, buffers, costs off, timing off, summary off", sql, args...)
		for _, m := range regexp.MustCompile(`(?m)^  Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`).FindAllStringSubmatch(got, 1) {
			for _, part := range m[1:] {
				var k int
				_, _ = fmt.Sscan(part, &k)
				n += k
			}
		}
		require.Positive(t, n, got)
		return n
	}
	for name, from := range map[string]int{"behind by all": 1, "in the middle": n / 2, "at the end": n - 100} {
		require.Less(t, buffers(s.Statements()["fresh"], fmt.Sprint(from), "100"), 120, name)
	}
	var open []string
	for i := range 200 {
		open = append(open, fmt.Sprint("'", 1000+i*(n/250), "'"))
	}
	late := s.Statements()["late"]
	require.Less(t, buffers(late, "array["+strings.Join(open, ",")+"]", fmt.Sprint("'", 900+n, "'"), fmt.Sprint("'", 910+n, "'"), "0", fmt.Sprint(n), "100", "''"), 200*6+100, "200 open transactions and a range of ten")
	require.Less(t, buffers(late, "array[]::text[]", "'5'", "'900'", "0", fmt.Sprint(n), "100", "''"), 20, "a range in which nothing was written")
	_, err = c.Exec(ctx, "rollback")
	require.NoError(t, err)
}

// TestManyLateRows: a transaction that had been open brings in more than many pages hold.
func TestManyLateRows(t *testing.T) {
	s, db := fresh(t)
	ctx := t.Context()
	tx := begin(t, db.Pool, s)
	_, err := tx.Exec(ctx, "insert into "+db.Schema+".events (version, schema, stream, id, type, data) select i, 1, 'bulk', 'b' || i, 't', '' from generate_series(1, 5000) i order by i")
	require.NoError(t, err)
	_, err = s.Append(ctx, []eventlog.Append{one("a", "1", eventlog.Any)})
	require.NoError(t, err)
	f := newFollower(400)
	f.drain(t, s)
	require.Len(t, f.had, 1)
	require.NoError(t, tx.Commit(ctx))
	_, err = s.Append(ctx, []eventlog.Append{one("a", "2", eventlog.Any)})
	require.NoError(t, err)
	f.drain(t, s)
	require.Len(t, f.had, 5002)
}
