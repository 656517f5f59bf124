package main

import (
	"context"
	"sync"
)

// sqliteCeiling is a one-row update per commit, synchronous=FULL.
func (e *environment) sqliteCeiling(ctx context.Context) (*ceiling, error) {
	db, err := e.sqlite()
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	for _, sql := range []string{`create table bench_ceiling (id integer primary key, n integer not null)`, `insert into bench_ceiling values (1, 0)`} {
		if _, err := db.ExecContext(ctx, sql); err != nil {
			return nil, err
		}
	}
	update, err := db.PrepareContext(ctx, `update bench_ceiling set n = n + 1 where id = 1`)
	if err != nil {
		return nil, err
	}
	var one sync.Mutex // SQLite has one writer: waiting here is the fastest way
	return &ceiling{name: "sqlite-update", loads: map[int]load{1: func(ctx context.Context, _ int) error {
		one.Lock()
		defer one.Unlock()
		_, err := update.ExecContext(ctx)
		return err
	}}}, nil
}
