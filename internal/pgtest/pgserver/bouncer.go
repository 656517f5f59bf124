package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNoBouncer says that this machine has no PgBouncer.
var ErrNoBouncer = errors.New("no PgBouncer: install the package pgbouncer (the program is looked for in PATH and /usr/sbin)")

// bouncing is the way of a PgBouncer, for the log and the guard.
const bouncing Way = "pgbouncer"

// Bouncer is a running PgBouncer in transaction mode.
type Bouncer struct {
	dsn     string
	version string
	guard   *guard
}

// StartBouncer starts the real PgBouncer in front of the server of a DSN.
//
// Errors: one that wraps ErrNoBouncer where there is none; any other says what was there and failed.
func StartBouncer(ctx context.Context, dsn string) (*Bouncer, error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		return nil, ErrNoBouncer
	}
	text, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("pgserver: pgbouncer --version: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	b := &Bouncer{version: strings.TrimSpace(first)}
	for range attempts {
		if err = b.start(ctx, program, dsn); err == nil {
			note("way=%s version=%q program=%s pool_mode=transaction", bouncing, b.version, filepath.Base(os.Args[0]))
			return b, nil
		}
	}
	return nil, err
}

// DSN is that of the server, through the PgBouncer.
func (b *Bouncer) DSN() string { return b.dsn }

// Version is what the program says of itself.
func (b *Bouncer) Version() string { return b.version }

// Prepares reports whether prepared statements get through: since 1.21, with max_prepared_statements set.
func (b *Bouncer) Prepares() bool { return bouncerPrepares(b.version) }

var twoNumbers = regexp.MustCompile(`(\d+)\.(\d+)`)

func bouncerPrepares(version string) bool {
	m := twoNumbers.FindStringSubmatch(version)
	if m == nil {
		return false
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major > 1 || major == 1 && minor >= 21
}

// Close ends it.
func (b *Bouncer) Close() error { return b.guard.release() }

func (b *Bouncer) start(ctx context.Context, program, dsn string) error {
	to, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return errors.New("pgserver: the DSN is not readable")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return errors.New("pgserver: the DSN is not a URL")
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	b.dsn = u.String()
	user, err := unprivilegedUser()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tallystick-pgbouncer-")
	if err != nil {
		return err
	}
	if b.guard, err = watch(bouncing, dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	lines := []string{
		"[databases]", fmt.Sprintf("* = host=%s port=%d user=%s password=%s", to.Host, to.Port, to.User, to.Password),
		"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", port), "unix_socket_dir =",
		"auth_type = trust", "auth_file = " + filepath.Join(dir, "users"), "pidfile = " + filepath.Join(dir, "pid"),
		"pool_mode = transaction", "default_pool_size = 8", "max_client_conn = 500", "log_connections = 0", "log_disconnections = 0",
	}
	if b.Prepares() {
		lines = append(lines, "max_prepared_statements = 500")
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "ini"), []byte(strings.Join(lines, "\n")+"\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "users"), fmt.Appendf(nil, "%q \"\"\n", to.User), 0o600),
		user.own(dir), user.own(filepath.Join(dir, "ini")), user.own(filepath.Join(dir, "users")),
	)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return errors.Join(err, b.Close())
	}
	defer log.Close()
	cmd := exec.Command(program, filepath.Join(dir, "ini"))
	cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = dir, apart(user), log, log
	if err := cmd.Start(); err != nil {
		return errors.Join(err, b.Close())
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		if c, err := pgx.Connect(ctx, b.dsn); err == nil {
			return c.Close(ctx)
		}
		select {
		case <-ended:
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond): // it offers nothing to wait on
			continue
		}
		said, _ := os.ReadFile(filepath.Join(dir, "log"))
		return errors.Join(fmt.Errorf("PgBouncer accepts no connection: %s", last(string(said))), b.Close())
	}
}

// removeBouncer runs in the guard: it ends the PgBouncer of the folder and removes the folder.
func removeBouncer(dir string) error {
	if pid := pidIn(filepath.Join(dir, "pid")); pid > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = signalOne(pid, sigImmediate)
		_ = signalOne(pid, sigKill)
		awaitGone(ctx, []int{pid})
	}
	return os.RemoveAll(dir)
}
