package governance

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a mistake planted in the source. The property must fail with it.
type mutant struct {
	name     string
	file     string
	old, new string // old occurs exactly once
}

var mutants = []mutant{
	{"entering a window drops what was settled in the last one", "sheet.go", "		s.leave(w)\n", ""},
	{"a settlement lands in the current window", "sheet.go", "	if w.window.Start == h.window.Start {", "	if w.Kind != 0 {"},
	{"a permit that changes twice in a step rises by two versions", "raise.go", "	rec.Cost += int64(more.Cost)\n", "	rec.Cost += int64(more.Cost)\n	rec.Version++\n"},
	{"a row that another transaction holds is used", "admit.go", "	if !s.current[i].locked {\n		return nil, ErrUnavailable\n	}\n	return s.enter", "	return s.enter"},
	{"a missing permit is final though its rows are held elsewhere", "sheet.go", "!ok || !s.current[j].locked {\n			return ErrUnavailable", "!ok || !s.current[j].locked {\n			return ErrNotFound"},
	{"uncertain money is free again", "admit.go", "		r := a.Check(c.Limit, need)", "		b := *a\n		b.Uncertain = 0\n		r := b.Check(c.Limit, need)"},
	{"money that was granted is reserved again", "admit.go", "		r := a.Check(c.Limit, need)", "		b := *a\n		b.Granted = 0\n		r := b.Check(c.Limit, need)"},
	{"unknown use releases the bound", "settle.go", "	a, err := a.Hold(reserved, used.Value)", "	a, err := a.Settle(reserved, used.Value)"},
	{"an impossible report freezes nothing", "settle.go", "		a = a.Freeze()\n", ""},
	{"a cancelled call keeps its request", "settle.go", "			if outcome.Unsent {\n				keep = 0\n			}", ""},
	{"a call that was sent gives its request back", "settle.go", "			keep := int64(1)\n", "			keep := int64(0)\n"},
	{"an unknown use gives the tokens per minute back", "settle.go", "	return rec.Tokens\n}", "	return 0\n}"},
	{"an overrun of tokens per minute is forgiven", "settle.go", "		return w.Bucket.Overrun(now, keep)", "		return nil"},
	{"an overrun is not flagged as one and the value is capped", "settle.go", "		return a.Settle(reserved, used.Value)", "		return a.Settle(reserved, min(reserved, used.Value))"},
	{"a stranger settles", "settle.go", "	case rec.Owner != o.owner:", "	case false:"},
	{"a permit settles twice", "settle.go", "	case rec.State != StateOpen:", "	case rec.State == StateCancelled:"},
	{"another outcome is taken for a replay", "settle.go", "		if rec.Outcome != outcome {", "		if false {"},
	{"a raise is relative", "raise.go", "max(0, o.to.Tokens-amount.Tokens(rec.Tokens))", "o.to.Tokens"},
	{"a raise ignores the limit in force", "raise.go", "		if c := o.set.find(h.constraint); c != nil {", "		if c := o.set.find(h.constraint); c != nil && h.kind.isRate() {"},
	{"a raise by a revoked key", "raise.go", "	if o.err = s.fresh(o.principal); o.err != nil {", "	if o.err = s.fresh(o.principal); o.err != nil && false {"},
	{"a stale caller is admitted", "admit.go", "		return ErrStale\n	}\n	return &Refusal", "		return nil\n	}\n	return &Refusal"},
	{"other terms learn the state of a permit", "admit.go", "	case rec.Fingerprint != a.fingerprint:", "	case rec.Fingerprint != a.fingerprint && rec.State == StateOpen:"},
	{"an id twice in one batch is two permits", "admit.go", "	for i := range s.made {\n		if s.made[i].ID == a.id {", "	for i := range s.made {\n		if false {"},
	{"a free model still costs", "admit.go", "		if bound.Free && c.Kind == KindMoney {\n			continue\n		}\n", ""},
	{"permits share terms though their slots differ", "admit.go", "h.incarnation == incarnation && ", ""},
	{"a refusal is written down", "admit.go", "		r, err := w.Bucket.Peek(now, c.rate(), need)", "		_, r, err := w.Bucket.Admit(now, c.rate(), need)"},
	{"the last reason is reported", "refusal.go", "cmp.Compare(a.Reason, b.Reason),", "cmp.Compare(b.Reason, a.Reason),"},
	{"the wait of the last constraint is reported", "refusal.go", "			r.RetryAfter = max(r.RetryAfter, binding[i].RetryAfter)", "			r.RetryAfter = binding[i].RetryAfter"},
	{"slots of the dead count", "slots.go", "		if h.Expires > now {\n			n += h.Count", "		if h.Count > 0 {\n			n += h.Count"},
	{"a settlement frees the slot of somebody else", "slots.go", "	if !ok || incarnation == 0 {\n		return false\n	}\n	if s.Holders[i].Count--", "	if len(s.Holders) == 0 {\n		return false\n	}\n	if i = min(i, len(s.Holders)-1); !ok || ok {\n	}\n	if s.Holders[i].Count--"},
	{"the dead are renewed", "slots.go", "	if !ok || s.Holders[i].Expires <= now {\n		return false", "	if !ok {\n		return false"},
	{"slots are regained above the limit", "renew.go", "o.held < o.wanted && used < c.Limit", "o.held < o.wanted"},
	{"a finding leaves the uncertain amount", "resolve.go", "			w.Account, err = w.Account.Resolve(rec.Cost, evidence.Cost.Value)", "			w.Account, err = w.Account.Resolve(0, evidence.Cost.Value)"},
	{"any window is unfrozen", "resolve.go", "			if s.older[j].Key == o.account {\n				w = &s.older[j]\n			}", "			if s.older[j].Key == o.account {\n				w = &s.current[i]\n			}"},
}

// Every planted mistake makes the property fail. Each is compiled from the real
// source with one change, by the overlay of the go command; nothing of it ships.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the package once per mutant")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command to compile mutants")
	}
	const property = "TestPropertyDecisionsAreTheModel"
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			binary := compileMutant(t, goTool, m)
			run := exec.Command(binary, "-test.run", "^"+property+"$", "-test.count=1", "-rapid.checks=30000", "-rapid.shrinktime=1ns", "-rapid.nofailfile")
			out, err := run.CombinedOutput()
			var failed *exec.ExitError
			if !errors.As(err, &failed) || !strings.Contains(string(out), "--- FAIL: "+property) {
				t.Fatalf("the property survives the mistake (%v):\n%s", err, out)
			}
		})
	}
}

// compileMutant builds the package's tests with the mistake.
func compileMutant(t *testing.T, goTool string, m mutant) string {
	t.Helper()
	source, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		t.Fatalf("%q occurs %d times in %s: bring the mutant up to date", m.old, n, m.file)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, m.file)
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(goTool, "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlayFile, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	return binary
}
