package keysimport

import (
	"crypto/sha256"
	"io"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// NewAPI are exports of new-api's tables, of releases 0.8 to 0.10. It keeps its
// keys in plaintext and without the "sk-" that clients present with them: the hash
// is taken of both, and the plaintext goes no further.
//
// A token's id becomes "newapi-" and its number, its group a team, its user the
// owner. Quotas are for good there; what is left of one is carried as a limit per
// month. Disabled, exhausted, expired and deleted tokens stay refused.
type NewAPI struct {
	Tokens io.Reader // tokens
	Users  io.Reader // users; nil: wallets and disabled users are not known
	// Team is the team of tokens without a group. Default "newapi".
	Team string
	// QuotaPerUSD is how much quota is one dollar. Default 500 000.
	QuotaPerUSD int64
}

var (
	newapiTokenNeeds = strings.Fields(`id user_id key status expired_time remain_quota unlimited_quota model_limits_enabled model_limits allow_ips deleted_at`)
	newapiUserNeeds  = strings.Fields(`id status quota group deleted_at`)
	newapiKnown      = columns(strings.Join(newapiTokenNeeds, " ") + ` name created_time accessed_time used_quota group cross_group_retry billing_type`)
)

// newapiUser is what counts of a user.
type newapiUser struct {
	enabled bool
	quota   *big.Rat
	group   string
}

// Read reads the exports. It imports nothing.
//
// Errors: *TableError, *keys.FieldError.
func (n NewAPI) Read() (Plan, error) {
	if n.Team == "" {
		n.Team = "newapi"
	}
	if n.QuotaPerUSD == 0 {
		n.QuotaPerUSD = 500_000
	}
	if err := keys.ValidID(n.Team); err != nil {
		return Plan{}, err
	}
	if n.QuotaPerUSD < 0 {
		return Plan{}, &keys.FieldError{Field: "quota_per_usd", Why: "must be positive"}
	}
	if n.Tokens == nil {
		return Plan{}, &TableError{Table: "tokens", Why: "is missing"}
	}
	c := newCarrier("new-api")
	var users map[string]newapiUser
	if n.Users != nil {
		users = map[string]newapiUser{}
		if err := readTable("users", n.Users, newapiUserNeeds, func(rec record) error {
			quota, err := parseDecimal(rec.fields["quota"])
			if err != nil {
				quota = new(big.Rat) // a wallet that cannot be read is empty
			}
			users[rec.fields["id"]] = newapiUser{
				enabled: rec.fields["status"] == "1" && rec.fields["deleted_at"] == "", quota: quota, group: rec.fields["group"],
			}
			return nil
		}); err != nil {
			return Plan{}, err
		}
	} else {
		c.plan.Report.add(Finding{Table: "users", Column: "quota", Effect: Wider, Why: "the users' wallets are not known, nor who is disabled: give the export of the users"})
	}
	err := readTable("tokens", n.Tokens, newapiTokenNeeds, func(rec record) error {
		return n.token(c, &row{c: c, table: "tokens", rec: rec}, users)
	})
	return c.done(), err
}

func hashOf(token string) keys.Hash { return sha256.Sum256([]byte(token)) }

// usd is an amount of quota in USD.
func (n NewAPI) usd(quota *big.Rat) *big.Rat {
	return new(big.Rat).Quo(quota, big.NewRat(n.QuotaPerUSD, 1))
}

func (n NewAPI) token(c *carrier, r *row, users map[string]newapiUser) error {
	f := r.rec.fields
	fault := func(column, why string) error {
		return &TableError{Table: r.table, Line: r.rec.line, Column: column, Why: why}
	}
	if _, err := strconv.ParseUint(f["id"], 10, 63); err != nil {
		return fault("id", "must be a number")
	}
	plain := strings.TrimPrefix(strings.TrimRight(f["key"], " "), "sk-") // char(48) is padded
	switch {
	case plain == "":
		return fault("key", "must not be empty")
	case strings.Contains(plain, "*"):
		return fault("key", "is masked: export the table from the database")
	}
	r.id = "newapi-" + f["id"]
	k := keys.Key{ID: r.id, Name: r.text("name"), Revision: 1, CreatedAt: epoch}
	if at, err := parseSeconds(f["created_time"]); err == nil {
		k.CreatedAt = at
	}
	k.UpdatedAt = k.CreatedAt
	if at, err := parseSeconds(f["accessed_time"]); err == nil {
		k.UpdatedAt = later(at, k.UpdatedAt)
	}
	if len(plain) < 16 {
		r.note("key", Narrower, "is shorter than tokens may be here: no client can present it")
	}
	user, known := users[f["user_id"]]
	switch {
	case f["user_id"] == "":
		r.stop("user_id", "is missing")
	default:
		k.Owner = "newapi-user-" + f["user_id"]
	}
	if users != nil && (!known || !user.enabled) {
		r.stop("user_id", "the user is disabled, deleted, or not in the export of the users")
	}
	k.TeamID = n.teamOf(c, r, user)
	k.AllowedModels = r.newapiModels()
	k.Limits.CostPerMonth = n.limit(r, user, known)
	r.newapiStatus(&k)
	r.present(Wider, "addresses are not checked here", "allow_ips")
	r.present(Lost, "is not carried", "used_quota", "cross_group_retry", "billing_type")
	r.strangers(newapiKnown)
	c.key(r, k, hashOf("sk-"+plain))
	return nil
}

// teamOf is the team of a token's group, or of its user's.
func (n NewAPI) teamOf(c *carrier, r *row, user newapiUser) string {
	group := r.rec.fields["group"]
	if group == "" {
		group = user.group
	}
	id, name := n.Team, "Tokens without a group"
	if group != "" {
		if id, name = n.Team+"-"+group, group; keys.ValidID(id) != nil {
			id = shortID(n.Team+"-", group)
		}
	}
	if !c.teams[id] {
		t := &row{c: c, table: r.table, rec: record{fields: map[string]string{"group": name}}, id: id}
		if group != "" {
			t.note("group", Lost, "the group's channels and price ratio are not carried")
		}
		c.team(t, keys.Team{ID: id, Name: t.text("group"), Revision: 1, CreatedAt: epoch, UpdatedAt: epoch})
	}
	return id
}

// newapiModels reads which models are allowed.
func (r *row) newapiModels() []string {
	if !r.bool("model_limits_enabled") {
		return nil
	}
	list := []string{}
	for name := range strings.SplitSeq(r.rec.fields["model_limits"], ",") {
		if name != "" {
			list = append(list, name)
		}
	}
	return list
}

// limit is what the token and its user may still spend.
func (n NewAPI) limit(r *row, user newapiUser, known bool) *amount.MicroUSD {
	var left *big.Rat
	if !r.bool("unlimited_quota") {
		quota, err := parseDecimal(r.rec.fields["remain_quota"])
		if err != nil {
			r.stop("remain_quota", "cannot be read")
			return nil
		}
		left = quota
	}
	if known && (left == nil || user.quota.Cmp(left) < 0) {
		left = user.quota
	}
	switch {
	case left == nil:
		return nil
	case left.Sign() <= 0:
		r.note("remain_quota", Narrower, "is used up: carried as zero, so that it stays refused until it is given a limit again")
		return keys.Cost(0)
	}
	r.note("remain_quota", Wider, "is for good: what is left is carried, and comes back each month")
	return keys.Cost(microUSD(n.usd(left)))
}

// newapiStatus carries what keeps a token out.
func (r *row) newapiStatus(k *keys.Key) {
	f := r.rec.fields
	if deleted := r.time("deleted_at"); deleted != nil {
		k.UpdatedAt = later(*deleted, k.UpdatedAt)
		k.RevokedAt = deleted
	}
	if f["expired_time"] != "-1" {
		at, err := parseSeconds(f["expired_time"])
		if err != nil {
			r.stop("expired_time", "cannot be read")
		} else {
			k.ExpiresAt = &at
		}
	}
	switch f["status"] {
	case "1":
	case "4": // exhausted: its quota says so, unless it was given more and never used since
		if k.Limits.CostPerMonth == nil || *k.Limits.CostPerMonth > 0 {
			k.Limits.CostPerMonth = keys.Cost(0)
			r.note("status", Narrower, "is exhausted: carried with a limit of zero")
		}
	case "3": // expired: its time says so, unless it was changed since
		if k.ExpiresAt == nil || k.ExpiresAt.After(k.UpdatedAt) {
			r.stop("status", "is expired: carried as revoked, which is final here")
		}
	case "2":
		r.stop("status", "is disabled: carried as revoked, which is final here")
	default:
		r.stop("status", "is not known: carried as revoked")
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
