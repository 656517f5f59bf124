package pgserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
)

const envChild = "TALLYSTICK_PGSERVER_CHILD"

// In the child a server is started, its DSN is printed, and then nothing happens any more.
func TestMain(m *testing.M) {
	if os.Getenv(envChild) == "" {
		os.Exit(m.Run())
	}
	s, err := pgserver.Start(context.Background(), pgserver.Config{Owned: true})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println("dsn:", s.DSN())
	select {}
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func clear(t *testing.T) {
	for _, name := range []string{pgserver.EnvDSN, pgserver.EnvVia, pgserver.EnvImage, pgserver.EnvLog} {
		t.Setenv(name, "")
	}
}

func TestServerDiesWithAProcessThatIsKilled(t *testing.T) {
	pgtest.Shared(t) // skips where there is no Postgres; its server ends with this process
	tmp := t.TempDir()
	if err := os.Chmod(tmp, 0o755); err != nil { // root's server runs as another user
		t.Fatal(err)
	}
	for p := filepath.Dir(tmp); p != os.TempDir() && len(p) > 1; p = filepath.Dir(p) {
		_ = os.Chmod(p, 0o755)
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), envChild+"=1", "TMPDIR="+tmp)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dsn, ok := strings.CutPrefix(strings.TrimSpace(line), "dsn: ")
	if err != nil || !ok {
		t.Fatal(line, err)
	}
	ctx := bounded(t)
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for {
		left, _ := filepath.Glob(filepath.Join(tmp, "tallystick-pg-*"))
		again, err := pgx.Connect(ctx, dsn)
		if err == nil {
			_ = again.Close(ctx)
		} else if len(left) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("the server outlived its process:", left, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestNothingHereIsSaidInOneLine(t *testing.T) {
	clear(t)
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	t.Setenv(pgserver.EnvVia, "docker")
	_, err := pgserver.Start(bounded(t), pgserver.Config{})
	if !errors.Is(err, pgserver.ErrAbsent) {
		t.Fatal(err)
	}
	if s := err.Error(); strings.Contains(s, "\n") || !strings.Contains(s, pgserver.EnvDSN) {
		t.Fatalf("%q does not say in one line how to give a Postgres", s)
	}
	t.Setenv(pgserver.EnvVia, "dsn")
	if _, err := pgserver.Start(bounded(t), pgserver.Config{}); !errors.Is(err, pgserver.ErrAbsent) {
		t.Fatal(err)
	}
	t.Setenv(pgserver.EnvVia, "podman")
	if _, err := pgserver.Start(bounded(t), pgserver.Config{}); err == nil || errors.Is(err, pgserver.ErrAbsent) {
		t.Fatal("a way that does not exist is a mistake, not an absence:", err)
	}
}

func TestGivenServer(t *testing.T) {
	dsn := pgtest.Shared(t).DSN()
	clear(t)
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv(pgserver.EnvLog, log)
	t.Setenv(pgserver.EnvDSN, dsn)
	ctx := bounded(t)
	s, err := pgserver.Start(ctx, pgserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Way() != pgserver.DSN || s.DSN() != dsn || s.Version() == "" {
		t.Fatal(s.Way(), s.Version())
	}
	for _, err := range []error{s.Stop(ctx, pgserver.Fast), s.Start(ctx), s.Kill(ctx), s.Pause(ctx), s.Resume(ctx), s.Demote(ctx)} {
		if !errors.Is(err, pgserver.ErrNotOurs) {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(pgserver.EnvVia, "dsn")
	if _, err := pgserver.Start(ctx, pgserver.Config{Owned: true}); !errors.Is(err, pgserver.ErrAbsent) {
		t.Fatal(err)
	}
	b, err := os.ReadFile(log)
	if err != nil || strings.Count(string(b), "way=dsn ") != 1 {
		t.Fatalf("%q %v", b, err)
	}
	if u, err := url.Parse(dsn); err == nil && u.User != nil {
		if pw, has := u.User.Password(); has && strings.Contains(string(b), pw) {
			t.Fatal("the log holds the password")
		}
	}
}

func TestGivenServerThatDoesNotAnswer(t *testing.T) {
	clear(t)
	t.Setenv(pgserver.EnvDSN, "postgres://u:hunter2@127.0.0.1:1/x")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := pgserver.Start(ctx, pgserver.Config{})
	if err == nil || errors.Is(err, pgserver.ErrAbsent) || strings.Contains(err.Error(), "hunter2") {
		t.Fatal(err)
	}
}

func TestSettingsAndDurability(t *testing.T) {
	pgtest.Shared(t)
	ctx := bounded(t)
	s, err := pgserver.Start(ctx, pgserver.Config{Owned: true, Durable: true, Settings: map[string]string{"shared_buffers": "64MB"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	var fsync, buffers, commit string
	if err := c.QueryRow(ctx, "select current_setting('fsync'), current_setting('shared_buffers'), current_setting('synchronous_commit')").Scan(&fsync, &buffers, &commit); err != nil {
		t.Fatal(err)
	}
	if fsync != "on" || buffers != "64MB" || commit != "on" {
		t.Fatal(fsync, buffers, commit)
	}
	if _, err := pgserver.Start(ctx, pgserver.Config{Owned: true, Settings: map[string]string{"no_such_setting": "1"}}); err == nil || errors.Is(err, pgserver.ErrAbsent) {
		t.Fatal("a server that cannot start is a failure, not an absence:", err)
	}
}
