package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
)

const good = `
profile: local
listen: 127.0.0.1:8080
admin:
  listen: 127.0.0.1:8081
  token: env:ADMIN
storage:
  sqlite: data/gateway.db
upstreams:
  - name: main
    protocol: openai
    base_url: https://api.example.com/v1/
    credential: env:KEY
    models: [gpt-4o, gpt-4o-mini]
  - name: spare
    protocol: openai
    base_url: https://spare.example.com
    credential: env:KEY
    models: [gpt-4o-mini]
routes:
  - model: gpt-4o-mini
    attempts:
      - upstream: main
      - {upstream: spare, model: gpt-4o-mini}
timeouts:
  drain: 5s
`

func before(text, word string) string {
	head, _, _ := strings.Cut(text, word)
	return head
}

func env(name string) (string, bool) {
	value, ok := map[string]string{"ADMIN": "admin-secret", "KEY": "provider-secret", "EMPTY": "", "TWO": "one\ntwo"}[name]
	return value, ok
}

func TestParse(t *testing.T) {
	c, err := config.Parse([]byte(good), "/etc/gateway", env)
	require.NoError(t, err)
	require.Equal(t, "/etc/gateway/data/gateway.db", c.Storage.SQLite, "relative to the file")
	require.Equal(t, "https://api.example.com", c.Upstreams[0].URL.String(), "/v1 is the gateway's to add")
	require.Equal(t, "provider-secret", c.Upstreams[0].Credential.Reveal())
	require.Equal(t, 5*time.Second, c.Timeouts.Drain.Duration)
	require.Equal(t, time.Minute, c.Timeouts.ReadBody.Duration, "what is not said has its default")
	require.Equal(t, []config.Route{
		{Model: "gpt-4o-mini", Attempts: []config.Attempt{{Upstream: "main", Model: "gpt-4o-mini"}, {Upstream: "spare", Model: "gpt-4o-mini"}}},
		{Model: "gpt-4o", Attempts: []config.Attempt{{Upstream: "main", Model: "gpt-4o"}}},
	}, c.Routes, "a model that one upstream serves needs no route")
	for _, printed := range []string{fmt.Sprint(*c), fmt.Sprintf("%+v", *c), fmt.Sprintf("%#v", *c)} {
		require.NotContains(t, printed, "secret")
	}
}

func TestRegionsAndGuardrails(t *testing.T) {
	const bedrock = `
  - name: aws
    protocol: bedrock
    base_url: https://bedrock-runtime.us-east-1.amazonaws.com
    credential: env:KEY
    region: us-east-1
    guardrails: {strict: {identifier: abc123, version: "7"}}
    models: ["us.anthropic.claude-x-v1:0", claude-y]
routes:
  - model: claude
    attempts:
      - {upstream: aws, model: "us.anthropic.claude-x-v1:0"}
      - {upstream: aws, model: "us.anthropic.claude-x-v1:0", guardrail: strict}
      - {upstream: aws, model: "us.anthropic.claude-x-v1:0", region: eu-west-1}
`
	c, err := config.Parse([]byte(strings.Replace(good, "\nroutes:\n", bedrock, 1)), "/etc/gateway", env)
	require.NoError(t, err)
	const model = "us.anthropic.claude-x-v1:0"
	require.Equal(t, config.Route{Model: "claude", Attempts: []config.Attempt{
		{Upstream: "aws", Model: model, Region: "us-east-1"}, {Upstream: "aws", Model: model, Region: "us-east-1", Guardrail: "strict"},
		{Upstream: "aws", Model: model, Region: "eu-west-1"},
	}}, c.Routes[0])
	require.Contains(t, c.Routes, config.Route{Model: "claude-y", Attempts: []config.Attempt{{Upstream: "aws", Model: "claude-y", Region: "us-east-1"}}}, "a route that is not written has the region too")
	require.Equal(t, config.Guardrail{Identifier: "abc123", Version: "7"}, c.Upstreams[2].Guardrails["strict"])

	_, err = config.Parse([]byte(strings.Replace(good, "\nroutes:\n", strings.Replace(bedrock, "guardrail: strict", "guardrail: lax", 1), 1)), "/etc/gateway", env)
	require.ErrorContains(t, err, "routes[0].attempts[1].guardrail: the upstream aws does not list this guardrail")
}

func TestLoadForAdmin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(good, "env:ADMIN", "env:GATEWAY_TEST_ADMIN", 1)), 0o600))
	t.Setenv("GATEWAY_TEST_ADMIN", "admin-secret")
	_, err := config.Load(path)
	require.ErrorIs(t, err, config.ErrSecret)
	c, err := config.LoadForAdmin(path)
	require.NoError(t, err)
	require.Equal(t, "admin-secret", c.Admin.Token.Reveal())
	require.Empty(t, c.Upstreams[0].Credential.Reveal())
}

func TestExampleFile(t *testing.T) {
	t.Setenv("TALLYSTICK_ADMIN_TOKEN", "a")
	t.Setenv("OPENAI_API_KEY", "b")
	t.Setenv("ANTHROPIC_API_KEY", "c")
	t.Setenv("TALLYSTICK_POSTGRES", plainDSN)
	t.Setenv("TALLYSTICK_NODE_TOKEN", nodeToken)
	for _, file := range []string{"../gateway.yaml", "../node.yaml", "../shared.yaml"} {
		c, err := config.Load(file)
		require.NoError(t, err)
		require.NotEmpty(t, c.Routes)
	}
	documents, err := config.ReadPolicies([]string{"../policies.yaml"})
	require.NoError(t, err)
	require.Len(t, documents, 2)
}

// Every fault is a typed error with the path of what is wrong, and nothing of the
// file's text is repeated.
func TestFaults(t *testing.T) {
	change := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for name, c := range map[string]struct {
		text, path, why string
	}{
		"unknown field":            {change("listen:", "lisen:"), "lisen", "unknown field"},
		"unknown nested field":     {change("base_url: https://spare", "base_uri: https://spare"), "upstreams[1].base_uri", "unknown field"},
		"unknown field in a flow":  {change("{upstream: spare, model", "{upstream: spare, modell"), "routes[0].attempts[1].modell", "unknown field"},
		"field twice":              {good + "listen: 127.0.0.1:1\n", "listen", "twice"},
		"wrong type":               {change("drain: 5s", "drain: [5s]"), "timeouts.drain", ""},
		"no duration":              {change("drain: 5s", "drain: soon"), "timeouts.drain", ""},
		"negative duration":        {change("drain: 5s", "drain: -5s"), "timeouts.drain", "between"},
		"negative size":            {good + "requests: {max_body_bytes: -1}\n", "requests.max_body_bytes", "between"},
		"overflowing size":         {good + "requests: {max_body_bytes: 99999999999999999999}\n", "requests.max_body_bytes", ""},
		"no YAML":                  {"profile: [", "$", ""},
		"a list":                   {"- a", "$", ""},
		"two documents":            {good + "---\n" + good, "$", "one document"},
		"empty":                    {"", "upstreams", "between 1 and"},
		"unknown profile":          {change("profile: local", "profile: cloud"), "profile", "local, node or shared"},
		"no port":                  {change("listen: 127.0.0.1:8080", "listen: 127.0.0.1"), "listen", "host:port"},
		"port out of range":        {change("listen: 127.0.0.1:8080", "listen: 127.0.0.1:70000"), "listen", "port"},
		"same address twice":       {change("listen: 127.0.0.1:8081", "listen: 127.0.0.1:8080"), "admin.listen", "another address"},
		"admin for everybody":      {change("listen: 127.0.0.1:8081", "listen: 0.0.0.0:8081"), "admin.listen", "allow_plaintext"},
		"no database":              {change("  sqlite: data/gateway.db", "  sqlite: ''"), "storage.sqlite", "missing"},
		"database in memory":       {change("data/gateway.db", "':memory:'"), "storage.sqlite", "memory"},
		"database with settings":   {change("data/gateway.db", "gateway.db?mode=ro"), "storage.sqlite", "plain path"},
		"no upstreams":             {before(good, "upstreams:"), "upstreams", "between 1 and"},
		"upstream without name":    {change("name: spare", "name: ''"), "upstreams[1].name", "missing"},
		"name with control":        {change("name: spare", `name: "a\u0007b"`), "upstreams[1].name", "control"},
		"long name":                {change("name: spare", "name: "+strings.Repeat("x", 129)), "upstreams[1].name", "longer"},
		"name twice":               {change("name: spare", "name: main"), "upstreams[1].name", "this name"},
		"unknown protocol":         {change("protocol: openai", "protocol: grpc"), "upstreams[0].protocol", "openai, anthropic or bedrock"},
		"no URL":                   {change("https://spare.example.com", "spare"), "upstreams[1].base_url", "URL"},
		"other scheme":             {change("https://spare", "ftp://spare"), "upstreams[1].base_url", "URL"},
		"plain text":               {change("https://spare", "http://spare"), "upstreams[1].base_url", "allow_plaintext"},
		"URL with password":        {change("https://spare", "https://user:hunter2@spare"), "upstreams[1].base_url", "credential"},
		"URL with query":           {change("spare.example.com", "spare.example.com?key=hunter2"), "upstreams[1].base_url", "query"},
		"no models":                {change("models: [gpt-4o-mini]", "models: []"), "upstreams[1].models", "at least one"},
		"model twice":              {change("[gpt-4o, gpt-4o-mini]", "[gpt-4o, gpt-4o]"), "upstreams[0].models[1]", "twice"},
		"route to nowhere":         {change("- upstream: main", "- upstream: gone"), "routes[0].attempts[0].upstream", "no upstream"},
		"model not served":         {change("model: gpt-4o-mini}", "model: gpt-5}"), "routes[0].attempts[1].model", "does not list"},
		"route twice":              {change("timeouts:", "  - model: gpt-4o-mini\n    attempts: [{upstream: main}]\ntimeouts:"), "routes[1].model", "another route"},
		"attempt twice":            {change("upstream: spare, model", "upstream: main, model"), "routes[0].attempts[1]", "twice"},
		"no attempts":              {change("timeouts:", "  - model: gpt-4o\n    attempts: []\ntimeouts:"), "routes[1].attempts", "between 1 and"},
		"two protocols":            {change("protocol: openai\n    base_url: https://spare", "protocol: anthropic\n    base_url: https://spare"), "routes[0].attempts[1].upstream", "one protocol"},
		"ambiguous model":          {change("routes:\n  - model: gpt-4o-mini\n    attempts:\n      - upstream: main\n      - {upstream: spare, model: gpt-4o-mini}", ""), "routes", "main and spare"},
		"output field":             {change("name: main", "name: main\n    output_field: tokens"), "upstreams[0].output_field", "max_tokens"},
		"output field of Bedrock":  {change("protocol: openai\n    base_url: https://spare", "protocol: bedrock\n    output_field: max_tokens\n    base_url: https://spare"), "upstreams[1]", "for the protocol openai"},
		"region with spaces":       {change("name: main", "name: main\n    region: 'us east'"), "upstreams[0].region", "spaces"},
		"guardrails elsewhere":     {change("name: main", "name: main\n    guardrails: {strict: {identifier: a, version: '1'}}"), "upstreams[0].guardrails", "are Bedrock's"},
		"guardrail without more":   {change("protocol: openai\n    base_url: https://spare", "protocol: bedrock\n    guardrails: {strict: {identifier: a}}\n    base_url: https://spare"), "upstreams[1].guardrails.strict.version", "missing"},
		"attempt in no region":     {change("upstream: spare, model", "upstream: spare, region: 'a b', model"), "routes[0].attempts[1].region", "spaces"},
		"attempt behind no name":   {change("upstream: spare, model", "upstream: spare, guardrail: 'a b', model"), "routes[0].attempts[1].guardrail", "spaces"},
		"aliases without a file":   {good + "prices: {aliases: {a: b}}\n", "prices.file", "missing"},
		"token prefix":             {good + "keys: {prefixes: [no-underscore]}\n", "keys", "underscore"},
		"inline secret":            {change("token: env:ADMIN", "token: hunter2"), "admin.token", "does not stand in this file"},
		"inline secret of a kind":  {change("credential: env:KEY", "credential: 'vault:hunter2'"), "upstreams[0].credential", "does not stand in this file"},
		"no secret":                {change("    credential: env:KEY\n", ""), "upstreams[0].credential", "missing"},
		"unset variable":           {change("env:ADMIN", "env:NOT_THERE"), "admin.token", "NOT_THERE is not set"},
		"empty variable":           {change("env:ADMIN", "env:EMPTY"), "admin.token", "empty"},
		"variable with two lines":  {change("env:ADMIN", "env:TWO"), "admin.token", "characters"},
		"admin without a token":    {change("  token: env:ADMIN\n", ""), "admin.token", "missing"},
		"secret file that is gone": {change("env:ADMIN", "file:/does/not/exist"), "admin.token", "does not exist"},
		"secret that is a folder":  {change("env:ADMIN", "file:/"), "admin.token", "not a file"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := config.Parse([]byte(c.text), "/etc/gateway", env)
			require.Nil(t, got)
			require.ErrorIs(t, err, config.ErrConfig)
			require.Contains(t, err.Error(), c.path+": ", "the error names the path")
			require.Contains(t, err.Error(), c.why)
			require.NotContains(t, err.Error(), "hunter2")
			require.NotContains(t, err.Error(), "provider-secret")
		})
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	text := strings.NewReplacer("protocol: openai", "protocol: x", "env:ADMIN", "env:NOPE", "drain: 5s", "drain: 0s").Replace(good)
	_, err := config.Parse([]byte(text), ".", env)
	for _, path := range []string{"upstreams[0].protocol", "upstreams[1].protocol", "admin.token", "timeouts.drain"} {
		require.ErrorContains(t, err, path)
	}
}

func TestSecretFiles(t *testing.T) {
	folder := t.TempDir()
	write := func(name, value string, mode os.FileMode) {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(value), 0o600))
		require.NoError(t, os.Chmod(path, mode))
	}
	write("good", "file-secret\n", 0o600)
	write("group", "file-secret", 0o640)
	write("world", "file-secret", 0o604)
	write("huge", strings.Repeat("x", 70000), 0o600)
	write("empty", "\n", 0o400)
	s, err := config.ReadSecret("admin.token", "file:good", folder, env)
	require.NoError(t, err)
	require.Equal(t, "file-secret", s.Reveal())
	for name, why := range map[string]string{"group": "chmod 600", "world": "chmod 600", "huge": "larger", "empty": "empty", "gone": "does not exist"} {
		_, err := config.ReadSecret("admin.token", "file:"+name, folder, env)
		require.ErrorIs(t, err, config.ErrSecret, name)
		require.ErrorIs(t, err, config.ErrConfig, name)
		require.ErrorContains(t, err, why)
		require.NotContains(t, err.Error(), "file-secret")
	}
	if os.Geteuid() != 0 {
		write("mine", "file-secret", 0o000)
		_, err := config.ReadSecret("admin.token", "file:mine", folder, env)
		require.ErrorContains(t, err, "cannot be read by this user")
	}
}

func TestLoad(t *testing.T) {
	folder := t.TempDir()
	_, err := config.Load(filepath.Join(folder, "gone.yaml"))
	require.ErrorIs(t, err, config.ErrConfig)
	big := filepath.Join(folder, "big.yaml")
	require.NoError(t, os.WriteFile(big, []byte(strings.Repeat("#", 1<<20+1)), 0o600))
	_, err = config.Load(big)
	require.ErrorContains(t, err, "1 MiB")
	_, err = config.Load(folder)
	require.ErrorIs(t, err, config.ErrConfig)
}
