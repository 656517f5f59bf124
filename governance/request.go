package governance

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// Bound is the most that one provider attempt may use.
//
// Units: provider tokens; microUSD, rounded up.
type Bound struct {
	Tokens amount.Tokens
	Cost   amount.MicroUSD
	Free   bool // the model is explicitly free: money is not governed, rates and quotas are; Cost must be zero
	// Unpriced: nothing bounds the cost. Who has any limit in money, hard or soft, is
	// refused; Cost must be zero.
	Unpriced bool
}

// Largest values that a request may name.
const (
	MaxTokens     amount.Tokens   = 1_000_000_000_000
	MaxCost       amount.MicroUSD = 1_000_000_000_000_000
	MaxPriceBytes                 = 1024
	MaxNameBytes                  = 256
)

// Request asks to govern one provider attempt.
type Request struct {
	// ID is optional. When the caller brings one, a repeated call finds what became
	// of the first. Its time must not lie more than 5 minutes ahead of the store's
	// clock nor before the prune horizon.
	ID PermitID
	// Principal is who is calling, as keys.Store.Resolve returned it.
	Principal *keys.Principal
	// Model, Region and Guardrail are what routing selected on behalf of the
	// principal. If an edit changed what they may be, the request is refused. A
	// principal who may use only some models or regions needs one named here, and one
	// whose team has a guardrail needs that one: it is then the caller's to apply it.
	Model     string
	Region    string
	Guardrail string
	// Route is what Governor.Route made of the model that was asked for; nil where nothing
	// is routed. A model that a strict tier replaced meanwhile is then ErrStale, or decided
	// once more where routing says the same as before.
	Route *Route
	// Bound is what the attempt may use at most.
	Bound Bound
	// Price is the encoded price row that Bound was computed from, captured on the
	// permit for settlement. The Governor does not read it. Its bytes must not be
	// changed once Admit was called.
	Price []byte
}

func (r *Request) validate() error {
	switch {
	case r.Route != nil && r.Route.Model == "" && r.Route.Asked != "":
		return invalid("route", "must be what Route returned")
	case r.Principal == nil:
		return invalid("principal", "is missing; resolve the caller's key first")
	case !r.ID.IsZero() && !r.ID.Valid():
		return invalid("id", "must be a version 7 UUID, or zero to have one made")
	case len(r.Price) > MaxPriceBytes:
		return invalid("price", fmt.Sprintf("must not be longer than %d bytes", MaxPriceBytes))
	}
	if err := r.Bound.validate(); err != nil {
		return err
	}
	for _, f := range [...]struct{ name, value string }{{"model", r.Model}, {"region", r.Region}, {"guardrail", r.Guardrail}} {
		if err := validName(f.name, f.value); err != nil {
			return err
		}
	}
	return nil
}

func (b Bound) validate() error {
	switch {
	case b.Tokens < 0 || b.Tokens > MaxTokens:
		return invalid("bound.tokens", fmt.Sprintf("must be between 0 and %d", MaxTokens))
	case b.Cost < 0 || b.Cost > MaxCost:
		return invalid("bound.cost", fmt.Sprintf("must be between 0 and %d microUSD", MaxCost))
	case b.Free && b.Cost != 0:
		return invalid("bound.cost", "must be zero when the model is explicitly free")
	case b.Unpriced && (b.Free || b.Cost != 0):
		return invalid("bound.unpriced", "cannot be free and cannot have a cost")
	}
	return nil
}

// flags are those that an admission sets.
func (b Bound) flags() Flags {
	switch {
	case b.Free:
		return FlagFree
	case b.Unpriced:
		return FlagUnpriced
	}
	return 0
}

// validName refuses what cannot be printed in a log line. Empty is allowed.
func validName(field, s string) error {
	if len(s) > MaxNameBytes {
		return invalid(field, fmt.Sprintf("must not be longer than %d bytes", MaxNameBytes))
	}
	if !utf8.ValidString(s) {
		return invalid(field, "must be valid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return invalid(field, "must not contain control characters")
		}
	}
	return nil
}

// fingerprint digests the terms that the caller asked for, and nothing that the
// library or an edit decides.
func (r *Request) fingerprint() Fingerprint {
	buf := make([]byte, 0, 512)
	buf = append(buf, "tallystick request 1"...)
	for _, part := range [...]string{r.Principal.KeyID, r.Model, r.Region, r.Guardrail} {
		buf = binary.AppendUvarint(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	buf = binary.BigEndian.AppendUint64(buf, uint64(r.Bound.Tokens))
	buf = binary.BigEndian.AppendUint64(buf, uint64(r.Bound.Cost))
	if flags := r.Bound.flags(); flags != 0 {
		buf = append(buf, byte(flags))
	}
	sum := sha256.Sum256(buf)
	return Fingerprint(sum[:16])
}

// permitted checks the selection against the principal's snapshot. Who may use only
// some models or regions may not leave open which one it is.
func (r *Request) permitted(set *constraintSet) *Refusal {
	p := r.Principal
	if refusal := set.rules.gated(p); refusal != nil {
		return refusal
	}
	if !p.AllowsModel(r.Model) || !set.access.Allows(r.Model) {
		return &Refusal{Reason: ReasonModel}
	}
	if !p.AllowsRegion(r.Region) {
		return &Refusal{Reason: ReasonRegion}
	}
	if p.Team.Guardrail != "" && r.Guardrail != p.Team.Guardrail {
		return &Refusal{Reason: ReasonGuardrail}
	}
	return nil
}
