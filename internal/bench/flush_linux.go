package main

import (
	"os"
	"syscall"
)

func flush(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
