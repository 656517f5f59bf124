package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
)

const (
	appenders = 16
	eventSize = 200 // bytes of data
)

// pair is something and what it is compared with, run in turns.
type pair struct {
	mine, theirs func(ctx context.Context, length time.Duration) (sample, error)
	check        func(ctx context.Context) error // afterwards, if any
}

// eventlogRows compare appends with a bare insert and with positions from a counter's row, delivery with delivery beside an open
// transaction, and a page of a large log with one of a small.
func eventlogRows() []row {
	return []row{
		{name: "eventlog/append", store: "postgres", callers: appenders, ceiling: "insert", pair: appendAgainstInsert},
		{name: "eventlog/append-shared", store: "postgres", callers: appenders, ceiling: "insert", pair: sharedAgainstInsert},
		{name: "eventlog/append-counted", store: "postgres", callers: appenders, ceiling: "counter-row", pair: appendAgainstCounter},
		{name: "eventlog/tail-open-tx", store: "postgres", callers: 1, ceiling: "nothing-open", pair: deliverBesideOpen, latency: true},
		{name: "eventlog/deliver-listen", store: "postgres", callers: 1, ceiling: "woken-inside", pair: deliverByHint, latency: true},
		{name: "eventlog/tail-page", store: "postgres", callers: 1, ceiling: "thousand-events", pair: pageOfMany},
	}
}

// measurePair runs both sides in turns. The ratio is of operations, or where latency counts of medians.
func (r row) measurePair(ctx context.Context, env *environment) (*result, error) {
	p, err := r.pair(ctx, env)
	if err != nil {
		return nil, err
	}
	var mine, theirs []sample
	for range env.options.rounds {
		s, err := p.mine(ctx, env.options.length)
		if err != nil {
			return nil, err
		}
		mine = append(mine, s)
		if s, err = p.theirs(ctx, env.options.length); err != nil {
			return nil, err
		}
		theirs = append(theirs, s)
	}
	if p.check != nil {
		if err := p.check(ctx); err != nil {
			return nil, err
		}
	}
	out := &result{
		Name: r.name, Store: r.store, Callers: r.callers, Gateways: 1, Ceiling: r.ceiling,
		Ops: pick(mine, func(s sample) float64 { return s.ops }), P50: pick(mine, func(s sample) float64 { return s.p50 }),
		P99: pick(mine, func(s sample) float64 { return s.p99 }), Allocs: pick(mine, func(s sample) float64 { return s.allocs }),
		WAL: pick(mine, func(s sample) float64 { return s.wal }), CeilingOps: pick(theirs, func(s sample) float64 { return s.ops }),
	}
	out.Ratio = out.Ops / out.CeilingOps
	if r.latency {
		out.Ratio = pick(theirs, func(s sample) float64 { return s.p50 }) / out.P50
		fmt.Fprintf(os.Stderr, "# %s: ratio of medians; the other side's is %.0f µs\n", r.label(), pick(theirs, func(s sample) float64 { return s.p50 }))
	}
	return out, nil
}

func (e *environment) eventStore(ctx context.Context, connections int) (*eventlogpg.Store, *pgxpool.Pool, string, error) {
	pool, err := e.pool(ctx, connections)
	if err != nil {
		return nil, nil, "", err
	}
	schema := e.schema()
	s, err := eventlogpg.New(pool, &eventlogpg.Options{Schema: schema})
	if err != nil {
		return nil, nil, "", err
	}
	return s, pool, schema, s.Migrate(ctx)
}

// repeat makes a side of what callers repeat.
func repeat(callers int, op load) func(context.Context, time.Duration) (sample, error) {
	return func(ctx context.Context, length time.Duration) (sample, error) {
		return drive(ctx, callers, length, op)
	}
}

// appending is a load of appends at the expected version, a stream for each caller.
type appending struct {
	s        *eventlogpg.Store
	do       func(ctx context.Context, a eventlog.Append) (eventlog.Appended, error)
	versions [appenders]int64
	count    atomic.Int64
}

func (a *appending) op(ctx context.Context, caller int) error {
	expect := eventlog.Empty
	if v := a.versions[caller]; v > 0 {
		expect = eventlog.Expect(v)
	}
	n := a.count.Add(1)
	out, err := a.do(ctx, eventlog.Append{
		Stream: fmt.Sprintf("stream-%d", caller), Expect: expect, Producer: "bench",
		Events: []eventlog.Event{{ID: fmt.Sprintf("event-%016d", n), Type: "ToolInvocationCompleted", Schema: 1, Data: make([]byte, eventSize)}},
	})
	if err == nil {
		a.versions[caller] = out.Version
	}
	return err
}

// check holds the log against what the callers were told.
func (a *appending) check(ctx context.Context) error {
	var told int64
	for _, v := range a.versions {
		told += v
	}
	var cursor eventlog.Cursor
	found := int64(0)
	for more := true; more; {
		page, err := a.s.Read(ctx, eventlog.Read{Cursor: cursor, Limit: eventlog.MaxPage})
		if err != nil {
			return err
		}
		found += int64(len(page.Events))
		cursor, more = page.Next, page.More
	}
	if told != found || told != a.count.Load() {
		return fmt.Errorf("callers were told of %d events, %d came, %d were tried", told, found, a.count.Load())
	}
	return nil
}

func (e *environment) appending(ctx context.Context, shared bool) (*appending, *pgxpool.Pool, error) {
	s, pool, _, err := e.eventStore(ctx, appenders)
	if err != nil {
		return nil, nil, err
	}
	a := &appending{s: s}
	a.do = func(ctx context.Context, one eventlog.Append) (eventlog.Appended, error) {
		out, err := s.Append(ctx, []eventlog.Append{one})
		if err != nil {
			return eventlog.Appended{}, err
		}
		return out[0], nil
	}
	if shared {
		l, err := eventlog.New(unhinted{s}, nil) // nobody listens; what hints cost is in deliver-listen
		if err != nil {
			return nil, nil, err
		}
		a.do = func(ctx context.Context, one eventlog.Append) (eventlog.Appended, error) {
			out, err := l.Append(ctx, one)
			if err != nil {
				return eventlog.Appended{}, err
			}
			return out[0], nil
		}
	}
	return a, pool, nil
}

// unhinted hides that the store can tell others.
type unhinted struct{ eventlog.Store }

func (e *environment) inserts(ctx context.Context) (func(context.Context, time.Duration) (sample, error), error) {
	c, err := e.postgresCeiling(ctx, "insert", appenders)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, length time.Duration) (best sample, err error) {
		for _, op := range c.loads {
			s, err := drive(ctx, appenders, length/2, op)
			if err != nil {
				return s, err
			}
			if s.ops > best.ops {
				best = s
			}
		}
		return best, nil
	}, nil
}

func againstInsert(ctx context.Context, e *environment, shared bool) (pair, error) {
	a, _, err := e.appending(ctx, shared)
	if err != nil {
		return pair{}, err
	}
	theirs, err := e.inserts(ctx)
	return pair{mine: repeat(appenders, a.op), theirs: theirs, check: a.check}, err
}

func appendAgainstInsert(ctx context.Context, e *environment) (pair, error) {
	return againstInsert(ctx, e, false)
}

func sharedAgainstInsert(ctx context.Context, e *environment) (pair, error) {
	return againstInsert(ctx, e, true)
}

// appendAgainstCounter compares with the same row at a position from a counter's row, in one statement.
func appendAgainstCounter(ctx context.Context, e *environment) (pair, error) {
	a, pool, err := e.appending(ctx, false)
	if err != nil {
		return pair{}, err
	}
	for _, sql := range []string{
		`create table if not exists bench_counter (one boolean primary key, n bigint not null) with (fillfactor = 50)`,
		`insert into bench_counter values (true, 0) on conflict do nothing`,
		`create table if not exists bench_counted (position bigint primary key, stream text not null, id text not null unique, data bytea not null)`,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return pair{}, err
		}
	}
	var n atomic.Int64
	payload := make([]byte, eventSize)
	theirs := func(ctx context.Context, caller int) error {
		_, err := pool.Exec(ctx, `with c as (update bench_counter set n = n + 1 returning n) insert into bench_counted select c.n, $1::text, $2::text, $3::bytea from c`,
			fmt.Sprintf("stream-%d", caller), fmt.Sprintf("event-%016d", n.Add(1)), payload)
		return err
	}
	return pair{mine: repeat(appenders, a.op), theirs: repeat(appenders, theirs), check: a.check}, nil
}

// delivery measures from the end of an append to the event's arrival at a tailer, at 200 events a second.
func delivery(s *eventlogpg.Store, count *atomic.Int64, tail *eventlog.Tailer, after func()) func(context.Context, time.Duration) (sample, error) {
	return func(ctx context.Context, length time.Duration) (sample, error) {
		var took []time.Duration
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		for end := time.Now().Add(length); time.Now().Before(end); {
			<-pace.C
			id := fmt.Sprintf("event-%d", count.Add(1))
			committed := make(chan time.Time, 1)
			failed := make(chan error, 1)
			go func() {
				_, err := s.Append(ctx, []eventlog.Append{{Stream: "a", Producer: "bench", Events: []eventlog.Event{{ID: id, Type: "t", Schema: 1, Data: make([]byte, eventSize)}}}})
				committed <- time.Now()
				if err != nil {
					failed <- err
				}
				after()
			}()
			page, err := tail.Next(ctx)
			if err != nil {
				return sample{}, err
			}
			arrived := time.Now()
			if page.Events[len(page.Events)-1].ID != id {
				return sample{}, fmt.Errorf("%s came for %s", page.Events[0].ID, id)
			}
			took = append(took, max(0, arrived.Sub(<-committed)))
			select {
			case err := <-failed:
				return sample{}, err
			default:
			}
		}
		slices.Sort(took)
		at := func(q int) float64 { return float64(took[len(took)*q/100]) / float64(time.Microsecond) }
		return sample{ops: float64(len(took)) / length.Seconds(), p50: at(50), p99: at(99), count: int64(len(took))}, nil
	}
}

// woken is a tailer that is woken in this process once an append has returned.
func (e *environment) woken(ctx context.Context, s *eventlogpg.Store) (*eventlog.Tailer, func(), error) {
	head, err := s.Head(ctx)
	if err != nil {
		return nil, nil, err
	}
	wake := make(chan struct{}, 1)
	tail, err := eventlog.NewTailer(s, eventlog.TailOptions{From: head, Wake: wake, Poll: time.Hour})
	return tail, func() { wake <- struct{}{} }, err
}

// deliverBesideOpen compares delivery while another transaction has appended and is open with delivery while none is.
func deliverBesideOpen(ctx context.Context, e *environment) (pair, error) {
	s, pool, _, err := e.eventStore(ctx, 8)
	if err != nil {
		return pair{}, err
	}
	tail, wake, err := e.woken(ctx, s)
	if err != nil {
		return pair{}, err
	}
	var count atomic.Int64
	deliver := delivery(s, &count, tail, wake)
	beside := func(ctx context.Context, length time.Duration) (sample, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return sample{}, err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		_, err = s.AppendTx(ctx, tx, eventlog.Append{Stream: "open", Producer: "bench", Events: []eventlog.Event{{ID: fmt.Sprint("open-", count.Add(1)), Type: "t", Schema: 1}}})
		if err != nil {
			return sample{}, err
		}
		return deliver(ctx, length)
	}
	return pair{mine: beside, theirs: deliver}, nil
}

// deliverByHint compares delivery by NOTIFY with a wake inside of the process.
func deliverByHint(ctx context.Context, e *environment) (pair, error) {
	s, _, _, err := e.eventStore(ctx, 8)
	if err != nil {
		return pair{}, err
	}
	var count atomic.Int64
	tail, wake, err := e.woken(ctx, s)
	if err != nil {
		return pair{}, err
	}
	hinted := s.Listen(ctx, nil)
	<-hinted
	return pair{
		mine: func(ctx context.Context, length time.Duration) (sample, error) {
			head, err := s.Head(ctx)
			if err != nil {
				return sample{}, err
			}
			listening, err := eventlog.NewTailer(s, eventlog.TailOptions{From: head, Wake: hinted, Poll: time.Hour})
			if err != nil {
				return sample{}, err
			}
			return delivery(s, &count, listening, func() { _ = s.Hint(ctx) })(ctx, length)
		},
		theirs: func(ctx context.Context, length time.Duration) (sample, error) {
			head, err := s.Head(ctx)
			if err != nil {
				return sample{}, err
			}
			tail.Seek(head)
			return delivery(s, &count, tail, wake)(ctx, length)
		},
	}, nil
}

// pageOfMany reads pages of 100 of a log as large as the flag says, from anywhere in it, and of one of a thousand events. Every
// cursor has three transactions to look for that were open.
func pageOfMany(ctx context.Context, e *environment) (pair, error) {
	var loads []load
	for _, n := range []int{e.options.events, 1000} {
		s, pool, schema, err := e.eventStore(ctx, 4)
		if err != nil {
			return pair{}, err
		}
		began := time.Now()
		if _, err := pool.Exec(ctx, fmt.Sprintf(`insert into %[1]q.events (xid, version, schema, stream, id, type, producer, data)
			select '3', 1 + i / 1000, 1, 's' || i %% 1000, 'i' || i, 't', 'p', decode(repeat('00', %[3]d), 'hex') from generate_series(1, %[2]d) i order by i`, schema, n, eventSize)); err != nil {
			return pair{}, err
		}
		if _, err := pool.Exec(ctx, fmt.Sprintf("vacuum analyze %q.events", schema)); err != nil {
			return pair{}, err
		}
		fmt.Fprintf(os.Stderr, "# %d events were made in %.0f s\n", n, time.Since(began).Seconds())
		cursors, err := anywhere(ctx, s, pool, n)
		if err != nil {
			return pair{}, err
		}
		var turn atomic.Int64
		loads = append(loads, func(ctx context.Context, _ int) error {
			page, err := s.Read(ctx, eventlog.Read{Cursor: cursors[int(turn.Add(1))%len(cursors)], Limit: 100})
			if err == nil && len(page.Events) != 100 {
				err = fmt.Errorf("a page has %d events, not 100", len(page.Events))
			}
			return err
		})
		if _, err := drive(ctx, 1, e.options.length, loads[len(loads)-1]); err != nil { // a warm-up
			return pair{}, err
		}
	}
	return pair{mine: repeat(1, loads[0]), theirs: repeat(1, loads[1])}, nil
}

// anywhere makes cursors all over the log, while three transactions are open.
func anywhere(ctx context.Context, s *eventlogpg.Store, pool *pgxpool.Pool, n int) (list []eventlog.Cursor, err error) {
	extra, err := pgxpool.NewWithConfig(ctx, pool.Config())
	if err != nil {
		return nil, err
	}
	defer extra.Close()
	const open = 3 // of a pool of four
	for range open {
		tx, err := extra.Begin(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, "select pg_current_xact_id()"); err != nil {
			return nil, err
		}
	}
	for i := range 50 {
		c, err := s.At(ctx, int64(1+i*(n-200)/50))
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}
