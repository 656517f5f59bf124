// Command controlplane grants budgets to gateways of the profile node, from the accounts
// of one Postgres. Run it without arguments for help.
package main

import (
	"os"

	"github.com/tallystick-go/tallystick/examples/controlplane/command"
)

func main() {
	os.Exit(command.Run(command.Process{Args: os.Args[1:], Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv}))
}
