// Package operator is the command line of those who run a gateway or a control plane: what
// they do over an admin API, or directly on a database. A Program names the commands that
// it has of these, and adds its own.
package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"

	"github.com/tallystick-go/tallystick/governance/policy"
)

// Process is what a command has of the process that it runs in.
type Process struct {
	Program *Program
	Args    []string
	Out     io.Writer
	Err     io.Writer
	Env     func(string) (string, bool)
}

// Program is what a command line knows.
type Program struct {
	Name string
	Help string // all of it
	// Operates names the commands over an admin API that the program offers, such as
	// teams or verify.
	Operates []string
	// Own are the program's own commands, such as serve, or keys import.
	Own map[string]Command
	// Place reads where the admin listener of a configuration file is.
	Place func(path string) (Place, error)
	// Files says that there are databases in files, for -sqlite.
	Files bool
	// Profile is the one of those whom the policies in a Postgres are for. Default shared.
	Profile policy.Profile
}

func (p *Program) profile() policy.Profile {
	if p.Profile == 0 {
		return policy.Shared
	}
	return p.Profile
}

// Command is one that a program has of its own.
type Command func(ctx context.Context, p Process, args []string) error

// Place is where an admin listener is, as a configuration says.
type Place struct {
	Listen string // empty: there is none
	Token  string
	// Instead is what to use where there is no listener, such as -postgres.
	Instead string
}

// errUsage is a command line that makes no sense; it was explained already.
var errUsage = errors.New("operator: used wrongly")

// Run runs the command that the arguments name and returns the exit status. An
// interrupt or SIGTERM ends it in good order; a second one ends it at once.
func Run(p Process) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := p.run(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(p.Err, "%s: %s\n", p.Program.Name, line)
	}
	return 1
}

func (p Process) run(ctx context.Context) error {
	if len(p.Args) == 0 {
		fmt.Fprint(p.Out, p.Program.Help)
		return nil
	}
	name, rest := p.Args[0], p.Args[1:]
	if own, is := p.Program.Own[name]; is {
		return own(ctx, p, rest)
	}
	for _, offered := range p.Program.Operates {
		if offered != name {
			continue
		}
		if o, is := single[name]; is {
			return p.operate(ctx, name, rest, o)
		}
		return p.group(ctx, name, rest, groups[name])
	}
	switch name {
	case "help", "-h", "-help", "--help":
		fmt.Fprint(p.Out, p.Program.Help)
		return nil
	}
	return p.Misused("there is no command %q; %s help lists them", name, p.Program.Name)
}

// Misused explains what is wrong with a command line.
func (p Process) Misused(format string, args ...any) error {
	fmt.Fprintf(p.Err, p.Program.Name+": "+format+"\n", args...)
	return errUsage
}

// Flags makes the flag set of a command.
func (p Process) Flags(name, operands string) *flag.FlagSet {
	name = p.Program.Name + " " + name
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(p.Err)
	set.Usage = func() {
		fmt.Fprintln(p.Err, strings.TrimSpace("usage: "+name+" [flags] "+operands))
		set.PrintDefaults()
	}
	return set
}

// Parse reads flags, which may stand before and behind the operands. It returns
// the operands, exactly as many as wanted.
func (p Process) Parse(set *flag.FlagSet, args []string, wanted int) ([]string, error) {
	var operands []string
	for {
		if err := set.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, errUsage // the flag set has said why
		}
		if args = set.Args(); len(args) == 0 {
			break
		}
		operands, args = append(operands, args[0]), args[1:]
	}
	if len(operands) != wanted {
		fmt.Fprintf(p.Err, "%s: %d arguments beside the flags, wanted %d\n", p.Program.Name, len(operands), wanted)
		set.Usage()
		return nil, errUsage
	}
	return operands, nil
}
