package governance

import (
	"encoding/json"
	"fmt"

	"github.com/tallystick-go/tallystick/quota"
)

// Label says what a constraint counts, for whoever reads the store: its id is a
// hash, and the definition that it came from may be gone.
type Label struct {
	Scope   Scope        `json:"scope"`
	Subject string       `json:"subject"`
	Kind    Kind         `json:"kind"`
	Policy  string       `json:"policy,omitempty"`
	Rule    string       `json:"rule"`
	Period  quota.Period `json:"period,omitzero"`
}

func (c *Constraint) label() Label {
	return Label{Scope: c.Scope, Subject: c.Subject, Kind: c.Kind, Policy: c.Policy, Rule: c.Rule, Period: c.Calendar.Period}
}

// AppendText writes the label as a store keeps it; nothing for the zero Label.
func (l Label) AppendText(dst []byte) ([]byte, error) {
	if l == (Label{}) {
		return dst, nil
	}
	text, err := json.Marshal(l)
	if err != nil {
		return dst, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return append(dst, text...), nil
}

// ParseLabel reads what AppendText wrote. Errors: ErrCorrupt.
func ParseLabel(text []byte) (Label, error) {
	if len(text) == 0 {
		return Label{}, nil
	}
	var l Label
	if err := json.Unmarshal(text, &l); err != nil {
		return Label{}, fmt.Errorf("%w: a label cannot be read", ErrCorrupt)
	}
	return l, nil
}
