package admin

import (
	"net/http"

	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance"
)

// listNodes tells how nodes fare: who spoke when, and what they have not given back.
func (a *api) listNodes(c *call) (any, error) {
	q := governance.NodesQuery{Limit: 100}
	if err := c.parameters(map[string]any{"after": &q.After, "limit": &q.Limit}); err != nil {
		return nil, err
	}
	if a.Authority == nil {
		return nil, &Problem{Status: http.StatusNotFound, Type: "not_found", Message: "no authority grants budgets here: ask a control plane, or the database that it has"}
	}
	nodes, err := a.Authority.Nodes(c.ctx, q)
	if err != nil {
		return nil, err
	}
	page := report.NodePage{Nodes: []report.Node{}}
	for i := range nodes {
		page.Nodes = append(page.Nodes, report.NodeOf(&nodes[i]))
	}
	if len(nodes) == q.Limit {
		page.Next = nodes[len(nodes)-1].Name
	}
	return page, nil
}
