package keysimport

import (
	"context"
	"errors"
	"iter"

	"github.com/tallystick-go/tallystick/keys"
)

// ErrWider: the plan drops restrictions that the other system enforced, and the
// caller has not allowed that. Nothing was imported; the report names them.
var ErrWider = errors.New("keysimport: some keys would be allowed more than before: read the report, then allow it or change the source")

// Options adjust an import. Nil is the default.
type Options struct {
	// AllowWider imports a plan whose report has findings that are Wider.
	AllowWider bool
}

// Plan is what an export becomes: rows to import and what was not carried.
type Plan struct {
	Rows   keys.Rows
	Report *Report
}

// Import brings the plan into a store, in one transaction, and notes in the report
// what was done.
//
// Retry: safe; what is there already is left alone.
// Errors: ErrWider, and those of dst.
func (p Plan) Import(ctx context.Context, dst keys.Importer, o *Options) error {
	if p.Report.Wider() > 0 && (o == nil || !o.AllowWider) {
		return ErrWider
	}
	done, err := dst.Import(ctx, p.batches())
	if err == nil {
		p.Report.Imported = &done
	}
	return err
}

// batch is how many keys are imported at a time.
const batch = 500

// batches are the rows in pieces: first the teams, then keys with their secrets.
func (p Plan) batches() iter.Seq2[keys.Rows, error] {
	return func(yield func(keys.Rows, error) bool) {
		all := p.Rows
		for n := 0; len(all.Teams) > 0; all.Teams = all.Teams[n:] {
			n = min(batch, len(all.Teams))
			if !yield(keys.Rows{Teams: all.Teams[:n]}, nil) {
				return
			}
		}
		for n := 0; len(all.Keys) > 0; all.Keys, all.Secrets = all.Keys[n:], all.Secrets[n:] {
			n = min(batch, len(all.Keys)) // each key has one secret
			if !yield(keys.Rows{Keys: all.Keys[:n], Secrets: all.Secrets[:n]}, nil) {
				return
			}
		}
	}
}

// Copy brings every row of one store into another: hashes, ids, times, revisions,
// tombstones, secrets that retire, and what was declared. Nobody can write to src
// until dst has committed; see the source's Export for how it makes sure. Counters
// are not keys: they stay where they are.
//
// Retry: safe; what is there already is left alone.
// Errors: those of src and dst.
//
// Source: ADR-046 "Shared identity".
func Copy(ctx context.Context, dst keys.Importer, src keys.Exporter) (keys.Imported, error) {
	var done keys.Imported
	err := src.Export(ctx, func(rows iter.Seq2[keys.Rows, error]) (err error) {
		done, err = dst.Import(ctx, rows)
		return err
	})
	return done, err
}
