package governancetest

import (
	"time"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
)

func windowCases() []scenario {
	return []scenario{
		{name: "DayStartsEmpty", run: windowDay},
		{name: "MonthOutlastsDays", also: "EdgeMonthAndDayApart", run: windowMonth},
		{name: "LateSettlementGoesToItsWindow", also: "ReplayL4RollNeverMakesNegative PrimitiveQ9NewWindowHasNoHolds EdgeSettlementAfterMidnight", run: windowLate},
		{name: "SettleAndAdmitAcrossMidnight", run: windowMixed},
		{name: "WindowsTileTime", also: "PrimitiveQ14KeyIsTheWindow PrimitiveQ12OneWindowFunction", run: windowTiles},
		{name: "LongIdle", run: windowIdle},
		{name: "ClockBackStaysInTheWindow", run: windowBack},
		{name: "ReplayW1ResetIsAnInstant", also: "PrimitiveQ17AbsoluteInstants", run: windowInstant},
		{name: "ReplayW2NothingIsReset", also: "EdgeOneWindowForAllProcesses", run: windowStale},
		{name: "ReplayW11DeletedLimitKeepsItsBalance", run: windowReadded},
		{name: "PrimitiveQ2TwoRollsInADay", run: windowTwice},
	}
}

// daily makes a caller whose team has money per day and month.
func (e *env) daily(day, month int64) *caller {
	e.Helper()
	l := keys.Limits{}
	rules[3].limit(&l, day)
	rules[4].limit(&l, month)
	e.team("team-1", l)
	return e.caller("team-1", keys.Limits{})
}

func windowDay(e *env) {
	c := e.daily(100, 1000)
	e.settle(e.admit(c, dollars(100)), governance.Used(0, 100))
	first := e.verdict(c, governance.ScopeTeam, "cost_per_day").Window
	e.refused(c, dollars(1), governance.ReasonMoney)
	e.advance(24 * time.Hour)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 0, 0)
	e.admit(c, dollars(100))
	second := e.verdict(c, governance.ScopeTeam, "cost_per_day").Window
	e.equal("start of the next window", second.Start, first.End)
	e.held(c, governance.ScopeTeam, "cost_per_month", 100, 0, 100)
}

func windowMonth(e *env) {
	c := e.daily(100, 250)
	for range 2 {
		e.settle(e.admit(c, dollars(100)), governance.Used(0, 100))
		e.advance(24 * time.Hour)
	}
	r := e.refused(c, dollars(60), governance.ReasonMoney)
	e.equal("rule", r.Verdict.Constraint.Rule, "cost_per_month")
	e.admit(c, dollars(50))
	e.advance(31 * 24 * time.Hour)
	e.admit(c, dollars(100))
	e.held(c, governance.ScopeTeam, "cost_per_month", 0, 0, 100)
}

func windowLate(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1000), CostPerMonth: keys.Cost(1000)})
	c := e.caller("team-1", keys.Limits{})
	used, unsure, gone, over := e.admit(c, both(100, 100)), e.admit(c, both(100, 100)), e.admit(c, both(100, 100)), e.admit(c, both(100, 100))
	yesterday := e.account(c, governance.ScopeTeam, "tokens_per_day")
	e.advance(24 * time.Hour)
	today := e.admit(c, both(1000, 10))
	e.settle(used, governance.Used(40, 40))
	e.settle(unsure, governance.Unknown())
	e.settle(gone, governance.NotSent())
	e.settle(over, governance.Used(700, 100))
	e.equal("yesterday", e.cell(yesterday).Account, quota.Account{Consumed: 740, Uncertain: 100})
	e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 1000)
	e.settle(today, governance.Used(1, 1))
	e.held(c, governance.ScopeTeam, "tokens_per_day", 1, 0, 0)
	e.held(c, governance.ScopeTeam, "cost_per_month", 141, 100, 0)
}

// windowMixed has settlements of yesterday share transactions with admissions that
// enter today.
func windowMixed(e *env) {
	e.team("team-1", keys.Limits{TokensPerDay: keys.Limit(1_000_000)})
	c := e.caller("team-1", keys.Limits{})
	for range 3 {
		out := e.admits(40, c, tokens(10))
		e.wantAdmitted(out, 40)
		yesterday := e.account(c, governance.ScopeTeam, "tokens_per_day")
		e.advance(24 * time.Hour)
		after := e.flood(80, func(i int) (*governance.Permit, error) {
			if i%2 == 0 {
				return nil, out.permits[i/2].Settle(e.ctx, governance.Used(7, 0))
			}
			return e.g.Admit(e.ctx, request(c, tokens(10)))
		})
		e.wantAdmitted(after, 80)
		e.equal("yesterday", e.cell(yesterday).Account, quota.Account{Consumed: 40 * 7})
		e.held(c, governance.ScopeTeam, "tokens_per_day", 0, 0, 400)
		for _, p := range after.permits {
			if p != nil {
				e.ok(p.Cancel(e.ctx))
			}
		}
		e.advance(24 * time.Hour)
	}
}

func windowTiles(e *env) {
	c := e.daily(1000, 100_000)
	end := int64(0)
	for range 70 { // over month ends
		e.admit(c, dollars(1))
		v := e.verdict(c, governance.ScopeTeam, "cost_per_day")
		e.equal("reserved", v.Reserved, int64(1))
		if end != 0 {
			e.equal("start", v.Window.Start, end)
		}
		if v.Window.End-v.Window.Start != 86_400_000_000 || !v.Window.Contains(e.now()) {
			e.Fatalf("the window is %v at %d", v.Window, e.now())
		}
		end = v.Window.End
		e.advance(24 * time.Hour)
	}
}

func windowIdle(e *env) {
	c := e.daily(100, 1000)
	e.settle(e.admit(c, dollars(100)), governance.Used(0, 100))
	e.advance(3 * 365 * 24 * time.Hour)
	e.admit(c, dollars(100))
	v := e.verdict(c, governance.ScopeTeam, "cost_per_day")
	e.equal("window", v.Window, e.today())
	e.equal("consumed", v.Consumed, int64(0))
}

func windowBack(e *env) {
	c := e.daily(100, 1000)
	e.admit(c, dollars(60))
	e.advance(-48 * time.Hour) // mints no second window to spend from
	e.refused(c, dollars(60), governance.ReasonReserved)
	e.admit(c, dollars(40))
	e.advance(48 * time.Hour)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 0, 100)
}

func windowInstant(e *env) {
	c := e.daily(100, 1000)
	e.settle(e.admit(c, dollars(100)), governance.Used(0, 100))
	r := e.refused(c, dollars(1), governance.ReasonMoney)
	end, _ := r.Verdict.ResetsAt()
	e.equal("reset", time.UnixMicro(end).UTC().Format(time.RFC3339), time.UnixMicro(e.now()).UTC().AddDate(0, 0, 1).Truncate(24*time.Hour).Format(time.RFC3339))
	e.advance(time.Duration(end-e.now())*time.Microsecond - 10*time.Second)
	e.refused(c, dollars(1), governance.ReasonMoney)
	e.advance(10 * time.Second)
	e.admit(c, dollars(1))
}

// windowStale has a second process that last looked yesterday.
func windowStale(e *env) {
	c := e.daily(10, 1000)
	stale := e.governor(e.b, nil)
	_, err := stale.Admit(e.ctx, request(c, dollars(1)))
	e.ok(err)
	e.advance(24 * time.Hour)
	e.admit(c, dollars(4))
	_, err = stale.Admit(e.ctx, request(c, dollars(1)))
	e.ok(err)
	e.held(c, governance.ScopeTeam, "cost_per_day", 0, 0, 5)
	_, err = stale.Admit(e.ctx, request(c, dollars(6)))
	e.refusal(err, governance.ReasonReserved)
}

func windowReadded(e *env) {
	c := e.daily(100, 1000)
	e.settle(e.admit(c, dollars(60)), governance.Used(0, 60))
	e.admit(c, dollars(10))
	e.limitTeam("team-1", keys.LimitsChange{CostPerDay: keys.Set[*amount.MicroUSD](nil)})
	e.settle(e.admit(c, dollars(500)), governance.Used(0, 500)) // not counted: there was no such limit
	e.limitTeam("team-1", keys.LimitsChange{CostPerDay: keys.Set(keys.Cost(100))})
	e.held(c, governance.ScopeTeam, "cost_per_day", 60, 0, 10)
	e.refused(c, dollars(41), governance.ReasonMoney)
	e.admit(c, dollars(30))
}

func windowTwice(e *env) {
	c := e.daily(100, 100_000)
	for range 4 { // a roll is seen at 00:30, the next at 23:30 of the same day's end
		e.settle(e.admit(c, dollars(100)), governance.Used(0, 100))
		e.refused(c, dollars(1), governance.ReasonMoney)
		e.advance(23 * time.Hour)
		if r, err := e.g.Admit(e.ctx, request(c, dollars(1))); err == nil {
			e.ok(r.Cancel(e.ctx)) // already tomorrow
		}
		e.advance(time.Hour)
	}
	e.held(c, governance.ScopeTeam, "cost_per_month", 400, 0, 0)
}
