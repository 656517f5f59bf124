package operator

import (
	"encoding/json"
	"flag"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
)

// nodesCommand says how nodes fare, and what each boot of them has not given back.
var nodesCommand = operation{"", func(set *flag.FlagSet) *request {
	page := pageFlags(set)
	r := get(at("nodes"), func(o *output, answer json.RawMessage) error {
		list, err := into[report.NodePage](answer)
		o.row("NODE", "HEARD", "BOOT", "BUDGET", "WINDOW", "OUTSTANDING", "STRANDED", "BURNED", "PENDING")
		for _, n := range list.Nodes {
			state := n.HeardAt.Format(time.RFC3339)
			if n.Left {
				state += " left"
			}
			o.row(n.Name, state, n.BootNumber, "all", "", dollars(n.Outstanding), dollars(n.Stranded), dollars(n.Burned), dollars(n.Pending))
			for _, b := range n.Boots {
				for _, a := range b.Accounts {
					o.row("", "", b.Number, a.Policy+" "+a.Rule, a.WindowStart.Format(time.DateOnly),
						dollars(a.Outstanding), dollars(a.Stranded), dollars(a.Burned), dollars(a.Pending))
				}
			}
		}
		more(o, list.Next)
		return err
	})
	r.query = page.query
	return r
}}
