package journalsqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// A tracer stands outside of a process and sees every system call that it makes on the
// journal's files, so that it can end the process, or the disk, at any of them.

// ruling is what the tracer does at a call.
type ruling uint8

const (
	through  ruling = iota // let it be
	kill                   // the process dies before the call is made
	failIO                 // the call is not made and says EIO
	failFull               // the call is not made and says ENOSPC
)

// operation is one call that changes or flushes a file of the journal.
type operation struct {
	name string // "write", "sync", "truncate", "unlink"
	path string
}

const (
	exitKill     = 0x100000 // PTRACE_O_EXITKILL
	traceSeccomp = 0x80     // PTRACE_O_TRACESECCOMP
	eventSeccomp = 7        // PTRACE_EVENT_SECCOMP
)

var traced = map[uint64]string{
	syscall.SYS_WRITE: "write", syscall.SYS_PWRITE64: "write", syscall.SYS_WRITEV: "write", syscall.SYS_PWRITEV: "write",
	syscall.SYS_FSYNC: "sync", syscall.SYS_FDATASYNC: "sync", syscall.SYS_FTRUNCATE: "truncate",
}

// trace runs this test binary with the environment under a tracer. rule is asked before each
// operation on files that begin with prefix, done is told after it. It returns what the
// process wrote.
func trace(t *testing.T, prefix string, env []string, rule func(operation) ruling, done func(operation)) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	said := make(chan string)
	go func() {
		var b strings.Builder
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			b.Write(buf[:n])
			if err != nil {
				said <- b.String()
				return
			}
		}
	}()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread is the tracer; it is not used again
		failed <- attend(self, env, w, prefix, rule, done)
	}()
	err = <-failed
	_ = w.Close()
	out := <-said
	if err != nil {
		t.Fatalf("%v; the process said %s", err, out)
	}
	return out
}

func attend(self string, env []string, w *os.File, prefix string, rule func(operation) ruling, done func(operation)) error {
	pid, err := syscall.ForkExec(self, []string{self}, &syscall.ProcAttr{
		// One thread at a time and no signals of the runtime's own: fewer stops.
		Env:   append(append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off"), env...),
		Files: []uintptr{0, w.Fd(), w.Fd()}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACESYSGOOD|syscall.PTRACE_O_TRACECLONE|traceSeccomp|exitKill); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	if err := syscall.PtraceCont(pid, 0); err != nil {
		return fmt.Errorf("go on: %w", err)
	}
	type state struct {
		op    *operation // inside of it
		errno syscall.Errno
	}
	threads := map[int]*state{}
	for {
		tid, err := syscall.Wait4(-1, &status, syscall.WALL|syscall.WNOTHREAD, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.ECHILD):
			return nil
		case err != nil:
			return fmt.Errorf("wait: %w", err)
		case status.Exited() || status.Signaled():
			if tid == pid {
				if status.Exited() && status.ExitStatus() != 0 {
					return fmt.Errorf("the process ended with %d", status.ExitStatus())
				}
				return nil
			}
			continue
		}
		th := threads[tid]
		fresh := th == nil
		if fresh {
			th = &state{}
			threads[tid] = th
		}
		signal := 0
		switch s := status.StopSignal(); {
		case s == syscall.SIGTRAP && status.TrapCause() == eventSeccomp: // before a call
			op := look(tid, prefix)
			if op == nil {
				break
			}
			th.op, th.errno = op, 0
			switch rule(*op) {
			case kill:
				_ = syscall.Kill(pid, syscall.SIGKILL)
				continue
			case failIO:
				th.errno = syscall.EIO
			case failFull:
				th.errno = syscall.ENOSPC
			}
			if th.errno != 0 {
				if err := skip(tid); err != nil {
					return fmt.Errorf("skip: %w", err)
				}
			}
			_ = syscall.PtraceSyscall(tid, 0) // to see it end
			continue
		case s == syscall.SIGTRAP|0x80: // after it
			if th.errno != 0 {
				if err := answer(tid, th.errno); err != nil {
					return fmt.Errorf("answer: %w", err)
				}
			} else if done != nil && th.op != nil {
				done(*th.op)
			}
			th.op, th.errno = nil, 0
		case s == syscall.SIGTRAP, s == syscall.SIGSTOP && fresh: // a new thread, and the news of it
		default:
			signal = int(s)
		}
		_ = syscall.PtraceCont(tid, signal) // a thread that was killed meanwhile says so at the next wait
	}
}

// filter has the kernel stop this process before the calls of interest and no others. Every
// thread is bound by it.
func filter() error {
	const (
		load, equal, ret     = 0x20, 0x15, 0x06 // BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
		toTracer, allow      = 0x7ff00000, 0x7fff0000
		noNewPrivs, withSync = 38, 1
	)
	type instruction struct {
		code   uint16
		jt, jf uint8
		k      uint32
	}
	program := []instruction{{code: load}} // the number of the call
	for number := range traced {
		program = append(program, instruction{equal, 0, 1, uint32(number)}, instruction{code: ret, k: toTracer})
	}
	program = append(program, instruction{code: ret, k: allow})
	prog := struct {
		length uint16
		first  *instruction
	}{uint16(len(program)), &program[0]}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, noNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(sysSeccomp, 1, withSync, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return nil
}

// look says what a thread is about to do.
func look(tid int, prefix string) *operation {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", tid))
	if err != nil {
		return nil
	}
	var number, first uint64
	if n, _ := fmt.Sscanf(string(text), "%d 0x%x", &number, &first); n != 2 {
		return nil
	}
	name := traced[number]
	if name == "" {
		return nil
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, first))
	if err != nil || !strings.HasPrefix(path, prefix) || strings.HasSuffix(path, "-shm") {
		return nil
	}
	return &operation{name, filepath.Clean(path)}
}

const sysSeccomp = 317

// skip turns the call that a thread is about to make into one that does not exist.
func skip(tid int) error {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	regs.Orig_rax = ^uint64(0)
	return syscall.PtraceSetRegs(tid, &regs)
}

// answer says what came of it.
func answer(tid int, errno syscall.Errno) error {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	regs.Rax = uint64(-int64(errno))
	return syscall.PtraceSetRegs(tid, &regs)
}
