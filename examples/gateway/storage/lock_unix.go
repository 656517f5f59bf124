//go:build unix

package storage

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock takes a lock that the system gives back when the process ends, however it
// ends. The file stays: deleting it would let two processes hold two locks.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: its lock file: %w", ErrFile, plain(err))
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrServed
		}
		return nil, fmt.Errorf("%w: its lock file: %w", ErrFile, err)
	}
	return f, nil
}
