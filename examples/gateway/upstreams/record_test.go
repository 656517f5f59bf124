package upstreams

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
)

// records draws what gateways may have written.
var records = rapid.Custom(func(t *rapid.T) Record {
	text := rapid.SampledFrom([]string{"", "a", "b"})
	return Record{
		Registration: Registration{
			Name: text.Draw(t, "name"), Protocol: text.Draw(t, "protocol"), BaseURL: text.Draw(t, "url"), Credential: text.Draw(t, "credential"),
			Models: rapid.SliceOfN(text, 0, 2).Draw(t, "models"), Region: text.Draw(t, "region"), TTLMS: rapid.Int64Range(0, 2).Draw(t, "ttl"),
			NoStreamUsage: rapid.Bool().Draw(t, "usage"), Decision: Decision{Actor: text.Draw(t, "actor"), Reason: text.Draw(t, "reason")},
		},
		Origin: text.Draw(t, "origin"), Health: text.Draw(t, "health"), Gone: text.Draw(t, "gone"),
		RegisteredAt: time.Unix(rapid.Int64Range(0, 2).Draw(t, "at"), 0).UTC(),
	}
})

// TestPropertySaidAgain: a registration that differs in nothing but who says it, when, and what probes found, is no news; any other
// difference is. What is written reads back, and what an unreadable row is left with is its name.
func TestPropertySaidAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, n := records.Draw(t, "there"), records.Draw(t, "said")
		r.Gone = ""
		if rapid.Bool().Draw(t, "again") {
			said := r.Registration
			said.Decision = n.Decision
			n.Registration, n.Origin = said, r.Origin
		}
		plain := func(r Record) string {
			r.Decision, r.Health, r.Gone, r.RegisteredAt = Decision{}, "", "", time.Time{}
			text, err := json.Marshal(r)
			require.NoError(t, err)
			return string(text)
		}
		require.Equal(t, plain(r) == plain(n), r.same(n))
		text, err := r.encode()
		require.NoError(t, err)
		require.Equal(t, plain(r), plain(readable(r.Name, text)))
		require.Equal(t, r.Decision, readable(r.Name, text).Decision)
		for _, other := range []string{text[1:], "", "null"} {
			require.Equal(t, Record{Registration: Registration{Name: "c"}}, readable("c", other))
		}
		require.Equal(t, Record{Registration: Registration{Name: "c"}}, readable("c", text), "another's record")
		require.Equal(t, r.Name != "" && r.Protocol != "" && r.BaseURL != "" && len(r.Models) > 0, r.whole())
	})
}

// TestMendedIsNotDeclined: what this gateway registers itself it knows before the log tells of the event without a record that came earlier.
func TestMendedIsNotDeclined(t *testing.T) {
	u := New(nil, configured(t), func() {})
	u.view.Begin()
	u.view.Replace(map[string]coordination.Versioned[Record]{})
	r := Record{Registration: Registration{Name: "gpu", Protocol: config.OpenAI, BaseURL: "https://gpu.example.com", Models: []string{"llama"}, Credential: "inference"}}
	text, err := r.encode()
	require.NoError(t, err)
	tells := func(version int64, data string) error {
		return u.apply(t.Context(), eventlog.Recorded{Event: eventlog.Event{Type: registered, Data: []byte(data)}, Stream: stream + "gpu", Version: version})
	}
	u.put("gpu", 2, r)
	require.ErrorIs(t, tells(1, "{"), eventlog.ErrDeclined)
	require.Empty(t, u.Declined())
	require.NoError(t, tells(2, text))
	require.Empty(t, u.Declined())
	require.ErrorIs(t, tells(3, "{"), eventlog.ErrDeclined)
	require.Contains(t, u.Declined()["gpu"], "missing")
	require.NoError(t, tells(4, text))
	require.Empty(t, u.Declined())
}

func configured(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(`
profile: shared
topology_version: "1"
storage: {postgres: {dsn: env:DSN}}
upstreams: [{name: main, protocol: openai, base_url: "https://api.example.com", credential: env:KEY, models: [gpt-4o]}]
coordination: {fleet: {credentials: {inference: env:KEY}}}
`), t.TempDir(), func(string) (string, bool) { return "postgres://secret", true })
	require.NoError(t, err)
	return c
}

// TestChecked: what a registration may say, to the last value.
func TestChecked(t *testing.T) {
	c := configured(t)
	good := Registration{Name: "gpu", Protocol: config.OpenAI, BaseURL: "https://gpu.example.com", Models: []string{"llama"}, Credential: "inference"}
	field := func(change func(*Registration)) string {
		r := good
		change(&r)
		var wrong *coordination.FieldError
		if err := r.check(c); err != nil {
			require.ErrorAs(t, err, &wrong)
			return wrong.Field
		}
		require.Equal(t, config.Remote, r.Mode)
		require.Positive(t, r.TTLMS)
		return ""
	}
	for want, values := range map[string][]func(*Registration){
		"": {
			func(*Registration) {}, func(r *Registration) { r.TTLMS = 100 }, func(r *Registration) { r.TTLMS = 86_400_000 }, func(r *Registration) { r.Mode = config.Remote },
			func(r *Registration) { r.Actor = string(make200('a')) },
		},
		"ttl_ms":     {func(r *Registration) { r.TTLMS = 99 }, func(r *Registration) { r.TTLMS = 86_400_001 }, func(r *Registration) { r.TTLMS = -1 }},
		"mode":       {func(r *Registration) { r.Mode = config.Subprocess }, func(r *Registration) { r.Mode = "other" }},
		"name":       {func(r *Registration) { r.Name = "main" }, func(r *Registration) { r.Name = "" }},
		"credential": {func(r *Registration) { r.Credential = "env:KEY" }, func(r *Registration) { r.Credential = "" }},
		"models":     {func(r *Registration) { r.Models = nil }},
		"actor":      {func(r *Registration) { r.Actor = string(make200('a')) + "a" }, func(r *Registration) { r.Actor = "a\x00" }},
		"reason":     {func(r *Registration) { r.Reason = "a\nb" }},
	} {
		for i, change := range values {
			require.Equal(t, want, field(change), "%q %d", want, i)
		}
	}
}

// TestTheFileIsStrict: what is misspelt is refused, and not taken for what was left out.
func TestTheFileIsStrict(t *testing.T) {
	list, err := parseList([]byte(` [{"name": "gpu", "allow_plaintext": true, "actor": "ops"}, {"name": "other"}] `))
	require.NoError(t, err)
	require.Equal(t, []Registration{{Name: "gpu", AllowPlaintext: true, Decision: Decision{Actor: "ops"}}, {Name: "other"}}, list)
	for _, none := range []string{"[]", "null"} {
		list, err = parseList([]byte(none))
		require.NoError(t, err)
		require.Empty(t, list)
	}
	for _, text := range []string{
		"", "{}", `[{"name": "gpu", "allow_plain": true}]`, `[{"name": 1}]`, `[] []`, `[]x`, `[`,
		`[{"name": "gpu", "health": "healthy"}]`, // what probes find is nobody's to say
	} {
		_, err := parseList([]byte(text))
		require.Error(t, err, text)
	}
}

func make200(c byte) []byte {
	out := make([]byte, 200)
	for i := range out {
		out[i] = c
	}
	return out
}
