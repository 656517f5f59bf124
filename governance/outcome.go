package governance

import (
	"encoding/binary"

	"github.com/tallystick-go/tallystick/governance/amount"
)

// Certainty says how well a quantity is known. The numbers are stored.
type Certainty uint8

// Absent is not zero: the zero Certainty is Uncertain.
const (
	Uncertain  Certainty = iota // not known; the bound is kept
	Known                       // complete and valid
	Impossible                  // contradicts every convention; the accounts are frozen
)

// Measure is one quantity that a provider reported, with its certainty. For an
// Uncertain or Impossible measure the value is what was seen: it is stored apart
// and never charged by itself.
type Measure struct {
	Certainty Certainty
	Value     int64 // tokens or microUSD
}

// Outcome is how an attempt ended. The zero Outcome is unknown in both
// quantities, which keeps the whole reservation.
//
// Source: ADR-046 "Global admission and accounting"; internal/docs/guarantees.md "Nothing is refunded by accident".
type Outcome struct {
	Unsent bool // it is proved that nothing was sent: everything is returned
	Tokens Measure
	Cost   Measure
}

// Used is the outcome of an attempt whose complete, valid usage is known.
func Used(tokens amount.Tokens, cost amount.MicroUSD) Outcome {
	return Outcome{Tokens: Measure{Known, int64(tokens)}, Cost: Measure{Known, int64(cost)}}
}

// NotSent is the outcome of an attempt that provably used nothing, not even a
// request: a failed dial or TLS handshake, or a call that was never dispatched.
func NotSent() Outcome { return Outcome{Unsent: true} }

// Unknown is the outcome of an attempt of which nothing is known: a timeout, a
// cut, a server error, a panic.
func Unknown() Outcome { return Outcome{} }

// Observed is Unknown with what was seen before the end, kept for the operator
// who resolves it.
func Observed(tokens amount.Tokens, cost amount.MicroUSD) Outcome {
	return Outcome{Tokens: Measure{Uncertain, int64(tokens)}, Cost: Measure{Uncertain, int64(cost)}}
}

func (o Outcome) validate() error {
	for _, m := range [...]struct {
		field string
		Measure
		most int64
	}{{"outcome.tokens", o.Tokens, int64(MaxTokens)}, {"outcome.cost", o.Cost, int64(MaxCost)}} {
		switch {
		case m.Certainty > Impossible:
			return invalid(m.field, "has an unknown certainty")
		case m.Certainty != Impossible && (m.Value < 0 || m.Value > m.most):
			return invalid(m.field, "must not be negative or beyond the largest amount; report it as Impossible")
		}
	}
	if o.Unsent && (o.Tokens != Measure{} || o.Cost != Measure{}) {
		return invalid("outcome", "cannot be unsent and have used something")
	}
	return nil
}

// clean drops the value of an impossible measure: it would poison sums.
func (o Outcome) clean() Outcome {
	for _, m := range [...]*Measure{&o.Tokens, &o.Cost} {
		if m.Certainty == Impossible {
			m.Value = 0
		}
	}
	return o
}

// AppendBinary writes the outcome in at most 23 bytes.
func (o Outcome) AppendBinary(dst []byte) []byte {
	head := byte(o.Tokens.Certainty) | byte(o.Cost.Certainty)<<2
	if o.Unsent {
		head |= 1 << 4
	}
	dst = append(dst, 1, head)
	dst = binary.AppendUvarint(dst, uint64(o.Tokens.Value))
	return binary.AppendUvarint(dst, uint64(o.Cost.Value))
}

// UnmarshalBinary reads what AppendBinary wrote; no bytes are the zero Outcome.
// Errors: ErrCorrupt.
func (o *Outcome) UnmarshalBinary(p []byte) error {
	if len(p) == 0 {
		*o = Outcome{}
		return nil
	}
	r := reader{p: p}
	version, head := r.byte(), r.byte()
	out := Outcome{
		Unsent: head&(1<<4) != 0,
		Tokens: Measure{Certainty(head & 3), int64(r.uvarint())},
		Cost:   Measure{Certainty(head >> 2 & 3), int64(r.uvarint())},
	}
	if r.bad || len(r.p) > 0 || version != 1 || head > 0x1f || out.validate() != nil {
		return ErrCorrupt
	}
	*o = out
	return nil
}
