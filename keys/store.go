package keys

import "context"

// Store keeps teams and keys. It must be safe for concurrent use, and what one
// call wrote must be what the next call reads, on every handle of the same data.
//
// Time: everything is decided at the store's own time, never the caller's.
// Concurrency: edits of one row happen one after another. An edit must not return
// nil before every admission that may have read the row as it was has ended; one
// that cannot be sure of it returns ErrUnconfirmed. Repeating an edit that is in
// force already must wait again.
// Errors: besides those named, every method returns ErrUnavailable when the store
// cannot answer, together with the context's error when that was the reason, and
// *FieldError before anything is read or written. An edit whose commit was not
// answered is ErrUnconfirmed: it may be in force; repeat it or read the row. Where
// only the waiting failed, the result comes with ErrUnconfirmed, so that a token
// shown once is not lost.
//
// Source: ADR-046 "Shared identity"; internal/docs/guarantees.md "Revoked is revoked".
type Store interface {
	Admin
	Resolver
}

// Admin is the administrator's side of a store.
type Admin interface {
	// Bootstrap brings in what a configuration declares, in one transaction. What was
	// declared before with the same content must be left as it is, edited, revoked or
	// deleted. Two that run at once must both succeed when they declare the same.
	// Errors: *ConflictError (several joined).
	Bootstrap(ctx context.Context, b Bootstrap) (Bootstrapped, error)

	// CreateTeam must refuse an id that any team ever had. Errors: ErrExists.
	CreateTeam(ctx context.Context, c CreateTeam) (Team, error)
	// UpdateTeam errors: ErrNotFound, ErrRevoked (deleted), ErrStale.
	UpdateTeam(ctx context.Context, u UpdateTeam) (Team, error)
	// DeleteTeam leaves a tombstone; the team's keys are refused from then on.
	// Deleting again changes nothing. Errors: ErrNotFound, ErrStale.
	DeleteTeam(ctx context.Context, d DeleteTeam) (Team, error)
	// Team returns tombstones too. Errors: ErrNotFound.
	Team(ctx context.Context, id string) (Team, error)
	// Teams lists teams, tombstones included, by the bytes of their ids.
	Teams(ctx context.Context, l ListTeams) (TeamPage, error)

	// CreateKey errors: ErrNotFound (no such team), ErrRevoked (team deleted),
	// ErrExists (the id), ErrConflict (the token is in use).
	CreateKey(ctx context.Context, c CreateKey) (CreatedKey, error)
	// UpdateKey errors: ErrNotFound, ErrRevoked, ErrStale.
	UpdateKey(ctx context.Context, u UpdateKey) (Key, error)
	// RevokeKey is final. Revoking again changes nothing. Errors: ErrNotFound,
	// ErrStale.
	RevokeKey(ctx context.Context, r RevokeKey) (Key, error)
	// RevokeSelf revokes p's own key if p still holds; see [Principal.RevokeSelf].
	// Errors: ErrUnknown, ErrRevoked, ErrExpired, ErrStale.
	RevokeSelf(ctx context.Context, p Principal) (Key, error)
	// RotateKey errors: ErrNotFound, ErrRevoked, ErrExpired, ErrConflict.
	RotateKey(ctx context.Context, r RotateKey) (RotatedKey, error)
	// Key returns revoked keys too. Errors: ErrNotFound.
	Key(ctx context.Context, id string) (Key, error)
	// Keys lists keys, revoked ones included, by the bytes of their ids.
	Keys(ctx context.Context, l ListKeys) (KeyPage, error)
}

// Resolver is the gateway's side of a store.
type Resolver interface {
	// Resolve returns the principal that a presented token belongs to. It must
	// read secret, key and team in one snapshot. What has not the shape of a
	// token must be refused without hashing it or asking the database.
	//
	// Errors: ErrUnknown, ErrRevoked, ErrExpired.
	Resolve(ctx context.Context, presented string) (Principal, error)
	// Reload returns p as it is now. It must go by the token that p was resolved
	// with, so that a retired token does not live on through its key; a principal
	// with nothing but a KeyID, from a trusted caller, is read by that id.
	//
	// Errors: ErrUnknown, ErrRevoked, ErrExpired.
	Reload(ctx context.Context, p Principal) (Principal, error)
}

// CreatedKey is a new key. Token is zero for an imported hash; it cannot be had
// again.
type CreatedKey struct {
	Key   Key
	Token Token
}

// RotatedKey is a rotated key. Token is zero for a replay; it cannot be had again.
type RotatedKey struct {
	Key      Key
	Token    Token
	Replayed bool
}

// Page sizes: DefaultPage where none is asked for, at most MaxPage.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// ListTeams asks for the page behind After, the Next of the page before.
type ListTeams struct {
	After string
	Limit int
}

// TeamPage is one page of teams. An empty Next says that it is the last.
type TeamPage struct {
	Teams []Team `json:"teams"`
	Next  string `json:"next,omitempty"`
}

// ListKeys asks for the page behind After, the Next of the page before. Empty
// filters match every key.
type ListKeys struct {
	TeamID string
	Owner  string
	After  string
	Limit  int
}

// KeyPage is one page of keys. An empty Next says that it is the last.
type KeyPage struct {
	Keys []Key  `json:"keys"`
	Next string `json:"next,omitempty"`
}

// Prepare validates l and fills in the page size. Errors: *FieldError.
func (l ListTeams) Prepare() (ListTeams, error) {
	var err error
	l.Limit, err = pageSize(l.Limit)
	return l, firstError(err, optionalID("after", l.After))
}

// Prepare validates l and fills in the page size. Errors: *FieldError.
func (l ListKeys) Prepare() (ListKeys, error) {
	var err error
	l.Limit, err = pageSize(l.Limit)
	return l, firstError(err, optionalID("after", l.After), optionalID("team_id", l.TeamID),
		validText("owner", l.Owner, MaxOwnerBytes))
}

// Page makes a page of rows read in order, one more than l.Limit where there are
// more.
func (l ListTeams) Page(rows []Team) TeamPage {
	if rows == nil {
		rows = []Team{} // [] in JSON, not null
	}
	if len(rows) <= l.Limit {
		return TeamPage{Teams: rows}
	}
	return TeamPage{Teams: rows[:l.Limit], Next: rows[l.Limit-1].ID}
}

// Page makes a page of rows read in order, one more than l.Limit where there are
// more.
func (l ListKeys) Page(rows []Key) KeyPage {
	if rows == nil {
		rows = []Key{} // [] in JSON, not null
	}
	if len(rows) <= l.Limit {
		return KeyPage{Keys: rows}
	}
	return KeyPage{Keys: rows[:l.Limit], Next: rows[l.Limit-1].ID}
}

// ValidID checks an identifier that a caller asked for. Errors: *FieldError.
func ValidID(id string) error { return validID("id", id) }

func optionalID(field, id string) error {
	if id == "" {
		return nil
	}
	return validID(field, id)
}

func pageSize(asked int) (int, error) {
	switch {
	case asked == 0:
		return DefaultPage, nil
	case asked < 0 || asked > MaxPage:
		return 0, refuse("limit", "must be between 1 and 1000")
	}
	return asked, nil
}
