package escrow_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

func TestDecide(t *testing.T) {
	d := definitions(t, budgets(t, 1000, 1000), noon)[0] // a million, in grants of a hundred thousand
	soft := definitions(t, budgets(t, 1000, 1000), noon)[1]
	other := d.Account
	other.Window = quota.Window{Start: d.Account.Window.End, End: d.Account.Window.End + 86_400_000_000}
	late := time.UnixMicro(d.Account.Window.End - 5)
	for name, c := range map[string]struct {
		d             *escrow.Definition
		account       escrow.Account
		a             quota.Account
		amount, least int64
		now           time.Time
		granted       int64
		life          time.Duration
		reason        escrow.DenialReason
		left          int64
	}{
		"what is asked for":                    {&d, d.Account, quota.Account{}, 70, 5, noon, 70, time.Minute, 0, 0},
		"one grant at most":                    {&d, d.Account, quota.Account{}, 900_000, 5, noon, 100_000, time.Minute, 0, 0},
		"more for one attempt that needs it":   {&d, d.Account, quota.Account{}, 900_000, 400_000, noon, 400_000, time.Minute, 0, 0},
		"what is left":                         {&d, d.Account, quota.Account{Consumed: 999_000, Uncertain: 100, Reserved: 200, Granted: 300}, 900, 5, noon, 400, time.Minute, 0, 0},
		"not less than the least":              {&d, d.Account, quota.Account{Consumed: 999_000, Uncertain: 100, Reserved: 200, Granted: 300}, 900, 401, noon, 0, 0, escrow.NoRoom, 400},
		"spent for good":                       {&d, d.Account, quota.Account{Consumed: 999_000, Uncertain: 100, Granted: 500}, 901, 901, noon, 0, 0, escrow.Spent, 400},
		"above a lowered limit":                {&d, d.Account, quota.Account{Granted: 2_000_000}, 5, 5, noon, 0, 0, escrow.NoRoom, 0},
		"frozen":                               {&d, d.Account, quota.Account{Frozen: true}, 5, 5, noon, 0, 0, escrow.Frozen, 0},
		"no such budget":                       {nil, d.Account, quota.Account{}, 5, 5, noon, 0, 0, escrow.Unknown, 0},
		"a meter needs none":                   {&soft, soft.Account, quota.Account{}, 5, 5, noon, 0, 0, escrow.Unknown, 0},
		"another window":                       {&d, other, quota.Account{}, 5, 5, noon, 0, 0, escrow.Unknown, 0},
		"a window that is over":                {&d, d.Account, quota.Account{}, 5, 5, time.UnixMicro(d.Account.Window.End), 0, 0, escrow.Unknown, 0},
		"not beyond the window":                {&d, d.Account, quota.Account{}, 5, 5, late, 5, 5 * time.Microsecond, 0, 0},
		"an account that makes no sense is no": {&d, d.Account, quota.Account{Consumed: -5}, 5, 5, noon, 0, 0, escrow.Spent, 0},
	} {
		r := &escrow.Request{ID: grantID(1), Account: c.account, Amount: usd(c.amount), Least: usd(c.least)}
		g, deny := escrow.Decide(r, c.d, c.a, c.now.UnixMicro(), time.Minute)
		switch {
		case c.reason != 0:
			if deny == nil || *deny != (escrow.Denial{ID: r.ID, Reason: c.reason, Left: usd(c.left)}) {
				t.Errorf("%s: %+v, %+v", name, g, deny)
			}
		case deny != nil || g != escrow.Grant{ID: r.ID, Account: c.account, Amount: usd(c.granted), ExpiresAt: c.now.Add(c.life).UnixMicro()}:
			t.Errorf("%s: %+v, %+v", name, g, deny)
		}
	}
}

// Who may speak for a node.
func TestFencing(t *testing.T) {
	beat := func(boot int, number, sequence, answered int64) *escrow.Heartbeat {
		return &escrow.Heartbeat{Node: "n", Boot: bootID(boot), BootNumber: number, Sequence: sequence, Answered: answered}
	}
	take := func(list ...*escrow.Heartbeat) (n escrow.Node) {
		for _, h := range list {
			var err error
			if n, _, err = n.Next(h); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	bye := beat(1, 1, 5, 0)
	bye.Bye = true
	again := beat(1, 1, 6, 0)
	again.Bye = true
	changed := beat(1, 1, 5, 4)
	for name, c := range map[string]struct {
		n      escrow.Node
		h      *escrow.Heartbeat
		replay bool
		want   func(error) bool
	}{
		"the first":                         {take(), beat(1, 1, 1, 0), false, fine},
		"the next":                          {take(beat(1, 1, 1, 0)), beat(1, 1, 2, 1), false, fine},
		"one that was given up":             {take(beat(1, 1, 1, 0)), beat(1, 1, 9, 1), false, fine},
		"the same again":                    {take(beat(1, 1, 1, 0), beat(1, 1, 2, 1)), beat(1, 1, 2, 1), true, fine},
		"the same number, other content":    {take(beat(1, 1, 5, 0)), changed, false, malformed},
		"an earlier one":                    {take(beat(1, 1, 5, 0)), beat(1, 1, 4, 3), false, func(err error) bool { return errors.Is(err, escrow.ErrStale) }},
		"a new boot":                        {take(beat(1, 1, 5, 0)), beat(2, 2, 1, 0), false, fine},
		"a boot that was replaced":          {take(beat(1, 1, 5, 0), beat(2, 2, 1, 0)), beat(1, 1, 6, 5), false, fencing(escrow.Replaced)},
		"replaced long ago":                 {take(beat(1, 1, 5, 0), beat(2, 2, 1, 0), beat(3, 3, 1, 0), beat(4, 9, 1, 0)), beat(2, 2, 6, 5), false, fencing(escrow.Replaced)},
		"a copy of the journal":             {take(beat(1, 4, 5, 0)), beat(2, 4, 1, 0), false, fencing(escrow.Cloned)},
		"an old copy of the journal":        {take(beat(1, 4, 5, 0)), beat(2, 3, 1, 0), false, fencing(escrow.Restored)},
		"the end":                           {take(beat(1, 1, 1, 0)), bye, false, fine},
		"the end again":                     {take(bye), again, false, fine},
		"after the end":                     {take(bye), beat(1, 1, 6, 5), false, malformed},
		"an id with two numbers":            {take(beat(1, 1, 1, 0)), beat(1, 2, 1, 0), false, malformed},
		"an authority that forgot a beat":   {take(beat(1, 1, 5, 0)), beat(1, 1, 8, 7), false, regressed},
		"an authority that forgot the boot": {take(beat(1, 1, 5, 0)), beat(2, 2, 8, 7), false, regressed},
		"an authority that forgot the node": {take(), beat(2, 2, 8, 7), false, regressed},
	} {
		next, replay, err := c.n.Next(c.h)
		if !c.want(err) || replay != c.replay {
			t.Errorf("%s: %v, replay: %v", name, err, replay)
		}
		if err == nil && (next.Sequence != c.h.Sequence || next.Boot != c.h.Boot || next.Validate() != nil) {
			t.Errorf("%s: %+v", name, next)
		}
	}
}

func fine(err error) bool { return err == nil }

func malformed(err error) bool {
	var e *escrow.Error
	return errors.As(err, &e)
}

func regressed(err error) bool { return errors.Is(err, escrow.ErrRegressed) }

func fencing(r escrow.FenceReason) func(error) bool {
	return func(err error) bool {
		var f *escrow.Fenced
		return errors.As(err, &f) && f.Reason == r
	}
}

func TestDefinitionsLeaveOutWhatNobodyAsksFor(t *testing.T) {
	day := quota.Calendar{Period: quota.Day}
	rule := func(name string, b policy.Budget) policy.Rule {
		failure := policy.FailOpen
		if b.HardCap {
			failure = policy.FailClosed
		}
		return policy.Rule{Name: name, FailurePolicy: failure, Budget: &b}
	}
	rpm := int64(5)
	set, err := policy.NewSet([]policy.Document{
		{Name: "z", Subject: policy.Subject{User: "u"}, Rules: []policy.Rule{rule("odd", policy.Budget{LimitMilliUSD: 1, HardCap: true, Calendar: day})}},
		{Name: "a", Subject: policy.Subject{Team: "t", User: "u"}, Rules: []policy.Rule{
			rule("b", policy.Budget{LimitMilliUSD: 7, Calendar: quota.Calendar{Period: quota.Month, MonthDay: 20, ResetHour: 6}, Lease: &policy.Lease{GrantMilliUSD: 2}}),
			rule("amsterdam", policy.Budget{LimitMilliUSD: 7, Calendar: quota.Calendar{Period: quota.Day, Zone: "Europe/Amsterdam"}}),
			rule("a", policy.Budget{LimitMilliUSD: 0, HardCap: true, Calendar: quota.Calendar{Period: quota.Week, Zone: "UTC"}}),
			rule("unlimited", policy.Budget{Unlimited: true}),
			{Name: "rate", FailurePolicy: policy.FailOpen, Rate: &policy.Rate{RPM: &rpm}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	day0 := time.Date(2026, time.March, 14, 0, 0, 0, 0, time.UTC)
	window := func(from, to time.Time) quota.Window {
		return quota.Window{Start: from.UnixMicro(), End: to.UnixMicro()}
	}
	both := policy.Subject{Team: "t", User: "u"}
	want := []escrow.Definition{
		{Account: escrow.Account{Policy: "a", Rule: "a", Subject: both, Period: quota.Week, Window: window(day0.AddDate(0, 0, -5), day0.AddDate(0, 0, 2))}, Hard: true, Renew: escrow.DefaultRenew},
		{Account: escrow.Account{Policy: "a", Rule: "b", Subject: both, Period: quota.Month, Window: window(time.Date(2026, 2, 20, 6, 0, 0, 0, time.UTC), time.Date(2026, 3, 20, 6, 0, 0, 0, time.UTC))}, Limit: 7000, Grant: 2000, Renew: escrow.DefaultRenew},
		{Account: escrow.Account{Policy: "z", Rule: "odd", Subject: policy.Subject{User: "u"}, Period: quota.Day, Window: window(day0, day0.AddDate(0, 0, 1))}, Limit: 1000, Hard: true, Grant: 20, Renew: escrow.DefaultRenew},
	}
	have := definitions(t, set, noon)
	if len(have) != len(want) {
		t.Fatalf("%+v", have)
	}
	for i := range want {
		if have[i] != want[i] {
			t.Errorf("%+v, want %+v", have[i], want[i])
		}
	}
	if list, err := escrow.Definitions(nil, noon.UnixMicro()); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
}

// A node takes nothing of an answer that is not what it asked and what the documents say.
func TestVerify(t *testing.T) {
	for name, change := range map[string]func(h *escrow.Heartbeat, a *escrow.Answer){
		"another limit":         func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Definitions[0].Limit++ },
		"a hard budget is soft": func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Definitions[0].Hard = false },
		"a budget too few": func(_ *escrow.Heartbeat, a *escrow.Answer) {
			a.Definitions, a.Budgets = a.Definitions[:1], a.Budgets[:1]
		},
		"no budgets at all":         func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Definitions, a.Budgets = nil, nil },
		"a window that is over":     func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Definitions[0].Account.Window.End = a.Now },
		"other documents":           func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Documents = budgets(t, 2000, 1000) },
		"no documents":              func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Documents = nil },
		"another namespace":         func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Mark.Namespace[0]++ },
		"a request without answer":  func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Denials = nil },
		"a request answered twice":  func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Denials[0].ID = a.Grants[0].ID },
		"a grant nobody asked for":  func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Grants[0].ID = grantID(77) },
		"a denial nobody asked for": func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Denials[0].ID = grantID(77) },
		"a grant too large":         func(h *escrow.Heartbeat, a *escrow.Answer) { a.Grants[0].Amount = h.Requests[0].Amount + 1 },
		"a grant too small":         func(h *escrow.Heartbeat, a *escrow.Answer) { a.Grants[0].Amount = h.Requests[0].Least - 1 },
		"a grant elsewhere":         func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Grants[0].Account.Rule = "other" },
		"a grant beyond its window": func(_ *escrow.Heartbeat, a *escrow.Answer) {
			a.Grants[0].ExpiresAt = a.Grants[0].Account.Window.End + 1
		},
		"a receipt too few": func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Receipts = a.Receipts[:3] },
		"receipts in another order": func(_ *escrow.Heartbeat, a *escrow.Answer) {
			a.Receipts[0], a.Receipts[1] = a.Receipts[1], a.Receipts[0]
		},
		"a closure taken for a burn": func(_ *escrow.Heartbeat, a *escrow.Answer) { a.Receipts[1].Ending = escrow.Burned },
	} {
		h, a := sample(t)
		change(h, a)
		if err := a.Verify(h); !errors.Is(err, escrow.ErrIncompatible) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h, a := sample(t)
	h.Mark.Revision++
	if err := a.Verify(h); !errors.Is(err, escrow.ErrRegressed) {
		t.Errorf("policies went back: %v", err)
	}
	h.Mark.Revision--
	h.Mark.Generation[0]++
	if err := a.Verify(h); !errors.Is(err, escrow.ErrRegressed) {
		t.Errorf("one revision, two generations: %v", err)
	}
	h, a = sample(t)
	a.Definitions[0].Account.Window.Start -= 3_600_000_000 // it began before its calendar was edited
	if err := a.Verify(h); err != nil {
		t.Error(err)
	}
}
