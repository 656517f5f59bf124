//go:build !unix

package pgserver

import (
	"context"
	"fmt"
	"syscall"
)

// Where there are no Unix signals, servers come by DSN or from Docker.
const (
	sigFast      = syscall.SIGINT
	sigImmediate = syscall.SIGQUIT
	sigKill      = syscall.SIGKILL
	sigStop      = syscall.Signal(0)
	sigCont      = syscall.Signal(0)
)

type unprivileged struct{}

func unprivilegedUser() (*unprivileged, error) {
	return nil, fmt.Errorf("%w: local servers need a Unix", errNotHere)
}

func (*unprivileged) own(string) error { return nil }

func apart(*unprivileged) *syscall.SysProcAttr { return nil }

func signalOne(int, syscall.Signal) error { return fmt.Errorf("no signals here") }

func childrenOf(int) []int { return nil }

func awaitGone(context.Context, []int) {}
