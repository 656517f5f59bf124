// Package fleet tries gateways of the profile node with their control planes, as processes,
// on one Postgres, with everything in between that loses, repeats and delays.
package fleet
