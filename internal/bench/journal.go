package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
	"github.com/tallystick-go/tallystick/quota"
)

// journalRows compare reservations with the barest durable append, and with the same row
// inserted by a commit of its own.
func journalRows() (list []row) {
	for _, callers := range []int{1, 8, 32, 128} {
		list = append(list, row{name: "journal/reserve", store: "sqlite", callers: callers, ceiling: "append-fdatasync", journal: bareAppend})
	}
	return append(list, row{name: "journal/reserve", store: "sqlite", callers: 64, ceiling: "sqlite-insert", journal: bareInsert})
}

// node is a journal with more credit than any bench uses, of two budgets.
type node struct {
	j     *journal.Journal
	store *journalsqlite.Store
	needs []journal.Need
	took  atomic.Int64
}

const (
	benchLimit = amount.MicroUSD(1_000_000_000_000_000)
	benchCost  = amount.MicroUSD(5_000)
)

func (e *environment) node(ctx context.Context) (*node, error) {
	path, err := e.file()
	if err != nil {
		return nil, err
	}
	file, err := journalsqlite.Claim(path, nil)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", file.DSN())
	if err != nil {
		return nil, err
	}
	e.files = append(e.files, db)
	n := &node{store: journalsqlite.New(db, file, nil)}
	if err := n.store.Migrate(ctx); err != nil {
		return nil, err
	}
	if n.j, err = journal.Open(ctx, n.store, &journal.Options{Node: "node-1"}); err != nil {
		return nil, err
	}
	month, err := quota.Calendar{Period: quota.Month}.Window(time.Now().UnixMicro())
	if err != nil {
		return nil, err
	}
	answer := &escrow.Answer{Now: month.Start}
	for _, rule := range []string{"team-month", "user-month"} {
		a := escrow.Account{Policy: "bench", Rule: rule, Subject: policy.Subject{Team: "bench"}, Period: quota.Month, Window: month}
		answer.Definitions = append(answer.Definitions, escrow.Definition{Account: a, Hard: true, Limit: benchLimit, Grant: benchLimit, Renew: time.Hour})
		n.needs = append(n.needs, journal.Need{Account: a, Amount: benchCost})
	}
	for range 2 { // the first answer says what there is, the second grants it
		if len(answer.Grants) == 0 && n.j.Ready() {
			if err := n.reserve(ctx, 0); !errors.Is(err, journal.ErrShortage) {
				return nil, fmt.Errorf("nothing is short: %w", err)
			}
		}
		beat, err := n.j.Next(ctx, false)
		if err != nil {
			return nil, err
		}
		for _, r := range beat.Requests {
			answer.Grants = append(answer.Grants, escrow.Grant{ID: r.ID, Account: r.Account, Amount: r.Amount, ExpiresAt: month.End})
		}
		if err := n.j.Take(ctx, beat, answer, time.Now()); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *node) reserve(ctx context.Context, _ int) error {
	err := n.j.Reserve(ctx, journal.Reservation{ID: journal.NewID(), Needs: n.needs})
	if err == nil {
		n.took.Add(1)
	}
	return err
}

// check holds the books against what callers were told.
func (n *node) check(ctx context.Context) error {
	s, err := journal.Look(ctx, n.store)
	if err != nil {
		return err
	}
	for _, a := range s.Accounts {
		if want := amount.MicroUSD(n.took.Load()) * benchCost; a.Reserved != want || a.Open != a.Free+want {
			return fmt.Errorf("callers were told of %d, the journal has %d of %d and %d free", want, a.Reserved, a.Open, a.Free)
		}
	}
	return nil
}

// bareAppend appends as much as a reservation needs and flushes it.
func bareAppend(_ context.Context, e *environment) (load, error) {
	path, err := e.file()
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	payload := make([]byte, 128)
	return func(context.Context, int) error {
		if _, err := file.Write(payload); err != nil {
			return err
		}
		return flush(file)
	}, nil
}

// bareInsert commits one row per call, synchronous=FULL.
func bareInsert(ctx context.Context, e *environment) (load, error) {
	db, err := e.sqlite()
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `create table bench_insert (id blob primary key, fingerprint blob, portions blob, state integer) strict, without rowid`); err != nil {
		return nil, err
	}
	insert, err := db.PrepareContext(ctx, `insert into bench_insert values (?, ?, ?, 1)`)
	if err != nil {
		return nil, err
	}
	fingerprint, portions := make([]byte, 16), make([]byte, 64)
	var one sync.Mutex // SQLite has one writer: waiting here is the fastest way
	return func(ctx context.Context, _ int) error {
		id := journal.NewID()
		one.Lock()
		defer one.Unlock()
		_, err := insert.ExecContext(ctx, id[:], fingerprint, portions)
		return err
	}, nil
}

// measureJournal runs reservations and their ceiling in turns.
func (r row) measureJournal(ctx context.Context, env *environment) (*result, error) {
	n, err := env.node(ctx)
	if err != nil {
		return nil, err
	}
	defer n.j.Close()
	bare, err := r.journal(ctx, env)
	if err != nil {
		return nil, err
	}
	var mine, theirs []sample
	for range env.options.rounds {
		s, err := drive(ctx, r.callers, env.options.length, n.reserve)
		if err != nil {
			return nil, err
		}
		mine = append(mine, s)
		if s, err = drive(ctx, r.callers, env.options.length/2, bare); err != nil {
			return nil, err
		}
		theirs = append(theirs, s)
	}
	if err := n.check(ctx); err != nil {
		return nil, err
	}
	out := &result{
		Name: r.name, Store: r.store, Callers: r.callers, Gateways: 1, Ceiling: r.ceiling,
		Ops: pick(mine, func(s sample) float64 { return s.ops }), P50: pick(mine, func(s sample) float64 { return s.p50 }),
		P99: pick(mine, func(s sample) float64 { return s.p99 }), Allocs: pick(mine, func(s sample) float64 { return s.allocs }),
		CeilingOps: pick(theirs, func(s sample) float64 { return s.ops }),
	}
	out.Ratio = out.Ops / out.CeilingOps
	fmt.Fprintf(os.Stderr, "# %s: %d reservations of two budgets, all found\n", r.label(), n.took.Load())
	return out, nil
}
