package leasepg_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/lease"
	"github.com/tallystick-go/tallystick/lease/leasepg"
)

// workerEnv holds a worker's orders, as JSON.
const workerEnv = "TALLYSTICK_LEASE_WORKER"

// orders are what a process is started with. It goes on at each line that it is sent, and ends when there is no more.
type orders struct {
	DSN, Schema, Role string
	TTL               time.Duration
}

type worker struct {
	orders
	pool   *pgxpool.Pool
	leaser *leasepg.Leaser
	in     *bufio.Scanner
}

// work is a process's life. What it says goes to its parent, a line each.
func work(text string) error {
	w := worker{in: bufio.NewScanner(os.Stdin)}
	if err := json.Unmarshal([]byte(text), &w.orders); err != nil {
		return err
	}
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(w.DSN)
	if err != nil {
		return err
	}
	config.MaxConns = 2
	if w.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	defer w.pool.Close()
	if w.leaser, err = leasepg.New(w.pool, &leasepg.Options{Schema: w.Schema}); err != nil {
		return err
	}
	if err := w.pool.Ping(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	return map[string]func(context.Context) error{"race": w.race, "hold": w.hold, "keep": w.keep}[w.Role](ctx)
}

func (w *worker) claim() lease.Claim {
	return lease.Claim{Name: name, Holder: lease.NewHolder(fmt.Sprint("process-", os.Getpid())), TTL: w.TTL}
}

// race asks each time that it is told to.
func (w *worker) race(ctx context.Context) error {
	for w.in.Scan() {
		held, err := w.leaser.Acquire(ctx, w.claim())
		switch {
		case errors.Is(err, lease.ErrHeld):
			fmt.Println("lost")
		case err != nil:
			return err
		default:
			fmt.Println("won", held.Generation)
		}
	}
	return nil
}

// hold acquires, then writes under a fence when it is told to; and once more, where it says when it is between
// fence and write.
func (w *worker) hold(ctx context.Context) error {
	held, err := w.leaser.Acquire(ctx, w.claim())
	if err != nil {
		return err
	}
	fmt.Println("holds", held.Generation)
	for w.in.Scan() {
		err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
			if err := w.leaser.Fence(ctx, tx, held); err != nil {
				return err
			}
			if w.in.Text() == "slowly" {
				fmt.Println("fenced")
				w.in.Scan()
			}
			return w.write(ctx, tx, held)
		})
		switch {
		case errors.Is(err, lease.ErrLost):
			fmt.Println("lost")
		case err != nil:
			fmt.Println("failed")
		default:
			fmt.Println("wrote")
		}
	}
	return nil
}

func (w *worker) write(ctx context.Context, tx pgx.Tx, held lease.Lease) error {
	_, err := tx.Exec(ctx, "insert into "+w.Schema+".written (generation, holder) values ($1, $2)", int64(held.Generation), held.Holder)
	return err
}

// keep is a replica: it writes in every cycle in which it holds the lease, until its input ends.
func (w *worker) keep(ctx context.Context) error {
	k, err := lease.NewKeeper(w.leaser, []string{name}, &lease.KeeperOptions{TTL: w.TTL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	fmt.Println("keeps", k.Holder())
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for w.in.Scan() {
		}
		cancel()
	}()
	for ctx.Err() == nil {
		if _, err := k.Await(ctx, name); err != nil {
			break
		}
		err := k.Do(ctx, name, func(ctx context.Context, held lease.Lease) error {
			return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
				if err := w.leaser.Fence(ctx, tx, held); err != nil {
					return err
				}
				return w.write(ctx, tx, held)
			})
		})
		_ = err // lost, or the connection was: the next cycle asks anew
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	return k.Close(context.Background())
}
