package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
)

const controlPlane = `
listen: 127.0.0.1:8082
admin: {listen: 127.0.0.1:8083, token: env:ADMIN}
storage: {postgres: {dsn: env:DSN}}
nodes:
  - {name: node-1, token: env:ONE, next_token: env:TWO}
  - {name: node-2, token: env:THREE}
grants: {ttl: 30s}
`

func secretsOf(name string) (string, bool) {
	value, ok := map[string]string{
		"ADMIN": "admin-secret", "DSN": "postgres://tally@localhost/tally", "ONE": "one-one-one-one-one", "TWO": "two-two-two-two-two", "THREE": "three-three-three",
	}[name]
	return value, ok
}

func TestControlPlane(t *testing.T) {
	c, err := config.ParseControlPlane([]byte(controlPlane), t.TempDir(), secretsOf)
	require.NoError(t, err)
	require.Equal(t, "node-1", c.Nodes[0].Name)
	require.Equal(t, "two-two-two-two-two", c.Nodes[0].NextToken.Reveal())
	require.Equal(t, 30*time.Second, c.Grants.TTL.Duration)
	require.Equal(t, 5*time.Second, c.Timeouts.Storage.Duration)
	dsn, err := c.Storage.Postgres.ConnString()
	require.NoError(t, err)
	require.Contains(t, dsn, "read-write")
}

func TestTheShippedControlPlaneCanBeUsed(t *testing.T) {
	t.Setenv("TALLYSTICK_ADMIN_TOKEN", "admin-secret")
	t.Setenv("TALLYSTICK_POSTGRES", "postgres://tally@localhost/tally")
	t.Setenv("TALLYSTICK_NODE_1", "one-one-one-one-one")
	t.Setenv("TALLYSTICK_NODE_2", "two-two-two-two-two")
	_, err := config.LoadControlPlane("../../controlplane/controlplane.yaml")
	require.NoError(t, err)
}

func TestControlPlaneForAdminNeedsNoTokensOfNodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "controlplane.yaml")
	require.NoError(t, os.WriteFile(path, []byte(controlPlane), 0o600))
	t.Setenv("ADMIN", "admin-secret")
	_, err := config.LoadControlPlane(path)
	require.ErrorIs(t, err, config.ErrSecret)
	c, err := config.LoadControlPlaneForAdmin(path)
	require.NoError(t, err)
	require.Equal(t, "admin-secret", c.Admin.Token.Reveal())
}

func TestControlPlaneSaysWhatIsWrong(t *testing.T) {
	const rest = "storage: {postgres: {dsn: env:DSN}}\nnodes: [{name: a, token: env:ONE}]\n"
	for document, path := range map[string]string{
		"nodes: [{name: a, token: env:ONE}]":                                                                 "storage.postgres",
		"storage: {postgres: {dsn: env:DSN}}":                                                                "nodes",
		"storage: {postgres: {dsn: env:DSN}}\nnodes: [{token: env:ONE}]":                                     "nodes[0].name",
		"storage: {postgres: {dsn: env:DSN}}\nnodes: [{name: a b, token: env:ONE}]":                          "nodes[0].name",
		"storage: {postgres: {dsn: env:DSN}}\nnodes: [{name: a, token: env:ONE}, {name: a, token: env:ONE}]": "nodes[1].name",
		"storage: {postgres: {dsn: env:DSN}}\nnodes: [{name: a}]":                                            "nodes[0].token",
		"storage: {postgres: {dsn: env:DSN}}\nnodes: [{name: a, token: secret}]":                             "nodes[0].token",
		"storage: {postgres: {dsn: env:DSN}}\nnodes: [{name: a, token: env:NONE}]":                           "nodes[0].token",
		rest + "listen: 0.0.0.0:8082":                                                                        "tls",
		rest + "listen: control":                                                                             "listen",
		rest + "tls: {client_ca: ca.pem}":                                                                    "tls.client_ca",
		rest + "tls: {certificate: missing.pem}":                                                             "tls.key",
		rest + "tls: {key: missing.pem}":                                                                     "tls.certificate",
		rest + "admin: {listen: 0.0.0.0:1, token: env:ADMIN}":                                                "admin.listen",
		rest + "grants: {ttl: 1ms}":                                                                          "grants.ttl",
		rest + "timeouts: {storage: never}":                                                                  "timeouts.storage",
		rest + "timeouts: {request: 1s}":                                                                     "timeouts.request",
		rest + "upstreams: []":                                                                               "upstreams",
		"listen: 0.0.0.0:1\nallow_plaintext: maybe\n" + rest:                                                 "allow_plaintext",
	} {
		_, err := config.ParseControlPlane([]byte(document), t.TempDir(), secretsOf)
		require.ErrorIs(t, err, config.ErrConfig, document)
		found := false
		var walk func(error)
		walk = func(err error) {
			var field *config.FieldError
			var secret *config.SecretError
			switch {
			case errors.As(err, &field) && field.Path == path, errors.As(err, &secret) && secret.Path == path:
				found = true
			}
			if many, is := err.(interface{ Unwrap() []error }); is {
				for _, one := range many.Unwrap() {
					walk(one)
				}
			}
		}
		walk(err)
		require.True(t, found, "%s\n%v", document, err)
	}
	_, err := config.ParseControlPlane([]byte(rest+"listen: 0.0.0.0:8082\nallow_plaintext: true"), t.TempDir(), secretsOf)
	require.NoError(t, err)
}
