package operator

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
)

// eventCommands are about the readers of the event log that gateways share.
var eventCommands = map[string]operation{
	"checkpoints": {"", func(*flag.FlagSet) *request {
		return get(at("events/checkpoints"), func(o *output, answer json.RawMessage) error {
			list, err := into[admin.Checkpoints](answer)
			o.row("CONSUMER", "OF", "OWNER", "BEHIND", "IDLE", "")
			for _, c := range list.Checkpoints {
				state := ""
				switch {
				case c.Closed:
					state = "closed"
				case c.Left:
					state = "left"
				}
				of := c.Producer
				if of == "" {
					of = "all"
				}
				o.row(c.Consumer, of, c.Owner, c.Behind, (time.Duration(c.IdleMS) * time.Millisecond).Round(time.Second), state)
			}
			if list.HeldBy != "" {
				o.row("old events stay because of " + list.HeldBy)
			}
			return err
		})
	}},
	"drop": {"CONSUMER", func(set *flag.FlagSet) *request {
		actor, reason := operatorFlags(set)
		return &request{
			method: http.MethodPost, path: at("events/checkpoints/drop"),
			body: func(consumer string) (any, error) {
				if *actor == "" || *reason == "" {
					return nil, errors.New("events drop needs -actor and -reason")
				}
				return map[string]string{"consumer": consumer, "actor": *actor, "reason": *reason}, nil
			},
			print: func(o *output, answer json.RawMessage) error {
				got, err := into[map[string]int](answer)
				o.row(fmt.Sprint(got["dropped"], " checkpoints that nobody uses are forgotten; what they had still to deliver is delivered to nobody"))
				return err
			},
		}
	}},
}
