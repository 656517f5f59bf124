package policypg

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/internal/pgtx"
)

// MarkColumn is an SQL expression for the mark in force, to be carried along by a statement
// that reads something else, at no round trip of its own. Its value is read by ParseMark. The
// expression has no parameters, is evaluated once per statement, and is null where the row
// is gone. It locks nothing: the transaction must have entered the barrier
// ([pgtx.SharedLock]) in an earlier statement.
//
// The schema's name must have been validated.
func MarkColumn(schema string) string { return splice(scalarMark, schema) }

// ParseMark reads the value of MarkColumn. Errors: *policy.CorruptError.
func ParseMark(value []byte) (policy.Mark, error) {
	var m policy.Mark
	if len(value) != len(m.Namespace)+len(m.Generation)+8 {
		return m, &policy.CorruptError{Why: "the row that says which set is in force is gone"}
	}
	value = value[copy(m.Namespace[:], value):]
	value = value[copy(m.Generation[:], value):]
	m.Revision = int64(binary.BigEndian.Uint64(value))
	return m, nil
}

// QueueMark adds to the caller's pipeline one statement that reads the mark in force, and calls
// collect while the pipeline's results are read. The transaction must have entered
// the barrier ([pgtx.SharedLock]) before. The schema's name must have been validated.
//
// Errors: the pipeline ends with a *policy.CorruptError where the row is gone.
func QueueMark(b *pgx.Batch, schema string, collect func(policy.Mark)) {
	b.Queue("select " + MarkColumn(schema)).QueryRow(func(row pgx.Row) error {
		var value []byte
		if err := row.Scan(&value); err != nil {
			return err
		}
		m, err := ParseMark(value)
		if err == nil {
			collect(m)
		}
		return err
	})
}

func splice(sql, schema string) string {
	s, err := pgtx.ParseSchema(schema)
	if err != nil {
		panic("policypg: the schema's name was not validated: " + err.Error())
	}
	return s.Splice(sql)
}
