package keyssqlite

import (
	"context"
	"time"

	"github.com/tallystick-go/tallystick/internal/sqlitetx"
	"github.com/tallystick-go/tallystick/keys"
)

// CreateTeam implements keys.Store.
func (s *Store) CreateTeam(ctx context.Context, c keys.CreateTeam) (keys.Team, error) {
	c, err := c.Prepare()
	if err != nil {
		return keys.Team{}, err
	}
	var team keys.Team
	err = s.telling(ctx, func(tx *sqlitetx.Tx) ([]keys.Event, error) {
		team = c.Apply(now(tx))
		_, err := tx.Exec(insertTeam, team.Columns()...)
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
	return edit(ctx, s, func(tx *sqlitetx.Tx) (keys.Team, error) { return readTeam(tx, id) }, apply, keys.Team.EditEvent,
		func(tx *sqlitetx.Tx, next, current keys.Team) error {
			return one(tx.Exec(updateTeam, append(next.Columns(), id, current.Revision)...))
		})
}

// Team implements keys.Store.
func (s *Store) Team(ctx context.Context, id string) (keys.Team, error) {
	if err := keys.ValidID(id); err != nil {
		return keys.Team{}, err
	}
	var team keys.Team
	err := s.read(ctx, func(tx *sqlitetx.Tx) (err error) {
		team, err = readTeam(tx, id)
		return err
	})
	return orZero(team, err)
}

// Teams implements keys.Store.
func (s *Store) Teams(ctx context.Context, l keys.ListTeams) (keys.TeamPage, error) {
	l, err := l.Prepare()
	if err != nil {
		return keys.TeamPage{}, err
	}
	var teams []keys.Team
	err = s.read(ctx, func(tx *sqlitetx.Tx) error {
		return each(tx, selectTeams, []any{l.After, l.Limit + 1}, collect(scanTeam, &teams))
	})
	if err != nil {
		return keys.TeamPage{}, err
	}
	return l.Page(teams), nil
}

func readTeam(tx *sqlitetx.Tx, id string) (keys.Team, error) {
	return scanTeam(tx.QueryRow(selectTeam, id))
}
