package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"strings"
)

// DefaultPrefix begins every token that [Mint] makes.
const DefaultPrefix = "tly_"

const (
	bodyDigits     = 43 // 62^43 is a little more than 2^256
	checkDigits    = 6  // 62^6 is more than 2^32
	maxTokenBytes  = 512
	minForeignBody = 16
	digits         = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	redacted       = "[redacted]"
)

// lastBody is 2^256-1. The digits ascend in ASCII, so bodies compare as strings.
var lastBody = base62(func() (b [32]byte) {
	for i := range b {
		b[i] = 0xff
	}
	return b
}())

// Token is a virtual key's secret in plaintext. It prints, logs and encodes as
// "[redacted]"; only [Token.Reveal] gives it away.
//
// Its form is prefix, 43 digits, 6 digits, in base 62 (0-9, A-Z, a-z, most
// significant first, padded with leading zeros). The 43 digits are 32 random
// bytes as one big-endian number. The 6 are the CRC-32 (IEEE) of everything
// before them, the prefix included, so that a scanner finds real tokens offline.
// There is exactly one spelling of a token. The prefix "tly_" over 32 zero bytes
// is
//
//	tly_00000000000000000000000000000000000000000001N4bGd
//
// Source: internal/docs/architecture.md "The path of one call".
type Token struct{ plain *string } // a pointer: reflection prints an address

// Mint makes a token of the default format from 32 bytes of random, or of
// crypto/rand when random is nil. It fails only when random does.
func Mint(random io.Reader) (Token, error) { return Format{}.Mint(random) }

// Parse accepts exactly the tokens of the default format. Errors: ErrUnknown.
func Parse(presented string) (Token, error) { return Format{}.Parse(presented) }

// Reveal returns the plaintext, to be shown to its owner once.
func (t Token) Reveal() string {
	if t.plain == nil {
		return ""
	}
	return *t.plain
}

// IsZero reports whether there is no token.
func (t Token) IsZero() bool { return t.plain == nil }

// Hash returns the SHA-256 of the whole token, which is all that a store keeps.
// What is presented is always hashed, so presenting a hash finds nothing.
func (t Token) Hash() Hash { return sha256.Sum256([]byte(t.Reveal())) }

// String hides the token, and so do all other ways to print or encode it.
func (t Token) String() string { return redacted }

// GoString hides the token.
func (t Token) GoString() string { return redacted }

// Format hides the token for every verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText hides the token.
func (t Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON hides the token.
func (t Token) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// LogValue hides the token.
func (t Token) LogValue() slog.Value { return slog.StringValue(redacted) }

// Hash is the SHA-256 of a token. It prints and encodes as "[redacted]".
type Hash [sha256.Size]byte

// Equal compares in constant time.
func (h Hash) Equal(other Hash) bool { return subtle.ConstantTimeCompare(h[:], other[:]) == 1 }

// String hides the hash, and so do all other ways to print or encode it.
func (h Hash) String() string { return redacted }

// GoString hides the hash.
func (h Hash) GoString() string { return redacted }

// Format hides the hash for every verb.
func (h Hash) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText hides the hash.
func (h Hash) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue hides the hash.
func (h Hash) LogValue() slog.Value { return slog.StringValue(redacted) }

// Format says which tokens a store accepts. The zero value accepts "tly_" only.
type Format struct {
	// Prefixes of tokens in our own form. The first one is minted. A prefix is
	// letters and digits and ends in an underscore. Empty means "tly_".
	Prefixes []string
	// Foreign prefixes announce tokens that another system made, such as "sk-":
	// 16 or more printable characters follow, and no checksum is expected.
	Foreign []string
}

// Validate refuses prefixes that could not be told apart. Errors: *FieldError.
func (f Format) Validate() error {
	for _, p := range f.Prefixes {
		name, ok := strings.CutSuffix(p, "_")
		if !ok || name == "" || len(p) > 32 || !isBase62(name) {
			return refuse("prefixes", "must be letters and digits that end in an underscore")
		}
	}
	for _, p := range f.Foreign {
		if len(p) < 3 || len(p) > 32 || !isPrintable(p) || !strings.ContainsAny(p[len(p)-1:], "-_.:") {
			return refuse("foreign", "must be 3 to 32 printable characters that end in - _ . or :")
		}
		for _, own := range f.prefixes() {
			if strings.HasPrefix(p, own) || strings.HasPrefix(own, p) {
				return refuse("foreign", "must not overlap with our own prefixes")
			}
		}
	}
	return nil
}

// Mint makes a token with the first prefix from 32 bytes of random, or of
// crypto/rand when random is nil. It fails only when random does.
func (f Format) Mint(random io.Reader) (Token, error) {
	if random == nil {
		random = rand.Reader
	}
	var secret [32]byte
	if _, err := io.ReadFull(random, secret[:]); err != nil {
		return Token{}, errors.New("keys: no randomness for a token")
	}
	text := f.prefixes()[0] + base62(secret)
	text += checksum(text)
	return Token{&text}, nil
}

// Parse checks the shape of a presented token: exact length, digits, canonical
// number and checksum for our own, prefix and length for a foreign one. It costs
// no hash and no look-up. Errors: ErrUnknown, which does not say why.
func (f Format) Parse(presented string) (Token, error) {
	if len(presented) > maxTokenBytes {
		return Token{}, ErrUnknown
	}
	for _, p := range f.prefixes() {
		if rest, own := strings.CutPrefix(presented, p); own {
			if !validOwn(presented, rest) {
				return Token{}, ErrUnknown
			}
			return newToken(presented), nil
		}
	}
	for _, p := range f.Foreign {
		if rest, ok := strings.CutPrefix(presented, p); ok && len(rest) >= minForeignBody && isPrintable(rest) {
			return newToken(presented), nil
		}
	}
	return Token{}, ErrUnknown
}

// newToken copies, so that a token does not keep a whole header alive.
func newToken(text string) Token {
	text = strings.Clone(text)
	return Token{&text}
}

func (f Format) prefixes() []string {
	if len(f.Prefixes) == 0 {
		return []string{DefaultPrefix}
	}
	return f.Prefixes
}

func validOwn(token, rest string) bool {
	if len(rest) != bodyDigits+checkDigits || !isBase62(rest) {
		return false
	}
	covered := token[:len(token)-checkDigits]
	return rest[:bodyDigits] <= lastBody && checksum(covered) == token[len(covered):]
}

// checksum is the CRC-32 (IEEE) of covered in 6 base-62 digits.
func checksum(covered string) string {
	var out [checkDigits]byte
	n := crc32.ChecksumIEEE([]byte(covered))
	for i := checkDigits - 1; i >= 0; i-- {
		out[i] = digits[n%62]
		n /= 62
	}
	return string(out[:])
}

// base62 writes a 256-bit big-endian number in 43 digits.
func base62(number [32]byte) string {
	var limbs [8]uint32
	for i := range limbs {
		limbs[i] = binary.BigEndian.Uint32(number[4*i:])
	}
	var out [bodyDigits]byte
	for i := bodyDigits - 1; i >= 0; i-- {
		var remainder uint64
		for j := range limbs {
			remainder = remainder<<32 | uint64(limbs[j])
			limbs[j] = uint32(remainder / 62)
			remainder %= 62
		}
		out[i] = digits[remainder]
	}
	return string(out[:])
}

func isBase62(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
