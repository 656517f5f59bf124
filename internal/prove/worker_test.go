package prove

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/governancepg"
	"github.com/tallystick-go/tallystick/keys"
)

// workerEnv starts the test binary as a gateway process.
const workerEnv = "TALLYSTICK_PROVE_WORKER"

// setup is what a gateway process is started with.
type setup struct {
	DSN, Schema string
	Process     int
	Clients     int
	Ahead       time.Duration // of the database's time
}

// shift is the store's time: in the middle of a day and of a partition of the ring, so that
// no window rolls while a history is written.
func shift(ahead time.Duration) func(time.Time) time.Time {
	return func(database time.Time) time.Time { return database.Add(ahead) }
}

// order is one round's work for a process.
type order struct {
	Round  int
	Seed   uint64
	Ops    int // per client
	Teams  []string
	Rough  bool // connections may break and processes end: every admission brings its id
	Rates  bool // admit only, in as short a time as possible
	Editor bool // this process edits the limits of the rates
}

// worker is one gateway process.
type worker struct {
	setup
	db     *governancepg.DB
	gov    *governance.Governor
	scribe scribe

	mu    sync.Mutex
	teams map[string]*known
}

// known is what a process knows of a team: its principals as they were, its open permits, what it last heard of the sums.
type known struct {
	principals [1 + maxKeys]*keys.Principal
	revisions  [1 + maxKeys]int64
	dead       [1 + maxKeys]bool
	heard      [1 + maxKeys][kinds]int64
	top        int // the newest key that was seen
	permits    []*governance.Permit
	blurred    []string
}

// work is the process. It ends with its input.
func work(text string) error {
	ctx := context.Background()
	w := &worker{teams: map[string]*known{}}
	if err := json.Unmarshal([]byte(text), &w.setup); err != nil {
		return err
	}
	w.scribe.out = os.Stdout
	cfg, err := pgxpool.ParseConfig(w.DSN)
	if err != nil {
		return errors.New("the DSN is not readable")
	}
	cfg.MaxConns = int32(w.Clients + 3)
	cfg.ConnConfig.RuntimeParams["application_name"] = applicationName(w.Schema)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	if w.db, err = governancepg.Open(pool, &governancepg.Options{Schema: w.Schema, Clock: shift(w.Ahead)}); err != nil {
		return err
	}
	// Processes differ, as those of a fleet do.
	w.gov, err = governance.New(governance.Stores{Keys: w.db.Keys, Store: &dawdling{Store: w.db.Store, rng: rand.New(rand.NewPCG(uint64(w.Process), 1))}},
		// No renewal within a run: the model does not follow what becomes of slots in one.
		&governance.Options{Lanes: 1 + w.Process%2, Evict: w.evict, Logger: slog.New(slog.DiscardHandler), RenewEvery: 59 * time.Second})
	if err != nil {
		return err
	}
	if err := w.db.Check(ctx); err != nil {
		return err
	}
	w.scribe.write(line{Ready: true})
	for told := bufio.NewReader(os.Stdin); ; {
		var o order
		text, err := told.ReadBytes('\n')
		if err == io.EOF {
			return w.gov.Close(ctx)
		}
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil {
			return err
		}
		w.round(ctx, o)
		w.scribe.write(line{Done: true})
	}
}

// applicationName tells the connections of the processes of a schema from others.
func applicationName(schema string) string { return "prove " + schema }

func (w *worker) round(ctx context.Context, o order) {
	for _, team := range o.Teams {
		w.teams[team] = &known{top: 2}
	}
	after := governance.NewPermitID(time.Now().Add(w.Ahead - time.Minute))
	var clients sync.WaitGroup
	for n := range w.Clients {
		c := &client{worker: w, n: n, order: o, after: after, rng: rand.New(rand.NewPCG(o.Seed, uint64(100*w.Process+n)))}
		clients.Go(func() {
			if o.Rates {
				c.rates(ctx)
				return
			}
			for range o.Ops {
				c.one(ctx)
			}
		})
	}
	clients.Wait()
}

// evict is what a gateway's cache does.
func (w *worker) evict(keyID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.teams {
		for i, p := range k.principals {
			if p != nil && p.KeyID == keyID {
				k.principals[i] = nil
			}
		}
	}
}

// dawdling is a gateway that is slow at times, while it holds its rows: what must not come between a reading
// and its commit gets the time to do so.
type dawdling struct {
	governance.Store
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dawdling) Step(ctx context.Context, plan *governance.Plan, decide func(*governance.Loaded) *governance.Changes) error {
	d.mu.Lock()
	slow := d.rng.IntN(8) == 0
	pause := time.Duration(d.rng.IntN(4000)) * time.Microsecond
	d.mu.Unlock()
	return d.Store.Step(ctx, plan, func(l *governance.Loaded) *governance.Changes {
		ch := decide(l)
		if slow {
			time.Sleep(pause)
		}
		return ch
	})
}

// told turns what the library said into an answer.
func (w *worker) told(err error) answer {
	var refusal *governance.Refusal
	switch {
	case err == nil:
		return answer{Said: saidOK}
	case errors.As(err, &refusal) && refusal.Reason == governance.ReasonUnauthenticated:
		return answer{Said: saidUnauth}
	case errors.As(err, &refusal) && refusal.Reason != governance.ReasonQueueFull:
		return answer{Said: saidRefused, Counts: counts(refusal.All, true)}
	}
	var unsettled *governance.SettleError
	if errors.As(err, &unsettled) {
		return answer{Said: saidLost}
	}
	for _, c := range []struct {
		is   error
		said string
	}{
		{governance.ErrUnknownOutcome, saidLost}, {keys.ErrUnconfirmed, saidLost},
		{governance.ErrUnavailable, saidNothing}, {keys.ErrUnavailable, saidNothing}, {governance.ErrStale, saidNothing},
		{governance.ErrTerminal, saidTerminal}, {governance.ErrConflict, saidConflict}, {governance.ErrNotFound, saidAbsent},
		{keys.ErrUnknown, saidUnknown}, {keys.ErrRevoked, saidRevoked}, {keys.ErrStale, saidStale}, {keys.ErrExists, saidExists}, {keys.ErrNotFound, saidAbsent},
	} {
		if errors.Is(err, c.is) {
			a := answer{Said: c.said}
			if a.Said == saidNothing {
				a.Why = err.Error()
			}
			return a
		}
	}
	if errors.As(err, &refusal) {
		return answer{Said: saidNothing} // the queue was full
	}
	w.scribe.write(line{Broken: err.Error()})
	return answer{Said: saidNothing}
}

// counts takes the verdicts in the model's words and order. What a dry look needs is nothing.
func counts(verdicts []governance.Verdict, need bool) (list []count) {
	for i := range verdicts {
		v := &verdicts[i]
		c := count{Limit: v.Limit, Consumed: v.Consumed, Uncertain: v.Uncertain, Reserved: v.Reserved}
		if v.Constraint.Scope == governance.ScopeKey {
			c.Of = 1
		}
		switch v.Constraint.Kind {
		case governance.KindMoney, governance.KindTokenRate: // of two rates the second
			c.Kind = cost
		case governance.KindConcurrency:
			c.Kind = places
		}
		if need {
			c.Need, c.Reason = v.Need, v.Reason.String()
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b count) int { return (a.Of*kinds + a.Kind) - (b.Of*kinds + b.Kind) })
	return list
}

// limitsOf and keyLimits translate between the model's limits and the library's.
func limitsOf(l keys.Limits) limits {
	out := limits{none, none, none}
	for kind, limit := range []*int64{l.TokensPerDay, (*int64)(l.CostPerDay), l.Concurrency} {
		if limit != nil {
			out[kind] = *limit
		}
	}
	return out
}

func keyLimits(l limits) (out keys.Limits) {
	if l[tokens] != none {
		out.TokensPerDay = keys.Limit(l[tokens])
	}
	if l[cost] != none {
		out.CostPerDay = keys.Cost(amount.MicroUSD(l[cost]))
	}
	if l[places] != none {
		out.Concurrency = keys.Limit(l[places])
	}
	return out
}

func changeOf(l limits) keys.LimitsChange {
	to := keyLimits(l)
	return keys.LimitsChange{TokensPerDay: keys.Set(to.TokensPerDay), CostPerDay: keys.Set(to.CostPerDay), Concurrency: keys.Set(to.Concurrency)}
}

// keyName and tokenOf are known to every process without being told.
func keyName(team string, key int) string { return fmt.Sprintf("%s-key%d", team, key) }

func tokenOf(team string, key int) keys.Token {
	t, err := keys.Mint(seeded(keyName(team, key)))
	if err != nil {
		panic(err)
	}
	return t
}
