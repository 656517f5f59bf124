package command_test

import (
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
)

const (
	gate = `
apiVersion: tallystick.dev/v1alpha1
kind: GovernancePolicy
metadata: {name: quota}
spec:
  subject: {team: acme}
  rules:
    - {name: month, failurePolicy: FailClosed, tokenQuota: {limitTokens: 1000000, period: month}}
`
	allow = `
apiVersion: tallystick.dev/v1alpha1
kind: GovernancePolicy
metadata: {name: models}
spec:
  subject: {team: acme}
  rules:
    - {name: few, failurePolicy: FailClosed, modelAccess: {allow: [demo-small]}}
`
)

// In the profile local policies come from files: at the start, and with every SIGHUP.
func TestPolicyFiles(t *testing.T) {
	t.Setenv("ADMIN", "admin-secret")
	t.Setenv("KEY", "sk-provider")
	p := newPlace(t)
	p.append("policies: {files: [policies.yaml]}\n")
	write := func(text string) { require.NoError(t, os.WriteFile(p.path("policies.yaml"), []byte(text), 0o600)) }
	status, _, errs := run(t, "serve", "-config", p.path("gateway.yaml"))
	require.Equal(t, 1, status)
	require.Contains(t, errs, "policies.yaml: no such file")
	write(gate + "    - {name: month, failurePolicy: FailOpen, rate: {rpm: 1}}\n")
	status, _, errs = run(t, "serve", "-check", "-config", p.path("gateway.yaml"))
	require.Equal(t, 1, status)
	require.Contains(t, errs, "documents[0].spec.rules[1].name")

	write(gate)
	c := p.serve()
	operate[map[string]any](t, append([]string{"teams", "create", "-id", "acme"}, c.over()...)...)
	key := operate[admin.NewKey](t, append([]string{"keys", "create", "-id", "app", "-team", "acme"}, c.over()...)...)
	client := c.openai(key.Token)
	call := func() error {
		_, err := client.Chat.Completions.New(t.Context(), chat("hello"))
		return err
	}
	require.ErrorContains(t, call(), "gated")
	_, out, _ := run(t, append([]string{"status"}, c.over()...)...)
	require.Regexp(t, "GATED +team acme +by quota", out)
	_, out, _ = run(t, append([]string{"policies", "list"}, c.over()...)...)
	require.Regexp(t, "NOT ENFORCED +quota month", out)
	status, _, errs = run(t, append([]string{"policies", "delete", "quota"}, c.over()...)...)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "policies_from_files")
	status, _, errs = run(t, "policies", "list", "-sqlite", p.path("gateway.db"))
	require.Equal(t, 1, status)
	require.Contains(t, errs, "in the files")

	write("[")
	require.NoError(t, c.Process.Signal(syscall.SIGHUP))
	resp, err := http.Get(c.clients + "/readyz") // it goes on
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.ErrorContains(t, call(), "gated")
	write(allow)
	require.Eventually(t, func() bool { // signals of one kind that come together are one
		require.NoError(t, c.Process.Signal(syscall.SIGHUP))
		return call() == nil
	}, 10*time.Second, 5*time.Millisecond)
	c.stop()
	said := c.errors.String()
	require.Contains(t, said, "everybody whom a policy is about is refused")
	require.Contains(t, said, "the policies stay as they were")
	require.Contains(t, said, "the policies were read again")
}
