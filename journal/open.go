package journal

import (
	"fmt"

	"github.com/tallystick-go/tallystick/escrow"
)

// takeOver gives the journal to a new opening. Everything that an earlier one held is
// burned: whether the process that is gone had used it, nobody knows, and a file that was
// restored from a copy looks the same.
func takeOver(l *Loaded, boot escrow.BootID, node string) (*Changes, error) {
	m := l.Meta
	switch {
	case m.Number == 0 && (len(l.Grants) > 0 || len(l.Records) > 0):
		return nil, corrupt("the journal has rows and was never opened")
	case m.Number < 0 || m.Number == 1<<63-1, m.Acked < 0 || m.Acked > m.Ended, m.Forgotten < 0 || m.Forgotten > m.Ended:
		return nil, corrupt("the journal's numbers are impossible")
	}
	switch {
	case m.Node == "":
		m.Node = node
	case node != "" && node != m.Node:
		return nil, invalid("options.node", fmt.Sprintf("must be %q: the journal is that node's", m.Node))
	}
	ch := &Changes{}
	for i := range l.Grants {
		g := &l.Grants[i]
		if err := g.Validate(); err != nil {
			return nil, err
		}
		if g.Boot > m.Number {
			return nil, corrupt("grant %s was taken by an opening that has not been", g.ID)
		}
		was := *g
		if g.burn(); *g != was {
			g.Version++
			ch.Grants = append(ch.Grants, *g)
		}
	}
	for i := range l.Records {
		r := &l.Records[i]
		if r.State != Reserved {
			return nil, corrupt("reservation %s has ended and was loaded as open", r.ID)
		}
		m.Ended++
		r.State, r.Number = Burned, m.Ended
		ch.Changed = append(ch.Changed, *r)
	}
	m.Boot, m.Number = boot, m.Number+1
	ch.Meta = &m
	return ch, nil
}

// Burnt says what an opening found and burned.
type Burnt struct {
	Number       int64 // of this opening
	Grants       int   // that were open, and ones that were asked for and not answered
	Reservations int   // that were on their way
}

func (b Burnt) String() string {
	return fmt.Sprintf("opening %d burned %d grants and %d reservations", b.Number, b.Grants, b.Reservations)
}
