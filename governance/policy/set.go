package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
)

// Generation is the digest of a set. The zero Generation is that of no set.
type Generation [sha256.Size]byte

// String is the generation in hexadecimal.
func (g Generation) String() string { return hex.EncodeToString(g[:]) }

// IsZero reports the generation of no set.
func (g Generation) IsZero() bool { return g == Generation{} }

// MarshalText writes the generation in hexadecimal.
func (g Generation) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads what MarshalText wrote. Errors: *Error.
func (g *Generation) UnmarshalText(text []byte) error {
	out, err := ParseGeneration(string(text))
	if err == nil {
		*g = out
	}
	return err
}

// ParseGeneration reads the 64 hexadecimal digits of a generation. Errors: *Error.
func ParseGeneration(s string) (Generation, error) {
	var g Generation
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(g) || hex.EncodeToString(raw) != s {
		return Generation{}, refuse("generation", "must be 64 digits of 0-9 and a-f")
	}
	copy(g[:], raw)
	return g, nil
}

// Set is an immutable set of documents, ordered by name. It is safe for concurrent use.
// The nil Set has no documents.
type Set struct {
	entries    []*prepared
	generation Generation
	index      map[Subject][]Match
}

// prepared is a document that was checked, in canonical form.
type prepared struct {
	document Document
	text     string // the encoded document
	digest   [sha256.Size]byte
	matches  []Match
}

func prepare(d *Document) (*prepared, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	p := &prepared{document: d.canonical()}
	var e encoder
	e.document(&p.document)
	if len(e.out) > MaxDocumentBytes {
		return nil, refuse("", fmt.Sprintf("must be at most %d bytes when it is encoded", MaxDocumentBytes))
	}
	p.text = string(e.out)
	p.digest = sha256.Sum256(e.out)
	p.matches = matchesOf(&p.document)
	return p, nil
}

// NewSet makes a set of documents. The set keeps copies, in canonical form.
//
// Errors: *Error, with a place such as documents[2].spec.rules[1].
func NewSet(documents []Document) (*Set, error) {
	entries := make([]*prepared, len(documents))
	for i := range documents {
		p, err := prepare(&documents[i])
		if err != nil {
			return nil, within(index("documents", i), err)
		}
		entries[i] = p
	}
	seen := make(map[string]bool, len(documents))
	for i, p := range entries {
		if seen[p.document.Name] {
			return nil, refuse(index("documents", i)+".metadata.name", "must not be the name of another document")
		}
		seen[p.document.Name] = true
	}
	return assemble(entries)
}

// assemble makes a set of entries whose names differ.
func assemble(entries []*prepared) (*Set, error) {
	if len(entries) > MaxDocuments {
		return nil, refuse("documents", fmt.Sprintf("must be at most %d", MaxDocuments))
	}
	slices.SortFunc(entries, func(a, b *prepared) int { return cmp.Compare(a.document.Name, b.document.Name) })
	s := &Set{entries: entries, index: make(map[Subject][]Match, len(entries))}
	digest := sha256.New()
	digest.Write([]byte(generationLabel))
	for _, e := range entries {
		digest.Write(e.digest[:])
		add(s.index, e.document.Subject, e.matches)
	}
	digest.Sum(s.generation[:0])
	return s, nil
}

const generationLabel = "tallystick policy generation 1\x00"

// Generation is a digest of the whole set: SHA-256 over the digests of its encoded
// documents, in order. The empty set has one too.
func (s *Set) Generation() Generation {
	if s == nil {
		return emptyGeneration
	}
	return s.generation
}

var emptyGeneration = Generation(sha256.Sum256([]byte(generationLabel)))

// Len is the number of documents.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.entries)
}

// Documents are copies of the documents, in canonical form and order.
func (s *Set) Documents() []Document {
	out := make([]Document, s.Len())
	for i := range out {
		out[i] = s.entries[i].document.canonical()
	}
	return out
}

// Document is a copy of the document of that name, and whether there is one.
func (s *Set) Document(name string) (Document, bool) {
	if e := s.find(name); e != nil {
		return e.document.canonical(), true
	}
	return Document{}, false
}

// Rules goes over all rules, each with its document, by policy and rule. They are the set's
// own: they must not be changed.
func (s *Set) Rules() iter.Seq2[*Document, *Rule] {
	return func(yield func(*Document, *Rule) bool) {
		for i := range s.Len() {
			d := &s.entries[i].document
			for j := range d.Rules {
				if !yield(d, &d.Rules[j]) {
					return
				}
			}
		}
	}
}

func (s *Set) find(name string) *prepared {
	if s == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(s.entries, name, func(e *prepared, name string) int { return cmp.Compare(e.document.Name, name) })
	if !ok {
		return nil
	}
	return s.entries[i]
}

// MarshalJSON writes the documents as a list, in canonical form and order: what [Decode] reads.
func (s *Set) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i := range s.Len() {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, s.entries[i].text...)
	}
	return append(out, ']'), nil
}
