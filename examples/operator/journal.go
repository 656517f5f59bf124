package operator

import (
	"encoding/json"
	"flag"
	"net/http"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
)

// journalCommands are what is done with a node's journal while it is in use.
var journalCommands = map[string]operation{
	"status": {"", func(*flag.FlagSet) *request { return get(at("journal"), printJournal) }},
	"release": {"", func(set *flag.FlagSet) *request {
		actor, reason := operatorFlags(set)
		r := &request{method: http.MethodPost, path: at("journal/release"), print: func(o *output, answer json.RawMessage) error {
			done, err := into[report.JournalRelease](answer)
			if done.Released {
				o.row("released: the node reserves again")
			} else {
				o.row("nothing was poisoned")
			}
			return err
		}}
		r.body = func(string) (any, error) { return map[string]any{"actor": *actor, "reason": *reason}, nil }
		return r
	}},
}

func printJournal(o *output, answer json.RawMessage) error {
	j, err := into[report.Journal](answer)
	o.row("BOOT", j.BootNumber, j.Boot)
	o.row("UNTOLD", j.Untold)
	if p := j.Poison; p != nil {
		o.row("POISONED", "permit "+p.Permit, "used "+dollars(p.Used), "of "+dollars(p.Bound))
	}
	o.row("BUDGET", "WINDOW", "GRANTED", "FREE", "ASKED", "RESERVED", "CONSUMED", "UNCERTAIN")
	for _, a := range j.Accounts {
		granted, free := dollars(a.Open), dollars(a.Free)
		if a.Meter {
			granted, free = "meter", "-"
		}
		o.row(a.Policy+" "+a.Rule, a.WindowStart.Format(time.DateOnly), granted, free, dollars(a.Asked), dollars(a.Reserved), dollars(a.Consumed), dollars(a.Uncertain))
	}
	return err
}
