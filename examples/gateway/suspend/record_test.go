package suspend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/eventlog"
	"github.com/tallystick-go/tallystick/examples/gateway/coordination"
)

// TestPropertySubjects: no two keys or sessions that may be suspended have one subject, and every subject fits the name of a stream.
func TestPropertySubjects(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", "aa", "a a"})
	seen := rapid.Custom(func(t *rapid.T) Record {
		return Record{Key: word.Draw(t, "key"), Session: word.Draw(t, "session"), Reason: "r", Actor: "a"}
	})
	rapid.Check(t, func(t *rapid.T) {
		one, two := seen.Draw(t, "one"), seen.Draw(t, "two")
		if one.Validate() != nil || two.Validate() != nil {
			return // refused: it has no subject
		}
		require.Equal(t, one.Key == two.Key && one.Session == two.Session, one.subject() == two.subject())
	})
	longest := Record{Key: strings.Repeat("k", longestKey), Session: strings.Repeat("s", longestSession), Reason: strings.Repeat("r", longestReason), Actor: strings.Repeat("a", longestActor)}
	require.NoError(t, longest.Validate())
	require.LessOrEqual(t, len(stream+longest.subject()), 200)
	for field, longer := range map[string]func(*Record){
		"key": func(r *Record) { r.Key += "k" }, "session": func(r *Record) { r.Session += "s" },
		"reason": func(r *Record) { r.Reason += "r" }, "actor": func(r *Record) { r.Actor += "a" },
	} {
		r := longest
		longer(&r)
		var wrong *coordination.FieldError
		require.ErrorAs(t, r.Validate(), &wrong)
		require.Equal(t, field, wrong.Field)
	}
}

// known is suspensions of which something is known, without a database.
func known(rows ...Record) *Suspensions {
	s := &Suspensions{base: &coordination.Base{}}
	table := map[string]coordination.Versioned[Record]{}
	for _, r := range rows {
		table[r.subject()] = coordination.Versioned[Record]{Version: 1, Record: r}
	}
	s.view.Begin()
	s.view.Replace(table)
	return s
}

// TestApplied: an event is taken where it is understood, by its version; one that is not is declined and changes nothing.
func TestApplied(t *testing.T) {
	s := known(Record{Key: "k", Suspended: true, Reason: "leaked"})
	event := func(kind, subject string, version int64, data string) error {
		return s.apply(t.Context(), eventlog.Recorded{Event: eventlog.Event{Type: kind, Data: []byte(data)}, Stream: subject, Version: version})
	}
	is := func(subject string) bool { r, _ := s.view.Get(subject); return r.Suspended }
	for _, declined := range []error{
		event("suspension.paused", "suspension/k", 2, `{"key":"k"}`), event(lifted, "suspension/k", 2, `{`), event(lifted, "suspension/k", 2, `{"key":"j"}`),
		event(lifted, "suspension/k", 2, `{"key":"k","session":"s"}`),
	} {
		require.ErrorIs(t, declined, eventlog.ErrDeclined)
	}
	require.NoError(t, event(lifted, "other/k", 2, `{"key":"k"}`), "none of ours")
	require.NoError(t, event(lifted, "suspension/k", 1, `{"key":"k"}`), "what is known already")
	require.True(t, is("k"))
	require.NoError(t, event(lifted, "suspension/k", 2, `{"key":"k"}`))
	require.False(t, is("k"))
	require.NoError(t, event(suspended, "suspension/k s", 1, `{"key":"k","session":"s","suspended":true}`))
	require.True(t, is("k s"))
	require.Len(t, s.List(), 1, "what was lifted is not listed")
}
