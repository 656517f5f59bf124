package escrow

import (
	"strconv"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
)

// AppendJSON encodes a heartbeat that is valid, in one way only: its digest is of these
// bytes. Every list stands there, also when it is empty.
func (h *Heartbeat) AppendJSON(dst []byte) []byte {
	e := encoder{out: dst}
	e.open('{')
	e.text("protocol", Protocol)
	e.text("node", h.Node)
	e.text("boot", h.Boot.String())
	e.number("boot_number", h.BootNumber)
	e.number("sequence", h.Sequence)
	e.number("answered", h.Answered)
	e.mark(h.Mark)
	objects(&e, "reports", h.Reports, func(r *Report) {
		e.text("grant", r.Grant.String())
		e.use(r.Consumed, r.Uncertain, r.Observed)
		e.text("ending", r.Ending.String())
	})
	objects(&e, "meters", h.Meters, func(m *Meter) {
		e.text("id", m.ID.String())
		e.account(&m.Account)
		e.use(m.Consumed, m.Uncertain, m.Observed)
		e.money("pending", m.Pending)
	})
	objects(&e, "requests", h.Requests, func(r *Request) {
		e.text("id", r.ID.String())
		e.account(&r.Account)
		e.money("amount", r.Amount)
		e.money("least", r.Least)
	})
	e.flag("bye", h.Bye)
	e.close('}')
	return e.out
}

// AppendJSON encodes an answer that is valid. Its documents are written as a policy set
// writes them. Every list stands there, also when it is empty.
func (a *Answer) AppendJSON(dst []byte) []byte {
	e := encoder{out: dst}
	e.open('{')
	e.text("protocol", Protocol)
	e.mark(a.Mark)
	e.number("now_us", a.Now)
	e.key("documents")
	documents, _ := a.Documents.MarshalJSON() // never fails
	e.out = append(e.out, documents...)
	objects(&e, "definitions", a.Definitions, func(d *Definition) {
		e.account(&d.Account)
		e.money("limit", d.Limit)
		e.flag("hard", d.Hard)
		e.money("grant", d.Grant)
		e.number("renew_ms", d.Renew.Milliseconds())
	})
	objects(&e, "budgets", a.Budgets, func(b *Budget) {
		e.money("consumed", b.Consumed)
		e.money("uncertain", b.Uncertain)
		e.money("reserved", b.Reserved)
		e.money("granted", b.Granted)
		e.number("latch_percent", int64(b.Latch))
		e.flag("frozen", b.Frozen)
	})
	objects(&e, "grants", a.Grants, func(g *Grant) {
		e.text("id", g.ID.String())
		e.account(&g.Account)
		e.money("amount", g.Amount)
		e.number("expires_at_us", g.ExpiresAt)
	})
	objects(&e, "denials", a.Denials, func(d *Denial) {
		e.text("id", d.ID.String())
		e.text("reason", d.Reason.String())
		e.money("left", d.Left)
	})
	objects(&e, "receipts", a.Receipts, func(r *Receipt) {
		e.text("grant", r.Grant.String())
		e.text("ending", r.Ending.String())
		e.flag("late", r.Late)
	})
	e.close('}')
	return e.out
}

// MarshalJSON writes a heartbeat. Errors: *Error for one that is not valid.
func (h *Heartbeat) MarshalJSON() ([]byte, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	return h.AppendJSON(nil), nil
}

// MarshalJSON writes an answer. Errors: *Error for one that is not valid.
func (a *Answer) MarshalJSON() ([]byte, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	return a.AppendJSON(nil), nil
}

// encoder writes JSON. Texts are valid and printable: quotes and backslashes are all that is
// escaped.
type encoder struct {
	out   []byte
	inner bool // something stands before in the same object or list
}

func (e *encoder) open(c byte)  { e.out, e.inner = append(e.out, c), false }
func (e *encoder) close(c byte) { e.out, e.inner = append(e.out, c), true }

func (e *encoder) next() {
	if e.inner {
		e.out = append(e.out, ',')
	}
	e.inner = true
}

func (e *encoder) key(name string) {
	e.next()
	e.quote(name)
	e.out = append(e.out, ':')
}

func (e *encoder) quote(s string) {
	e.out = append(e.out, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			e.out = append(e.out, '\\')
		}
		e.out = append(e.out, s[i])
	}
	e.out = append(e.out, '"')
}

func (e *encoder) text(name, s string) { e.key(name); e.quote(s) }

func (e *encoder) number(name string, n int64) {
	e.key(name)
	e.out = strconv.AppendInt(e.out, n, 10)
}

func (e *encoder) money(name string, n amount.MicroUSD) { e.number(name+"_microusd", int64(n)) }

func (e *encoder) flag(name string, set bool) {
	e.key(name)
	e.out = strconv.AppendBool(e.out, set)
}

func (e *encoder) use(consumed, uncertain, observed amount.MicroUSD) {
	e.money("consumed", consumed)
	e.money("uncertain", uncertain)
	e.money("observed", observed)
}

func (e *encoder) mark(m policy.Mark) {
	e.key("mark")
	if m == (policy.Mark{}) {
		e.out = append(e.out, "null"...)
		return
	}
	e.open('{')
	e.text("namespace", m.Namespace.String())
	e.text("generation", m.Generation.String())
	e.number("revision", m.Revision)
	e.close('}')
}

func (e *encoder) account(a *Account) {
	e.key("account")
	e.open('{')
	e.text("policy", a.Policy)
	e.text("rule", a.Rule)
	if a.Subject.Team != "" {
		e.text("team", a.Subject.Team)
	}
	if a.Subject.User != "" {
		e.text("user", a.Subject.User)
	}
	e.text("period", a.Period.String())
	e.number("start_us", a.Window.Start)
	e.number("end_us", a.Window.End)
	e.close('}')
}

// objects writes a list of objects.
func objects[T any](e *encoder, name string, entries []T, write func(*T)) {
	e.key(name)
	e.open('[')
	for i := range entries {
		e.next()
		e.open('{')
		write(&entries[i])
		e.close('}')
	}
	e.close(']')
}
