package server

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
)

// TestWhatIsSharedIsSaid: /api/system tells what is a gateway's own and what all share, in every profile, and the comments of the
// configuration name each of it.
func TestWhatIsSharedIsSaid(t *testing.T) {
	text, err := os.ReadFile("../shared.yaml")
	require.NoError(t, err)
	comments := strings.Join(strings.Fields(strings.ReplaceAll(string(text), "#", " ")), " ")
	head := func(item string) string { // what it is, without what is said of it
		what, _, _ := strings.Cut(item, ":")
		what, _, _ = strings.Cut(what, ",")
		return what
	}
	server := func(profile string, c *config.Coordination, modes ...string) *Server {
		out := &Server{Config: &config.Config{Profile: profile, Coordination: c}}
		for _, mode := range modes {
			out.Config.Upstreams = append(out.Config.Upstreams, config.Upstream{Mode: mode})
		}
		return out
	}
	one := server(config.Shared, &config.Coordination{Audit: &config.Audit{Folder: "audit", Calls: true}}, config.Remote)
	alone := server(config.Shared, nil, config.Remote, config.Subprocess)
	for _, s := range []*Server{one, alone} {
		for _, item := range append(s.local(), s.shared()...) {
			require.True(t, strings.Contains(comments, head(item)), "shared.yaml does not say whose it is: %s", item)
		}
	}
	has := func(items []string, what string) bool {
		for _, item := range items {
			if head(item) == what {
				return true
			}
		}
		return false
	}
	for _, what := range []string{"suspensions", "registered upstreams", "leases", "event log"} {
		require.True(t, has(one.shared(), what), what)
		require.False(t, has(alone.shared(), what), what)
	}
	for _, what := range []string{"catalogue", "failed attempts", "cached principals"} {
		for _, profile := range []string{config.Local, config.Node, config.Shared} {
			require.True(t, has(server(profile, nil).local(), what), "%s: %s", profile, what)
		}
	}
	require.True(t, has(alone.local(), "child processes"))
	require.False(t, has(one.local(), "child processes"))
	require.True(t, has(one.local(), "audit file"))
	require.True(t, has(server(config.Node, nil).local(), "journal"))
	require.Empty(t, server(config.Local, nil).shared())
}
