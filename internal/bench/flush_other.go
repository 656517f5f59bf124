//go:build !linux

package main

import "os"

func flush(f *os.File) error { return f.Sync() }
