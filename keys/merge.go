package keys

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
)

// Rows are rows as stores keep them, nothing left out: tombstones, revisions,
// times, the secrets that retire, what was declared.
type Rows struct {
	Teams        []Team
	Keys         []Key
	Secrets      []Secret
	Declarations []Declared
}

// Names are the rows that a store reads before a bootstrap or a merge: the
// declarations and teams of these names, the keys of these ids, and the secrets
// that have one of the hashes or belong to one of the keys. Every list is sorted
// and names nothing twice.
type Names struct {
	Teams    []string
	Keys     []string
	Hashes   []Hash
	Declared []Name
}

// Count says how many rows.
type Count struct {
	Teams        int `json:"teams"`
	Keys         int `json:"keys"`
	Secrets      int `json:"secrets"`
	Declarations int `json:"declarations"`
}

// Imported is what an import did.
type Imported struct {
	Added Count `json:"added"`
	Same  Count `json:"same"` // were there already, equal in everything
}

// Importer is the ability of a store to take whole rows in.
type Importer interface {
	// Import adds rows, batch after batch, in one transaction: all, or none when
	// it fails or the sequence ends in an error. Rows that are there already, equal
	// in everything, stay; so a repetition changes nothing. Teams must come before
	// their keys, and keys before their secrets. The sequence may be ranged over
	// more than once.
	//
	// Errors: *ConflictError (a row is there and differs, or a token is in use),
	// *FieldError, the sequence's own.
	Import(ctx context.Context, rows iter.Seq2[Rows, error]) (Imported, error)
}

// Exporter is the ability of a store to give its rows away whole.
type Exporter interface {
	// Export calls use with every row of the store, in an order that Import takes.
	// Nobody must be able to write to the store until use has returned: what is
	// written later would be missing wherever the rows went. The sequence may be
	// ranged over more than once, and only until use returns.
	//
	// Errors: ErrUnavailable (somebody else is writing, or the store cannot be
	// read), use's own.
	Export(ctx context.Context, use func(rows iter.Seq2[Rows, error]) error) error
}

// Count counts r.
func (r Rows) Count() Count {
	return Count{len(r.Teams), len(r.Keys), len(r.Secrets), len(r.Declarations)}
}

// Names are the rows that a store reads, in the transaction, for a merge of r.
func (r Rows) Names() Names {
	var n Names
	for _, t := range r.Teams {
		n.Teams = append(n.Teams, t.ID)
	}
	for _, k := range r.Keys {
		n.Teams, n.Keys = append(n.Teams, k.TeamID), append(n.Keys, k.ID)
	}
	for _, s := range r.Secrets {
		n.Keys, n.Hashes = append(n.Keys, s.KeyID), append(n.Hashes, s.Hash)
	}
	for _, d := range r.Declarations {
		n.Declared = append(n.Declared, d.Name)
	}
	return n.sorted()
}

func (n Names) sorted() Names {
	unique := func(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
	n.Teams, n.Keys = unique(n.Teams), unique(n.Keys)
	slices.SortFunc(n.Hashes, func(a, b Hash) int { return bytes.Compare(a[:], b[:]) })
	n.Hashes = slices.Compact(n.Hashes)
	slices.SortFunc(n.Declared, func(a, b Name) int { return strings.Compare(a.String(), b.String()) })
	n.Declared = slices.Compact(n.Declared)
	return n
}

// Validate refuses rows that no store writes. Errors: *FieldError, whose field
// begins with the row.
func (r Rows) Validate() error {
	for _, t := range r.Teams {
		_, err := CreateTeam{
			ID: t.ID, Name: t.Name, Limits: t.Limits, AllowedModels: t.AllowedModels, AllowedRegions: t.AllowedRegions,
			Guardrail: t.Guardrail, Metadata: t.Metadata, DefaultMaxTokens: t.DefaultMaxTokens,
		}.Prepare()
		if err = firstError(requiredID(t.ID), err, storedRevision(t.Revision)); err != nil {
			return within("teams["+shownID(t.ID)+"]", err)
		}
	}
	for _, k := range r.Keys {
		_, err := CreateKey{
			ID: k.ID, TeamID: k.TeamID, Owner: k.Owner, Name: k.Name, Limits: k.Limits, AllowedModels: k.AllowedModels,
			AllowedRegions: k.AllowedRegions, Metadata: k.Metadata, DefaultMaxTokens: k.DefaultMaxTokens, ExpiresAt: k.ExpiresAt,
			Hash: &Hash{1},
		}.Prepare(Format{})
		if err = firstError(requiredID(k.ID), err, storedRevision(k.Revision)); err != nil {
			return within("keys["+shownID(k.ID)+"]", err)
		}
	}
	for _, s := range r.Secrets {
		err := firstError(requiredID(s.KeyID), optionalID("rotation_id", s.RotationID))
		switch {
		case err != nil:
		case s.Hash == (Hash{}) || s.Hash.Equal(Token{}.Hash()):
			err = refuse("hash", "must be the SHA-256 of a token")
		case s.Grace < 0 || s.Grace > MaxGrace:
			err = refuse("grace", graceRule)
		}
		if err != nil {
			return within("secrets of key["+shownID(s.KeyID)+"]", err)
		}
	}
	for _, d := range r.Declarations {
		err := requiredID(d.ID)
		if err == nil && d.Kind != KindTeam && d.Kind != KindKey {
			err = refuse("kind", "must be team or key")
		}
		if err == nil && !d.Fingerprint.valid() {
			err = refuse("fingerprint", "must be one that a bootstrap made")
		}
		if err != nil {
			return within("declarations["+shownID(d.ID)+"]", err)
		}
	}
	return nil
}

func requiredID(id string) error { return validID("id", id) }

func storedRevision(n int64) error {
	if n < 1 {
		return refuse("revision", "must be at least 1")
	}
	return nil
}

// shownID keeps text that is no identifier out of an error.
func shownID(id string) string {
	if validID("", id) != nil {
		return "?"
	}
	return id
}

// Merge decides a batch of an import: add is what to insert, in that order; the
// rest of r is there already. have is what the store has of r.Names().
//
// Errors: *ConflictError.
func (r Rows) Merge(have Rows) (add Rows, err error) {
	h := have.index()
	for _, t := range r.Teams {
		before, known := h.teams[t.ID]
		if !known {
			h.teams[t.ID] = t
			add.Teams = append(add.Teams, t)
		} else if err := equalRows(Name{KindTeam, t.ID}, TeamColumns, before.Columns(), t.Columns()); err != nil {
			return Rows{}, err
		}
	}
	for _, k := range r.Keys {
		n := Name{KindKey, k.ID}
		if before, known := h.keys[k.ID]; known {
			if err := equalRows(n, KeyColumns, before.Columns(), k.Columns()); err != nil {
				return Rows{}, err
			}
			continue
		}
		if _, found := h.teams[k.TeamID]; !found {
			return Rows{}, &ConflictError{Name: n, Fields: []string{"team_id"}, Why: "there is no such team, here or before it in the import"}
		}
		h.keys[k.ID] = k
		add.Keys = append(add.Keys, k)
	}
	for _, s := range r.Secrets {
		n := Name{KindKey, s.KeyID}
		before, known := h.secrets[s.Hash]
		_, rotated := h.rotations[rotationOf(s)]
		_, found := h.keys[s.KeyID]
		switch {
		case known && reflect.DeepEqual(before.Columns(), s.Columns()):
			continue
		case known && before.KeyID != s.KeyID:
			return Rows{}, &ConflictError{Name: n, Fields: []string{"token"}, Why: "is another key's"}
		case known, rotated:
			return Rows{}, &ConflictError{Name: n, Fields: []string{"token"}, Why: "was rotated differently"}
		case !found:
			return Rows{}, &ConflictError{Name: n, Fields: []string{"id"}, Why: "there is no such key, here or before it in the import"}
		}
		h.secrets[s.Hash], h.rotations[rotationOf(s)] = s, true
		add.Secrets = append(add.Secrets, s)
	}
	for _, d := range r.Declarations {
		before, known := h.declared[d.Name]
		switch {
		case !known:
			h.declared[d.Name] = d
			add.Declarations = append(add.Declarations, d)
		case before.Fingerprint != d.Fingerprint:
			return Rows{}, &ConflictError{Name: d.Name, Fields: differences(before.Fingerprint, d.Fingerprint), Why: "was declared differently"}
		}
	}
	return add, nil
}

// MergeAll is an import inside a store's transaction: have reads what is there of
// some rows, what was added before included, and add inserts.
//
// Errors: *FieldError, *ConflictError, those of rows, have and add.
func MergeAll(rows iter.Seq2[Rows, error], have func(Names) (Rows, error), add func(Rows) error) (Imported, error) {
	var done Imported
	for batch, err := range rows {
		if err == nil {
			err = batch.Validate()
		}
		if err != nil {
			return Imported{}, err
		}
		there, err := have(batch.Names())
		if err != nil {
			return Imported{}, err
		}
		fresh, err := batch.Merge(there)
		if err == nil {
			err = add(fresh)
		}
		if err != nil {
			return Imported{}, err
		}
		done.Added = done.Added.plus(fresh.Count(), 1)
		done.Same = done.Same.plus(batch.Count(), 1).plus(fresh.Count(), -1)
	}
	return done, nil
}

func (c Count) plus(o Count, sign int) Count {
	return Count{c.Teams + sign*o.Teams, c.Keys + sign*o.Keys, c.Secrets + sign*o.Secrets, c.Declarations + sign*o.Declarations}
}

// String is for people.
func (c Count) String() string {
	return fmt.Sprintf("%d teams, %d keys, %d secrets, %d declarations", c.Teams, c.Keys, c.Secrets, c.Declarations)
}

type rotation struct{ key, id string }

func rotationOf(s Secret) rotation { return rotation{s.KeyID, s.RotationID} }

// indexed is Rows, by what names them.
type indexed struct {
	teams     map[string]Team
	keys      map[string]Key
	secrets   map[Hash]Secret
	rotations map[rotation]bool
	declared  map[Name]Declared
}

func (r Rows) index() indexed {
	x := indexed{map[string]Team{}, map[string]Key{}, map[Hash]Secret{}, map[rotation]bool{}, map[Name]Declared{}}
	for _, t := range r.Teams {
		x.teams[t.ID] = t
	}
	for _, k := range r.Keys {
		x.keys[k.ID] = k
	}
	for _, s := range r.Secrets {
		x.secrets[s.Hash], x.rotations[rotationOf(s)] = s, true
	}
	for _, d := range r.Declarations {
		x.declared[d.Name] = d
	}
	return x
}

// equalRows compares two rows of one name by what a store would write.
func equalRows(n Name, columns string, before, now []any) error {
	var fields []string
	for i, name := range strings.Split(columns, ", ") {
		if !reflect.DeepEqual(before[i], now[i]) {
			fields = append(fields, name)
		}
	}
	if fields == nil {
		return nil
	}
	return &ConflictError{Name: n, Fields: fields, Why: "is there already, and differs"}
}
