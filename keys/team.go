package keys

import (
	"maps"
	"time"
)

// Team owns keys and limits them together. Nil lists allow everything, empty
// lists nothing. A deleted team stays as a tombstone and its keys are refused.
type Team struct {
	ID               string            `json:"id"`
	Name             string            `json:"name"`
	Limits           Limits            `json:"limits"`
	AllowedModels    []string          `json:"allowed_models"`
	AllowedRegions   []string          `json:"allowed_regions"`
	Guardrail        string            `json:"guardrail"`
	Metadata         map[string]string `json:"metadata,omitempty"`
	DefaultMaxTokens *int64            `json:"default_max_tokens,omitempty"`
	Revision         int64             `json:"revision"`
	CreatedAt        time.Time         `json:"created_at"`
	UpdatedAt        time.Time         `json:"updated_at"`
	DeletedAt        *time.Time        `json:"deleted_at,omitempty"`
}

// CreateTeam describes a new team. An empty ID is made up by Prepare.
type CreateTeam struct {
	ID               string
	Name             string
	Limits           Limits
	AllowedModels    []string
	AllowedRegions   []string
	Guardrail        string
	Metadata         map[string]string
	DefaultMaxTokens *int64
}

// UnmarshalJSON decodes strictly, with the JSON names of [Team]. Call it directly
// and every failure is a *FieldError.
func (c *CreateTeam) UnmarshalJSON(data []byte) error {
	var out CreateTeam
	if err := decodeObject(data, map[string]any{
		"id":                 &out.ID,
		"name":               &out.Name,
		"limits":             &out.Limits,
		"allowed_models":     &out.AllowedModels,
		"allowed_regions":    &out.AllowedRegions,
		"guardrail":          &out.Guardrail,
		"metadata":           &out.Metadata,
		"default_max_tokens": &out.DefaultMaxTokens,
	}); err != nil {
		return err
	}
	*c = out
	return nil
}

// Prepare validates c and fills in what was left open. Call it before a
// transaction opens. Errors: *FieldError.
func (c CreateTeam) Prepare() (CreateTeam, error) {
	if c.ID == "" {
		c.ID = mintID("team_")
	}
	return c, firstError(
		validID("id", c.ID),
		validText("name", c.Name, MaxNameBytes),
		within("limits", c.Limits.Validate()),
		validList("allowed_models", c.AllowedModels),
		validList("allowed_regions", c.AllowedRegions),
		validText("guardrail", c.Guardrail, MaxGuardrailBytes),
		validMetadata("metadata", c.Metadata),
		validDefaultMaxTokens(c.DefaultMaxTokens),
	)
}

// Apply makes the row to insert. The insert must fail with ErrExists where the id
// is taken, by a tombstone too.
func (c CreateTeam) Apply(now time.Time) Team {
	now = micro(now)
	return Team{
		ID: c.ID, Name: c.Name, Limits: c.Limits.clone(),
		AllowedModels: cloneList(c.AllowedModels), AllowedRegions: cloneList(c.AllowedRegions),
		Guardrail: c.Guardrail, Metadata: cloneMetadata(c.Metadata), DefaultMaxTokens: clonePtr(c.DefaultMaxTokens),
		Revision: 1, CreatedAt: now, UpdatedAt: now,
	}
}

// UpdateTeam changes single fields of a team that is still at IfRevision.
type UpdateTeam struct {
	ID               string                    `json:"-"`
	IfRevision       int64                     `json:"if_revision"`
	Name             Change[string]            `json:"name,omitzero"`
	Limits           LimitsChange              `json:"limits,omitzero"`
	AllowedModels    Change[[]string]          `json:"allowed_models,omitzero"`
	AllowedRegions   Change[[]string]          `json:"allowed_regions,omitzero"`
	Guardrail        Change[string]            `json:"guardrail,omitzero"`
	Metadata         Change[map[string]string] `json:"metadata,omitzero"`
	DefaultMaxTokens Change[*int64]            `json:"default_max_tokens,omitzero"`
}

// UnmarshalJSON decodes strictly; what is absent is left alone. Call it directly
// and every failure is a *FieldError. The ID is not part of the document.
func (u *UpdateTeam) UnmarshalJSON(data []byte) error {
	out := UpdateTeam{ID: u.ID}
	if err := decodeObject(data, map[string]any{
		"if_revision":        &out.IfRevision,
		"name":               &out.Name,
		"limits":             &out.Limits,
		"allowed_models":     &out.AllowedModels,
		"allowed_regions":    &out.AllowedRegions,
		"guardrail":          &out.Guardrail,
		"metadata":           &out.Metadata,
		"default_max_tokens": &out.DefaultMaxTokens,
	}); err != nil {
		return err
	}
	*u = out
	return nil
}

// Validate checks u without any row. Errors: *FieldError.
func (u UpdateTeam) Validate() error {
	return firstError(
		validID("id", u.ID),
		validRevision(u.IfRevision, true),
		validText("name", u.Name.To, MaxNameBytes),
		u.Limits.validate(),
		validList("allowed_models", u.AllowedModels.To),
		validList("allowed_regions", u.AllowedRegions.To),
		validText("guardrail", u.Guardrail.To, MaxGuardrailBytes),
		validMetadata("metadata", u.Metadata.To),
		validDefaultMaxTokens(u.DefaultMaxTokens.To),
	)
}

// Apply returns the row after the edit. changed is false where the edit is in
// force already, whatever the revision: there is nothing to write, but the
// barrier must be passed again.
//
// Errors: ErrRevoked (the team is deleted), ErrStale.
func (u UpdateTeam) Apply(current Team, now time.Time) (next Team, changed bool, err error) {
	if current.DeletedAt != nil {
		return Team{}, false, ErrRevoked
	}
	next = current.Clone()
	changed = anyOf(
		assign(&next.Name, u.Name, sameValue),
		u.Limits.apply(&next.Limits),
		assign(&next.AllowedModels, u.AllowedModels, sameList),
		assign(&next.AllowedRegions, u.AllowedRegions, sameList),
		assign(&next.Guardrail, u.Guardrail, sameValue),
		assign(&next.Metadata, u.Metadata, maps.Equal),
		assign(&next.DefaultMaxTokens, u.DefaultMaxTokens, samePtr),
	)
	if !changed {
		return current, false, nil
	}
	if current.Revision != u.IfRevision {
		return Team{}, false, ErrStale
	}
	next = next.Clone() // the edit's own lists and pointers stay the caller's
	next.Revision++
	next.UpdatedAt = later(now, current.UpdatedAt)
	return next, true, nil
}

// DeleteTeam makes a team a tombstone. IfRevision 0 deletes whatever revision
// there is.
type DeleteTeam struct {
	ID         string
	IfRevision int64
}

// Validate checks d without any row. Errors: *FieldError.
func (d DeleteTeam) Validate() error {
	return firstError(validID("id", d.ID), validRevision(d.IfRevision, false))
}

// Apply returns the row after the deletion; changed is false where it was deleted
// before, whatever the revision. Errors: ErrStale.
func (d DeleteTeam) Apply(current Team, now time.Time) (next Team, changed bool, err error) {
	if current.DeletedAt != nil {
		return current, false, nil
	}
	if d.IfRevision != 0 && current.Revision != d.IfRevision {
		return Team{}, false, ErrStale
	}
	next = current.Clone()
	next.Revision++
	next.UpdatedAt = later(now, current.UpdatedAt)
	next.DeletedAt = &next.UpdatedAt
	return next.Clone(), true, nil
}

// Clone returns a copy that shares nothing with t.
func (t Team) Clone() Team {
	t.Limits = t.Limits.clone()
	t.AllowedModels = cloneList(t.AllowedModels)
	t.AllowedRegions = cloneList(t.AllowedRegions)
	t.Metadata = cloneMetadata(t.Metadata)
	t.DefaultMaxTokens = clonePtr(t.DefaultMaxTokens)
	t.DeletedAt = clonePtr(t.DeletedAt)
	return t
}
