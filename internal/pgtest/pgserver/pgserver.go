// Package pgserver starts a real, disposable Postgres: on a DSN that it is given, in Docker, or
// from the machine's own binaries. It does not import testing, so that benches use it too; tests go through pgtest.
package pgserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The environment variables that choose a server.
const (
	EnvDSN   = "TALLYSTICK_TEST_POSTGRES"       // a DSN whose user may create schemas
	EnvVia   = "TALLYSTICK_TEST_POSTGRES_VIA"   // dsn, docker or local: this way and no other
	EnvImage = "TALLYSTICK_TEST_POSTGRES_IMAGE" // the Docker image, default postgres:16-alpine
	EnvLog   = "TALLYSTICK_TEST_POSTGRES_LOG"   // a file that gets one line per server started
)

// Way is how a server was come by.
type Way string

// The ways, in the order in which they are tried.
const (
	DSN    Way = "dsn"
	Docker Way = "docker"
	Local  Way = "local"
)

// ErrAbsent says that this machine has no Postgres to offer and nobody gave one.
var ErrAbsent = errors.New("no Postgres: set " + EnvDSN + " to a DSN, or start a Docker daemon that has or can pull the image, or install PostgreSQL's server (initdb and postgres)")

// ErrNotOurs is the answer of Stop, Start, Kill and Signal on a server that was given by DSN.
var ErrNotOurs = errors.New("pgserver: this server was given by " + EnvDSN + ": it is not ours to stop")

// Config adjusts Start; the zero Config is a fast server without durability.
type Config struct {
	Settings map[string]string // postgresql.conf settings on top of the defaults here
	Durable  bool              // fsync, full_page_writes and synchronous_commit on, as benches need them
	Via      Way               // overrides EnvVia
	Owned    bool              // it must be possible to stop the server: the DSN way is left out
}

// Mode is a shutdown mode.
type Mode int

// The modes.
const (
	Fast      Mode = iota + 1 // running transactions are aborted, buffers are flushed
	Immediate                 // as after a crash
)

// Server is a running server. Its DSN stays the same when it is stopped and started again.
type Server struct {
	way     Way
	version string
	dsn     string
	engine  engine // nil for DSN
	guard   *guard
}

// engine is one way of running a server of our own.
type engine interface {
	start(ctx context.Context) error
	stop(ctx context.Context, m Mode) error
	kill(ctx context.Context) error
	pause(ctx context.Context, on bool) error
	describe() string
	logs() string // the last of what the server printed, for error messages
}

// Start gives a server that accepts connections.
//
// Errors: one that wraps ErrAbsent where there is nothing to start; any other says what was there and failed.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	via := cfg.Via
	if via == "" {
		via = Way(os.Getenv(EnvVia))
	}
	dsn := os.Getenv(EnvDSN)
	switch via {
	case "":
		if dsn != "" && !cfg.Owned {
			return given(ctx, dsn)
		}
	case DSN:
		if cfg.Owned {
			return nil, fmt.Errorf("%w (%s=dsn, and this needs a server that can be stopped)", ErrAbsent, EnvVia)
		}
		if dsn == "" {
			return nil, fmt.Errorf("%w (%s=dsn)", ErrAbsent, EnvVia)
		}
		return given(ctx, dsn)
	case Docker, Local:
	default:
		return nil, fmt.Errorf("pgserver: %s is %q: it must be dsn, docker or local", EnvVia, via)
	}
	var why []error
	absent := true
	for _, w := range []Way{Docker, Local} {
		if via != "" && via != w {
			continue
		}
		s, err := own(ctx, w, cfg)
		if err == nil {
			return s, nil
		}
		absent = absent && errors.Is(err, errNotHere)
		why = append(why, fmt.Errorf("%s: %w", w, err))
	}
	if absent {
		return nil, fmt.Errorf("%w (%s)", ErrAbsent, oneLine(why))
	}
	return nil, fmt.Errorf("pgserver: %s", oneLine(why))
}

// errNotHere marks a way that this machine does not have, against one that it has and that failed.
var errNotHere = errors.New("not here")

func oneLine(errs []error) string {
	var parts []string
	for _, e := range errs {
		parts = append(parts, strings.ReplaceAll(e.Error(), "\n", "; "))
	}
	return strings.Join(parts, "; ")
}

func given(ctx context.Context, dsn string) (*Server, error) {
	s := &Server{way: DSN, dsn: dsn}
	if err := s.await(ctx); err != nil {
		return nil, fmt.Errorf("pgserver: the server in %s does not answer (%w)", EnvDSN, err)
	}
	s.announce("given by " + EnvDSN)
	return s, nil
}

// attempts covers the race for a free port between us and everyone else on the machine.
const attempts = 3

func own(ctx context.Context, w Way, cfg Config) (*Server, error) {
	var err error
	for range attempts {
		var s *Server
		if s, err = ownOnce(ctx, w, cfg); err == nil {
			return s, nil
		}
		if errors.Is(err, errNotHere) || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

func ownOnce(ctx context.Context, w Way, cfg Config) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	password := random()
	s := &Server{way: w, dsn: fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", password, port)}
	make := newLocal
	if w == Docker {
		make = newDocker
	}
	s.engine, s.guard, err = make(ctx, launch{port: port, password: password, settings: settings(cfg)})
	if err != nil {
		return nil, err
	}
	if err = s.Start(ctx); err != nil {
		err = fmt.Errorf("%w: %s", err, s.engine.logs())
		_ = s.Close()
		return nil, err
	}
	s.announce(s.engine.describe())
	return s, nil
}

// launch is what an engine needs to know.
type launch struct {
	port     int
	password string
	settings map[string]string
}

func (l launch) flags() []string {
	var out []string
	for k, v := range l.settings {
		out = append(out, "-c", k+"="+v)
	}
	return out
}

func settings(cfg Config) map[string]string {
	durable := "off"
	if cfg.Durable {
		durable = "on"
	}
	out := map[string]string{
		"fsync": durable, "full_page_writes": durable, "synchronous_commit": "on",
		"max_connections": "300", "password_encryption": "md5",
		"log_min_messages": "warning",
	}
	maps.Copy(out, cfg.Settings)
	return out
}

// DSN is a URL for a superuser; for a given server, what was given.
func (s *Server) DSN() string { return s.dsn }

// Way says how the server was come by.
func (s *Server) Way() Way { return s.way }

// Version is the server's own server_version.
func (s *Server) Version() string { return s.version }

// Stop shuts the server down. Its data stays.
func (s *Server) Stop(ctx context.Context, m Mode) error {
	if s.engine == nil {
		return ErrNotOurs
	}
	return s.engine.stop(ctx, m)
}

// Start starts a stopped or killed server and waits until it accepts connections.
func (s *Server) Start(ctx context.Context) error {
	if s.engine == nil {
		return ErrNotOurs
	}
	if err := s.engine.start(ctx); err != nil {
		return err
	}
	return s.await(ctx)
}

// Kill ends every process of the server at once, as a loss of power to the process would.
func (s *Server) Kill(ctx context.Context) error {
	if s.engine == nil {
		return ErrNotOurs
	}
	return s.engine.kill(ctx)
}

// Pause freezes every process of the server (SIGSTOP): connections stay open and nothing answers.
func (s *Server) Pause(ctx context.Context) error { return s.freeze(ctx, true) }

// Resume lets a paused server go on (SIGCONT).
func (s *Server) Resume(ctx context.Context) error { return s.freeze(ctx, false) }

func (s *Server) freeze(ctx context.Context, on bool) error {
	if s.engine == nil {
		return ErrNotOurs
	}
	return s.engine.pause(ctx, on)
}

// Demote restarts the server as a standby without a primary: it answers reads and refuses writes.
// SELECT pg_promote() brings it back, on a new timeline.
func (s *Server) Demote(ctx context.Context) error {
	if s.engine == nil {
		return ErrNotOurs
	}
	c, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	// The server itself writes the file, so that it does not matter where it runs.
	if _, err := c.Exec(ctx, "do $$ begin execute format('copy (select) to %L', current_setting('data_directory') || '/standby.signal'); end $$"); err != nil {
		return err
	}
	if err := s.Stop(ctx, Fast); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Close ends the server and removes everything that belongs to it. On a given server it does nothing.
func (s *Server) Close() error {
	if s.guard == nil {
		return nil
	}
	return s.guard.release()
}

const startWait = 60 * time.Second

// await polls until a query is answered; the server offers nothing else to wait on that holds for all ways.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		err := s.ask(ctx)
		if err == nil {
			return nil
		}
		if died, is := s.engine.(interface{ died() bool }); is && died.died() {
			return errors.New("the server ended while it was starting")
		}
		select {
		case <-ctx.Done():
			return errors.New("the server accepts no connection in time")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	return c.QueryRow(ctx, "select current_setting('server_version')").Scan(&s.version)
}

// announce says once per server which way was taken.
func (s *Server) announce(what string) {
	note("way=%s version=%q program=%s %s", s.way, s.version, filepath.Base(os.Args[0]), what)
}

// note says a line, and proves it in a file where one is asked for.
func note(format string, args ...any) {
	line := "pgserver: " + fmt.Sprintf(format, args...) + "\n"
	fmt.Fprint(os.Stderr, line)
	name := os.Getenv(EnvLog)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgserver: the log could not be written:", err)
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

func random() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
