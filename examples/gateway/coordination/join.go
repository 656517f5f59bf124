package coordination

import (
	"os"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/eventlog/eventlogpg"
)

// Join mints this gateway's identity and says what it does with the log once it has started. What it changes can be
// recorded from now on: of what it appends before Start nothing is missed.
//
// Errors: those of eventlog.New.
func (b *Base) Join(subscriptions ...eventlog.Subscription) (err error) {
	b.Log, err = eventlog.New(b.Store, &eventlog.Options{
		Label: label(), Subscriptions: subscriptions, Poll: b.options.Tail, Beat: b.Beat(), Attempts: 1,
	})
	if err != nil {
		return err
	}
	b.Events, err = eventlogpg.NewRecorder(b.Store, b.Log)
	return err
}

// label is for people; what makes an identity unique is minted.
func label() string {
	host, _ := os.Hostname()
	if len(host) > 100 {
		host = host[:100]
	}
	return host
}
