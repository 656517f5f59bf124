package keys_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/keys"
)

var noon = time.Date(2030, 5, 6, 12, 0, 0, 0, time.UTC)

// made is a key with its team and secret, through the same steps as in a store.
func made(t *testing.T, c keys.CreateKey) (keys.Key, keys.Team, keys.Secret, keys.Token) {
	t.Helper()
	tc, err := keys.CreateTeam{ID: "red"}.Prepare()
	require.NoError(t, err)
	team := tc.Apply(noon)
	c.ID, c.TeamID = "k", "red"
	c, err = c.Prepare(keys.Format{})
	require.NoError(t, err)
	key, secret, err := c.Apply(team, noon)
	require.NoError(t, err)
	return key, team, secret, c.Token
}

func TestDefinitionCheck(t *testing.T) {
	expires := noon.Add(time.Hour)
	key, team, secret, token := made(t, keys.CreateKey{ExpiresAt: &expires})
	p, err := keys.Authenticate(token.Hash(), secret, key, team, noon)
	require.NoError(t, err)
	now := noon.UnixMicro()
	held := keys.DefinitionOf(key, team)
	require.NoError(t, held.Check(&p, now))
	for name, c := range map[string]struct {
		change func(*keys.Definition)
		at     int64
		want   error
	}{
		"a microsecond before the expiry":    {func(*keys.Definition) {}, expires.UnixMicro() - 1, nil},
		"at the expiry":                      {func(*keys.Definition) {}, expires.UnixMicro(), keys.ErrExpired},
		"expiry taken away":                  {func(d *keys.Definition) { d.ExpiresAt = 0 }, math.MaxInt64, nil},
		"corrupt expiry below":               {func(d *keys.Definition) { d.ExpiresAt = -1 }, now, keys.ErrExpired},
		"corrupt expiry above":               {func(d *keys.Definition) { d.ExpiresAt = math.MaxInt64 }, now, keys.ErrExpired},
		"gone":                               {func(d *keys.Definition) { *d = keys.Definition{} }, now, keys.ErrUnknown},
		"revoked":                            {func(d *keys.Definition) { d.RevokedAt = 1 }, now, keys.ErrRevoked},
		"revoked in the future":              {func(d *keys.Definition) { d.RevokedAt = math.MaxInt64 }, now, keys.ErrRevoked},
		"team deleted":                       {func(d *keys.Definition) { d.TeamDeleted = true }, now, keys.ErrRevoked},
		"key edited":                         {func(d *keys.Definition) { d.KeyRevision++ }, now, keys.ErrStale},
		"key revision back":                  {func(d *keys.Definition) { d.KeyRevision-- }, now, keys.ErrStale},
		"team edited":                        {func(d *keys.Definition) { d.TeamRevision++ }, now, keys.ErrStale},
		"edited and revoked: the final word": {func(d *keys.Definition) { d.KeyRevision++; d.RevokedAt = 1 }, now, keys.ErrRevoked},
		"edited and expired: the final word": {func(d *keys.Definition) { d.KeyRevision++; d.ExpiresAt = now }, now, keys.ErrExpired},
	} {
		d := held
		c.change(&d)
		if c.want == nil {
			assert.NoError(t, d.Check(&p, c.at), name)
		} else {
			assert.ErrorIs(t, d.Check(&p, c.at), c.want, name)
		}
	}
}

func TestCheckKnowsWhenTheTokenRetires(t *testing.T) {
	key, team, secret, token := made(t, keys.CreateKey{})
	end := noon.Add(time.Minute)
	secret.RetiresAt = &end
	p, err := keys.Authenticate(token.Hash(), secret, key, team, noon)
	require.NoError(t, err)
	d := keys.DefinitionOf(key, team)
	assert.NoError(t, d.Check(&p, end.UnixMicro()-1))
	assert.ErrorIs(t, d.Check(&p, end.UnixMicro()), keys.ErrRevoked)
	_, err = keys.Authenticate(token.Hash(), secret, key, team, end)
	assert.ErrorIs(t, err, keys.ErrRevoked)

	byID, err := keys.Identify(key, team, end)
	require.NoError(t, err, "a principal named by its id hangs on no token")
	assert.NoError(t, d.Check(&byID, end.UnixMicro()))
	_, presented := byID.SecretHash()
	assert.False(t, presented)
}

func TestAuthenticateComparesTheSecret(t *testing.T) {
	key, team, secret, token := made(t, keys.CreateKey{})
	wrong := token.Hash()
	wrong[31] ^= 1
	_, err := keys.Authenticate(wrong, secret, key, team, noon)
	assert.Equal(t, keys.ErrUnknown, err)
	other := secret
	other.KeyID = "other"
	_, err = keys.Authenticate(token.Hash(), other, key, team, noon)
	assert.Equal(t, keys.ErrUnknown, err, "another key's secret")
	foreign := team
	foreign.ID = "blue"
	_, err = keys.Authenticate(token.Hash(), secret, key, foreign, noon)
	assert.Equal(t, keys.ErrUnknown, err, "another team's key")
}

func TestEditsDoNotTouchTheirInput(t *testing.T) {
	key, team, _, _ := made(t, keys.CreateKey{AllowedModels: []string{"a"}, Metadata: map[string]string{"a": "b"}, Limits: keys.Limits{Concurrency: keys.Limit(1)}})
	before := key.Clone()
	list := []string{"x"}
	next, changed, err := keys.UpdateKey{ID: "k", IfRevision: 1, AllowedModels: keys.Set(list), Limits: keys.LimitsChange{Concurrency: keys.Set(keys.Limit(2))}}.Apply(key, noon)
	require.NoError(t, err)
	require.True(t, changed)
	assert.Equal(t, before, key)
	list[0] = "changed"
	assert.Equal(t, []string{"x"}, next.AllowedModels)
	_, _, err = keys.RevokeKey{ID: "k"}.Apply(key, noon)
	require.NoError(t, err)
	assert.Equal(t, before, key)
	_, _, err = keys.DeleteTeam{ID: "red"}.Apply(team, noon)
	require.NoError(t, err)
	assert.Nil(t, team.DeletedAt)
}

func TestTimesDoNotGoBackWithTheClock(t *testing.T) {
	key, _, _, _ := made(t, keys.CreateKey{})
	next, _, err := keys.UpdateKey{ID: "k", IfRevision: 1, Name: keys.Set("x")}.Apply(key, noon.Add(-time.Hour))
	require.NoError(t, err)
	assert.Equal(t, noon, next.UpdatedAt)
}
