package sqlitetx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

const (
	leastBusyTimeout = 1000 // ms
	fullSync         = 2
	// A quick check reads the whole file: above this size it is left to the operator.
	largestChecked = 256 << 20
)

// Verify refuses a handle that would lose or bend what is committed: settings are read back
// on two connections at once where the handle allows two, because a pragma that was merely executed
// holds for one connection of a pool only. It also refuses an SQLite build with the WAL-reset bug,
// a damaged file and a file that is no database.
//
// Errors: *UnsafeError; *Error wrapping ErrCorrupt or ErrNotSQLite.
func Verify(ctx context.Context, db *sql.DB) error {
	first, err := db.Conn(ctx)
	if err != nil {
		return Scrub(err)
	}
	defer first.Close()
	if err := verifyConn(ctx, first); err != nil {
		return err
	}
	if err := quickCheck(ctx, first); err != nil {
		return err
	}
	if limit := db.Stats().MaxOpenConnections; limit != 0 && db.Stats().InUse >= limit {
		return nil // no second connection to be had without waiting
	}
	second, err := db.Conn(ctx)
	if err != nil {
		return Scrub(err)
	}
	defer second.Close()
	return verifyConn(ctx, second)
}

// verifyConn reads one connection's settings back.
func verifyConn(ctx context.Context, c *sql.Conn) error {
	var version string
	if err := c.QueryRowContext(ctx, "select sqlite_version()").Scan(&version); err != nil {
		return Scrub(err)
	}
	if !safeVersion(version) {
		return &UnsafeError{Setting: "sqlite_version", Have: version,
			Advice: "this release can lose committed pages when a writer meets a checkpoint: use SQLite 3.51.3 or later (modernc.org/sqlite 1.46.2 or later)"}
	}
	// Read first: on a file that is no database this is where the driver says so.
	var mode string
	if err := c.QueryRowContext(ctx, "pragma journal_mode").Scan(&mode); err != nil {
		return Scrub(err)
	}
	if !strings.EqualFold(mode, "wal") {
		return &UnsafeError{Setting: "journal_mode", Have: mode, Advice: "open a file on a local disk with _pragma=journal_mode(wal)"}
	}
	checks := []struct {
		name   string
		least  int64
		advice string
	}{
		{"busy_timeout", leastBusyTimeout, "open it with _pragma=busy_timeout(5000)"},
		{"synchronous", fullSync, "open it with _pragma=synchronous(full)"},
		{"foreign_keys", 1, "open it with _pragma=foreign_keys(1)"},
	}
	if runtime.GOOS == "darwin" {
		checks = append(checks, struct {
			name   string
			least  int64
			advice string
		}{"fullfsync", 1, "open it with _pragma=fullfsync(1): without it macOS does not flush the disk"})
	}
	for _, k := range checks {
		var v int64
		if err := c.QueryRowContext(ctx, "pragma "+k.name).Scan(&v); err != nil {
			return Scrub(err)
		}
		if v < k.least {
			return &UnsafeError{Setting: k.name, Have: strconv.FormatInt(v, 10), Advice: k.advice}
		}
	}
	return nil
}

func quickCheck(ctx context.Context, c *sql.Conn) error {
	var pages, size int64
	if err := errors.Join(
		c.QueryRowContext(ctx, "pragma page_count").Scan(&pages),
		c.QueryRowContext(ctx, "pragma page_size").Scan(&size),
	); err != nil {
		return Scrub(err)
	}
	if pages*size > largestChecked {
		return nil
	}
	var verdict string
	if err := c.QueryRowContext(ctx, "pragma quick_check(1)").Scan(&verdict); err != nil {
		return Scrub(err)
	}
	if verdict != "ok" {
		return &Error{Class: Corrupt, cause: ErrCorrupt}
	}
	return nil
}

// safeVersion knows the releases that carry the fix: 3.51.3 on, and the patch releases 3.50.7 and
// 3.44.6 of their branches. 3.52.0 was withdrawn.
func safeVersion(v string) bool {
	var major, minor, patch int
	if n, err := fmt.Sscanf(v, "%d.%d.%d", &major, &minor, &patch); n != 3 || err != nil {
		return false
	}
	if major != 3 {
		return major > 3
	}
	switch minor {
	case 44:
		return patch >= 6
	case 50:
		return patch >= 7
	case 51:
		return patch >= 3
	case 52:
		return patch > 0
	}
	return minor > 52
}
