package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
)

const coordinated = `
profile: shared
topology_version: "1"
storage: {postgres: {dsn: env:DSN}}
upstreams:
  - {name: main, protocol: openai, base_url: "https://api.example.com", credential: env:KEY, models: [gpt-4o]}
coordination:
  tenure: 6s
  fleet: {discover: fleet.json, credentials: {inference: env:KEY}}
  audit: {folder: audit, calls: true}
`

func sharedEnv(name string) (string, bool) {
	if name == "DSN" {
		return "postgres://gate@127.0.0.1/tally", true
	}
	return env(name)
}

func TestCoordination(t *testing.T) {
	c, err := config.Parse([]byte(coordinated), "/etc/gateway", sharedEnv)
	require.NoError(t, err)
	o := c.Coordination
	require.Equal(t, 6*time.Second, o.Tenure.Duration)
	require.Equal(t, 250*time.Millisecond, o.Tail.Duration, "what is not said has its default")
	require.Equal(t, "/etc/gateway/audit", o.Audit.Folder)
	require.Equal(t, "/etc/gateway/fleet.json", o.Fleet.Discover)
	inference := o.Fleet.Credentials["inference"]
	require.Equal(t, "provider-secret", inference.Reveal())
	require.NotContains(t, fmt.Sprintf("%+v", *o), "provider-secret")

	empty, _, _ := strings.Cut(coordinated, "coordination:")
	c, err = config.Parse([]byte(empty), ".", sharedEnv)
	require.NoError(t, err)
	require.Nil(t, c.Coordination, "sharing a database is not yet being one")
	c, err = config.Parse([]byte(empty+"coordination: {}\n"), ".", sharedEnv)
	require.NoError(t, err)
	require.Equal(t, 15*time.Second, c.Coordination.Tenure.Duration)
}

// TestCoordinationIsRefused: gateways that cannot see one another would each find that all is well.
func TestCoordinationIsRefused(t *testing.T) {
	const webhook = "{webhook: {url: https://siem.example.com/in}}"
	for name, c := range map[string]struct{ text, path, why string }{
		"a file":                  {good + "coordination: {}\n", "coordination", "cannot be shared"},
		"a node's file":           {strings.Replace(good, "profile: local", "profile: node", 1) + "coordination: {}\n", "coordination", "profile node cannot be shared"},
		"no storage":              {strings.Replace(good, "storage:\n  sqlite: data/gateway.db\n", "coordination: {}\n", 1), "coordination", "no storage was chosen"},
		"no storage, and shared":  {strings.Replace(coordinated, "storage: {postgres: {dsn: env:DSN}}\n", "", 1), "coordination", "no storage was chosen"},
		"a process of its own":    {strings.Replace(coordinated, "models: [gpt-4o]", "models: [gpt-4o], mode: subprocess, command: [llama]", 1), "upstreams[0].mode", "which one gateway runs"},
		"a tenure of nothing":     {strings.Replace(coordinated, "tenure: 6s", "tenure: 1ms", 1), "coordination.tenure", "between"},
		"no place to export to":   {strings.Replace(coordinated, "folder: audit, ", "", 1), "coordination.audit", "a folder or a webhook"},
		"two places to export to": {strings.Replace(coordinated, "folder: audit", "folder: audit, webhook: {url: https://siem.example.com}", 1), "coordination.audit", "not both"},
		"events in plain text":    {strings.Replace(coordinated, "{folder: audit, calls: true}", strings.Replace(webhook, "https", "http", 1), 1), "coordination.audit.webhook.url", "plain text"},
		"a secret in the file":    {strings.Replace(coordinated, "inference: env:KEY", "inference: sk-123", 1), "coordination.fleet.credentials.inference", "does not stand in this file"},
		"an unknown mode":         {strings.Replace(good, "    protocol: openai\n", "    protocol: openai\n    mode: docker\n", 1), "upstreams[0].mode", "remote or subprocess"},
		"a command for a remote":  {strings.Replace(good, "    protocol: openai\n", "    protocol: openai\n    command: [llama]\n", 1), "upstreams[0].command", "mode alone"},
		"a subprocess elsewhere":  {strings.Replace(good, "    protocol: openai\n", "    protocol: openai\n    mode: subprocess\n    command: [llama]\n", 1), "upstreams[0].base_url", "on this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse([]byte(c.text), ".", sharedEnv)
			require.ErrorIs(t, err, config.ErrConfig)
			require.Contains(t, err.Error(), c.path+": ")
			require.Contains(t, err.Error(), c.why)
			require.NotContains(t, err.Error(), "sk-123")
		})
	}
	_, err := config.Parse([]byte(strings.Replace(coordinated, "{folder: audit, calls: true}", webhook, 1)), ".", sharedEnv)
	require.NoError(t, err)
}

func TestCheckRegistered(t *testing.T) {
	u := config.Upstream{Name: "gpu-1", Protocol: config.OpenAI, BaseURL: "https://gpu-1.example.com/v1", Models: []string{"llama"}}
	require.NoError(t, config.CheckRegistered(&u))
	require.Equal(t, "https://gpu-1.example.com", u.URL.String())
	err := config.CheckRegistered(&config.Upstream{Name: "a b", Protocol: "smtp", BaseURL: "http://gpu-1.example.com"})
	for _, path := range []string{"name", "protocol", "base_url", "models"} {
		require.Contains(t, err.Error(), "config: "+path+": ")
	}
}
