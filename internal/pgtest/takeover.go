package pgtest

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
)

// EitherHost is a DSN of two servers that leads to the one which can be written to.
func EitherHost(t testing.TB, a, b *pgserver.Server) string {
	t.Helper()
	first, err := url.Parse(a.DSN())
	if err != nil {
		t.Fatal("pgtest: the DSN is not readable")
	}
	second, err := url.Parse(b.DSN())
	if err != nil {
		t.Fatal("pgtest: the DSN is not readable")
	}
	first.Host += "," + second.Host
	q := first.Query()
	q.Set("target_session_attrs", "read-write")
	first.RawQuery = q.Encode()
	return first.String()
}

// Deafen waits until a standby has all that its primary committed, and has it hear no more: what is committed from now on
// is lost when it takes over.
func Deafen(t testing.TB, primary, standby *pgserver.Server) {
	t.Helper()
	await(t, primary, "select coalesce(bool_and(replay_lsn >= pg_current_wal_lsn()), false) from pg_stat_replication")
	exec(t, standby.DSN(), "alter system set primary_conninfo = ''")
	exec(t, standby.DSN(), "select pg_reload_conf()")
	await(t, standby, "select count(*) = 0 from pg_stat_wal_receiver")
}

// TakeOver kills a primary, and promotes its standby.
func TakeOver(t testing.TB, primary, standby *pgserver.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := primary.Kill(ctx); err != nil {
		t.Fatal("pgtest:", err)
	}
	exec(t, standby.DSN(), "select pg_promote()")
}

// await asks until the answer is true.
func await(t testing.TB, s *pgserver.Server, question string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		t.Fatal("pgtest: no connection")
	}
	defer c.Close(context.Background())
	for is := false; !is; time.Sleep(10 * time.Millisecond) {
		if err := c.QueryRow(ctx, question).Scan(&is); err != nil {
			t.Fatal("pgtest:", err)
		}
	}
}
