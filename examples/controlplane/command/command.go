// Package command is the control plane's command line.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/tallystick-go/tallystick/examples/controlplane/server"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/operator"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// Process is what a command has of the process that it runs in.
type Process struct {
	Args []string
	Out  io.Writer
	Err  io.Writer
	Env  func(string) (string, bool)
	// Clock is server.Options.Clock. The program leaves it nil.
	Clock func(database time.Time) time.Time
}

const help = `controlplane grants budgets to gateways of the profile node, from one Postgres.

  controlplane serve -config FILE       one of any number; see controlplane.yaml for a commented example

  controlplane nodes                    who spoke when, and what is stranded and burned, boot by boot
  controlplane holds list | resolve | frozen | release    what nodes hold, and what became of what they lost
  controlplane policies list | diff -f FILE | apply -f FILE | delete NAME
  controlplane verify                   audit all accounts
  controlplane prune                    forget what ended long ago, once its sums are proved
  controlplane notes                    what operators resolved and released, and why

These work over the admin API of a running control plane,

  -config FILE                          address and token as that file has them, or
  -admin URL -token env:NAME            (or -token file:/path)

or directly on the database, whether a control plane runs or not:

  -postgres env:NAME -schema NAME       (or -postgres file:/path) of a connection string

"controlplane COMMAND -h" lists the flags of a command. Money is in microUSD, or in
dollars when written like '$12.50'. -json prints what the API answered.

Exit status: 0 done, 1 failed (or the books do not balance), 2 used wrongly.
`

// Run runs the command that the arguments name and returns the exit status. An
// interrupt or SIGTERM ends it in good order; a second one ends it at once.
func Run(p Process) int {
	return operator.Run(operator.Process{Args: p.Args, Out: p.Out, Err: p.Err, Env: p.Env, Program: &operator.Program{
		Name: "controlplane", Help: help, Place: place, Profile: policy.Node,
		Operates: []string{"nodes", "policies", "holds", "verify", "prune", "notes"},
		Own:      map[string]operator.Command{"serve": p.serve},
	}})
}

// place is where the admin listener of a control plane is.
func place(path string) (operator.Place, error) {
	file, err := config.LoadControlPlaneForAdmin(path)
	if err != nil {
		return operator.Place{}, err
	}
	return operator.Place{Listen: file.Admin.Listen, Token: file.Admin.Token.Reveal(), Instead: "-postgres"}, nil
}

func (p Process) serve(ctx context.Context, o operator.Process, args []string) (err error) {
	set := o.Flags("serve", "")
	file := set.String("config", "", "the configuration `file`")
	migrate := set.Bool("migrate", false, "create and update the tables before serving")
	check := set.Bool("check", false, "check the configuration and do nothing else")
	if _, err := o.Parse(set, args, 0); err != nil {
		return err
	}
	if *file == "" {
		return o.Misused("serve needs -config FILE; controlplane.yaml is a commented example")
	}
	c, err := config.LoadControlPlane(*file)
	if err != nil {
		return err
	}
	if *check {
		fmt.Fprintln(p.Out, "the configuration can be used")
		return nil
	}
	s, err := server.Open(ctx, c, &server.Options{Logger: slog.New(slog.NewTextHandler(p.Err, nil)), Migrate: *migrate, Clock: p.Clock})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	fmt.Fprintf(p.Out, "nodes:     %s\n", s.URL())
	if s.AdminURL() != "" {
		fmt.Fprintf(p.Out, "operators: %s\n", s.AdminURL())
	}
	return s.Serve(ctx)
}
