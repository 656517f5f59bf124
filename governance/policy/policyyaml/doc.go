// Package policyyaml reads GovernancePolicy documents as YAML: any number of documents in one
// stream, with the checks, the results and the errors that package policy has for
// JSON, and the line of a mistake besides. JSON is read as well.
//
// What makes YAML mean something else than it shows is refused: anchors, aliases and merge
// keys, tags, keys that stand twice, and plain words that some readers take for another
// type (yes, 010, 1_000, 2026-01-01). Such a value is written in quotes, or as what
// it is meant to be.
package policyyaml
