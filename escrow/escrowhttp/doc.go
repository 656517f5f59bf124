// Package escrowhttp speaks escrow-v1 over HTTP: Handler answers for an authority, and
// Client is an escrow.Authority for a node.
//
// One heartbeat is one POST to Path, and its answer. A node presents a bearer token or a
// client certificate, which names the node: nobody speaks for another one. Nothing is sent
// in plain text but on the machine itself, no redirect is followed, bodies are bounded both
// ways, and a peer that speaks anything but escrow-v1 is refused.
//
// Every error of an authority arrives as it was: what errors.Is and errors.As find on one
// side, they find on the other.
//
// Source: ADR-045.
package escrowhttp
