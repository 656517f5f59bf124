package keysimport

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

// LiteLLM are exports of the LiteLLM proxy's tables, of releases 1.72 to 1.81.
// Its keys are kept by the SHA-256 of the token already.
//
// A key's id is made from its hash, a team keeps its id. Rates, parallel requests,
// models, expiry, owner and budgets per day or month are carried; when several
// budgets bind one key, the strictest. Blocked keys and deleted ones come in as
// revoked, which is final here, blocked teams as deleted. Budgets of users,
// organizations and projects are not part of these tables.
type LiteLLM struct {
	Keys        io.Reader // LiteLLM_VerificationToken
	Teams       io.Reader // LiteLLM_TeamTable; nil: there are none
	Budgets     io.Reader // LiteLLM_BudgetTable; nil: no key has a budget_id
	DeletedKeys io.Reader // LiteLLM_DeletedVerificationToken, of later releases; nil: left out
	// Team is the team of keys that have none. Default "litellm".
	Team string
}

const (
	litellmKeys    = "LiteLLM_VerificationToken"
	litellmTeams   = "LiteLLM_TeamTable"
	litellmBudgets = "LiteLLM_BudgetTable"
	litellmDeleted = "LiteLLM_DeletedVerificationToken"
)

// What every release has, and a key could not be carried without.
var (
	litellmKeyNeeds    = strings.Fields(`token expires models user_id team_id max_parallel_requests metadata blocked tpm_limit rpm_limit max_budget budget_duration spend budget_id`)
	litellmTeamNeeds   = strings.Fields(`team_id models max_parallel_requests blocked tpm_limit rpm_limit max_budget budget_duration spend`)
	litellmBudgetNeeds = strings.Fields(`budget_id max_budget max_parallel_requests tpm_limit rpm_limit budget_duration`)
	litellmKeyKnown    = columns(strings.Join(litellmKeyNeeds, " ") + ` key_name key_alias soft_budget_cooldown aliases config router_settings agent_id
	project_id permissions budget_reset_at allowed_cache_controls allowed_routes policies access_group_ids model_spend model_max_budget organization_id
	object_permission_id created_at created_by updated_at updated_by last_active rotation_count auto_rotate rotation_interval last_rotation_at
	key_rotation_at budget_limits id deleted_at deleted_by deleted_by_api_key litellm_changed_by`)
	litellmTeamKnown = columns(strings.Join(litellmTeamNeeds, " ") + ` team_alias organization_id object_permission_id admins members members_with_roles
	metadata soft_budget budget_reset_at created_at updated_at model_spend model_max_budget router_settings team_member_permissions access_group_ids
	policies default_team_member_models budget_limits model_id allow_team_guardrail_config`)
)

// Read reads the exports. It imports nothing.
//
// Errors: *TableError.
func (l LiteLLM) Read() (Plan, error) {
	if l.Team == "" {
		l.Team = "litellm"
	}
	if err := keys.ValidID(l.Team); err != nil {
		return Plan{}, err
	}
	c := newCarrier("LiteLLM")
	budgets := map[string]record{}
	if l.Budgets != nil {
		if err := readTable(litellmBudgets, l.Budgets, litellmBudgetNeeds, func(rec record) error {
			budgets[rec.fields["budget_id"]] = rec
			return nil
		}); err != nil {
			return Plan{}, err
		}
	}
	if l.Teams != nil {
		if err := readTable(litellmTeams, l.Teams, litellmTeamNeeds, c.litellmTeam); err != nil {
			return Plan{}, err
		}
	}
	if l.Keys == nil {
		return Plan{}, &TableError{Table: litellmKeys, Why: "is missing"}
	}
	for _, t := range []struct {
		name string
		r    io.Reader
	}{{litellmKeys, l.Keys}, {litellmDeleted, l.DeletedKeys}} {
		if t.r == nil {
			continue
		}
		if err := readTable(t.name, t.r, litellmKeyNeeds, func(rec record) error {
			return c.litellmKey(&row{c: c, table: t.name, rec: rec}, budgets, l.Team)
		}); err != nil {
			return Plan{}, err
		}
	}
	return c.done(), nil
}

// litellmTeamID keeps an id where it can be one here.
func litellmTeamID(id string) string {
	if keys.ValidID(id) == nil {
		return id
	}
	return shortID("litellm-team-", id)
}

func (c *carrier) litellmTeam(rec record) error {
	if rec.fields["team_id"] == "" {
		return &TableError{Table: litellmTeams, Line: rec.line, Column: "team_id", Why: "must not be empty"}
	}
	r := &row{c: c, table: litellmTeams, rec: rec, id: litellmTeamID(rec.fields["team_id"])}
	t := keys.Team{ID: r.id, Name: r.text("team_alias"), Revision: 1}
	t.CreatedAt, t.UpdatedAt = r.times()
	t.Limits = r.litellmLimits()
	t.AllowedModels = r.litellmModels(true)
	t.Metadata = r.litellmMetadata(nil)
	if r.bool("blocked") {
		r.stop("blocked", "carried as deleted, which is final here")
	}
	r.present(Wider, "is not carried", "model_max_budget", "budget_limits", "policies", "object_permission_id", "organization_id")
	r.present(Lost, "is not carried", "soft_budget", "model_id", "router_settings", "model_spend", "members_with_roles", "default_team_member_models")
	r.present(Narrower, "is not carried: models that the group would add are missing", "access_group_ids")
	r.strangers(litellmTeamKnown)
	c.team(r, t)
	return nil
}

// litellmLimits are the limits of the row itself.
func (r *row) litellmLimits() keys.Limits {
	f := r.rec.fields
	day, month := r.cost(budget{f["max_budget"], f["spend"], f["budget_duration"]}, "max_budget")
	return keys.Limits{
		RequestsPerMinute: r.limit("rpm_limit"), TokensPerMinute: r.limit("tpm_limit"), Concurrency: r.limit("max_parallel_requests"),
		CostPerDay: day, CostPerMonth: month,
	}
}

// litellmModels reads which models are allowed. An empty list is all of them there.
func (r *row) litellmModels(team bool) []string {
	list, err := parseList(r.rec.fields["models"])
	if err != nil {
		r.stop("models", "cannot be read")
		return []string{}
	}
	if len(list) == 0 {
		return nil
	}
	out := []string{}
	for _, name := range list {
		switch {
		case name == "all-proxy-models", name == "all-team-models" && !team:
			if !team && name == "all-proxy-models" {
				r.note("models", Narrower, "all models of the proxy: here the team's list binds as well")
			}
			return nil
		case name == "no-default-models":
		case strings.ContainsAny(name, "*"):
			r.note("models", Narrower, "a pattern is not carried: name the models")
		case !slices.Contains(out, name):
			out = append(out, name)
		}
	}
	return out
}

// restricting is metadata that the proxy enforces.
var restricting = map[string]string{
	"guardrails": "guardrails that were required", "model_rpm_limit": "rates per model", "model_tpm_limit": "rates per model",
	"rpm_limit_per_model": "rates per model", "tpm_limit_per_model": "rates per model", "allowed_passthrough_routes": "routes",
	"enforced_params": "parameters that were required", "policies": "policies",
}

// litellmMetadata keeps what fits: texts as they are, everything else as JSON.
func (r *row) litellmMetadata(more map[string]string) map[string]string {
	out := map[string]string{}
	var all map[string]json.RawMessage
	if text := r.rec.fields["metadata"]; !empty(text) && json.Unmarshal([]byte(text), &all) != nil {
		r.note("metadata", Wider, "cannot be read: it may hold restrictions")
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		raw := string(all[name])
		if empty(raw) || raw == `""` {
			continue
		}
		if what, known := restricting[name]; known {
			r.note("metadata."+name, Wider, what+" are not carried")
		}
		value := raw
		if json.Unmarshal(all[name], &value) != nil {
			value = raw
		}
		r.keep(out, name, value)
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if more[name] != "" {
			r.keep(out, name, more[name])
		}
	}
	return out
}

// keep adds an entry of metadata where it can be kept.
func (r *row) keep(metadata map[string]string, name, value string) {
	metadata[name] = value
	if _, err := (keys.CreateTeam{ID: "x", Metadata: metadata}).Prepare(); err != nil {
		delete(metadata, name)
		r.note("metadata", Lost, "an entry is too long, or has characters that are not kept")
	}
}

func (c *carrier) litellmKey(r *row, budgets map[string]record, fallback string) error {
	f := r.rec.fields
	if f["token"] == "" {
		return &TableError{Table: r.table, Line: r.rec.line, Column: "token", Why: "must not be empty"}
	}
	hash, hashed := litellmHash(f["token"])
	r.id = shortID("litellm-", hex.EncodeToString(hash[:]))
	if !hashed && !strings.HasPrefix(f["token"], "sk-") {
		r.stop("token", "is neither a hash nor begins with sk-: no client can present it")
	}
	if c.hashes[hash] && r.table == litellmDeleted {
		return nil // made again after it was deleted
	}
	k := keys.Key{ID: r.id, Owner: r.text("user_id"), Name: r.text("key_alias"), Revision: 1, ExpiresAt: r.time("expires")}
	k.CreatedAt, k.UpdatedAt = r.times()
	if f["user_id"] != k.Owner {
		r.stop("user_id", "cannot be kept, and limits would be another user's")
	}
	k.TeamID = c.litellmTeamOf(r, fallback)
	k.Limits = r.litellmLimits()
	k.Limits = r.litellmBudget(k.Limits, budgets)
	k.AllowedModels = r.litellmModels(false)
	k.Metadata = r.litellmMetadata(map[string]string{"litellm_key_name": f["key_name"]})
	r.litellmRest()
	switch deleted := r.time("deleted_at"); {
	case deleted != nil:
		k.UpdatedAt = later(*deleted, k.UpdatedAt)
		k.RevokedAt = deleted
	case r.table == litellmDeleted:
		r.refuse = true
	case r.bool("blocked"):
		r.stop("blocked", "carried as revoked, which is final here: make a new key to let it in again")
	}
	c.key(r, k, hash)
	return nil
}

// litellmHash reads a hash in hex. A token that the proxy did not hash is hashed here.
func litellmHash(token string) (hash keys.Hash, hashed bool) {
	if raw, err := hex.DecodeString(token); err == nil && len(raw) == len(hash) {
		return keys.Hash(raw), true
	}
	return hashOf(token), false
}

// litellmTeamOf is the team of a key. One that is not among the teams has limits
// that nobody knows: it is made, and refused.
func (c *carrier) litellmTeamOf(r *row, fallback string) string {
	id := r.rec.fields["team_id"]
	if id == "" {
		if !c.teams[fallback] {
			c.team(&row{c: c, table: r.table}, keys.Team{ID: fallback, Name: "Keys without a team", Revision: 1, CreatedAt: epoch, UpdatedAt: epoch})
		}
		return fallback
	}
	if id = litellmTeamID(id); !c.teams[id] {
		lost := &row{c: c, table: r.table, rec: r.rec, id: id}
		lost.stop("team_id", "the team is not in the export of the teams: made as a deleted one")
		c.team(lost, keys.Team{ID: id, Revision: 1, CreatedAt: epoch, UpdatedAt: epoch})
	}
	return id
}

// litellmBudget adds the limits of the budget that the key shares with others.
func (r *row) litellmBudget(l keys.Limits, budgets map[string]record) keys.Limits {
	id := r.rec.fields["budget_id"]
	if id == "" {
		return l
	}
	rec, found := budgets[id]
	if !found {
		r.note("budget_id", Wider, "the budget is not in the export of the budgets")
		return l
	}
	shared := &row{c: r.c, table: litellmBudgets, rec: rec, id: r.id}
	day, month := shared.cost(budget{rec.fields["max_budget"], r.rec.fields["spend"], rec.fields["budget_duration"]}, "max_budget")
	l.RequestsPerMinute = stricter(l.RequestsPerMinute, shared.limit("rpm_limit"))
	l.TokensPerMinute = stricter(l.TokensPerMinute, shared.limit("tpm_limit"))
	l.Concurrency = stricter(l.Concurrency, shared.limit("max_parallel_requests"))
	l.CostPerDay, l.CostPerMonth = stricter[amount.MicroUSD](l.CostPerDay, day), stricter[amount.MicroUSD](l.CostPerMonth, month)
	shared.present(Wider, "is not carried", "model_max_budget")
	shared.present(Lost, "is not carried", "soft_budget")
	r.refuse, r.found = r.refuse || shared.refuse, append(r.found, shared.found...)
	return l
}

// litellmRest notes what has no place here.
func (r *row) litellmRest() {
	r.present(Wider, "is not carried", "model_max_budget", "budget_limits", "policies", "object_permission_id", "organization_id", "project_id")
	r.present(Narrower, "is not carried: models that the group would add are missing", "access_group_ids")
	r.present(Lost, "is not carried", "aliases", "config", "router_settings", "agent_id", "permissions", "allowed_cache_controls", "auto_rotate", "rotation_interval")
	routes, err := parseList(r.rec.fields["allowed_routes"])
	switch {
	case err != nil:
		r.stop("allowed_routes", "cannot be read")
	case len(routes) > 0 && !slices.Contains(routes, "llm_api_routes"):
		r.stop("allowed_routes", "names routes, and not all of the models': carried as revoked")
	}
	r.strangers(litellmKeyKnown)
}
