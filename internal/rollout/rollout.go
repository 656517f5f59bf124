// Package rollout builds programs of an earlier commit of this repository, for tests in which two versions
// share one database as they do while gateways are rolled out. It is not linked into what ships.
package rollout

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Before is the commit that HEAD is tried beside: until there are releases, the last before keys, policies, holds and
// thresholds appended events in the transactions that change them. Move it to the last tag once there is one.
const Before = "0429bbd1aef675c09c15128241810a1c5409da8e"

// ErrNoHistory: the commit is not in this checkout, or git is missing. Clone the repository whole, not --depth 1.
var ErrNoHistory = errors.New("rollout: the checkout does not hold the commit of the earlier version: clone it whole (git fetch --unshallow), with git installed")

// Build writes the files of a commit to folder, which must be empty, and builds a program of them with the Go tool and the
// build cache of the caller: pkg is a folder such as ./examples/gateway. It returns the program's path. What a newer
// go.mod has dropped may have to be downloaded.
//
// Errors: ErrNoHistory; what git or the Go tool said; the context's.
func Build(ctx context.Context, commit, pkg, folder string) (string, error) {
	source := filepath.Join(folder, "source")
	if err := export(ctx, commit, source); err != nil {
		return "", err
	}
	program := filepath.Join(folder, "program")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	// Nobody debugs it, and linking takes half the time.
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", program, pkg)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "PWD="+source, "GOWORK=") // its own
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("rollout: %s of %.12s does not build: %w: %s", pkg, commit, err, out)
	}
	return program, nil
}

// export writes the files of a commit below folder.
func export(ctx context.Context, commit, folder string) error {
	top, err := git(ctx, "", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	root := strings.TrimSpace(string(top))
	if _, err := git(ctx, root, "cat-file", "-e", commit+"^{commit}"); err != nil {
		return err
	}
	archive, err := git(ctx, root, "archive", "--format=tar", commit)
	if err != nil {
		return err
	}
	return unpack(bytes.NewReader(archive), folder)
}

func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w (git %s: %w)", ErrNoHistory, args[0], err)
	}
	return out, nil
}

func unpack(archive io.Reader, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder) // nothing is written outside
	if err != nil {
		return err
	}
	defer root.Close()
	for files := tar.NewReader(archive); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("rollout: the archive breaks off: %w", err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(filepath.Clean(h.Name), 0o755)
		case tar.TypeReg:
			var text []byte
			if text, err = io.ReadAll(files); err == nil {
				err = root.WriteFile(h.Name, text, 0o644)
			}
		}
		if err != nil {
			return err
		}
	}
}
