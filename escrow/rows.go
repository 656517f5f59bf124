package escrow

import "context"

// NodeRow is what an authority's store keeps of one node. Data means nothing to a store.
type NodeRow struct {
	Name    string
	Data    []byte // empty: there is no such node
	HeardAt int64  // µs, the store's clock, when the node was heard last
}

// NodeQuery selects nodes.
type NodeQuery struct {
	After string // names up to this one are left out
	Limit int    // at most so many, one or more
}

// NodeStore lists the nodes that an authority has heard, by name in the order of bytes.
//
// Concurrency: safe for concurrent use.
// Errors: ErrUnavailable.
type NodeStore interface {
	Nodes(ctx context.Context, q NodeQuery) ([]NodeRow, error)
}
