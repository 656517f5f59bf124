package pgtx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestSchemaNames(t *testing.T) {
	for _, name := range []string{"tallystick", "_x", "a", "public", "t_0", strings.Repeat("a", 63)} {
		s, err := ParseSchema(name)
		require.NoError(t, err, name)
		require.Equal(t, name, s.Name())
		require.Equal(t, `select 1 from "`+name+`".x`, s.Splice("select 1 from {{schema}}.x"))
		require.Equal(t, `"`+name+`"."keys"`, s.Table("keys"))
	}
	for _, name := range []string{"A", "1a", "a-b", `a"b`, "a b", "a\x00", "a;", "ä", strings.Repeat("a", 64), "pg_catalog", "pg_x", "information_schema", "a.b", "a\n"} {
		_, err := ParseSchema(name)
		require.ErrorIs(t, err, ErrSchemaName, "%q", name)
	}
	s, err := ParseSchema("")
	require.NoError(t, err)
	require.Equal(t, DefaultSchema, s.Name())
}

// Programs of different versions meet on these numbers in one database: they must never change.
func TestLockKeysStayTheSame(t *testing.T) {
	s, err := ParseSchema("tallystick")
	require.NoError(t, err)
	require.Equal(t, [2]int64{-325397014731665613, -6900487005541324636}, [2]int64{s.LockKey(), s.MigrateKey()})
	other, err := ParseSchema("tallystick2")
	require.NoError(t, err)
	require.NotEqual(t, s.LockKey(), other.LockKey())
}

func TestClassify(t *testing.T) {
	server := func(code string) error {
		return fmt.Errorf("while working: %w", &pgconn.PgError{Code: code, Severity: "ERROR", Message: "m"})
	}
	for _, c := range []struct {
		err                   error
		before, piped, commit Class
	}{
		{nil, OK, OK, OK},
		{server("40001"), Retryable, Retryable, UnknownOutcome},
		{server("40P01"), Retryable, Retryable, UnknownOutcome},
		{server("55P03"), LockTimeout, LockTimeout, UnknownOutcome},
		{server("57014"), Canceled, Canceled, UnknownOutcome},
		{server("25P03"), Canceled, Canceled, UnknownOutcome},
		{server("23505"), UniqueViolation, UniqueViolation, UnknownOutcome},
		{server("23514"), Poison, Poison, UnknownOutcome},
		{server("22003"), Poison, Poison, UnknownOutcome},
		{server("25006"), ReadOnly, ReadOnly, UnknownOutcome},
		{server("53300"), Unavailable, Unavailable, UnknownOutcome},
		{server("42P01"), Rejected, Rejected, UnknownOutcome},
		{server("XX000"), Rejected, Rejected, UnknownOutcome},
		{server("57P01"), Unavailable, UnknownOutcome, UnknownOutcome},
		{server("57P05"), Unavailable, UnknownOutcome, UnknownOutcome},
		{server("08006"), Unavailable, UnknownOutcome, UnknownOutcome},
		{server("08P01"), Unavailable, UnknownOutcome, UnknownOutcome},
		{io.ErrUnexpectedEOF, Unavailable, UnknownOutcome, UnknownOutcome},
		{saysSafe{}, Unavailable, UnknownOutcome, UnknownOutcome},
		{context.Canceled, Canceled, UnknownOutcome, UnknownOutcome},
		{context.DeadlineExceeded, Canceled, UnknownOutcome, UnknownOutcome},
		{&Error{Class: Retryable}, Retryable, Retryable, Retryable},
	} {
		require.Equal(t, [3]Class{c.before, c.piped, c.commit},
			[3]Class{ClassifyAt(Before, c.err), ClassifyAt(Piped, c.err), ClassifyAt(Commit, c.err)}, "%v", c.err)
	}
	for c := OK; c <= Rejected; c++ {
		require.NotEqual(t, "no class", c.String())
		require.Equal(t, c != OK && c != UnknownOutcome, c.NotCommitted())
	}
}

// saysSafe is what pgx says of a connection that broke after everything had been sent.
type saysSafe struct{}

func (saysSafe) Error() string     { return "conn closed" }
func (saysSafe) SafeToRetry() bool { return true }

func TestScrub(t *testing.T) {
	secret := "postgres://u:hunter2@db/x"
	own := errors.New("keys: conflict")
	require.NoError(t, Scrub(nil))
	require.Equal(t, own, Scrub(own))
	require.Equal(t, pgx.ErrNoRows, Scrub(pgx.ErrNoRows))
	wrapped := fmt.Errorf("resolve: %w", pgx.ErrNoRows)
	require.Equal(t, wrapped, Scrub(wrapped))

	for _, err := range []error{
		&pgconn.PgError{Code: "23505", Message: secret, Detail: secret, ConstraintName: "keys_hash"},
		fmt.Errorf("%w: %w", own, &pgconn.PgError{Code: "23505", Message: secret}),
		errors.Join(own, fmt.Errorf("insert: %w", &pgconn.PgError{Code: "23505", Message: secret})),
	} {
		got := Scrub(err)
		require.Equal(t, UniqueViolation, Classify(got))
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", got, got, got), "hunter2")
		var raw *pgconn.PgError
		require.False(t, errors.As(got, &raw), "the driver's error is still reachable")
		require.Contains(t, got.Error(), "SQLSTATE 23505")
		require.Same(t, got, Scrub(got))
	}
	require.ErrorIs(t, Scrub(fmt.Errorf("x: %w", context.Canceled)), context.Canceled)
	_, parse := pgx.ParseConfig("postgres://u:hunter2@db:notaport/x")
	require.NotContains(t, ScrubConnect(parse).Error(), "hunter2")
	require.NotContains(t, Scrub(parse).Error(), "hunter2")
}
