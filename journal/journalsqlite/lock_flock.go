//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package journalsqlite

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// lockFile takes a lock that ends with this process.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return plain(err)
}

func exposed(info fs.FileInfo, modes fs.FileMode) bool { return info.Mode().Perm()&modes != 0 }

// owned reports whether the file is this user's and has no second name.
func owned(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid() && stat.Nlink == 1
}
