// Command gateway puts Tallystick in front of LLM providers: who may call, how
// fast, how much, and for how much money. Run it without arguments for help.
package main

import (
	"os"

	"github.com/tallystick-go/tallystick/examples/gateway/command"
)

func main() {
	os.Exit(command.Run(command.Process{Args: os.Args[1:], Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv}))
}
