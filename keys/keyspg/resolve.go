package keyspg

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/keys"
)

// Resolve implements keys.Store.
func (s *Store) Resolve(ctx context.Context, presented string) (keys.Principal, error) {
	token, err := s.format.Parse(presented)
	if err != nil {
		return keys.Principal{}, err
	}
	return s.resolve(ctx, token.Hash())
}

// Reload implements keys.Store.
func (s *Store) Reload(ctx context.Context, p keys.Principal) (keys.Principal, error) {
	if hash, ok := p.SecretHash(); ok {
		return s.resolve(ctx, hash)
	}
	if keys.ValidID(p.KeyID) != nil {
		return keys.Principal{}, keys.ErrUnknown
	}
	var owner keyAndTeam
	if err := s.row(ctx, owner.targets(), s.sql.selectKeyAndTeam, p.KeyID); err != nil {
		return keys.Principal{}, coreError(found(err, keys.ErrUnknown))
	}
	key, team, err := owner.build()
	if err != nil {
		return keys.Principal{}, err
	}
	return keys.Identify(key, team, s.instant(owner.now))
}

func (s *Store) resolve(ctx context.Context, hash keys.Hash) (keys.Principal, error) {
	var secretRow keys.SecretRow
	var owner keyAndTeam
	targets := append(secretRow.Targets(), owner.targets()...)
	if err := s.row(ctx, targets, s.sql.selectByHash, hash[:]); err != nil {
		return keys.Principal{}, coreError(found(err, keys.ErrUnknown))
	}
	secret, err := secretRow.Secret()
	if err != nil {
		return keys.Principal{}, err
	}
	key, team, err := owner.build()
	if err != nil {
		return keys.Principal{}, err
	}
	return keys.Authenticate(hash, secret, key, team, s.instant(owner.now))
}

// keyAndTeam scans a key, its team and the clock.
type keyAndTeam struct {
	key  keys.KeyRow
	team keys.TeamRow
	now  int64
}

func (r *keyAndTeam) targets() []any {
	return append(append(r.key.Targets(), r.team.Targets()...), &r.now)
}

func (r *keyAndTeam) build() (keys.Key, keys.Team, error) {
	key, err := r.key.Key()
	if err != nil {
		return keys.Key{}, keys.Team{}, err
	}
	team, err := r.team.Team()
	return key, team, err
}

// QueueDefinitions adds to the caller's pipeline one statement that reads what an
// admission compares its principals with. collect is called, while the pipeline's
// results are read, for every key that exists, with its place in keyIDs. The
// transaction must have entered the barrier ([pgtx.SharedLock]) before.
func QueueDefinitions(b *pgx.Batch, schema string, keyIDs []string, collect func(i int, d keys.Definition)) {
	sql := strings.ReplaceAll(selectDefinitions, pgtx.Placeholder, pgx.Identifier{schema}.Sanitize())
	b.Queue(sql, keyIDs).Query(func(rows pgx.Rows) error {
		var row keys.DefinitionRow
		targets := row.Targets()
		for rows.Next() {
			if err := rows.Scan(targets...); err != nil {
				return err
			}
			collect(row.Definition())
		}
		return rows.Err()
	})
}
