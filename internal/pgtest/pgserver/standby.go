package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// standbyName is what a standby calls itself to its primary, for synchronous_standby_names.
const standbyName = "standby"

// Standby gives a hot standby of a running server: a copy that follows it, on a port of its own and with the
// same users. It answers reads; select pg_promote() makes a primary of it. Its application_name is standby.
//
// Errors: one that wraps ErrAbsent for a server that does not run from local binaries with pg_basebackup among them.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	primary, is := s.engine.(*local)
	if !is {
		return nil, fmt.Errorf("%w (a standby is made from local binaries; this server came by way of %s)", ErrAbsent, s.way)
	}
	program := filepath.Join(primary.bin, "pg_basebackup")
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%w (a standby needs pg_basebackup beside initdb)", ErrAbsent)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	l := primary.launch
	l.port = port
	e, g, err := place(l)
	if err != nil {
		return nil, err
	}
	out := &Server{
		way: s.way, engine: e, guard: g,
		dsn: fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", l.password, port),
	}
	from := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres password=%s application_name=%s", primary.launch.port, l.password, standbyName)
	cmd := exec.CommandContext(ctx, program, "--pgdata", e.data(), "--dbname", from, "--write-recovery-conf",
		"--wal-method", "stream", "--checkpoint", "fast", "--no-sync")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = e.dir, e.env(), apart(e.user)
	if text, err := cmd.CombinedOutput(); err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("pg_basebackup failed (%w): %s", err, last(string(text)))
	}
	if err := out.Start(ctx); err != nil {
		err = fmt.Errorf("%w: %s", err, e.logs())
		_ = out.Close()
		return nil, err
	}
	out.announce(e.describe() + " standby")
	return out, nil
}
