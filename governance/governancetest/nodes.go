package governancetest

import (
	"bytes"
	"errors"
	"sync"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance"
)

// nodesCases hold a store to what it keeps of nodes.
func nodesCases() []scenario {
	needs := Features{Nodes: true}
	return []scenario{
		{name: "KeptAsWritten", needs: needs, run: nodesKept},
		{name: "NothingIsWrittenUnasked", needs: needs, run: nodesUnasked},
		{name: "ListedByName", needs: needs, run: nodesListed},
		{name: "HeartbeatsOfOneNodeAreSerial", needs: needs, run: nodesSerial},
	}
}

// writeNode adds a byte to a node's row.
func (e *env) writeNode(name string, b byte) error {
	return e.store.Step(e.ctx, &governance.Plan{Batch: governance.BatchID(e.id()), Node: name}, func(l *governance.Loaded) *governance.Changes {
		return &governance.Changes{Node: &escrow.NodeRow{Name: name, Data: append(bytes.Clone(l.Node.Data), b), HeardAt: l.Now}}
	})
}

// node reads a node's row.
func (e *env) node(name string) escrow.NodeRow {
	e.Helper()
	loaded, err := e.store.View(e.ctx, &governance.Plan{Node: name})
	e.ok(err)
	e.equal("name", loaded.Node.Name, name)
	return loaded.Node
}

func nodesKept(e *env) {
	if n := e.node("node-1"); len(n.Data) > 0 || n.HeardAt != 0 {
		e.Fatalf("a node that was never heard: %+v", n)
	}
	at := e.now()
	e.ok(e.writeNode("node-1", 1))
	e.ok(e.writeNode("node-1", 2))
	e.ok(e.writeNode("node-2", 7))
	n := e.node("node-1")
	if !bytes.Equal(n.Data, []byte{1, 2}) || n.HeardAt < at || n.HeardAt > e.now() {
		e.Fatalf("%+v, heard at or after %d", n, at)
	}
	if n := e.node("node-2"); !bytes.Equal(n.Data, []byte{7}) {
		e.Fatalf("%+v", n)
	}
	if n := e.node("Node-1"); len(n.Data) > 0 {
		e.Fatalf("names are compared without their case: %+v", n)
	}
}

func nodesUnasked(e *env) {
	e.ok(e.store.Step(e.ctx, &governance.Plan{Batch: governance.BatchID(e.id()), Node: "node-1"}, func(*governance.Loaded) *governance.Changes { return nil }))
	list, err := e.b.Backend().Nodes.Nodes(e.ctx, escrow.NodeQuery{Limit: 10})
	e.ok(err)
	e.equal("nodes", len(list), 0)
}

func nodesListed(e *env) {
	for i, name := range []string{"b", "B", "a", "c"} {
		e.ok(e.writeNode(name, byte(i)))
	}
	var got []string
	var q escrow.NodeQuery
	for q.Limit = 3; ; {
		list, err := e.b.Backend().Nodes.Nodes(e.ctx, q)
		e.ok(err)
		for _, n := range list {
			got = append(got, n.Name)
			q.After = n.Name
			if len(n.Data) != 1 || n.HeardAt == 0 {
				e.Fatalf("%+v", n)
			}
		}
		if len(list) < q.Limit {
			break
		}
	}
	if want := []string{"B", "a", "b", "c"}; len(got) != 4 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
		e.Fatalf("%v, want %v", got, want)
	}
}

// The first heartbeats of a node find no row to lock: one of two that meet may have to be
// repeated, and none is lost.
func nodesSerial(e *env) {
	const each = 8
	var wg sync.WaitGroup
	for i := range byte(2) {
		wg.Go(func() {
			for range each {
				err := e.writeNode("node-1", i)
				for errors.Is(err, governance.ErrRetry) {
					err = e.writeNode("node-1", i)
				}
				e.background(err)
			}
		})
	}
	wg.Wait()
	data := e.node("node-1").Data
	if e.equal("writes", len(data), 2*each); bytes.Count(data, []byte{0}) != each {
		e.Fatalf("%v", data)
	}
}
