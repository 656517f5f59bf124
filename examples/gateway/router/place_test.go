package router_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/keys"
)

// placed asks for the model that is served in two regions, with and without a
// guardrail, and returns what the provider got.
func (g *gateway) placed(c *client, change ...func(*bedrockruntime.ConverseInput)) (*provider.Received, error) {
	in := &bedrockruntime.ConverseInput{
		ModelId: aws.String("placed"), Messages: conversation("hello"), InferenceConfig: &types.InferenceConfiguration{MaxTokens: aws.Int32(10)},
	}
	for _, f := range change {
		f(in)
	}
	if _, err := c.bedrock().Converse(g.Context(), in); err != nil {
		return nil, err
	}
	r := <-g.arrived
	return &r, nil
}

// guardrailOf is what the provider was told to apply.
func guardrailOf(t *testing.T, r *provider.Received) string {
	t.Helper()
	var body struct {
		GuardrailConfig struct{ GuardrailIdentifier, GuardrailVersion string }
	}
	require.NoError(t, json.Unmarshal(r.Body, &body))
	return body.GuardrailConfig.GuardrailIdentifier + body.GuardrailConfig.GuardrailVersion +
		r.Header.Get("X-Amzn-Bedrock-Guardrailidentifier") + r.Header.Get("X-Amzn-Bedrock-Guardrailversion")
}

// Where a team's requests go, and behind what, follows from what the team may do.
func TestRegionAndGuardrail(t *testing.T) {
	g := newGateway(t, storages[0], time.Second)
	for name, c := range map[string]struct {
		regions   []string
		guardrail string
		model     string // us-east-1 serves the small one, eu-west-1 the large one
		applied   string
		refused   string
	}{
		"anywhere":             {nil, "", "demo-small", "", ""},
		"in one region":        {[]string{"us-east-1"}, "", "demo-small", "", ""},
		"in the other":         {[]string{"eu-west-1"}, "", "demo-large", "", ""},
		"guarded":              {nil, "strict", "demo-small", "gr-17", ""},
		"guarded in the other": {[]string{"eu-west-1"}, "strict", "demo-large", "gr-17", ""},
		"nowhere":              {[]string{}, "", "", "", "region"},
		"elsewhere":            {[]string{"ap-south-1"}, "strict", "", "", "region"},
		"behind another":       {nil, "lax", "", "", "guardrail"},
	} {
		t.Run(name, func(t *testing.T) {
			token := g.key(fmt.Sprint("k", len(name), name[:2]), roomy, func(team *keys.CreateTeam) {
				team.AllowedRegions, team.Guardrail = c.regions, c.guardrail
			})
			cl := g.clientOf(token, true)
			got, err := g.placed(cl)
			if c.refused != "" {
				var denied *types.AccessDeniedException
				require.ErrorAs(t, err, &denied)
				require.Contains(t, denied.ErrorMessage(), c.refused)
				require.Equal(t, int64(1), cl.sent.Load())
				g.nothingArrived()
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.model, got.Model)
			require.Equal(t, c.applied, guardrailOf(t, got))
			if c.guardrail == "" {
				return
			}
			// A client cannot choose another one, nor leave it out.
			got, err = g.placed(cl, func(in *bedrockruntime.ConverseInput) {
				in.GuardrailConfig = &types.GuardrailConfiguration{GuardrailIdentifier: aws.String("mine"), GuardrailVersion: aws.String("1")}
			})
			require.NoError(t, err)
			require.Equal(t, c.applied, guardrailOf(t, got))
			_, err = cl.bedrock().InvokeModel(t.Context(), &bedrockruntime.InvokeModelInput{
				ModelId: aws.String("placed"), Body: native("hello", 10), GuardrailIdentifier: aws.String("mine"), GuardrailVersion: aws.String("1"),
			})
			require.NoError(t, err)
			r := <-g.arrived
			require.Equal(t, c.applied, guardrailOf(t, &r))
		})
	}
	g.permits()
	g.balanced()
}

// An edit of where a team may go is in force for its next request, whatever the
// gateway remembers of it: neither is an old permission used nor an old refusal kept.
func TestRegionEditsAreInForceAtOnce(t *testing.T) {
	for _, s := range storages {
		t.Run(s.name, func(t *testing.T) {
			g := newGateway(t, s, time.Second)
			token := g.key("app", roomy, func(team *keys.CreateTeam) { team.AllowedRegions = []string{"us-east-1"} })
			c := g.clientOf(token, true)
			move := func(regions ...string) {
				team, err := g.stores.Keys.Team(t.Context(), "team-app")
				require.NoError(t, err)
				_, err = g.stores.Keys.UpdateTeam(t.Context(), keys.UpdateTeam{ID: "team-app", IfRevision: team.Revision, AllowedRegions: keys.Set(regions)})
				require.NoError(t, err)
			}
			got, err := g.placed(c)
			require.NoError(t, err)
			require.Equal(t, "demo-small", got.Model)
			move("eu-west-1")
			got, err = g.placed(c)
			require.NoError(t, err, "what was chosen for the old region is asked again, by the SDK itself")
			require.Equal(t, "demo-large", got.Model)
			move("ap-south-1")
			_, err = g.placed(c)
			require.Error(t, err)
			move("us-east-1")
			got, err = g.placed(c)
			require.NoError(t, err)
			require.Equal(t, "demo-small", got.Model)
			g.nothingArrived()
			g.permits()
			g.balanced()
		})
	}
}
