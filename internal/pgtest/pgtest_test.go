package pgtest_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/internal/pgtest/pgserver"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func TestNew(t *testing.T) {
	a, b := pgtest.New(t), pgtest.New(t)
	if a.Schema == b.Schema {
		t.Fatal("two tests share a schema")
	}
	ctx := context.Background()
	for _, db := range []*pgtest.DB{a, b} {
		if _, err := db.Pool.Exec(ctx, "create table "+db.Schema+".x (i int)"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOwnIsDroppedAndComesBack(t *testing.T) {
	s := pgtest.Own(t, "max_connections=20")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool := pgtest.Connect(t, s.DSN(), nil)
	if _, err := pool.Exec(ctx, "create table kept (i int)"); err != nil {
		t.Fatal(err)
	}
	for _, end := range []struct {
		name string
		do   func() error
	}{
		{"fast", func() error { return s.Stop(ctx, pgserver.Fast) }},
		{"immediate", func() error { return s.Stop(ctx, pgserver.Immediate) }},
		{"kill", func() error { return s.Kill(ctx) }},
	} {
		if err := end.do(); err != nil {
			t.Fatal(end.name, err)
		}
		if err := pool.Ping(ctx); err == nil {
			t.Fatal(end.name, "left the server up")
		}
		if err := s.Start(ctx); err != nil {
			t.Fatal(end.name, err)
		}
		var max string
		if err := pool.QueryRow(ctx, "select current_setting('max_connections') from (select count(*) from kept) k").Scan(&max); err != nil || max != "20" {
			t.Fatal(end.name, max, err)
		}
	}
}

func TestPause(t *testing.T) {
	s := pgtest.Own(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool := pgtest.Connect(t, s.DSN(), nil)
	if err := pool.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- pool.Ping(ctx) }()
	select {
	case err := <-answered:
		t.Fatal("a paused server answered:", err)
	case <-time.After(200 * time.Millisecond): // the only way to see that nothing happens
	}
	if err := s.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
}
