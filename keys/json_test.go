package keys_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

func TestLimitsJSON(t *testing.T) {
	var l keys.Limits
	require.NoError(t, json.Unmarshal([]byte(`{"requests_per_minute": 0, "tokens_per_minute": 9223372036854775807, "tokens_per_day": null,
		"concurrency": 3, "cost_per_day_microusd": 1, "cost_per_month_microusd": 9007199254740993}`), &l))
	assert.Equal(t, keys.Limits{
		RequestsPerMinute: keys.Limit(0), TokensPerMinute: keys.Limit(math.MaxInt64), Concurrency: keys.Limit(3),
		CostPerDay: keys.Cost(1), CostPerMonth: keys.Cost(9007199254740993),
	}, l, "null and absent are unlimited, zero is zero, nothing passes through a float")
	encoded, err := json.Marshal(l)
	require.NoError(t, err)
	assert.JSONEq(t, `{"requests_per_minute":0,"tokens_per_minute":9223372036854775807,"concurrency":3,"cost_per_day_microusd":1,"cost_per_month_microusd":9007199254740993}`, string(encoded))
}

func TestStrictDecoding(t *testing.T) {
	type doc interface{ UnmarshalJSON([]byte) error }
	for _, c := range []struct {
		into  doc
		text  string
		field string
	}{
		{&keys.Limits{}, `{"tokens_per_day": -1}`, "tokens_per_day"},
		{&keys.Limits{}, `{"tokens_per_day": 1.0}`, "tokens_per_day"},
		{&keys.Limits{}, `{"tokens_per_day": 1e3}`, "tokens_per_day"},
		{&keys.Limits{}, `{"tokens_per_day": "5"}`, "tokens_per_day"},
		{&keys.Limits{}, `{"tokens_per_day": 9223372036854775808}`, "tokens_per_day"},
		{&keys.Limits{}, `{"cost_per_day": 5}`, "cost_per_day"},
		{&keys.Limits{}, `{"Tokens_Per_Day": 5}`, "Tokens_Per_Day"},
		{&keys.Limits{}, `{"tokens_per_day": 5, "tokens_per_day": null}`, ""},
		{&keys.Limits{}, `{"tokens_per_day": 5} {}`, ""},
		{&keys.Limits{}, `{"tokens_per_day": 5`, ""},
		{&keys.Limits{}, `{"tokens_per_day": 5,}`, ""},
		{&keys.Limits{}, `[]`, ""},
		{&keys.Limits{}, `null`, ""},
		{&keys.Limits{}, ``, ""},
		{&keys.LimitsChange{}, `{"tokens_per_day": -1}`, "tokens_per_day"},
		{&keys.LimitsChange{}, `{"tokens_per_week": 1}`, "tokens_per_week"},
		{&keys.CreateTeam{}, `{"id": "a", "limits": {"concurrency": -1}}`, "limits.concurrency"},
		{&keys.CreateTeam{}, `{"id": null}`, "id"},
		{&keys.CreateTeam{}, `{"allowed_models": "a,b"}`, "allowed_models"},
		{&keys.CreateTeam{}, `{"allowed_models": [1]}`, "allowed_models"},
		{&keys.CreateTeam{}, `{"metadata": {"a": 1}}`, "metadata"},
		{&keys.CreateTeam{}, `{"metadata": {"a": "1", "a": "2"}}`, "metadata"},
		{&keys.CreateTeam{}, `{"revision": 5}`, "revision"},
		{&keys.CreateTeam{}, "{\"name\": \"\xff\"}", ""},
		{&keys.CreateKey{}, `{"token": "tly_x"}`, "token"},
		{&keys.CreateKey{}, `{"hash": "00"}`, "hash"},
		{&keys.CreateKey{}, `{"expires_at": "tomorrow"}`, "expires_at"},
		{&keys.CreateKey{}, `{"expires_at": 5}`, "expires_at"},
		{&keys.CreateKey{}, `{"revoked_at": null}`, "revoked_at"},
		{&keys.CreateKey{}, "{\"\\u0007\": 1}", "field"},
		{&keys.UpdateKey{}, `{"id": "other"}`, "id"},
		{&keys.UpdateKey{}, `{"name": null}`, "name"},
		{&keys.UpdateKey{}, `{"limits": null}`, "limits"},
		{&keys.UpdateKey{}, `{"if_revision": null}`, "if_revision"},
		{&keys.UpdateKey{}, `{"revoked_at": null}`, "revoked_at"},
		{&keys.UpdateTeam{}, `{"deleted_at": null}`, "deleted_at"},
		{&keys.RotateKey{}, `{"grace_seconds": -1}`, "grace_seconds"},
		{&keys.RotateKey{}, `{"grace_seconds": 9223372036854775807}`, "grace_seconds"},
		{&keys.RotateKey{}, `{"grace": 5}`, "grace"},
	} {
		err := c.into.UnmarshalJSON([]byte(c.text))
		var field *keys.FieldError
		if assert.ErrorAs(t, err, &field, c.text) {
			assert.ErrorIs(t, err, keys.ErrInvalid)
			assert.Equal(t, c.field, field.Field, c.text)
		}
	}
}

func TestUpdatesTellAbsentFromNull(t *testing.T) {
	var u keys.UpdateKey
	require.NoError(t, u.UnmarshalJSON([]byte(`{"if_revision": 3, "owner": "", "limits": {"tokens_per_day": null, "cost_per_day_microusd": 0},
		"allowed_models": null, "allowed_regions": [], "metadata": null, "expires_at": null}`)))
	assert.Equal(t, keys.UpdateKey{
		IfRevision: 3, Owner: keys.Set(""), AllowedModels: keys.Set[[]string](nil), AllowedRegions: keys.Set([]string{}), Metadata: keys.Set[map[string]string](nil),
		Limits:    keys.LimitsChange{TokensPerDay: keys.Set[*int64](nil), CostPerDay: keys.Set(keys.Cost(0))},
		ExpiresAt: u.ExpiresAt,
	}, u)
	assert.True(t, u.ExpiresAt.Set && u.ExpiresAt.To == nil)
	assert.False(t, u.Name.Set || u.DefaultMaxTokens.Set || u.Limits.RequestsPerMinute.Set)

	encoded, err := json.Marshal(u)
	require.NoError(t, err)
	assert.JSONEq(t, `{"if_revision":3,"owner":"","limits":{"tokens_per_day":null,"cost_per_day_microusd":0},"allowed_models":null,"allowed_regions":[],"metadata":null,"expires_at":null}`, string(encoded))
}

func TestCreateJSON(t *testing.T) {
	var c keys.CreateKey
	require.NoError(t, c.UnmarshalJSON([]byte(`{"id":"k","team_id":"t","owner":"ann","allowed_models":["a,b"],"metadata":{"x":"y"},"expires_at":"2030-01-02T03:04:05+02:00","default_max_tokens":7}`)))
	assert.Equal(t, []string{"a,b"}, c.AllowedModels)
	assert.Equal(t, "2030-01-02T01:04:05Z", c.ExpiresAt.UTC().Format("2006-01-02T15:04:05Z"))
	assert.Equal(t, int64(7), *c.DefaultMaxTokens)
	var r keys.RotateKey
	require.NoError(t, r.UnmarshalJSON([]byte(`{"rotation_id":"r","if_revision":2,"grace_seconds":90}`)))
	assert.Equal(t, "1m30s", r.Grace.String())
}

// FuzzDecode: what is accepted holds the rules, and reads the same after writing it.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"tokens_per_day":1,"cost_per_day_microusd":null}`, `{"if_revision":1,"limits":{"concurrency":0},"metadata":{"a":"b"}}`,
		`{"id":"a","team_id":"t","expires_at":"2030-01-01T00:00:00Z","allowed_models":[],"allowed_regions":null}`, `{"a":1,"a":2}`, `{"limits":{}}`, "{\"\xff\":1}",
		`{"name":"\ud800"}`, `{"tokens_per_minute":-0}`,
	} {
		f.Add([]byte(s))
	}
	again := func(t *testing.T, v any, into json.Unmarshaler) {
		encoded, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, into.UnmarshalJSON(encoded), string(encoded))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var l, l2 keys.Limits
		if l.UnmarshalJSON(data) == nil {
			require.NoError(t, l.Validate())
			again(t, l, &l2)
			require.Equal(t, l, l2)
		}
		var u, u2 keys.UpdateKey
		if u.UnmarshalJSON(data) == nil {
			if u.ExpiresAt.To == nil { // a decoded zone is written as an offset
				again(t, u, &u2)
				require.Equal(t, u, u2)
			}
		}
		var c keys.CreateKey
		if c.UnmarshalJSON(data) == nil {
			if c, err := c.Prepare(keys.Format{}); err == nil {
				require.False(t, strings.ContainsAny(c.Owner+c.Name+c.ID, "\x00\n\ufffd"))
			}
		}
		var team keys.CreateTeam
		_ = team.UnmarshalJSON(data)
		var r keys.RotateKey
		_ = r.UnmarshalJSON(data)
	})
}

func TestBounds(t *testing.T) {
	atMost := func(field string, c keys.CreateKey, ok bool) {
		t.Helper()
		c.TeamID = "t"
		_, err := c.Prepare(keys.Format{})
		if ok {
			require.NoError(t, err, field)
			return
		}
		var got *keys.FieldError
		require.ErrorAs(t, err, &got, field)
		require.Equal(t, field, got.Field)
	}
	atMost("owner", keys.CreateKey{Owner: strings.Repeat("o", keys.MaxOwnerBytes)}, true)
	atMost("owner", keys.CreateKey{Owner: strings.Repeat("o", keys.MaxOwnerBytes+1)}, false)
	atMost("id", keys.CreateKey{ID: strings.Repeat("i", keys.MaxIDBytes)}, true)
	atMost("id", keys.CreateKey{ID: strings.Repeat("i", keys.MaxIDBytes+1)}, false)
	atMost("metadata", keys.CreateKey{Metadata: map[string]string{"a": strings.Repeat("v", keys.MaxMetadataBytes-8)}}, true)
	atMost("metadata", keys.CreateKey{Metadata: map[string]string{"a": strings.Repeat("v", keys.MaxMetadataBytes-7)}}, false)
	atMost("metadata", keys.CreateKey{Metadata: map[string]string{"a": strings.Repeat("<", keys.MaxMetadataBytes/6)}}, false) // as long as a listing shows it
	atMost("limits.cost_per_day_microusd", keys.CreateKey{Limits: keys.Limits{CostPerDay: keys.Cost(amount.MicroUSD(-1))}}, false)
}
