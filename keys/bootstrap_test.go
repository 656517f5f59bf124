package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/amount"
)

func fullDeclarations(t testing.TB) (team, key Declaration) {
	t.Helper()
	token, err := Mint(strings.NewReader(strings.Repeat("\x00", 32)))
	require.NoError(t, err)
	at := time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)
	limits := Limits{RequestsPerMinute: Limit(1), TokensPerMinute: Limit(2), TokensPerDay: Limit(3), Concurrency: Limit(1<<63 - 1), CostPerDay: Cost(amount.MicroUSD(5)), CostPerMonth: Cost(0)}
	team, err = Declaration{Team: &CreateTeam{
		ID: "red", Name: "Red <&> \u00e9", Limits: limits, AllowedModels: []string{"b", "a"}, AllowedRegions: []string{}, Guardrail: "g",
		Metadata: map[string]string{"k": "v"}, DefaultMaxTokens: Limit(9),
	}}.prepare(Format{})
	require.NoError(t, err)
	key, err = Declaration{Key: &CreateKey{
		ID: "ci", TeamID: "red", Owner: "ann", Name: "CI", Limits: limits, AllowedModels: []string{}, Metadata: map[string]string{"k": "v"},
		DefaultMaxTokens: Limit(9), ExpiresAt: &at, Token: token,
	}}.prepare(Format{})
	require.NoError(t, err)
	return team, key
}

// Fingerprints are kept for good and compared by every later release: those of
// yesterday's declarations must never change.
func TestFingerprintsStayTheSame(t *testing.T) {
	team, key := fullDeclarations(t)
	require.Equal(t, wantTeamFingerprint, string(team.fingerprint()))
	require.Equal(t, wantKeyFingerprint, string(key.fingerprint()))
	bare, err := Declaration{Team: &CreateTeam{ID: "red"}}.prepare(Format{})
	require.NoError(t, err)
	require.Equal(t, "{}", string(bare.fingerprint()), "what is absent is left out")
	require.True(t, team.fingerprint().valid())
}

func TestFingerprintsShowNothing(t *testing.T) {
	_, key := fullDeclarations(t)
	mark := key.fingerprint()
	encoded, err := json.Marshal(struct{ F Fingerprint }{mark})
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q %x", mark, mark, mark, mark, mark, mark), string(encoded), mark.LogValue().String()} {
		require.NotContains(t, text, string(mark)[10:30])
		require.Contains(t, text, redacted)
	}
}

func TestConflictErrorNamesAndShowsNothing(t *testing.T) {
	err := error(&ConflictError{Name: Name{KindKey, "ci"}, Fields: []string{"owner", "token"}, Why: "was declared differently before"})
	require.EqualError(t, err, "keys: conflict: key ci (owner, token): was declared differently before")
	require.ErrorIs(t, err, ErrConflict)
	require.NotErrorIs(t, err, ErrStale)
}

func TestBootstrapIsBounded(t *testing.T) {
	_, err := Bootstrap{Declarations: make([]Declaration, MaxDeclarations+1)}.Prepare(Format{})
	require.ErrorIs(t, err, ErrInvalid)
	var field *FieldError
	_, err = Bootstrap{Declarations: []Declaration{{Team: &CreateTeam{ID: "a"}}, {Team: &CreateTeam{ID: "b", Limits: Limits{Concurrency: Limit(-1)}}}}}.Prepare(Format{})
	require.True(t, errors.As(err, &field))
	require.Equal(t, "declarations[1].limits.concurrency", field.Field)
}

// A prepared bootstrap shares nothing with what was declared: its owner goes on.
func TestBootstrapKeepsNothingOfTheCallers(t *testing.T) {
	models := []string{"a"}
	b, err := Bootstrap{Declarations: []Declaration{{Team: &CreateTeam{ID: "red", AllowedModels: models}}}}.Prepare(Format{})
	require.NoError(t, err)
	add, _, err := b.Apply(Rows{}, time.Now())
	require.NoError(t, err)
	models[0] = "changed"
	require.Equal(t, []string{"a"}, add.Teams[0].AllowedModels)
}

func TestNamesAreSortedAndUnique(t *testing.T) {
	n := Rows{
		Teams: []Team{{ID: "b"}, {ID: "a"}}, Keys: []Key{{ID: "k", TeamID: "b"}, {ID: "a", TeamID: "c"}},
		Secrets: []Secret{{KeyID: "k", Hash: Hash{2}}, {KeyID: "k", Hash: Hash{1}}, {KeyID: "k", Hash: Hash{2}}}, Declarations: []Declared{{Name: Name{KindTeam, "x"}}, {Name: Name{KindKey, "x"}}},
	}.Names()
	require.Equal(t, []string{"a", "b", "c"}, n.Teams)
	require.Equal(t, []string{"a", "k"}, n.Keys)
	require.Equal(t, []Hash{{1}, {2}}, n.Hashes)
	require.Equal(t, []Name{{KindKey, "x"}, {KindTeam, "x"}}, n.Declared)
}

func FuzzFingerprint(f *testing.F) {
	team, key := fullDeclarations(f)
	f.Add(string(team.fingerprint()), string(key.fingerprint()))
	f.Add("{}", `{"name":"00"}`)
	f.Add("null", "[]")
	f.Fuzz(func(t *testing.T, a, b string) {
		left, right := Fingerprint(a), Fingerprint(b)
		if !left.valid() || !right.valid() {
			return
		}
		require.Equal(t, a == b, len(differences(left, right)) == 0, "equal exactly when nothing differs")
		require.Equal(t, differences(left, right), differences(right, left))
	})
}

const (
	wantTeamFingerprint = `{"allowed_models":"85b4043010c2ddcf6e5c9bdbf90c72c6",` +
		`"allowed_regions":"c638450e9daf1790f686debd6a6bbfd8",` +
		`"default_max_tokens":"8b759285afefee0f2141c2feea4b0dfb",` +
		`"guardrail":"a8d56d30abbdd8518da7136c15951f84",` +
		`"limits.concurrency":"987686d7dbed9b4d5702c016bdf3b527",` +
		`"limits.cost_per_day_microusd":"05631fad767c4306c803d563418e8c7e",` +
		`"limits.cost_per_month_microusd":"0a9a1a7db62f898734c996ddef33a431",` +
		`"limits.requests_per_minute":"59a2fb7049130e32e29ba69872b16d6b",` +
		`"limits.tokens_per_day":"b2313ab1f47bc364b320238a20334dea",` +
		`"limits.tokens_per_minute":"5b13356b44316543b5c44afde421d45b",` +
		`"metadata":"a530fe142a576d0e0faa01b82facd22f",` +
		`"name":"108e2732bfa55518ab403af1bd107fed"}`
	wantKeyFingerprint = `{"allowed_models":"10bec5616a7bbb6f13ef856f5144a06f",` +
		`"default_max_tokens":"8b759285afefee0f2141c2feea4b0dfb",` +
		`"expires_at":"ebc0c95c9e9a9d613f81cad96e3dbad2",` +
		`"limits.concurrency":"987686d7dbed9b4d5702c016bdf3b527",` +
		`"limits.cost_per_day_microusd":"05631fad767c4306c803d563418e8c7e",` +
		`"limits.cost_per_month_microusd":"0a9a1a7db62f898734c996ddef33a431",` +
		`"limits.requests_per_minute":"59a2fb7049130e32e29ba69872b16d6b",` +
		`"limits.tokens_per_day":"b2313ab1f47bc364b320238a20334dea",` +
		`"limits.tokens_per_minute":"5b13356b44316543b5c44afde421d45b",` +
		`"metadata":"a530fe142a576d0e0faa01b82facd22f",` +
		`"name":"6fe9fc85fd1563998961194ae48c3527",` +
		`"owner":"f5dd36a4f8b5010bc5424b82fad35476",` +
		`"team_id":"24970ea0106b2de8935d9204bd30aa27",` +
		`"token":"0598e9a5a5c865f80b7617c6991a5c74"}`
)
