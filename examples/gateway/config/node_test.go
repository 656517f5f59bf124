package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
)

// node is the profile node: its own file, and an authority for its budgets.
var node = strings.Replace(good, "profile: local", "profile: node", 1) + "node: gate-1\n" + at + "\n"

func TestNode(t *testing.T) {
	c, err := config.Parse([]byte(node), "/etc/gateway", nodeEnv)
	require.NoError(t, err)
	require.Equal(t, config.Node, c.Profile)
	require.Equal(t, "/etc/gateway/data/gateway.db", c.Storage.SQLite)
	require.Equal(t, config.BoundByContext, c.Requests.Bound, "hard budgets are bounded by the context window")
	require.Equal(t, 5*time.Second, c.Authority.Timeout.Duration)
	require.Equal(t, 10*time.Second, c.Authority.Farewell.Duration)
	c, err = config.Parse([]byte(node+"requests: {bound: bytes}\n"), "/etc/gateway", nodeEnv)
	require.NoError(t, err)
	require.Equal(t, config.BoundByBytes, c.Requests.Bound)
}

func TestNodeFaults(t *testing.T) {
	change := func(old, new string) string { return strings.Replace(node, old, new, 1) }
	for name, c := range map[string]struct{ text, path, why string }{
		"no authority":      {change(at, ""), "authority", "what an authority grants it"},
		"no name":           {change("node: gate-1\n", ""), "node", "missing"},
		"no file":           {change("  sqlite: data/gateway.db", "  sqlite: ''"), "storage.sqlite", "missing"},
		"file in memory":    {change("data/gateway.db", "':memory:'"), "storage.sqlite", "memory"},
		"lock of a file":    {change("data/gateway.db", "data/gateway.db.lock"), "storage.sqlite", "lies beside"},
		"Postgres":          {change("  sqlite: data/gateway.db", "  sqlite: a.db\n  postgres: {dsn: env:DSN}"), "storage.postgres", "its authority has the database"},
		"policies in files": {node + "policies: {files: [policies.yaml]}\n", "policies.files", "controlplane policies apply"},
		"journal elsewhere": {node + "journal: {file: journal.db}\n", "journal", "commit as one"},
		"endless farewell":  {change("token: env:NODE", "token: env:NODE, farewell: 1h"), "authority.farewell", "between"},
		"no beat":           {change("token: env:NODE", "token: env:NODE, timeout: 1us"), "authority.timeout", "between"},
		"plain text":        {change("https://control", "http://control"), "authority.url", "plain text"},
		"farewell, shared":  {strings.Replace(asking, "token: env:NODE", "token: env:NODE, farewell: 1s", 1), "authority.farewell", "for the profile node"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse([]byte(c.text), "/etc/gateway", nodeEnv)
			require.ErrorIs(t, err, config.ErrConfig)
			require.Contains(t, err.Error(), c.path+": ")
			require.Contains(t, err.Error(), c.why)
		})
	}
}
