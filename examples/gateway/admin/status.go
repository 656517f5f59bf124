package admin

import (
	"net/http"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance"
)

func (a *api) status(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	if a.Status == nil {
		return nil, &Problem{Status: http.StatusNotFound, Type: "not_found", Message: "no gateway serves here: this is its database alone"}
	}
	return a.Status(c.ctx)
}

// topology tells upstreams and routes as the configuration has them.
func (a *api) topology(c *call) (any, error) {
	if err := c.nothing(); err != nil {
		return nil, err
	}
	if c.PathValue("rest") != "" {
		return nil, &Problem{Status: http.StatusNotFound, Type: "not_found", Message: "the topology is read as a whole"}
	}
	return a.Topology, nil
}

// fixed refuses to change the topology: what one gateway was told here, the others
// would not know.
func (a *api) fixed(*call) (any, error) {
	version := a.Topology.Version
	if version == "" {
		version = "without a version"
	}
	return nil, &Problem{
		Status: http.StatusConflict, Type: "topology_from_file",
		Message: "upstreams, models and routes come from the configuration file (" + version + ") and cannot be changed here: edit the file and its topology_version, and roll it out to every gateway",
	}
}

func (a *api) listNotes(c *call) (any, error) {
	q := governance.NoteQuery{Limit: 100}
	if err := c.parameters(map[string]any{"after": &q.After, "limit": &q.Limit}); err != nil {
		return nil, err
	}
	notes, err := a.Governor.Notes(c.ctx, q)
	if err != nil {
		return nil, err
	}
	page := report.NotePage{Notes: []report.Note{}}
	for i := range notes {
		page.Notes = append(page.Notes, report.NoteOf(&notes[i]))
	}
	if len(notes) == q.Limit {
		page.Next = notes[len(notes)-1].Number
	}
	return page, nil
}
