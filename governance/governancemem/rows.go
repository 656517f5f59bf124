package governancemem

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

var _ keys.Importer = (*Keys)(nil)

// Bootstrap implements keys.Store.
func (k *Keys) Bootstrap(ctx context.Context, b keys.Bootstrap) (keys.Bootstrapped, error) {
	b, err := b.Prepare(k.d.format)
	if err != nil {
		return keys.Bootstrapped{}, err
	}
	return under(ctx, k, func(d *data, now time.Time) (keys.Bootstrapped, error) {
		add, done, err := b.Apply(d.have(b.Names()), now)
		if err == nil {
			d.add(add)
		}
		return done, err
	})
}

// Import implements keys.Importer.
func (k *Keys) Import(ctx context.Context, rows iter.Seq2[keys.Rows, error]) (keys.Imported, error) {
	return under(ctx, k, func(d *data, _ time.Time) (keys.Imported, error) {
		// What the batches add is seen by the next ones, and by nobody else until the end.
		after := &data{teams: maps.Clone(d.teams), keys: maps.Clone(d.keys), secrets: maps.Clone(d.secrets), declared: maps.Clone(d.declared)}
		done, err := keys.MergeAll(rows,
			func(n keys.Names) (keys.Rows, error) { return after.have(n), nil },
			func(add keys.Rows) error { after.add(add); return nil })
		if err == nil {
			d.teams, d.keys, d.secrets, d.declared = after.teams, after.keys, after.secrets, after.declared
		}
		return done, err
	})
}

func (d *data) have(n keys.Names) (have keys.Rows) {
	have.Teams = pick(d.teams, n.Teams)
	have.Keys = pick(d.keys, n.Keys)
	have.Secrets = pick(d.secrets, n.Hashes)
	have.Declarations = pick(d.declared, n.Declared)
	for _, s := range d.secrets {
		if _, of := slices.BinarySearch(n.Keys, s.KeyID); of {
			have.Secrets = append(have.Secrets, s)
		}
	}
	return have
}

func pick[K comparable, V any](from map[K]V, names []K) (out []V) {
	for _, name := range names {
		if row, ok := from[name]; ok {
			out = append(out, row)
		}
	}
	return out
}

func (d *data) add(add keys.Rows) {
	for _, t := range add.Teams {
		d.teams[t.ID] = t.Clone()
	}
	for _, k := range add.Keys {
		d.keys[k.ID] = k.Clone()
	}
	for _, s := range add.Secrets {
		d.secrets[s.Hash] = s
	}
	for _, c := range add.Declarations {
		d.declared[c.Name] = c
	}
}
