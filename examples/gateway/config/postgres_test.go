package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
)

const plainDSN = "postgres://gate:hunter2@db.example.com:5432/tally"

// shared is good, in the profile shared.
var shared = strings.NewReplacer(
	"profile: local", "profile: shared\ntopology_version: \"7\"", "sqlite: data/gateway.db", "postgres: {dsn: env:DSN}",
).Replace(good)

func withDSN(dsn string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name == "DSN" {
			return dsn, true
		}
		return env(name)
	}
}

func TestShared(t *testing.T) {
	c, err := config.Parse([]byte(shared), "/etc/gateway", withDSN(plainDSN))
	require.NoError(t, err)
	dsn, err := c.Storage.Postgres.ConnString()
	require.NoError(t, err)
	require.Equal(t, plainDSN+"?target_session_attrs=read-write", dsn)
	require.Equal(t, "tallystick", c.Storage.Postgres.Schema)
	require.EqualValues(t, 10, c.Storage.Postgres.Connections())
	require.Equal(t, 2*time.Second, c.Storage.Postgres.LockTimeout.Duration)
	require.Equal(t, 5*time.Second, c.Storage.Postgres.CommitTimeout.Duration)
	require.False(t, c.Storage.Postgres.Migrate)
}

// What would let every gateway count for itself is refused, with the reason.
func TestSharedFaults(t *testing.T) {
	change := func(old, new string) string { return strings.Replace(shared, old, new, 1) }
	for name, c := range map[string]struct {
		text, dsn, path, why string
	}{
		"shared on a file":          {change("postgres: {dsn: env:DSN}", "sqlite: gateway.db"), plainDSN, "storage.sqlite", "each admit the whole of every limit"},
		"shared in memory":          {change("postgres: {dsn: env:DSN}", "sqlite: ':memory:'"), plainDSN, "storage.sqlite", "the profile shared needs storage.postgres"},
		"shared nowhere":            {change("postgres: {dsn: env:DSN}", "postgres:"), plainDSN, "storage.postgres", "missing"},
		"both":                      {change("postgres: {dsn: env:DSN}", "postgres: {dsn: env:DSN}\n  sqlite: gateway.db"), plainDSN, "storage.sqlite", "is for the profile local"},
		"local on Postgres":         {strings.Replace(good, "sqlite: data/gateway.db", "postgres: {dsn: env:DSN}", 1), plainDSN, "storage.postgres", "is for the profile shared"},
		"shared with a journal":     {shared + "journal: {file: journal.db}\n", plainDSN, "journal", "could be spent twice"},
		"local with a journal":      {good + "journal: {file: journal.db}\n", plainDSN, "journal", "belongs to the profile node"},
		"policies in files":         {shared + "policies: {files: [a.yaml]}\n", plainDSN, "policies.files", "gateway policies apply"},
		"policy file twice":         {good + "policies: {files: [a.yaml, ./a.yaml]}\n", plainDSN, "policies.files[1]", "twice"},
		"policy file without name":  {good + "policies: {files: ['']}\n", plainDSN, "policies.files[0]", "missing"},
		"no topology version":       {change("topology_version: \"7\"\n", ""), plainDSN, "topology_version", "missing"},
		"topology version in words": {change("\"7\"", "\"the 7th\""), plainDSN, "topology_version", "spaces"},
		"connection string inline":  {change("env:DSN", "postgres://gate:hunter2@db/tally"), "", "storage.postgres.dsn", "does not stand in this file"},
		"no connection string":      {shared, "db.example.com", "storage.postgres.dsn", "is no connection string"},
		"broken connection string":  {shared, "postgres://gate:hunter2@[::1", "storage.postgres.dsn", "is no connection string"},
		"any server":                {shared, plainDSN + "?target_session_attrs=any", "storage.postgres.dsn", "other than read-write"},
		"a standby":                 {shared, "host=db password='hunter2' target_session_attrs = 'prefer-standby'", "storage.postgres.dsn", "other than read-write"},
		"schema":                    {change("{dsn: env:DSN}", "{dsn: env:DSN, schema: 'a\"b'}"), plainDSN, "storage.postgres.schema", "lower-case"},
		"namespace":                 {change("{dsn: env:DSN}", "{dsn: env:DSN, namespace: prod}"), plainDSN, "storage.postgres.namespace", "UUID"},
		"one connection":            {change("{dsn: env:DSN}", "{dsn: env:DSN, max_connections: 1}"), plainDSN, "storage.postgres.max_connections", "between 2 and"},
		"half a connection":         {change("{dsn: env:DSN}", "{dsn: env:DSN, max_connections: 2.5}"), plainDSN, "storage.postgres.max_connections", "whole number"},
		"endless wait":              {change("{dsn: env:DSN}", "{dsn: env:DSN, lock_timeout: 2h}"), plainDSN, "storage.postgres.lock_timeout", "between"},
		"unknown field":             {change("{dsn: env:DSN}", "{dsn: env:DSN, dsn_env: X}"), plainDSN, "storage.postgres.dsn_env", "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse([]byte(c.text), "/etc/gateway", withDSN(c.dsn))
			require.ErrorIs(t, err, config.ErrConfig)
			require.Contains(t, err.Error(), c.path+": ")
			require.Contains(t, err.Error(), c.why)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// An operator's tool need not be able to reach the database.
func TestSharedForAdmin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.NewReplacer("env:ADMIN", "env:GATEWAY_TEST_ADMIN", "env:DSN", "env:GATEWAY_TEST_DSN").Replace(shared)), 0o600))
	t.Setenv("GATEWAY_TEST_ADMIN", "admin-secret")
	c, err := config.LoadForAdmin(path)
	require.NoError(t, err)
	_, err = c.Storage.Postgres.ConnString()
	require.ErrorContains(t, err, "storage.postgres.dsn: the environment variable GATEWAY_TEST_DSN is not set")
}

func TestTopology(t *testing.T) {
	topology := func(change ...string) config.Topology {
		t.Helper()
		c, err := config.Parse([]byte(strings.NewReplacer(change...).Replace(shared)), ".", withDSN(plainDSN))
		require.NoError(t, err)
		return c.Topology()
	}
	as := topology()
	require.Equal(t, "7", as.Version)
	require.Len(t, as.Routes, 2)
	require.Equal(t, as.Digest, topology(`"7"`, "v8", "drain: 5s", "drain: 6s").Digest, "neither the version nor anything else counts")
	require.NotEqual(t, as.Digest, topology("- upstream: main\n      - {upstream: spare, model: gpt-4o-mini}", "- {upstream: spare, model: gpt-4o-mini}\n      - upstream: main").Digest)
	require.NotEqual(t, as.Digest, topology("spare.example.com", "other.example.com").Digest)
}

func TestReadWrite(t *testing.T) {
	for name, c := range map[string][2]string{
		"URL":           {plainDSN, plainDSN + "?target_session_attrs=read-write"},
		"URL, more":     {plainDSN + "?sslmode=disable", plainDSN + "?sslmode=disable&target_session_attrs=read-write"},
		"URL, said":     {plainDSN + "?target_session_attrs=read-write", plainDSN + "?target_session_attrs=read-write"},
		"several hosts": {"postgresql://a:1,b:2/tally", "postgresql://a:1,b:2/tally?target_session_attrs=read-write"},
		"pairs":         {"host=db password='a b\\'c'", "target_session_attrs=read-write host=db password='a b\\'c'"},
		"pairs, said":   {"target_session_attrs='read-write' host=db", "target_session_attrs='read-write' host=db"},
	} {
		got, err := config.ReadWrite(c[0])
		require.NoError(t, err, name)
		require.Equal(t, c[1], got, name)
	}
}

// Whatever is accepted says the same as before, and that it wants a server to write to.
func FuzzReadWrite(f *testing.F) {
	for _, seed := range []string{
		plainDSN, plainDSN + "?sslmode=disable", "host=db user=x password='a \\' b' port=5433", "host=db target_session_attrs=any", "postgres://[::1", "a=b c", "host='x",
		`password='target_session_attrs=any' host=db`, "postgresql://u:%20p@h1:1,h2:2/d?target_session_attrs=read-write",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		if strings.Contains(dsn, "service") || strings.Contains(dsn, "passfile") || strings.Contains(dsn, "ssl") || strings.Contains(dsn, "krb") || strings.Contains(dsn, "host=") && strings.Contains(dsn, "/") {
			return // reads files
		}
		out, err := config.ReadWrite(dsn)
		if err != nil {
			return
		}
		was, errBefore := pgconn.ParseConfig(dsn)
		is, errAfter := pgconn.ParseConfig(out)
		if (errBefore == nil) != (errAfter == nil) {
			t.Fatalf("readable before: %v, after: %v", errBefore, errAfter)
		}
		if errBefore != nil {
			return
		}
		if is.ValidateConnect == nil {
			t.Fatal("any server will do")
		}
		if was.Host != is.Host || was.Port != is.Port || was.User != is.User || was.Password != is.Password || was.Database != is.Database {
			t.Fatalf("%q became %q", dsn, out)
		}
	})
}
