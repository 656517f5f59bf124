package keysimport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keysimport"
)

var update = flag.Bool("update", false, "write the golden files anew")

// exports are the ones in testdata, each in the shape that a release writes.
var exports = map[string]func(t testing.TB) (keysimport.Plan, error){
	"litellm-1.72": func(t testing.TB) (keysimport.Plan, error) {
		return keysimport.LiteLLM{Keys: file(t, "litellm-1.72/keys.csv"), Teams: file(t, "litellm-1.72/teams.csv"), Budgets: file(t, "litellm-1.72/budgets.csv")}.Read()
	},
	"litellm-1.81": func(t testing.TB) (keysimport.Plan, error) {
		return keysimport.LiteLLM{
			Keys: file(t, "litellm-1.81/keys.jsonl"), Teams: file(t, "litellm-1.81/teams.jsonl"),
			Budgets: file(t, "litellm-1.81/budgets.jsonl"), DeletedKeys: file(t, "litellm-1.81/deleted.jsonl"),
		}.Read()
	},
	"newapi-0.8": func(t testing.TB) (keysimport.Plan, error) {
		return keysimport.NewAPI{Tokens: file(t, "newapi-0.8/tokens.csv")}.Read()
	},
	"newapi-0.10": func(t testing.TB) (keysimport.Plan, error) {
		return keysimport.NewAPI{Tokens: file(t, "newapi-0.10/tokens.jsonl"), Users: file(t, "newapi-0.10/users.jsonl")}.Read()
	},
}

func file(t testing.TB, name string) io.Reader {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return bytes.NewReader(data)
}

func plan(t testing.TB, release string) keysimport.Plan {
	t.Helper()
	p, err := exports[release](t)
	require.NoError(t, err)
	return p
}

// foreign accepts what both systems' clients present.
var foreign = keys.Format{Foreign: []string{"sk-"}}

func memory(t testing.TB) *governancemem.DB {
	t.Helper()
	db, err := governancemem.New(&governancemem.Options{Format: foreign})
	require.NoError(t, err)
	return db
}

var allow = &keysimport.Options{AllowWider: true}

// TestGolden compares the plan of every export with what a reader has checked.
func TestGolden(t *testing.T) {
	for release := range exports {
		t.Run(release, func(t *testing.T) {
			p := plan(t, release)
			var report, asJSON, rows bytes.Buffer
			require.NoError(t, p.Report.WriteTable(&report))
			require.NoError(t, p.Report.WriteJSON(&asJSON))
			e := json.NewEncoder(&rows)
			for _, team := range p.Rows.Teams {
				require.NoError(t, e.Encode(team))
			}
			for _, key := range p.Rows.Keys {
				require.NoError(t, e.Encode(key))
			}
			for name, got := range map[string]*bytes.Buffer{"report.txt": &report, "report.json": &asJSON, "rows.jsonl": &rows} {
				path := filepath.Join("testdata", release, "want", name)
				if *update {
					require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
					require.NoError(t, os.WriteFile(path, got.Bytes(), 0o644))
				}
				want, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, string(want), got.String(), name)
			}
		})
	}
}

// presented is what a client of the export in testdata sends.
func presented(release, name string) string {
	if strings.HasPrefix(release, "litellm") {
		return "sk-" + name + "-0123456789abcdef"
	}
	return "sk-" + (name + "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP")[:48]
}

// TestWhatWasRefusedStaysRefused presents the clients' tokens after the import.
func TestWhatWasRefusedStaysRefused(t *testing.T) {
	ctx := t.Context()
	litellm := map[string]error{
		"active": nil, "daily": nil, "weekly": nil, "hourly": nil, "forever": nil, "teamless": errNoRoom, "shared": nil, "nobudget": nil, "pattern": nil, "permodel": nil,
		"revoked": keys.ErrRevoked, "expired": keys.ErrExpired, "stranded": keys.ErrRevoked, "inblocked": keys.ErrRevoked, "manager": keys.ErrRevoked,
		"overspent": errNoRoom, "negative": errNoRoom, "never": keys.ErrUnknown,
	}
	newapi := map[string]error{
		"active": nil, "limited": nil, "models": nil, "addressed": nil, "groupless": nil, "disabled": keys.ErrRevoked, "expired": keys.ErrExpired, "past": keys.ErrExpired,
		"exhausted": errNoRoom, "overdrawn": errNoRoom, "unknown": keys.ErrRevoked, "deleted": keys.ErrRevoked,
	}
	for release, want := range map[string]map[string]error{
		"litellm-1.72": litellm, "litellm-1.81": with(litellm, "deleted", keys.ErrRevoked, "rotating", nil, "policed", nil),
		"newapi-0.8": with(newapi, "ofdisabled", nil), "newapi-0.10": with(newapi, "ofdisabled", keys.ErrRevoked, "retry", nil),
	} {
		db := memory(t)
		require.NoError(t, plan(t, release).Import(ctx, db.Keys, allow))
		for name, err := range want {
			require.ErrorIs(t, call(t, db, presented(release, name)), err, "%s: %s", release, name)
		}
	}
}

var errNoRoom = errors.New("a limit of zero")

func with(all map[string]error, more ...any) map[string]error {
	out := map[string]error{}
	for name, err := range all {
		out[name] = err
	}
	for i := 0; i < len(more); i += 2 {
		err, _ := more[i+1].(error)
		out[more[i].(string)] = err
	}
	return out
}

// call resolves a token and admits a call of one microUSD with it.
func call(t *testing.T, db *governancemem.DB, token string) error {
	t.Helper()
	p, err := db.Keys.Resolve(t.Context(), token)
	if err != nil {
		return err
	}
	gov, err := governance.New(db, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, gov.Close(context.Background())) }()
	request := governance.Request{Principal: &p, Model: "gpt-4o", Bound: governance.Bound{Cost: 1}}
	_, err = governance.Do(t.Context(), gov, request, func(context.Context, *governance.Permit) (int, governance.Outcome, error) {
		return 0, governance.NotSent(), nil
	})
	if refused := new(governance.Refusal); errors.As(err, &refused) {
		require.Zero(t, refused.Verdict.Limit, "only what may use nothing is refused: %v", err)
		return errNoRoom
	}
	return err
}

func TestNothingGetsWiderUnasked(t *testing.T) {
	ctx := t.Context()
	for release := range exports {
		db := memory(t)
		p := plan(t, release)
		require.Positive(t, p.Report.Wider(), release)
		require.ErrorIs(t, p.Import(ctx, db.Keys, nil), keysimport.ErrWider)
		require.Nil(t, p.Report.Imported)
		page, err := db.Keys.Teams(ctx, keys.ListTeams{})
		require.NoError(t, err)
		require.Empty(t, page.Teams, "nothing was imported")
	}
}

func TestAnImportIsRepeatable(t *testing.T) {
	ctx := t.Context()
	for release := range exports {
		db := memory(t)
		first := plan(t, release)
		require.NoError(t, first.Import(ctx, db.Keys, allow))
		require.Equal(t, first.Rows.Count(), first.Report.Imported.Added)
		again := plan(t, release)
		require.NoError(t, again.Import(ctx, db.Keys, allow))
		require.Equal(t, keys.Imported{Same: first.Rows.Count()}, *again.Report.Imported, "%s: the same export again changes nothing", release)

		key := first.Rows.Keys[0]
		_, err := db.Keys.UpdateKey(ctx, keys.UpdateKey{ID: key.ID, IfRevision: 1, Name: keys.Set("edited")})
		require.NoError(t, err)
		var conflict *keys.ConflictError
		require.ErrorAs(t, plan(t, release).Import(ctx, db.Keys, allow), &conflict, "an edit since is not undone")
		require.Equal(t, key.ID, conflict.ID)
	}
}

// No report, error or row that prints shows a token or its hash.
func TestNothingShowsASecret(t *testing.T) {
	for release := range exports {
		p := plan(t, release)
		var out bytes.Buffer
		require.NoError(t, p.Report.WriteJSON(&out))
		fmt.Fprintf(&out, "%+v", p.Rows)
		for _, name := range []string{"active", "expired"} {
			token := presented(release, name)
			require.NotContains(t, out.String(), token[3:])
			for _, s := range p.Rows.Secrets {
				require.NotContains(t, out.String(), fmt.Sprintf("%x", [32]byte(s.Hash)))
			}
		}
	}
}

// At most a time that the export names: an import of the same file tomorrow is the
// same import.
func TestNothingDependsOnTheClock(t *testing.T) {
	for release := range exports {
		for _, k := range plan(t, release).Rows.Keys {
			for _, at := range []*time.Time{&k.CreatedAt, &k.UpdatedAt, k.RevokedAt} {
				require.True(t, at == nil || at.Before(time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)), "%s of %s", k.ID, release)
			}
		}
	}
}
