package storage

import (
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancesqlite"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/keys"
)

// Database is an opened database, whichever it is. Close gives everything back.
type Database struct {
	Keys     Keys
	Policies policy.Store
	Store    governance.Store
	Journal  journal.Store // of the file of a node, else nil
	backend  governance.Backend
	close    func() error
}

// Keys is a store of keys that others can be brought into.
type Keys interface {
	keys.Store
	keys.Importer
}

// Backend is what governance.New takes.
func (d *Database) Backend() governance.Stores { return d.backend.Backend() }

// Close closes it.
func (d *Database) Close() error { return d.close() }

// Database is the file as the gateway uses it.
func (f *File) Database() *Database { return database(f.DB, f.Close) }

func database(db *governancesqlite.DB, closer func() error) *Database {
	out := &Database{Keys: db.Keys, Policies: db.Policies, Store: db.Store, backend: db, close: closer}
	if db.Journal != nil {
		out.Journal = db.Journal
	}
	return out
}
