package keyspg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick-go/tallystick/internal/pgtx"
	"github.com/tallystick-go/tallystick/keys"
)

// CreateTeam implements keys.Store.
func (s *Store) CreateTeam(ctx context.Context, c keys.CreateTeam) (keys.Team, error) {
	c, err := c.Prepare()
	if err != nil {
		return keys.Team{}, err
	}
	var team keys.Team
	err = s.edit(ctx, func(ctx context.Context, tx *pgtx.Tx) ([]keys.Event, error) {
		now, err := s.now(ctx, tx)
		if err != nil {
			return nil, err
		}
		team = c.Apply(now)
		_, err = tx.Exec(ctx, s.sql.insertTeam, team.Columns()...)
		return []keys.Event{team.CreationEvent()}, taken(err, keys.ErrExists)
	})
	return orZero(team, err)
}

// UpdateTeam implements keys.Store.
func (s *Store) UpdateTeam(ctx context.Context, u keys.UpdateTeam) (keys.Team, error) {
	if err := u.Validate(); err != nil {
		return keys.Team{}, err
	}
	return s.editTeam(ctx, u.ID, u.Apply)
}

// DeleteTeam implements keys.Store.
func (s *Store) DeleteTeam(ctx context.Context, d keys.DeleteTeam) (keys.Team, error) {
	if err := d.Validate(); err != nil {
		return keys.Team{}, err
	}
	return s.editTeam(ctx, d.ID, d.Apply)
}

func (s *Store) editTeam(ctx context.Context, id string, apply func(keys.Team, time.Time) (keys.Team, bool, error)) (keys.Team, error) {
	var next keys.Team
	err := s.edit(ctx, func(ctx context.Context, tx *pgtx.Tx) ([]keys.Event, error) {
		current, err := scanTeam(tx.QueryRow(ctx, s.sql.lockTeam, id))
		if err != nil {
			return nil, err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return nil, err
		}
		var changed bool
		next, changed, err = apply(current, now)
		if err != nil || !changed {
			return nil, err
		}
		return []keys.Event{next.EditEvent(current)}, one(ctx, tx, s.sql.updateTeam, append(next.Columns(), current.Revision))
	})
	return confirm(ctx, s, next, err)
}

// Team implements keys.Store.
func (s *Store) Team(ctx context.Context, id string) (keys.Team, error) {
	if err := keys.ValidID(id); err != nil {
		return keys.Team{}, err
	}
	var row keys.TeamRow
	if err := s.row(ctx, row.Targets(), s.sql.selectTeam, id); err != nil {
		return keys.Team{}, coreError(found(err, keys.ErrNotFound))
	}
	return orZero(row.Team())
}

// Teams implements keys.Store.
func (s *Store) Teams(ctx context.Context, l keys.ListTeams) (keys.TeamPage, error) {
	l, err := l.Prepare()
	if err != nil {
		return keys.TeamPage{}, err
	}
	teams, err := list(ctx, s, scanTeam, s.sql.selectTeams, l.After, l.Limit+1)
	if err != nil {
		return keys.TeamPage{}, err
	}
	return l.Page(teams), nil
}

func scanTeam(row pgx.Row) (keys.Team, error) {
	var r keys.TeamRow
	if err := row.Scan(r.Targets()...); err != nil {
		return keys.Team{}, found(err, keys.ErrNotFound)
	}
	return r.Team()
}
