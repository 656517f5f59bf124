package eventlogpg

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/eventlog"
)

// Holder is a transaction that is open. It delays nobody's events but its own, and retention and vacuum.
type Holder struct {
	XID         uint64
	PID         int64  // 0 where it is prepared, or cannot be told
	Application string // application_name, where the caller may see it
	Database    string
	State       string        // such as "idle in transaction"
	Prepared    string        // the name of a prepared transaction
	For         time.Duration // how long it has been open; 0 where the caller may not see it
}

// mostHolders bounds how many transactions are looked for.
const mostHolders = 1000

// Holders tells whose transactions a cursor still waits for, of the whole cluster, oldest first. Without
// pg_read_all_stats Postgres hides other users' names and times.
//
// Errors: eventlog.ErrStandby, ErrUnavailable.
func (s *Store) Holders(ctx context.Context, c eventlog.Cursor) ([]Holder, error) {
	open := c.Open()
	xids := open.Running
	for x := open.Max; x < open.Next && len(xids) < mostHolders; x++ {
		xids = append(xids[:len(xids):len(xids)], x)
	}
	if len(xids) > mostHolders {
		xids = xids[:mostHolders]
	}
	var b pgx.Batch
	var out []Holder
	all(b.Queue(selectHolders, texts(xids)), &out, func(row pgx.Row) (Holder, error) {
		var h Holder
		var xid string
		var micros int64
		if err := row.Scan(&xid, &h.PID, &h.Application, &h.Database, &h.State, &h.Prepared, &micros); err != nil {
			return h, err
		}
		h.For = time.Duration(micros) * time.Microsecond
		var err error
		h.XID, err = strconv.ParseUint(xid, 10, 64)
		return h, err
	})
	return out, s.read(ctx, &b)
}
