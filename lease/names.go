package lease

import (
	"crypto/rand"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what a claim may say.
const (
	longestName = 200 // bytes
	shortestTTL = 50 * time.Millisecond
	longestTTL  = 24 * time.Hour
)

// NewHolder mints an identity for this process. The label, such as a pod's name, is for people to read, and is
// cut to 100 bytes; what makes it unique is appended. A configured identity would be shared by every
// replica of one configuration, and each would take the others' leases for its own.
func NewHolder(label string) string {
	label = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, label)
	for len(label) > 100 {
		_, n := utf8.DecodeLastRuneInString(label)
		label = label[:len(label)-n]
	}
	if label != "" {
		label += "-"
	}
	return label + strings.ToLower(rand.Text())
}

// Validate refuses a claim that no store may take.
//
// Errors: *FieldError.
func (c Claim) Validate() error {
	if err := validText("name", c.Name); err != nil {
		return err
	}
	if err := validText("holder", c.Holder); err != nil {
		return err
	}
	if c.TTL < shortestTTL || c.TTL > longestTTL {
		return refuse("ttl", "must be between 50 ms and 24 h")
	}
	return nil
}

// Validate refuses a lease that no store can have granted. Generation 0 passes where any will do.
//
// Errors: *FieldError.
func (l Lease) Validate(anyGeneration bool) error {
	if err := (Claim{Name: l.Name, Holder: l.Holder, TTL: shortestTTL}).Validate(); err != nil {
		return err
	}
	if l.Generation < 0 || l.Generation == 0 && !anyGeneration {
		return refuse("generation", "must be positive")
	}
	return nil
}

// ValidateName refuses a name that cannot be leased.
//
// Errors: *FieldError.
func ValidateName(name string) error { return validText("name", name) }

func validText(field, s string) error {
	switch {
	case s == "":
		return refuse(field, "is missing")
	case len(s) > longestName:
		return refuse(field, "is longer than 200 bytes")
	case !utf8.ValidString(s):
		return refuse(field, "is not UTF-8")
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return refuse(field, "holds characters that cannot be printed")
	}
	return nil
}
