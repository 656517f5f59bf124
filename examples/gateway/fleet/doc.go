// Package fleet tries several gateways, each a process of its own, on one Postgres:
// over real HTTP, with the official clients and the provider that the gateway brings.
// It has tests only.
package fleet
