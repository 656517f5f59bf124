package governancepg

import (
	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keyspg"
)

// definitions queues the reading of what keys and teams are now, through the key
// store's own statement.
func (l *load) definitions(b *pgx.Batch) {
	l.loaded.Definitions = make([]keys.Definition, len(l.plan.Keys))
	keyspg.QueueDefinitions(b, l.s.schema.Name(), l.plan.Keys, func(i int, d keys.Definition) { l.loaded.Definitions[i] = d })
}
