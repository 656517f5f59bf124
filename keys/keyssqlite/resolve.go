package keyssqlite

import (
	"context"
	"encoding/json"

	"github.com/tallystick-go/tallystick/internal/sqlitetx"
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
	var again keys.Principal
	err := s.read(ctx, func(tx *sqlitetx.Tx) error {
		key, team, err := readKeyAndTeam(tx, p.KeyID)
		if err != nil {
			return err
		}
		again, err = keys.Identify(key, team, now(tx))
		return err
	})
	return orZero(again, err)
}

func (s *Store) resolve(ctx context.Context, hash keys.Hash) (keys.Principal, error) {
	var p keys.Principal
	err := s.read(ctx, func(tx *sqlitetx.Tx) error {
		var secretRow keys.SecretRow
		var keyRow keys.KeyRow
		var teamRow keys.TeamRow
		targets := append(append(secretRow.Targets(), keyRow.Targets()...), teamRow.Targets()...)
		if err := tx.QueryRow(selectByHash, hash[:]).Scan(targets...); err != nil {
			return found(err, keys.ErrUnknown)
		}
		secret, err := secretRow.Secret()
		if err != nil {
			return err
		}
		key, err := keyRow.Key()
		if err != nil {
			return err
		}
		team, err := teamRow.Team()
		if err != nil {
			return err
		}
		p, err = keys.Authenticate(hash, secret, key, team, now(tx))
		return err
	})
	return orZero(p, err)
}

// Definitions reads, in the caller's transaction, what an admission compares its
// principals with. Keys that do not exist are missing from the answer.
func Definitions(tx *sqlitetx.Tx, keyIDs []string) (map[string]keys.Definition, error) {
	ids, err := json.Marshal(keyIDs)
	if err != nil {
		return nil, err
	}
	out := make(map[string]keys.Definition, len(keyIDs))
	var row keys.DefinitionRow
	err = each(tx, selectDefinitions, []any{string(ids)}, func(rows *sqlitetx.Rows) error {
		if err := rows.Scan(row.Targets()...); err != nil {
			return err
		}
		position, definition := row.Definition()
		out[keyIDs[position]] = definition
		return nil
	})
	return out, coreError(err)
}

func readKeyAndTeam(tx *sqlitetx.Tx, keyID string) (keys.Key, keys.Team, error) {
	var keyRow keys.KeyRow
	var teamRow keys.TeamRow
	if err := tx.QueryRow(selectKeyAndTeam, keyID).Scan(append(keyRow.Targets(), teamRow.Targets()...)...); err != nil {
		return keys.Key{}, keys.Team{}, found(err, keys.ErrUnknown)
	}
	key, err := keyRow.Key()
	if err != nil {
		return keys.Key{}, keys.Team{}, err
	}
	team, err := teamRow.Team()
	return key, team, err
}
