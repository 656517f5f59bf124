// Package child runs upstreams that belong to one gateway: processes of this machine, which it starts, starts again when they
// end, and ends when it ends itself. Where gateways coordinate none is run.
package child

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
)

// ErrCoordinated: gateways that coordinate run no upstreams.
var ErrCoordinated = errors.New("child: the mode " + config.LocalMode)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	steady       = time.Minute     // after which one that ends is started again at once
	grace        = 5 * time.Second // between asking it to end and making it
)

// Children are the processes of a gateway.
type Children struct {
	stop    context.CancelFunc
	running sync.WaitGroup
}

// Launch starts the upstreams that the gateway runs. Their environment has nothing of the gateway's secrets. A gateway that is
// killed leaves them behind.
//
// Errors: ErrCoordinated, whatever the configuration was taken for before; none was started. One that says which program is not there.
func Launch(c *config.Config, logger *slog.Logger) (*Children, error) {
	var local []*config.Upstream
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		if !u.Local() {
			continue
		}
		if c.Coordination != nil {
			return nil, fmt.Errorf("%w: upstream %s", ErrCoordinated, u.Name)
		}
		if _, err := exec.LookPath(u.Command[0]); err != nil {
			return nil, fmt.Errorf("child: the program of upstream %s is not there or cannot be run", u.Name)
		}
		local = append(local, u)
	}
	ctx, stop := context.WithCancel(context.Background())
	out := &Children{stop: stop}
	for _, u := range local {
		out.running.Go(func() { keep(ctx, u, logger) })
	}
	return out, nil
}

// Close ends them, and waits until they have ended.
func (c *Children) Close() {
	c.stop()
	c.running.Wait()
}

// keep runs one until ctx ends.
func keep(ctx context.Context, u *config.Upstream, logger *slog.Logger) {
	pause := firstPause
	for {
		began := time.Now()
		err := run(ctx, u)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= steady {
			pause = firstPause
		}
		logger.Warn("gateway: an upstream that this gateway runs has ended, and is started again", "upstream", u.Name, "error", err, "in", pause)
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		pause = min(2*pause, longestPause)
	}
}

func run(ctx context.Context, u *config.Upstream) error {
	cmd := exec.CommandContext(ctx, u.Command[0], u.Command[1:]...)
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR", "SystemRoot"} {
		if value, is := os.LookupEnv(name); is {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	return cmd.Run()
}
