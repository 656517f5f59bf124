package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrSecret is what every *SecretError is.
var ErrSecret = errors.New("config: secret cannot be used")

// SecretError says which secret cannot be used and what to do. It never repeats
// what stands in the file.
type SecretError struct {
	Path string // in the document
	Why  string
}

func (e *SecretError) Error() string { return "config: " + e.Path + ": " + e.Why }

// Is makes errors.Is hold for ErrSecret and ErrConfig.
func (e *SecretError) Is(target error) bool { return target == ErrSecret || target == ErrConfig }

const maxSecret = 64 << 10

// Secret is a value that the file only refers to: env:NAME or file:/path. It
// prints as "[redacted]".
type Secret struct {
	reference string
	value     *string // a pointer, so that printing the struct shows an address
}

// UnmarshalYAML takes the reference. It is checked later, where its path is known.
func (s *Secret) UnmarshalYAML(decode func(any) error) error { return decode(&s.reference) }

// Reveal returns the value.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsSet reports whether the file refers to a value.
func (s Secret) IsSet() bool { return s.reference != "" }

// String hides the value and the reference.
func (s Secret) String() string { return "[redacted]" }

// GoString hides the value and the reference.
func (s Secret) GoString() string { return "[redacted]" }

// Format hides the value and the reference for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[redacted]") }

// LogValue hides the value and the reference.
func (s Secret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// ReadSecret reads what a reference names, relative to a folder. where names the
// reference in errors. Errors: *SecretError.
func ReadSecret(where, reference, folder string, env func(string) (string, bool)) (Secret, error) {
	s := Secret{reference: reference}
	fail := func(format string, args ...any) (Secret, error) {
		return Secret{}, &SecretError{Path: where, Why: fmt.Sprintf(format, args...)}
	}
	kind, name, _ := strings.Cut(reference, ":")
	var value string
	switch {
	case reference == "":
		return fail("is missing: write env:NAME or file:/path")
	case kind == "env" && name != "":
		var ok bool
		if value, ok = env(name); !ok {
			return fail("the environment variable %s is not set", name)
		}
	case kind == "file" && name != "":
		if !filepath.IsAbs(name) {
			name = filepath.Join(folder, name)
		}
		var err error
		if value, err = readPrivate(name); err != nil {
			return fail("%s", err)
		}
	default:
		return fail("a secret does not stand in this file: put it into the environment or a file and write env:NAME or file:/path")
	}
	value = strings.TrimRight(value, "\r\n")
	switch {
	case value == "":
		return fail("what it refers to is empty")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
		return fail("what it refers to has characters that no header can carry")
	case strings.TrimSpace(value) != value:
		return fail("what it refers to begins or ends with a space")
	}
	s.value = &value
	return s, nil
}

// readPrivate reads a file that nobody else may read. The mode is that of the
// file that was opened, whatever is at the path a moment later.
func readPrivate(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("the file %s does not exist", path)
		}
		return "", fmt.Errorf("the file %s cannot be read by this user: run chown or chmod on it", path)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", fmt.Errorf("the file %s cannot be read", path)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("the file %s may be read by others: run chmod 600 %s, and change the secret if they could have seen it", path, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil || len(data) > maxSecret {
		return "", fmt.Errorf("the file %s cannot be read, or is larger than %d bytes", path, maxSecret)
	}
	return string(data), nil
}
