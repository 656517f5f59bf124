package policy

import (
	"context"
	"encoding/hex"
)

// Namespace identifies an authority: one schema of one database, or one Memory. It is random,
// made once and kept; equal policies in two databases have two namespaces.
type Namespace [16]byte

// String is the namespace as a UUID.
func (n Namespace) String() string {
	b := make([]byte, 0, 36)
	for i, part := range [...][]byte{n[0:4], n[4:6], n[6:8], n[8:10], n[10:16]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return string(b)
}

// MarshalText writes the namespace as a UUID.
func (n Namespace) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// IsZero reports the namespace of no authority.
func (n Namespace) IsZero() bool { return n == Namespace{} }

// Mark tells one state of one authority from every other. Who decided by one mark must
// not act under another: compare with ==.
type Mark struct {
	Namespace  Namespace  `json:"namespace"`
	Generation Generation `json:"generation"`
	// Revision counts the changes: it rises with each and never falls. The same
	// generation can come again, with a higher revision. A lower one than was seen says
	// that the authority's history went back.
	Revision int64 `json:"revision"`
}

// Snapshot is a set as it was at one instant, and its mark. Set is never nil, and its
// generation is the mark's.
type Snapshot struct {
	Mark
	Set *Set `json:"documents"`
}

// Apply adds documents, and puts them in the place of those that have their names.
type Apply struct {
	Documents []Document
	// Expect is the generation that the edit was decided on.
	Expect Generation
}

// Delete removes documents by name. No account goes with them: a document that comes back under
// its name finds the balances of its rules.
type Delete struct {
	Names  []string
	Expect Generation // as in Apply
}

// Replace puts a whole set, which may be empty, in the place of the one that is stored.
type Replace struct {
	Documents []Document
	Expect    Generation // as in Apply
}

// Store keeps one set of documents. It must be safe for concurrent use, and what one call
// wrote must be what the next call reads, on every handle of the same data.
//
// Concurrency: edits happen one after another. An edit must not return nil before every
// admission that may have read the older set has ended; one that cannot be sure of it returns
// ErrUnconfirmed.
// Retry: an edit that finds itself in force, whatever it expected, changes nothing and must
// wait again for admissions; so it is repeated as it was until it returns nil.
// Errors: every method returns ErrUnavailable when the store cannot answer, together with
// the context's error when that was the reason, and ErrCorrupt when what is stored is no set.
// Edits return *Error before anything is read or written, and *ConflictError when the generation
// in force is another one than expected; both change nothing. Where only the waiting failed,
// the snapshot comes with ErrUnconfirmed.
//
// Source: ADR-046 "Policy and runtime binding".
type Store interface {
	// Load returns the set and its mark as they were at one instant.
	Load(ctx context.Context) (Snapshot, error)
	// Mark returns the mark alone: how to learn, at little cost, that what was loaded is
	// still in force.
	Mark(ctx context.Context) (Mark, error)
	// Apply returns the set after the edit.
	Apply(ctx context.Context, a Apply) (Snapshot, error)
	// Delete returns the set after the edit. That none of the documents is there any more
	// counts as in force, unless the caller expected the very generation that is: then
	// it is ErrNotFound, as it is when a part of them is missing.
	Delete(ctx context.Context, d Delete) (Snapshot, error)
	// Replace returns the set after the edit. It must also work on a stored set that
	// cannot be read, if its generation can and is the expected one.
	Replace(ctx context.Context, r Replace) (Snapshot, error)
}
