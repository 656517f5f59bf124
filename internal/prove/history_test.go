package prove

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// The verbs of requests.
const (
	verbResolve  = "resolve" // who is calling
	verbAdmit    = "admit"
	verbRaise    = "raise"
	verbSettle   = "settle"
	verbFind     = "find" // an operator's finding about a permit
	verbUsage    = "usage"
	verbHolds    = "holds"
	verbEditKey  = "edit key"
	verbEditTeam = "edit team"
	verbRevoke   = "revoke"
	verbDelete   = "delete" // the team
	verbCreate   = "create" // a key
)

// The answers beside what an error says in its own words.
const (
	saidOK       = "ok"
	saidRefused  = "refused"
	saidUnauth   = "unauthenticated"
	saidRevoked  = "revoked"
	saidUnknown  = "unknown"
	saidStale    = "stale"
	saidExists   = "exists"
	saidAbsent   = "absent"
	saidTerminal = "terminal"
	saidConflict = "conflict"
	saidNothing  = "nothing" // provably nothing was done
	saidLost     = "lost"    // perhaps it was done, perhaps it still will be
)

// request is what a client asks for.
type request struct {
	Verb       string
	Team       string
	Key        int    `json:",omitempty"` // from 1
	Permit     string `json:",omitempty"`
	Tokens     int64  `json:",omitempty"`
	Cost       int64  `json:",omitempty"`
	Unsent     bool   `json:",omitempty"`
	BlurTokens bool   `json:",omitempty"` // the tokens used are not known
	BlurCost   bool   `json:",omitempty"`
	Limits     limits
	IfRevision int64 `json:",omitempty"`
}

// kinds are what the limits of the model count, in this order.
const (
	tokens = iota
	cost
	places
	kinds
)

// limits by kind; none is unlimited.
type limits [kinds]int64

const none = -1

// count is how full a limit is.
type count struct {
	Of                            int // 0 is the team, 1 the key
	Kind                          int
	Limit, Need                   int64
	Consumed, Uncertain, Reserved int64
	Reason                        string `json:",omitempty"`
}

// held is a permit that holds something.
type held struct {
	Permit     string
	Open       bool
	BlurTokens bool
	BlurCost   bool
	Tokens     int64
	Cost       int64
}

// answer is what a client was told.
type answer struct {
	Said         string
	Why          string `json:",omitempty"` // nothing was done, in the library's words
	Revision     int64  `json:",omitempty"` // of the key, or of what was edited
	TeamRevision int64  `json:",omitempty"`
	Limits       limits
	TeamLimits   limits
	Counts       []count `json:",omitempty"`
	Holds        []held  `json:",omitempty"`
	Permit       string  `json:",omitempty"`
}

// operation is one request with its answer and the time of both.
type operation struct {
	Client int
	request
	answer
	Call, Return int64 // monotonic, ns
}

// never is when an operation returns whose answer was lost: it may happen at any time, or never.
const never = 1<<63 - 1

// line is what a process writes: a request before it is made, so that it is known though the process is killed;
// an answer once it came; or that a round is over.
type line struct {
	Number int
	Client int
	At     int64    // of the request
	Until  int64    `json:",omitempty"`
	Asked  *request `json:",omitempty"`
	Told   *answer  `json:",omitempty"`
	Ready  bool     `json:",omitempty"` // connected
	Done   bool     `json:",omitempty"` // with the round
	Broken string   `json:",omitempty"` // an answer that nobody may get
}

// scribe writes lines whole, whoever writes.
type scribe struct {
	mu     sync.Mutex
	out    io.Writer
	number int
}

func (s *scribe) write(l line) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Asked != nil {
		s.number++
		l.Number = s.number
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = s.out.Write(append(text, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("a process cannot say what it does: %v", err))
	}
	return l.Number
}

// record makes a request and writes both sides of it down. The call's time is read after the request is
// written and before it is made, the return's as soon as it came.
func (s *scribe) record(client int, r request, ask func() answer) answer {
	number := s.write(line{Client: client, At: monotonic(), Asked: &r})
	from := monotonic()
	a := ask()
	s.write(line{Number: number, Client: client, At: from, Until: monotonic(), Told: &a})
	return a
}

// collector puts the lines of one process together.
type collector struct {
	process int
	pending map[int]*operation
	ended   []*operation
}

func (c *collector) take(text []byte) (l line, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(&l); err != nil {
		return l, fmt.Errorf("%q is no line of a process: %w", text, err)
	}
	switch {
	case l.Asked != nil:
		c.pending[l.Number] = &operation{Client: 100*c.process + l.Client, request: *l.Asked, Call: l.At, Return: never, answer: answer{Said: saidLost}}
	case l.Told != nil:
		o := c.pending[l.Number]
		if o == nil {
			return l, fmt.Errorf("an answer to no request: %q", text)
		}
		delete(c.pending, l.Number)
		o.answer, o.Call = *l.Told, l.At
		if o.Said != saidLost {
			o.Return = l.Until
		}
		c.ended = append(c.ended, o)
	}
	return l, nil
}

// all returns what was asked since the last time; what has no answer is lost when the process is gone.
func (c *collector) all() []*operation {
	list := c.ended
	for _, o := range c.pending {
		list = append(list, o)
	}
	c.pending, c.ended = map[int]*operation{}, nil
	return list
}
