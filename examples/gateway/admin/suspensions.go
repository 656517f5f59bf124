package admin

import (
	"net/http"

	"github.com/tallystick-go/tallystick/examples/gateway/suspend"
)

func (a *api) system(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	if a.System == nil {
		return nil, &Problem{Status: http.StatusNotFound, Type: "not_found", Message: "no gateway serves here: this is its database alone"}
	}
	return a.System(c.ctx)
}

var uncoordinated = &Problem{Status: http.StatusConflict, Type: "uncoordinated", Message: "this gateway does not coordinate with others, so that nobody else would know: its configuration needs a coordination block. Of one that does, ask its admin API: the database alone cannot say"}

// SuspensionPage is everything that is suspended.
type SuspensionPage struct {
	Suspensions []suspend.Record `json:"suspensions"`
}

func (a *api) listSuspensions(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	if a.Suspensions == nil {
		return nil, uncoordinated
	}
	if err := a.Suspensions.Known(); err != nil {
		return nil, err
	}
	return SuspensionPage{a.Suspensions.List()}, nil
}

func (a *api) suspend(c *call) (any, error) { return a.putSuspension(c, true) }
func (a *api) lift(c *call) (any, error)    { return a.putSuspension(c, false) }

func (a *api) putSuspension(c *call, suspended bool) (any, error) {
	data, err := c.document()
	if err != nil {
		return nil, err
	}
	r := suspend.Record{Suspended: suspended}
	if err := fields(data, map[string]any{"key": &r.Key, "session": &r.Session, "reason": &r.Reason, "actor": &r.Actor}); err != nil {
		return nil, err
	}
	if a.Suspensions == nil {
		return nil, uncoordinated
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if suspended { // a name that was mistyped would keep out nobody, and look as if it did
		if _, err := a.Keys.Key(c.ctx, r.Key); err != nil {
			return nil, err
		}
	}
	return a.Suspensions.Put(c.ctx, r)
}
