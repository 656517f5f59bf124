package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/quota"
)

func TestDiffSaysWhatHappensToAccounts(t *testing.T) {
	base := of("p", team, capped(""), allow("large", "small"))
	for name, c := range map[string]struct {
		edit    func(*policy.Document)
		account bool
		want    string
	}{
		"nothing": {func(*policy.Document) {}, false, ""},
		"limit":   {func(d *policy.Document) { d.Rules[0].Budget.LimitMilliUSD = 5 }, false, "p/cap: changed (budget)\n  limitMilliUSD: 1000 -> 5"},
		"period": {func(d *policy.Document) { d.Rules[0].Budget.Calendar.Period = quota.Day }, true,
			"p/cap: changed (budget)\n  monthDay: 1 -> (none)\n  period: month -> day; counting starts at zero in another account"},
		"zone": {func(d *policy.Document) { d.Rules[0].Budget.Calendar.Zone = "Asia/Tokyo" }, false,
			"p/cap: changed (budget)\n  timezone: UTC -> Asia/Tokyo; the same account, from the next end of a window on"},
		"the hour": {func(d *policy.Document) { d.Rules[0].Budget.Calendar.ResetHour = 4 }, false,
			"p/cap: changed (budget)\n  resetHour: 0 -> 4; the same account, from the next end of a window on"},
		"hard to soft": {func(d *policy.Document) { d.Rules[0].Budget.HardCap = false }, false, "p/cap: changed (budget)\n  hardCap: true -> false"},
		"kind": {func(d *policy.Document) {
			d.Rules[0].Budget, d.Rules[0].TokenQuota = nil, &policy.TokenQuota{LimitTokens: 1, Calendar: quota.Calendar{Period: quota.Day}}
		}, true, "p/cap: changed (tokenQuota)\n  kind: budget -> tokenQuota; counting starts at zero in another account"},
		"unlimited": {func(d *policy.Document) {
			d.Rules[0].Budget = &policy.Budget{Unlimited: true}
		}, false, "p/cap: changed (budget)\n  hardCap: true -> false\n  limitMilliUSD: 1000 -> (none)\n  monthDay: 1 -> (none)\n  period: month -> (none)\n  resetHour: 0 -> (none)\n  timezone: UTC -> (none)\n  unlimited: false -> true"},
		"failure": {func(d *policy.Document) { d.Rules[1].FailurePolicy = policy.FailOpen }, false, "p/models: changed (modelAccess)\n  failurePolicy: FailClosed -> FailOpen"},
		"models":  {func(d *policy.Document) { d.Rules[1].ModelAccess.Allow = []string{"tiny"} }, false, "p/models: changed (modelAccess)\n  allow: large, small -> tiny"},
		"removed": {func(d *policy.Document) { d.Rules = d.Rules[1:] }, false, "p/cap: removed (budget); its account stays, and goes on if the rule comes back"},
		"added":   {func(d *policy.Document) { d.Rules = append(d.Rules, slots(policy.FailOpen)) }, false, "p/slots: added (concurrency); its account goes on if there was such a rule before"},
		"renamed": {func(d *policy.Document) { d.Rules[1].Name = "list" }, false, "p/list: added (modelAccess)\np/models: removed (modelAccess)"},
		"subject": {func(d *policy.Document) { d.Subject.User = "ann" }, true,
			"p/cap: changed (budget)\n  subject: team red -> team_user red/ann; counting starts at zero in another account\np/models: changed (modelAccess)\n  subject: team red -> team_user red/ann"},
		"routed": {func(d *policy.Document) { d.Rules = append(d.Rules, thrift(policy.FailOpen, "cap")) }, false, "p/thrift: added (routing)"},
	} {
		t.Run(name, func(t *testing.T) {
			old := mustSet(t, []policy.Document{base})
			edited := old.Documents()[0]
			c.edit(&edited)
			var lines []string
			account := false
			for _, change := range policy.Diff(old, mustSet(t, []policy.Document{edited})) {
				lines = append(lines, change.String())
				account = account || change.Account
			}
			require.Equal(t, c.want, strings.Join(lines, "\n"))
			require.Equal(t, c.account, account)
		})
	}
}

func TestDiffOfWholeDocuments(t *testing.T) {
	a := mustSet(t, []policy.Document{of("x", team, capped("")), of("y", team, capped(""))})
	b := mustSet(t, []policy.Document{of("y", team, capped("")), of("z", user, capped(""))})
	changes := policy.Diff(a, b)
	require.Len(t, changes, 2)
	require.Equal(t, policy.Removed, changes[0].Action)
	require.Equal(t, "z", changes[1].Policy)
	require.Len(t, policy.Diff(nil, a), 2)
	require.Empty(t, policy.Diff(a, a))
	require.Empty(t, policy.Diff(nil, nil))
}
