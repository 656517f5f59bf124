package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
)

const nodeToken = "node-secret-node-secret"

const at = "authority: {url: https://control.example.com, token: env:NODE}"

// asking is shared, with an authority that it asks.
var asking = shared + "node: gate-1\n" + at + "\n"

func nodeEnv(name string) (string, bool) {
	switch name {
	case "NODE":
		return nodeToken, true
	case "DSN":
		return plainDSN, true
	}
	return env(name)
}

func TestAuthority(t *testing.T) {
	c, err := config.Parse([]byte(asking), "/etc/gateway", nodeEnv)
	require.NoError(t, err)
	require.Equal(t, "gate-1", c.Node)
	require.Equal(t, 5*time.Second, c.Authority.Timeout.Duration)
	token, err := c.Authority.FreshToken()
	require.NoError(t, err)
	require.Equal(t, nodeToken, token)
}

func TestTokensOfNodesAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(nodeToken+"\n"), 0o600))
	c, err := config.Parse([]byte(strings.Replace(asking, "env:NODE", "file:"+path, 1)), "/etc/gateway", nodeEnv)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("another-secret-another"), 0o600))
	token, err := c.Authority.FreshToken()
	require.NoError(t, err)
	require.Equal(t, "another-secret-another", token)
	require.NoError(t, os.Remove(path))
	_, err = c.Authority.FreshToken()
	require.ErrorIs(t, err, config.ErrSecret)
}

func TestAuthorityFaults(t *testing.T) {
	change := func(old, new string) string { return strings.Replace(asking, old, new, 1) }
	for name, c := range map[string]struct{ text, path, why string }{
		"no name":                   {change("node: gate-1", "node: ''"), "node", "missing"},
		"name with spaces":          {change("node: gate-1", "node: the first"), "node", "letters"},
		"plain text":                {change("https://control.example.com", "http://control.example.com"), "authority.url", "plain text"},
		"no URL":                    {change("url: https://control.example.com, ", ""), "authority.url", "missing"},
		"not a URL":                 {change("https://control.example.com", "control"), "authority.url", "must be a URL"},
		"password in it":            {change("https://control", "https://me:hunter2@control"), "authority.url", "token"},
		"query":                     {change("control.example.com,", "control.example.com?a=b,"), "authority.url", "path"},
		"no token":                  {change(", token: env:NODE", ""), "authority.token", "missing"},
		"token in the file":         {change("env:NODE", "hunter2"), "authority.token", "does not stand in this file"},
		"token and certificate":     {change("token: env:NODE", "token: env:NODE, certificate: a.pem, key: b.pem"), "authority.token", "no certificate"},
		"certificate without key":   {change("token: env:NODE", "certificate: a.pem"), "authority.key", "missing"},
		"key that is not there":     {change("token: env:NODE", "certificate: a.pem, key: b.pem"), "authority.key", "does not exist"},
		"endless":                   {change("token: env:NODE", "token: env:NODE, timeout: 2h"), "authority.timeout", "between"},
		"authority of local":        {good + at + "\nnode: a\n", "authority", "node and shared"},
		"name without an authority": {good + "node: a\n", "node", "there is none"},
		"another bound":             {asking + "requests: {bound: guess}\n", "requests.bound", "bytes or context"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse([]byte(c.text), "/etc/gateway", nodeEnv)
			require.ErrorIs(t, err, config.ErrConfig)
			require.Contains(t, err.Error(), c.path+": ")
			require.Contains(t, err.Error(), c.why)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}
