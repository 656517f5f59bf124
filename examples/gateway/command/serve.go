package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/demo"
	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/examples/gateway/server"
	"github.com/tallystick-go/tallystick/examples/operator"
	"github.com/tallystick-go/tallystick/governance/governancepg"
)

func (p Process) serve(ctx context.Context, o operator.Process, args []string) (err error) {
	set := o.Flags("serve", "")
	file := set.String("config", "", "the configuration `file`")
	migrate := set.Bool("migrate", false, "create and update the tables of a Postgres before serving; those of a file always are")
	check := set.Bool("check", false, "check the configuration and do nothing else")
	if _, err := o.Parse(set, args, 0); err != nil {
		return err
	}
	if *file == "" {
		return o.Misused("serve needs -config FILE; gateway.yaml is a commented example")
	}
	c, err := config.Load(*file)
	if err != nil {
		return err
	}
	if _, err := config.ReadPolicies(c.Policies.Files); err != nil {
		return err
	}
	if *check {
		fmt.Fprintln(p.Out, "the configuration can be used")
		return nil
	}
	s, err := server.Open(ctx, c, &server.Options{Logger: slog.New(slog.NewTextHandler(p.Err, nil)), Migrate: *migrate, Clock: p.Clock})
	if errors.Is(err, governancepg.ErrOlder) && !*migrate {
		return fmt.Errorf("%w\nserve -migrate makes and updates all of them, one gateway at a time", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	fmt.Fprintf(p.Out, "clients:   http://%s\n", s.Address())
	if s.AdminAddress() != "" {
		fmt.Fprintf(p.Out, "operators: http://%s\n", s.AdminAddress())
	}
	defer p.onHangup(ctx, s)()
	return s.Serve(ctx)
}

// onHangup reads the policies again with every SIGHUP, and keeps those in force where
// the files cannot be used.
func (p Process) onHangup(ctx context.Context, s *server.Server) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			if err := s.ReloadPolicies(ctx); err != nil {
				fmt.Fprintf(p.Err, "gateway: the policies stay as they were: %v\n", err)
			} else {
				fmt.Fprintln(p.Err, "gateway: the policies were read again")
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		cancel()
		wait.Wait()
	}
}

func serveProvider(ctx context.Context, o operator.Process, args []string) error {
	set := o.Flags("provider", "")
	address := set.String("listen", "127.0.0.1:9090", "the `address` to listen on")
	if _, err := o.Parse(set, args, 0); err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: provider.New(nil), ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stopped()
	fmt.Fprintf(o.Out, "provider:  http://%s (any credential, models like demo-small, gpt-4o-mini, claude-sonnet-4-5)\n", l.Addr())
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func runDemo(ctx context.Context, o operator.Process, args []string) error {
	set := o.Flags("demo", "")
	asJSON := set.Bool("json", false, "print one JSON object and nothing else")
	if _, err := o.Parse(set, args, 0); err != nil {
		return err
	}
	result, err := demo.Run(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		err = result.WriteJSON(o.Out)
	} else {
		err = result.WriteText(o.Out)
	}
	if err == nil && result.Differences > 0 {
		err = fmt.Errorf("the books do not balance: %d differences", result.Differences)
	}
	return err
}
