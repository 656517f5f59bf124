package escrowhttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tallystick-go/tallystick/escrow"
)

// Identify says which node a request comes from, and nothing of one that shows no
// credential, or a wrong one.
type Identify func(r *http.Request) (node string, ok bool)

// Token is what a node presents as Authorization: Bearer. A node may have several, so that
// a new one is in use before the old one goes.
type Token struct {
	Node  string
	Value string
}

// String hides the value.
func (t Token) String() string { return t.Node + ": [redacted]" }

// GoString hides the value.
func (t Token) GoString() string { return t.String() }

// MinTokenBytes is the length that a token has at least. Make it of 32 random bytes.
const MinTokenBytes = 16

// Bearer identifies nodes by tokens. Only their hashes are kept, and every one of them is
// compared, each in constant time.
//
// Errors: one that names the node of a token that is too short, has characters that no
// header carries, or is another node's too. None repeats a token.
func Bearer(tokens []Token) (Identify, error) {
	type known struct {
		node string
		hash [sha256.Size]byte
	}
	all := make([]known, 0, len(tokens))
	seen := map[[sha256.Size]byte]string{}
	for _, t := range tokens {
		switch {
		case escrow.ValidNode(t.Node) != nil:
			return nil, fmt.Errorf("escrowhttp: a token is of %q, which is no name of a node", t.Node)
		case len(t.Value) < MinTokenBytes:
			return nil, fmt.Errorf("escrowhttp: the token of node %s is shorter than %d characters", t.Node, MinTokenBytes)
		case strings.ContainsFunc(t.Value, func(c rune) bool { return c <= ' ' || c > '~' }):
			return nil, fmt.Errorf("escrowhttp: the token of node %s has characters that a header cannot carry", t.Node)
		}
		hash := sha256.Sum256([]byte(t.Value))
		if other, twice := seen[hash]; twice && other != t.Node {
			return nil, fmt.Errorf("escrowhttp: nodes %s and %s have the same token", other, t.Node)
		}
		seen[hash] = t.Node
		all = append(all, known{t.Node, hash})
	}
	if len(all) == 0 {
		return nil, errors.New("escrowhttp: there is no token: no node could speak")
	}
	return func(r *http.Request) (string, bool) {
		given := r.Header.Values("Authorization")
		if len(given) != 1 {
			return "", false
		}
		scheme, value, _ := strings.Cut(given[0], " ")
		hash := sha256.Sum256([]byte(strings.TrimSpace(value)))
		found := -1
		for i := range all {
			found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], all[i].hash[:]), i, found)
		}
		if found < 0 || !strings.EqualFold(scheme, "Bearer") {
			return "", false
		}
		return all[found].node, true
	}, nil
}

// Certificate identifies a node by the client certificate that the TLS server has
// verified: configure it with tls.RequireAndVerifyClientCert and the authority's own CA.
// The name is the certificate's only DNS name or, where it has none, its common name.
func Certificate(r *http.Request) (string, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return "", false
	}
	leaf := r.TLS.VerifiedChains[0][0]
	name := leaf.Subject.CommonName
	switch len(leaf.DNSNames) {
	case 0:
	case 1:
		name = leaf.DNSNames[0]
	default:
		return "", false
	}
	return name, escrow.ValidNode(name) == nil
}
