// Package command is the gateway's command line.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"
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

const help = `gateway puts Tallystick in front of LLM providers.

  gateway demo [-json]               a few hundred governed requests, with nothing installed
  gateway serve -config FILE         the gateway; see gateway.yaml for a commented example
  gateway provider [-listen ADDR]    the built-in provider, to try serve without an account

  gateway teams  list | show | create | update | delete
  gateway keys   list | show | create | update | revoke | rotate | usage | explain
  gateway holds  list | resolve | frozen | release
  gateway policies list | diff -f FILE | apply -f FILE | delete NAME
  gateway verify                     audit all accounts
  gateway prune                      forget what ended long ago, once its sums are proved
  gateway notes                      what operators resolved, released, forgot and edited, and why
  gateway status                     what a running gateway goes by, and what of its store is down
  gateway keys import                keys of a stopped gateway, of LiteLLM or of new-api, by hash
  gateway keys mint                  a token for a key that the configuration declares

These work over the admin API of a running gateway,

  -config FILE                       address and token as that file has them, or
  -admin URL -token env:NAME         (or -token file:/path)

or, but for status, directly on the database, whether a gateway runs or not:

  -sqlite FILE, or
  -postgres env:NAME -schema NAME    (or -postgres file:/path) of a connection string

"gateway COMMAND -h" lists the flags of a command. Money is in microUSD, or in
dollars when written like '$12.50' (quoted: the shell knows $1 too). "none" takes a
limit away. -json prints what the API answered. A first key:

  gateway teams create -config FILE -id acme -cost-per-month '$10'
  gateway keys create -config FILE -team acme

Exit status: 0 done, 1 failed (or the books do not balance), 2 used wrongly.
`

// errUsage is a command line that makes no sense; it was explained already.
var errUsage = errors.New("command: used wrongly")

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
		fmt.Fprintln(p.Err, "gateway:", line)
	}
	return 1
}

func (p Process) run(ctx context.Context) error {
	if len(p.Args) == 0 {
		fmt.Fprint(p.Out, help)
		return nil
	}
	name, rest := p.Args[0], p.Args[1:]
	switch name {
	case "demo":
		return p.demo(ctx, rest)
	case "serve":
		return p.serve(ctx, rest)
	case "provider":
		return p.provider(ctx, rest)
	case "teams":
		return p.group(ctx, name, rest, teamCommands)
	case "keys":
		return p.group(ctx, name, rest, keyCommands)
	case "holds":
		return p.group(ctx, name, rest, holdCommands)
	case "policies":
		return p.group(ctx, name, rest, policyCommands)
	case "verify":
		return p.operate(ctx, name, rest, verifyCommand)
	case "prune":
		return p.operate(ctx, name, rest, pruneCommand)
	case "notes":
		return p.operate(ctx, name, rest, notesCommand)
	case "status":
		return p.operate(ctx, name, rest, statusCommand)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(p.Out, help)
		return nil
	}
	return p.misused("there is no command %q; gateway help lists them", name)
}

// misused explains what is wrong with a command line.
func (p Process) misused(format string, args ...any) error {
	fmt.Fprintf(p.Err, "gateway: "+format+"\n", args...)
	return errUsage
}

// flags makes the flag set of a command.
func (p Process) flags(name, operands string) *flag.FlagSet {
	set := flag.NewFlagSet("gateway "+name, flag.ContinueOnError)
	set.SetOutput(p.Err)
	set.Usage = func() {
		fmt.Fprintln(p.Err, strings.TrimSpace("usage: gateway "+name+" [flags] "+operands))
		set.PrintDefaults()
	}
	return set
}

// parse reads flags, which may stand before and behind the operands. It returns
// the operands, exactly as many as wanted.
func (p Process) parse(set *flag.FlagSet, args []string, wanted int) ([]string, error) {
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
		fmt.Fprintf(p.Err, "gateway: %d arguments beside the flags, wanted %d\n", len(operands), wanted)
		set.Usage()
		return nil, errUsage
	}
	return operands, nil
}
