package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// local runs the machine's own initdb and postgres in a folder of its own.
type local struct {
	bin    string
	dir    string
	launch launch
	user   *unprivileged

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

// Folders in which distributions keep the server's programs away from PATH.
var binFolders = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
}

func findBinaries() (string, error) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if complete(dir) {
			// The links that lead from PATH into a version's folder are followed: postgres looks for its files beside itself.
			if real, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb")); err == nil && complete(filepath.Dir(real)) {
				return filepath.Dir(real), nil
			}
			return dir, nil
		}
	}
	var found []string
	for _, pattern := range binFolders {
		dirs, _ := filepath.Glob(pattern)
		found = append(found, slices.DeleteFunc(dirs, func(d string) bool { return !complete(d) })...)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%w: no initdb and postgres in PATH or in %s", errNotHere, binFolders[0])
	}
	return slices.MaxFunc(found, func(a, b string) int { return versionIn(a) - versionIn(b) }), nil
}

func complete(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// versionIn is the first number in a path such as /usr/lib/postgresql/15/bin.
func versionIn(dir string) int {
	digits := strings.FieldsFunc(dir, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	v, _ := strconv.Atoi(digits[0])
	return v
}

func newLocal(ctx context.Context, l launch) (engine, *guard, error) {
	e, g, err := place(l)
	if err != nil {
		return nil, nil, err
	}
	if err := e.init(ctx); err != nil {
		_ = g.release()
		return nil, nil, err
	}
	return e, g, nil
}

// place makes the folder of a server that has no data yet.
func place(l launch) (*local, *guard, error) {
	bin, err := findBinaries()
	if err != nil {
		return nil, nil, err
	}
	user, err := unprivilegedUser()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "tallystick-pg-")
	if err != nil {
		return nil, nil, err
	}
	g, err := watch(Local, dir)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := user.own(dir); err != nil {
		return nil, nil, errors.Join(err, g.release())
	}
	return &local{bin: bin, dir: dir, launch: l, user: user}, g, nil
}

func (e *local) data() string { return filepath.Join(e.dir, "data") }

func (e *local) init(ctx context.Context) error {
	pw := filepath.Join(e.dir, "password")
	if err := os.WriteFile(pw, []byte(e.launch.password+"\n"), 0o600); err != nil {
		return err
	}
	if err := e.user.own(pw); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(e.bin, "initdb"), "--pgdata", e.data(), "--username", "postgres",
		"--auth", "password", "--pwfile", pw, "--encoding", "UTF8", "--locale", "C", "--no-sync")
	cmd.Dir = e.dir
	cmd.SysProcAttr = apart(e.user)
	cmd.Env = e.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb in %s failed (%w): %s", e.bin, err, last(string(out)))
	}
	return os.Remove(pw)
}

// env keeps the caller's PG* variables from steering the server.
func (e *local) env() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PG") })
}

func (e *local) start(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd != nil {
		return errors.New("the server is running")
	}
	out, err := os.OpenFile(e.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	args := append([]string{"-D", e.data(), "-p", strconv.Itoa(e.launch.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}, e.launch.flags()...)
	cmd := exec.Command(filepath.Join(e.bin, "postgres"), args...)
	cmd.Dir = e.dir
	cmd.Env = e.env()
	cmd.SysProcAttr = apart(e.user)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	e.cmd, e.done = cmd, done
	go func() {
		_ = cmd.Wait()
		e.mu.Lock()
		if e.cmd == cmd {
			e.cmd = nil
		}
		e.mu.Unlock()
		close(done)
	}()
	return nil
}

func (e *local) died() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cmd == nil
}

func (e *local) stop(ctx context.Context, m Mode) error {
	sig := sigFast
	if m == Immediate {
		sig = sigImmediate
	}
	return e.end(ctx, func(pid int) error { return signalOne(pid, sig) })
}

func (e *local) kill(ctx context.Context) error {
	return e.end(ctx, func(pid int) error {
		children := childrenOf(pid)
		err := signalOne(pid, sigKill)
		for _, c := range children {
			_ = signalOne(c, sigKill)
		}
		awaitGone(ctx, children)
		return err
	})
}

func (e *local) end(ctx context.Context, how func(pid int) error) error {
	e.mu.Lock()
	cmd, done := e.cmd, e.done
	e.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := how(cmd.Process.Pid); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *local) pause(_ context.Context, on bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd == nil {
		return errors.New("the server is not running")
	}
	sig := sigCont
	if on {
		sig = sigStop
	}
	pid := e.cmd.Process.Pid
	err := signalOne(pid, sig)
	for _, c := range childrenOf(pid) { // after the postmaster, which makes no new ones now
		_ = signalOne(c, sig)
	}
	return err
}

func (e *local) describe() string { return "binaries=" + e.bin }

func (e *local) logFile() string { return filepath.Join(e.dir, "log") }

func (e *local) logs() string {
	b, _ := os.ReadFile(e.logFile())
	return last(string(b))
}

// last keeps the end of a program's output, which says why it failed.
func last(s string) string {
	const enough = 800
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-enough):]
}

// removeLocal runs in the guard: it ends whatever postmaster the folder has and removes the folder.
func removeLocal(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if pid := postmaster(dir); pid > 0 {
		all := append([]int{pid}, childrenOf(pid)...)
		_ = signalOne(pid, sigImmediate)
		for _, p := range all {
			_ = signalOne(p, sigCont) // a paused process sees no other signal
		}
		short, stop := context.WithTimeout(ctx, 5*time.Second)
		awaitGone(short, all)
		stop()
		for _, p := range all {
			_ = signalOne(p, sigKill)
		}
		awaitGone(ctx, all)
	}
	return os.RemoveAll(dir)
}

// postmaster reads the process id from the folder and makes sure that it still is a server of this folder.
func postmaster(dir string) int {
	data := filepath.Join(dir, "data")
	pid := pidIn(filepath.Join(data, "postmaster.pid"))
	if pid == 0 {
		return 0
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil {
		if real, err := filepath.EvalSymlinks(data); err == nil && cwd != real {
			return 0
		}
	}
	return pid
}

// pidIn is the number in the first line of a file, or 0.
func pidIn(file string) int {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 1 {
		return 0
	}
	return pid
}
