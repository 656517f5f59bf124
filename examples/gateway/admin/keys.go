package admin

import (
	"net/http"

	"github.com/tallystick-go/tallystick/keys"
)

// NewKey is a key with its token, which is shown this once.
type NewKey struct {
	Key      keys.Key `json:"key"`
	Token    string   `json:"token,omitempty"`
	Replayed bool     `json:"replayed,omitempty"`
}

func (a *api) listTeams(c *call) (any, error) {
	var l keys.ListTeams
	if err := c.parameters(map[string]any{"after": &l.After, "limit": &l.Limit}); err != nil {
		return nil, err
	}
	page, err := a.Keys.Teams(c.ctx, l)
	if page.Teams == nil {
		page.Teams = []keys.Team{}
	}
	return page, err
}

func (a *api) createTeam(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var create keys.CreateTeam
	if err := create.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	c.status = http.StatusCreated
	return a.Keys.CreateTeam(c.ctx, create)
}

func (a *api) team(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	return a.Keys.Team(c.ctx, c.PathValue("id"))
}

func (a *api) updateTeam(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	update := keys.UpdateTeam{ID: c.PathValue("id")}
	if err := update.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	return a.Keys.UpdateTeam(c.ctx, update)
}

func (a *api) deleteTeam(c *call) (any, error) {
	d := keys.DeleteTeam{ID: c.PathValue("id")}
	if err := c.parameters(map[string]any{"if_revision": &d.IfRevision}); err != nil {
		return nil, err
	}
	return a.Keys.DeleteTeam(c.ctx, d)
}

func (a *api) listKeys(c *call) (any, error) {
	var l keys.ListKeys
	if err := c.parameters(map[string]any{"after": &l.After, "limit": &l.Limit, "team_id": &l.TeamID, "owner": &l.Owner}); err != nil {
		return nil, err
	}
	page, err := a.Keys.Keys(c.ctx, l)
	if page.Keys == nil {
		page.Keys = []keys.Key{}
	}
	return page, err
}

func (a *api) createKey(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	var create keys.CreateKey
	if err := create.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	created, err := a.Keys.CreateKey(c.ctx, create)
	if err != nil {
		return nil, err
	}
	c.status = http.StatusCreated
	return NewKey{Key: created.Key, Token: created.Token.Reveal()}, nil
}

func (a *api) key(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	return a.Keys.Key(c.ctx, c.PathValue("id"))
}

func (a *api) updateKey(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	update := keys.UpdateKey{ID: c.PathValue("id")}
	if err := update.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	defer a.Changed(update.ID)
	return a.Keys.UpdateKey(c.ctx, update)
}

func (a *api) revokeKey(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	r := keys.RevokeKey{ID: c.PathValue("id")}
	if len(data) > 0 {
		if err := fields(data, map[string]any{"if_revision": &r.IfRevision}); err != nil {
			return nil, err
		}
	}
	defer a.Changed(r.ID)
	return a.Keys.RevokeKey(c.ctx, r)
}

func (a *api) rotateKey(c *call) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	r := keys.RotateKey{ID: c.PathValue("id")}
	if err := r.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	defer a.Changed(r.ID)
	rotated, err := a.Keys.RotateKey(c.ctx, r)
	if err != nil {
		return nil, err
	}
	return NewKey{Key: rotated.Key, Token: rotated.Token.Reveal(), Replayed: rotated.Replayed}, nil
}

// document reads a body where there are no parameters.
func (c *call) document() ([]byte, error) {
	if err := c.parameters(nil); err != nil {
		return nil, err
	}
	return c.body()
}
