package pgserver

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// A guard is a second process of this very program that waits for a pipe to close and then
// removes a server. The pipe closes when the server is released and also when this process dies, however
// it dies, so that nothing is left running or lying about after a kill -9.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

const envGuard = "TALLYSTICK_PGSERVER_GUARD"

// In the second process nothing but the guard's work runs: this is init, ahead of any main or test.
func init() {
	spec, is := os.LookupEnv(envGuard)
	if !is {
		return
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, os.Stdin)
	kind, what, _ := strings.Cut(spec, ":")
	var err error
	switch Way(kind) {
	case Local:
		err = removeLocal(what)
	case Docker:
		err = removeDocker(what)
	case bouncing:
		err = removeBouncer(what)
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func watch(w Way, what string) (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envGuard+"="+string(w)+":"+what)
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = apart(nil)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// No stdout or stderr: go test would wait for whoever still holds them.
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &guard{cmd: cmd, pipe: pipe}, nil
}

// release lets the guard do its work and waits for it.
func (g *guard) release() error {
	if g.cmd == nil {
		return nil
	}
	cmd := g.cmd
	g.cmd = nil
	_ = g.pipe.Close()
	if err := cmd.Wait(); err != nil {
		return errors.New("pgserver: the server could not be removed completely")
	}
	return nil
}
