// Package pgtx is what the Postgres adapters share: schema names, transactions that are
// begun and committed in one round trip each, the classes of failure, and the barrier that
// an edit passes before it returns.
package pgtx

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"regexp"
	"strings"
)

// DefaultSchema is used where a caller names none.
const DefaultSchema = "tallystick"

// Placeholder stands for the quoted schema in SQL text.
const Placeholder = "{{schema}}"

// ErrSchemaName refuses a schema name that is not ^[a-z_][a-z0-9_]{0,62}$ or that Postgres keeps for itself.
var ErrSchemaName = errors.New("tallystick: a schema name is 1 to 63 of a-z, 0-9 and _, does not start with a digit, and is not one of Postgres's own")

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Schema is a validated schema name. The zero Schema is not usable.
type Schema struct {
	name    string
	key     int64
	migrate int64
}

// ParseSchema validates a name; "" is DefaultSchema.
func ParseSchema(name string) (Schema, error) {
	if name == "" {
		name = DefaultSchema
	}
	if !schemaName.MatchString(name) || strings.HasPrefix(name, "pg_") || name == "information_schema" {
		return Schema{}, ErrSchemaName
	}
	return Schema{name: name, key: lockKey("barrier", name), migrate: lockKey("migrate", name)}, nil
}

// lockKey depends on the schema's name alone: never on a DSN, which differs between
// gateways that share a database. Advisory keys are per database already.
func lockKey(purpose, name string) int64 {
	sum := sha256.Sum256([]byte("tallystick\x00" + purpose + "\x00" + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// Name is the bare name.
func (s Schema) Name() string { return s.name }

// Quoted is the name as an SQL identifier.
func (s Schema) Quoted() string { return `"` + s.name + `"` }

// Table is a qualified, quoted table name; the table must be a constant of the program.
func (s Schema) Table(table string) string { return s.Quoted() + `."` + table + `"` }

// Splice puts the schema into SQL text, once, when a store is made.
func (s Schema) Splice(sql string) string { return strings.ReplaceAll(sql, Placeholder, s.Quoted()) }

// LockKey is the advisory key that admissions hold in shared mode and edits wait on.
func (s Schema) LockKey() int64 { return s.key }

// MigrateKey is the advisory key that migrations of this schema serialize on. It is not
// LockKey: a migration does not wait for admissions by itself, only where its DDL does.
func (s Schema) MigrateKey() int64 { return s.migrate }
