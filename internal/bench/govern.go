package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the SQLite driver

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

// governed is a governor over one database with its teams and keys.
type governed struct {
	backend    governance.Backend
	gov        *governance.Governor
	pool       *pgxpool.Pool
	schema     string
	teams      []keys.Team
	principals []keys.Principal
	perMinute  int64 // the request rate that the limits drain at, over all teams
	admitted   atomic.Int64
	found      int64
	accounts   int64
	levels     string
	speed      float64 // admissions per second, as calibrated
	ahead      []*governance.Permit
	next       atomic.Int64 // of ahead
}

const (
	tokensEach = 1000
	costEach   = 5000
	teamsWide  = 1000
	keysEach   = 10
)

func (e *environment) ceiling(ctx context.Context, r row) (*ceiling, error) {
	if r.store == "postgres" {
		return e.postgresCeiling(ctx, r.ceiling, r.callers)
	}
	return e.sqliteCeiling(ctx)
}

// govern opens an empty database with the row's teams and keys.
func (e *environment) govern(ctx context.Context, r row) (*governed, error) {
	g := &governed{}
	options := &governance.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	switch r.store {
	case "postgres":
		pool, err := e.pool(ctx, 4)
		if err != nil {
			return nil, err
		}
		g.pool, g.schema = pool, e.schema()
		db, err := governancepg.Open(pool, &governancepg.Options{Schema: g.schema})
		if err != nil {
			return nil, err
		}
		if err := db.Migrate(ctx); err != nil {
			return nil, err
		}
		g.backend = db
	case "sqlite":
		handle, err := e.sqlite()
		if err != nil {
			return nil, err
		}
		db := governancesqlite.Open(handle, nil)
		if err := db.Migrate(ctx); err != nil {
			return nil, err
		}
		g.backend = db
	default:
		return nil, fmt.Errorf("no store %q", r.store)
	}
	var err error
	if g.gov, err = governance.New(g.backend, options); err != nil {
		return nil, err
	}
	teams, each := 1, 1
	if r.spread {
		teams, each = teamsWide, keysEach
	}
	if err := g.policies(ctx, teams); err != nil {
		return nil, err
	}
	return g, g.populate(ctx, teams, each)
}

func (e *environment) sqlite() (*sql.DB, error) {
	path, err := e.file()
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)")
	if err == nil {
		e.files = append(e.files, db)
	}
	return db, err
}

// limitsAt are six of seven constraints: requests and tokens of the key; requests, tokens, a
// day's tokens and a month's money of the team. The seventh is a month's money by a policy.
func limitsAt(perMinute int64, team bool) keys.Limits {
	l := keys.Limits{RequestsPerMinute: keys.Limit(max(perMinute, 1000)), TokensPerMinute: keys.Limit(max(perMinute, 1000) * tokensEach)}
	if team {
		l.TokensPerDay, l.CostPerMonth = keys.Limit(1_000_000_000_000_000), keys.Cost(1_000_000_000_000_000)
	}
	return l
}

// policies gives each team a document with the seventh.
func (g *governed) policies(ctx context.Context, teams int) error {
	store := g.backend.Backend().Policies
	documents := make([]policy.Document, teams)
	for i := range documents {
		documents[i] = policy.Document{Name: fmt.Sprintf("policy-%d", i), Subject: policy.Subject{Team: teamName(i)}, Rules: []policy.Rule{{
			Name: "month", FailurePolicy: policy.FailClosed,
			Budget: &policy.Budget{LimitMilliUSD: 1_000_000_000_000, HardCap: true, Calendar: quota.Calendar{Period: quota.Month}},
		}}}
	}
	now, err := store.Load(ctx)
	if err == nil {
		_, err = store.Replace(ctx, policy.Replace{Documents: documents, Expect: now.Generation})
	}
	return err
}

func teamName(i int) string { return fmt.Sprintf("team-%d", i) }

// startRate is the limit before the real speed is known.
const startRate = 1_000_000

func (g *governed) populate(ctx context.Context, teams, each int) error {
	store := g.backend.Backend().Keys
	for i := range teams {
		team, err := store.CreateTeam(ctx, keys.CreateTeam{ID: teamName(i), Name: "bench", Limits: limitsAt(startRate/int64(teams), true)})
		if err != nil {
			return err
		}
		g.teams = append(g.teams, team)
		for range each {
			created, err := store.CreateKey(ctx, keys.CreateKey{TeamID: team.ID, Owner: "bench", Name: "bench", Limits: limitsAt(startRate/int64(teams*each), false)})
			if err != nil {
				return err
			}
			p, err := store.Resolve(ctx, created.Token.Reveal())
			if err != nil {
				return err
			}
			g.principals = append(g.principals, p)
		}
	}
	return nil
}

func (g *governed) request(p *keys.Principal) governance.Request {
	return governance.Request{
		Principal: p, Model: "bench-model", Price: priceRow,
		Bound: governance.Bound{Tokens: tokensEach, Cost: costEach},
	}
}

var priceRow = make([]byte, 96)

func (g *governed) anyone() *keys.Principal {
	if len(g.principals) == 1 {
		return &g.principals[0]
	}
	return &g.principals[rand.IntN(len(g.principals))]
}

func admitOnly(g *governed) (load, error) {
	return func(ctx context.Context, _ int) error {
		_, err := g.gov.Admit(ctx, g.request(g.anyone()))
		if err == nil {
			g.admitted.Add(1)
		}
		return err
	}, nil
}

func admitAndSettle(g *governed) (load, error) {
	return func(ctx context.Context, _ int) error {
		permit, err := g.gov.Admit(ctx, g.request(g.anyone()))
		if err != nil {
			return err
		}
		g.admitted.Add(1)
		return permit.Settle(ctx, governance.Used(tokensEach/2, costEach/2))
	}, nil
}

// admitAhead makes permits for one round of settlements. Before every second one comes
// another that stays open.
func admitAhead(ctx context.Context, g *governed, length time.Duration) error {
	want := int64(2*g.speed*length.Seconds()) + 1000
	g.ahead, g.next = make([]*governance.Permit, want), atomic.Int64{}
	var next atomic.Int64
	var callers sync.WaitGroup
	failed := make(chan error, 256)
	for range 256 {
		callers.Go(func() {
			for i := next.Add(1) - 1; i < want; i = next.Add(1) - 1 {
				for range 1 + i%2 {
					permit, err := g.gov.Admit(ctx, g.request(g.anyone()))
					if err != nil {
						failed <- err
						return
					}
					g.admitted.Add(1)
					g.ahead[i] = permit
				}
			}
		})
	}
	callers.Wait()
	close(failed)
	return <-failed
}

// settleOnly ends permits that were admitted before, below their bounds.
func settleOnly(g *governed) (load, error) {
	return func(ctx context.Context, _ int) error {
		i := g.next.Add(1) - 1
		if i >= int64(len(g.ahead)) {
			return errors.New("settled faster than was expected: no permit is left")
		}
		return g.ahead[i].Settle(ctx, governance.Used(tokensEach/2, costEach/2))
	}, nil
}

// refusedOnly asks for a whole minute's tokens of buckets that are half full; every
// answer is a refusal.
func refusedOnly(g *governed) (load, error) {
	return func(ctx context.Context, _ int) error {
		r := g.request(g.anyone())
		r.Bound.Tokens = amount.Tokens(*r.Principal.Team.Limits.TokensPerMinute)
		_, err := g.gov.Admit(ctx, r)
		if governance.StatusOf(err).Code != 429 {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	}, nil
}

func (g *governed) wal(ctx context.Context) int64 {
	if g.pool == nil {
		return 0
	}
	var n int64
	_ = g.pool.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&n)
	return n
}

// syncs is how often the server has flushed its log; it learns of it with a delay of a second.
func (g *governed) syncs(ctx context.Context) int64 {
	if g.pool == nil {
		return 0
	}
	var n int64
	if g.pool.QueryRow(ctx, "select wal_sync from pg_stat_wal").Scan(&n) != nil { // PostgreSQL 18 has it elsewhere
		_ = g.pool.QueryRow(ctx, "select sum(fsyncs)::bigint from pg_stat_io where object = 'wal'").Scan(&n)
	}
	return n
}

func (g *governed) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = g.gov.Close(ctx)
}
