package keystest_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

func (m *memory) Bootstrap(ctx context.Context, b keys.Bootstrap) (keys.Bootstrapped, error) {
	b, err := b.Prepare(m.format)
	if err != nil {
		return keys.Bootstrapped{}, err
	}
	return under(ctx, m, func(now time.Time) (keys.Bootstrapped, error) {
		have := m.have()
		switch m.mistake {
		case "a declaration overwrites", "a declaration brings back":
			have = keys.Rows{} // as if nothing had ever been declared
		case "a declared id is shared":
			have.Keys = nil
		}
		add, done, err := b.Apply(have, now)
		var conflict *keys.ConflictError
		switch {
		case errors.As(err, &conflict) && m.mistake == "a conflict starts":
			return keys.Bootstrapped{Created: []keys.Name{}, Unchanged: len(b.Declarations)}, nil
		case errors.As(err, &conflict) && m.mistake == "a conflict does its half":
			for _, d := range b.Declarations {
				if half, _, failed := (keys.Bootstrap{Declarations: []keys.Declaration{d}}).Apply(have, now); failed == nil {
					m.add(half)
				}
			}
		case m.mistake == "declarations are forgotten":
			add.Declarations = nil
		case m.mistake == "a declaration brings back":
			add.Keys, add.Secrets = nil, nil
		}
		if err == nil {
			m.add(add)
			m.tell(add.CreationEvents()...)
		}
		return done, err
	})
}

func (m *memory) Import(ctx context.Context, rows iter.Seq2[keys.Rows, error]) (keys.Imported, error) {
	return under(ctx, m, func(now time.Time) (done keys.Imported, err error) {
		after := memory{teams: maps.Clone(m.teams), keys: maps.Clone(m.keys), secrets: maps.Clone(m.secrets), declared: maps.Clone(m.declared)}
		done, err = keys.MergeAll(rows, func(keys.Names) (keys.Rows, error) {
			have := after.have()
			if m.mistake == "an import overwrites" {
				have = keys.Rows{Teams: have.Teams}
			}
			return have, nil
		}, func(add keys.Rows) error {
			after.add(m.bent(add, now))
			return nil
		})
		if err == nil || m.mistake == "an import stops half-way" {
			m.replace(after)
		}
		if err == nil {
			m.tell(done.Events(now)...)
		}
		return done, err
	})
}

// bent makes a mistake with the rows of an import.
func (m *memory) bent(add keys.Rows, now time.Time) keys.Rows {
	out := keys.Rows{Teams: add.Teams, Declarations: add.Declarations}
	for _, k := range add.Keys {
		switch {
		case m.mistake == "an import leaves the revoked out" && k.RevokedAt != nil:
			continue
		case m.mistake == "an import begins anew":
			k.Revision, k.CreatedAt = 1, now
		}
		out.Keys = append(out.Keys, k)
	}
	for _, s := range add.Secrets {
		if m.mistake == "a grace is not imported" && s.RetiresAt != nil {
			continue
		}
		out.Secrets = append(out.Secrets, s)
	}
	return out
}

// replace changes what the maps hold: other handles have the same ones.
func (m *memory) replace(by memory) {
	put(m.teams, by.teams)
	put(m.keys, by.keys)
	put(m.secrets, by.secrets)
	put(m.declared, by.declared)
}

func put[K comparable, V any](in, from map[K]V) {
	clear(in)
	maps.Copy(in, from)
}

func (m *memory) have() (have keys.Rows) {
	for _, t := range m.teams {
		have.Teams = append(have.Teams, t)
	}
	for _, k := range m.keys {
		have.Keys = append(have.Keys, k)
	}
	for _, s := range m.secrets {
		have.Secrets = append(have.Secrets, s)
	}
	for _, d := range m.declared {
		have.Declarations = append(have.Declarations, d)
	}
	return have
}

func (m *memory) add(add keys.Rows) {
	for _, t := range add.Teams {
		m.teams[t.ID] = t.Clone()
	}
	for _, k := range add.Keys {
		m.keys[k.ID] = k.Clone()
	}
	for _, s := range add.Secrets {
		m.secrets[s.Hash] = s
	}
	for _, d := range add.Declarations {
		m.declared[d.Name] = d
	}
}

// Export takes the mutex: nobody writes until use returns.
func (m *memory) Export(ctx context.Context, use func(rows iter.Seq2[keys.Rows, error]) error) error {
	_, err := under(ctx, m, func(time.Time) (struct{}, error) {
		return struct{}{}, use(func(yield func(keys.Rows, error) bool) { yield(m.have(), nil) })
	})
	return err
}
