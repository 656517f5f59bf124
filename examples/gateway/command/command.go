// Package command is the gateway's command line.
package command

import (
	"io"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/operator"
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
  gateway serve -config FILE         the gateway; see gateway.yaml, shared.yaml and node.yaml, which are commented
  gateway provider [-listen ADDR]    the built-in provider, to try serve without an account

  gateway teams  list | show | create | update | delete
  gateway keys   list | show | create | update | revoke | rotate | usage | explain
  gateway holds  list | resolve | frozen | release
  gateway policies list | diff -f FILE | apply -f FILE | delete NAME
  gateway verify                     audit all accounts
  gateway prune                      forget what ended long ago, once its sums are proved
  gateway notes                      what operators resolved, released, forgot and edited, and why
  gateway status                     what a running gateway goes by, and what of its store is down
  gateway system                     what it is among others: what it manages, and what it has for itself
  gateway suspensions list | begin KEY | lift KEY   of keys and sessions, on every gateway
  gateway fleet list | status | register NAME | deregister NAME   upstreams that all gateways know; who manages them
  gateway events checkpoints | drop CONSUMER   readers of the event log, and one that is gone for good
  gateway keys import                keys of a stopped gateway, of LiteLLM or of new-api, by hash
  gateway keys mint                  a token for a key that the configuration declares
  gateway journal status | release   what a node holds of its grants; reserve again after an overrun
  gateway journal start-anew         set the file of a node aside: it was damaged, or is an older copy
  gateway journal readmit            let a node whose journal was started anew speak again

These work over the admin API of a running gateway,

  -config FILE                       address and token as that file has them, or
  -admin URL -token env:NAME         (or -token file:/path)

or, but for status, system, suspensions, fleet and events, directly on the database, whether a gateway runs or not:

  -sqlite FILE, or
  -postgres env:NAME -schema NAME    (or -postgres file:/path) of a connection string

"gateway COMMAND -h" lists the flags of a command. Money is in microUSD, or in
dollars when written like '$12.50' (quoted: the shell knows $1 too). "none" takes a
limit away. -json prints what the API answered. A first key:

  gateway teams create -config FILE -id acme -cost-per-month '$10'
  gateway keys create -config FILE -team acme

Exit status: 0 done, 1 failed (or the books do not balance), 2 used wrongly.
`

// Run runs the command that the arguments name and returns the exit status. An
// interrupt or SIGTERM ends it in good order; a second one ends it at once.
func Run(p Process) int {
	return operator.Run(operator.Process{Program: p.program(), Args: p.Args, Out: p.Out, Err: p.Err, Env: p.Env})
}

func (p Process) program() *operator.Program {
	return &operator.Program{
		Name: "gateway", Help: help, Files: true, Place: place,
		Operates: []string{"teams", "keys", "holds", "policies", "journal", "verify", "prune", "notes", "status", "system", "suspensions", "fleet", "events"},
		Own: map[string]operator.Command{
			"demo": runDemo, "serve": p.serve, "provider": serveProvider, "keys import": keysImport, "keys mint": keysMint,
			"journal start-anew": startAnew, "journal readmit": readmit,
		},
	}
}

// place is where the admin listener of a gateway is.
func place(path string) (operator.Place, error) {
	file, err := config.LoadForAdmin(path)
	if err != nil {
		return operator.Place{}, err
	}
	at := operator.Place{Listen: file.Admin.Listen, Token: file.Admin.Token.Reveal(), Instead: "-sqlite " + file.Storage.SQLite}
	if file.Profile == config.Shared {
		at.Instead = "-postgres"
	}
	return at, nil
}
