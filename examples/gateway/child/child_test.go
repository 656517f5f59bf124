//go:build unix

package child_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tallystick-go/tallystick/examples/gateway/child"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience, tick = 20 * time.Second, 2 * time.Millisecond

// shell is a configuration whose upstream is a script.
func shell(script string) *config.Config {
	return &config.Config{Upstreams: []config.Upstream{
		{Name: "elsewhere", Mode: config.Remote},
		{Name: "mine", Mode: config.Subprocess, Command: []string{"sh", "-c", script}},
	}}
}

func lines(path string) []string {
	text, _ := os.ReadFile(path)
	return strings.Fields(string(text))
}

func TestChildrenAreKeptAndEnd(t *testing.T) {
	t.Setenv("PROVIDER_KEY", "sk-secret")
	path := filepath.Join(t.TempDir(), "pids")
	c, err := child.Launch(shell(`[ -z "$PROVIDER_KEY" ] && echo $$ >> `+path+`; exec sleep 1000`), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	started := func(n int) int {
		require.Eventually(t, func() bool { return len(lines(path)) == n }, patience, tick)
		pid, err := strconv.Atoi(lines(path)[n-1])
		require.NoError(t, err)
		return pid
	}
	require.NoError(t, syscall.Kill(started(1), syscall.SIGKILL))
	second := started(2)
	c.Close()
	require.ErrorIs(t, syscall.Kill(second, 0), syscall.ESRCH)
	require.Len(t, lines(path), 2)
}

func TestLaunchIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pids")
	c := shell("echo $$ >> " + path)
	c.Coordination = &config.Coordination{}
	_, err := child.Launch(c, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, child.ErrCoordinated)
	require.ErrorContains(t, err, "mine")
	require.Empty(t, lines(path))
	c = shell("")
	c.Upstreams[1].Command[0] = filepath.Join(t.TempDir(), "nothing")
	_, err = child.Launch(c, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "not there")
}
