package keys_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/keys"
)

// scan puts values where a driver would.
func scan(t *testing.T, targets, values []any) {
	t.Helper()
	require.Len(t, values, len(targets))
	for i, target := range targets {
		reflect.ValueOf(target).Elem().Set(reflect.ValueOf(values[i]))
	}
}

func columns(list string) int { return strings.Count(list, ",") + 1 }

func TestRowsReadBackWhatTheyWrite(t *testing.T) {
	expires := noon.Add(time.Hour)
	key, team, secret, _ := made(t, keys.CreateKey{
		Owner: "ann", Name: "n", Limits: keys.Limits{RequestsPerMinute: keys.Limit(1), CostPerMonth: keys.Cost(2)}, AllowedModels: []string{},
		AllowedRegions: []string{"a,b"}, Metadata: map[string]string{"a": "b"}, DefaultMaxTokens: keys.Limit(3), ExpiresAt: &expires,
	})
	key.RevokedAt, team.DeletedAt, secret.RetiresAt = &expires, &expires, &expires
	secret.RotationID, secret.Grace = "r", time.Minute
	team.Limits, team.Guardrail, team.AllowedModels = keys.Limits{CostPerDay: keys.Cost(4), TokensPerDay: keys.Limit(0)}, "g", []string{"m"}

	var k keys.KeyRow
	scan(t, k.Targets(), key.Columns())
	gotKey, err := k.Key()
	require.NoError(t, err)
	assert.Equal(t, key, gotKey)
	assert.Len(t, key.Columns(), columns(keys.KeyColumns))

	var r keys.TeamRow
	scan(t, r.Targets(), team.Columns())
	gotTeam, err := r.Team()
	require.NoError(t, err)
	assert.Equal(t, team, gotTeam)
	assert.Len(t, team.Columns(), columns(keys.TeamColumns))

	var s keys.SecretRow
	scan(t, s.Targets(), secret.Columns())
	gotSecret, err := s.Secret()
	require.NoError(t, err)
	assert.Equal(t, secret, gotSecret)
	assert.Len(t, secret.Columns(), columns(keys.SecretColumns))

	var d keys.DefinitionRow
	end := expires.UnixMicro()
	scan(t, d.Targets(), []any{int64(7), key.Revision, team.Revision, &end, &end, &end})
	position, definition := d.Definition()
	assert.Equal(t, 7, position)
	assert.Equal(t, keys.DefinitionOf(key, team), definition)
	assert.Len(t, d.Targets(), columns(keys.DefinitionColumns))
}

func TestCorruptRowsRefuse(t *testing.T) {
	key, team, secret, token := made(t, keys.CreateKey{})
	p, err := keys.Authenticate(token.Hash(), secret, key, team, noon)
	require.NoError(t, err)
	at := func(column string) int {
		for i, name := range strings.Split(keys.KeyColumns, ", ") {
			if name == column {
				return i
			}
		}
		t.Fatal(column)
		return 0
	}
	for _, expiry := range []int64{0, -1, 1, -1 << 63, 1<<63 - 1, 253402300800000000} {
		values := key.Columns()
		values[at("expires_us")] = &expiry
		var k keys.KeyRow
		scan(t, k.Targets(), values)
		got, err := k.Key()
		require.NoError(t, err)
		_, err = keys.Authenticate(token.Hash(), secret, got, team, noon)
		assert.ErrorIs(t, err, keys.ErrExpired, "an expiry of %d", expiry)
		_, err = json.Marshal(got)
		assert.NoError(t, err, "one bad row must not take the listing down")

		var none *int64
		var d keys.DefinitionRow
		scan(t, d.Targets(), []any{int64(0), key.Revision, team.Revision, none, &expiry, none})
		_, definition := d.Definition()
		assert.ErrorIs(t, definition.Check(&p, noon.UnixMicro()), keys.ErrExpired, "an expiry of %d", expiry)
		scan(t, d.Targets(), []any{int64(0), key.Revision, team.Revision, &expiry, none, none})
		_, definition = d.Definition()
		assert.ErrorIs(t, definition.Check(&p, noon.UnixMicro()), keys.ErrRevoked, "a revocation at %d", expiry)
	}
	for _, list := range []string{``, `{}`, `null`, `"a,b"`, `[1]`, `[null]`, `["a"`, `a,b`} {
		values := key.Columns()
		values[at("allowed_regions")] = &list
		var k keys.KeyRow
		scan(t, k.Targets(), values)
		_, err := k.Key()
		assert.ErrorIs(t, err, keys.ErrUnavailable, "a list of %s", list)
	}
	values := secret.Columns()
	values[0] = []byte("short")
	var s keys.SecretRow
	scan(t, s.Targets(), values)
	_, err = s.Secret()
	assert.ErrorIs(t, err, keys.ErrUnavailable)
}
