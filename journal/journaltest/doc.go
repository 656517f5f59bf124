// Package journaltest holds what every [journal.Store] must do, as tests.
package journaltest
