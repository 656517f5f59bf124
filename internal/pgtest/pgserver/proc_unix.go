//go:build unix

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	sigFast      = syscall.SIGINT
	sigImmediate = syscall.SIGQUIT
	sigKill      = syscall.SIGKILL
	sigStop      = syscall.SIGSTOP
	sigCont      = syscall.SIGCONT
)

// unprivileged is whom the server runs as, because postgres refuses root. nil is the caller.
type unprivileged struct{ uid, gid uint32 }

func unprivilegedUser() (*unprivileged, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if uerr == nil && gerr == nil && uid != 0 {
			return &unprivileged{uint32(uid), uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("%w: running as root, and there is no user postgres or nobody to run the server as", errNotHere)
}

func (u *unprivileged) own(path string) error {
	if u == nil {
		return nil
	}
	return os.Chown(path, int(u.uid), int(u.gid))
}

// apart gives a child a session of its own, so that an interrupt at the terminal does not reach it.
func apart(u *unprivileged) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if u != nil {
		a.Credential = &syscall.Credential{Uid: u.uid, Gid: u.gid}
	}
	return a
}

func signalOne(pid int, sig syscall.Signal) error {
	err := syscall.Kill(pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// childrenOf lists a process's children: every backend is a session of its own, a group signal reaches none.
func childrenOf(pid int) []int {
	if out, ok := fromProc(pid); ok {
		return out
	}
	b, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	var out []int
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) == 2 && f[1] == strconv.Itoa(pid) {
			if c, err := strconv.Atoi(f[0]); err == nil {
				out = append(out, c)
			}
		}
	}
	return out
}

func fromProc(pid int) (children []int, ok bool) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it ended meanwhile
		}
		ok = true
		// pid (name with anything in it) state ppid ...
		s := string(b)
		fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if c, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			children = append(children, c)
		}
	}
	return children, ok
}

// awaitGone waits until none of the processes is left; there is nothing to wait on for a process that is not our child.
func awaitGone(ctx context.Context, pids []int) {
	for _, pid := range pids {
		for alive(pid) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

// alive counts a zombie as gone: its parent may be late in reaping it.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) || !procMounted()
	}
	s := string(b)
	return !strings.HasPrefix(strings.TrimSpace(s[strings.LastIndexByte(s, ')')+1:]), "Z")
}

func procMounted() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}
