package fleet_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/keys"
)

// move says by how much the store's time is ahead, from an instant of the database's
// clock on. Since that instant lies ahead when it is written, all gateways agree at
// every instant, as they do on the database's own clock.
type move struct {
	From  time.Time
	Ahead time.Duration
}

// calendar is a clock that a file moves.
func calendar(path string) func(time.Time) time.Time {
	return func(database time.Time) time.Time {
		var moves []move
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &moves)
		}
		if err != nil {
			panic("calendar: " + err.Error())
		}
		for i := range moves {
			if m := moves[len(moves)-1-i]; !database.Before(m.From) {
				return database.Add(m.Ahead)
			}
		}
		return database
	}
}

// movable gives the fleet's gateways a calendar of the test's.
func (f *fleet) movable() {
	f.clock = f.path("calendar")
	f.schedule(nil)
}

func (f *fleet) schedule(moves []move) {
	f.Helper()
	data, err := json.Marshal(moves)
	require.NoError(f, err)
	require.NoError(f, os.WriteFile(f.clock+".new", data, 0o600))
	require.NoError(f, os.Rename(f.clock+".new", f.clock))
}

// databaseNow is the database's own clock.
func (f *fleet) databaseNow() time.Time {
	f.Helper()
	conn, err := pgx.Connect(f.Context(), f.dsn)
	require.NoError(f, err)
	defer func() { _ = conn.Close(context.WithoutCancel(f.Context())) }()
	var now time.Time
	require.NoError(f, conn.QueryRow(f.Context(), "select clock_timestamp()").Scan(&now))
	return now
}

// turn makes it that time for all gateways, and returns when it is.
func (f *fleet) turn(to time.Time) {
	f.Helper()
	data, err := os.ReadFile(f.clock)
	require.NoError(f, err)
	var moves []move
	require.NoError(f, json.Unmarshal(data, &moves))
	from := f.databaseNow().Add(200 * time.Millisecond)
	f.schedule(append(moves, move{from, to.Sub(from)}))
	require.Eventually(f, func() bool { return !f.databaseNow().Before(from) }, patience, tick)
}

// windows are the accounts of one limit, by their beginning.
func (f *fleet) windows(subject, rule string) map[time.Time]governance.Cell {
	f.Helper()
	out := map[time.Time]governance.Cell{}
	for after := (governance.AccountKey{}); ; {
		cells, err := f.books.Store.Accounts(f.Context(), governance.AccountQuery{After: after, Limit: 500})
		require.NoError(f, err)
		for _, c := range cells {
			if after = c.Key; c.Label.Subject == subject && c.Label.Rule == rule {
				out[time.UnixMicro(c.Key.WindowStart).UTC()] = c
			}
		}
		if len(cells) == 0 {
			return out
		}
	}
}

// TestMidnightUnderLoad: the last second of a year in UTC, when day and month end at
// once, under load at two gateways. Each window admits its limit and no more; what was
// admitted before counts there, however late it ends.
func TestMidnightUnderLoad(t *testing.T) {
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.movable()
	f.start(2)
	const perDay, perMonth = 4000, 7000
	token := f.gateways[0].key("app", keys.Limits{TokensPerDay: keys.Limit(perDay), CostPerMonth: keys.Cost(perMonth), CostPerDay: keys.Cost(1_000_000)})
	midnight := time.Date(f.databaseNow().UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	f.turn(midnight.Add(-time.Hour))

	held, prompt := "{{provider: hold=late tokens=40}}", says("load")
	ctx := context.WithoutCancel(t.Context())
	late := make(chan answer, 1)
	go func() { late <- f.gateways[0].call(ctx, token, held) }()
	require.Eventually(t, func() bool { return f.reached(held) == 1 }, patience, tick)
	l := f.load(2, token, prompt)
	l.more(http.StatusOK, 10)
	f.turn(midnight.Add(-300 * time.Millisecond))
	day := func(start time.Time) governance.Cell { return f.windows("team-app", "tokens_per_day")[start] }
	before := midnight.AddDate(0, 0, -1)
	require.Eventually(t, func() bool { return day(midnight).Account.Consumed > perDay*3/4 }, patience, 50*time.Millisecond)
	l.stop()
	require.Eventually(t, func() bool {
		a := day(before).Account
		return a.Reserved > 0 && day(midnight).Account.Reserved == 0
	}, patience, tick, "only the late one is under way")
	old := day(before).Account
	f.provider.Release("late")
	a := <-late
	require.Equal(t, http.StatusOK, a.status)
	f.settled()

	require.Equal(t, old.Consumed+a.tokens, day(before).Account.Consumed, "it counts where it was admitted")
	var tokens int64
	for start, c := range f.windows("team-app", "tokens_per_day") {
		require.Contains(t, []time.Time{before, midnight}, start)
		require.Positive(t, c.Account.Consumed)
		require.LessOrEqual(t, c.Account.Consumed+c.Account.Uncertain+c.Account.Reserved, int64(perDay))
		tokens += c.Account.Consumed
	}
	require.EqualValues(t, int64(l.count(http.StatusOK))*tokensOf(prompt)+a.tokens, tokens, "nothing was counted twice, nothing was lost")
	months := f.windows("team-app", "cost_per_month")
	require.Len(t, months, 2)
	for start, c := range months {
		require.Contains(t, []time.Time{midnight.AddDate(0, -1, 0), midnight}, start)
		require.LessOrEqual(t, c.Account.Consumed, int64(perMonth))
	}
	u := constraint(t, f.gateways[1].usage(token), "tokens_per_day")
	require.Equal(t, midnight.AddDate(0, 0, 1), *u.ResetsAt)
	f.balanced()
}

// changes are the next days in a zone that are shorter and longer than others.
func changes(zone *time.Location, after time.Time) (out []time.Time) {
	y, m, d := after.In(zone).Date()
	for day := time.Date(y, m, d+2, 0, 0, 0, 0, zone); len(out) < 2; day = day.AddDate(0, 0, 1) {
		if day.AddDate(0, 0, 1).Sub(day) != 24*time.Hour {
			out = append(out, day)
		}
	}
	return out
}

// TestLongAndShortDaysUnderLoad: the ends of the days on which a zone changes its clocks,
// under load at two gateways.
func TestLongAndShortDaysUnderLoad(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Amsterdam")
	require.NoError(t, err)
	db := pgtest.New(t)
	f := newFleet(t, db.DSN, db.Schema)
	f.movable()
	f.start(2)
	const limit = 3000 // microUSD
	f.gateways[0].apply(policyOf("days", "team: team-app", "name: local, failurePolicy: FailClosed, budget: {limitMilliUSD: 3, hardCap: true, period: day, timezone: Europe/Amsterdam}"))
	token := f.gateways[1].key("app", keys.Limits{})
	lengths := map[time.Duration]bool{}
	for _, day := range changes(zone, f.databaseNow()) {
		next := day.AddDate(0, 0, 1)
		lengths[next.Sub(day)] = true
		f.turn(next.Add(-30 * time.Minute))
		l := f.load(2, token, says("days"))
		l.more(http.StatusPaymentRequired, 10)
		for _, g := range f.gateways {
			u := constraint(t, g.usage(token), "local")
			require.Equal(t, next.UTC(), u.ResetsAt.UTC())
			require.LessOrEqual(t, u.Consumed+u.Reserved+u.Uncertain, int64(limit))
		}
		f.turn(next.Add(-200 * time.Millisecond))
		in := func(start time.Time) governance.Cell { return f.windows("team-app", "local")[start.UTC()] }
		require.Eventually(t, func() bool { return in(next).Account.Consumed > limit*3/4 }, patience, 50*time.Millisecond)
		l.more(http.StatusPaymentRequired, 10)
		l.stop()
		f.settled()
		for _, start := range []time.Time{day, next} {
			c := in(start)
			require.Equal(t, start.AddDate(0, 0, 1).UTC(), time.UnixMicro(c.End).UTC())
			require.LessOrEqual(t, c.Account.Consumed, int64(limit))
			require.Greater(t, 2*c.Account.Consumed, int64(limit))
		}
	}
	require.Equal(t, map[time.Duration]bool{23 * time.Hour: true, 25 * time.Hour: true}, lengths)
	f.balanced()
}
