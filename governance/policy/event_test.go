package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
)

func events() []policy.Event {
	mark := policy.Mark{Namespace: policy.Namespace{1, 2, 3}, Generation: policy.Generation{4, 5}, Revision: 6}
	return policy.Events(mark, []policy.Row{{Name: "a", Text: "{}"}}, []string{"b"})
}

func TestEvents(t *testing.T) {
	require.Empty(t, policy.Events(policy.Mark{}, nil, nil))
	list := events()
	require.Len(t, list, 2)
	require.Equal(t, "policies/6/b", list[0].ID)
	require.Equal(t, "policies/6/a", list[1].ID)
	removed, err := policy.ParseEvent(list[0].Type, list[0].Data)
	require.NoError(t, err)
	require.Equal(t, policy.Told{Type: policy.EventRemoved, Name: "b", Mark: policy.Mark{Namespace: policy.Namespace{1, 2, 3}, Generation: policy.Generation{4, 5}, Revision: 6}}, removed)
	applied, err := policy.ParseEvent(list[1].Type, list[1].Data)
	require.NoError(t, err)
	require.Equal(t, policy.EventApplied, applied.Type)
	require.Equal(t, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", applied.Digest, "SHA-256 of {}")
}

func TestParseEventRefuses(t *testing.T) {
	change := func(i int, name string, v any) error {
		e := events()[i]
		var fields map[string]any
		require.NoError(t, json.Unmarshal(e.Data, &fields))
		if fields[name] = v; v == nil {
			delete(fields, name)
		}
		data, err := json.Marshal(fields)
		require.NoError(t, err)
		_, err = policy.ParseEvent(e.Type, data)
		return err
	}
	for _, name := range []string{"name", "digest", "namespace", "generation", "revision"} {
		var e *policy.Error
		require.ErrorAs(t, change(1, name, nil), &e, name)
		require.Equal(t, name, e.Path)
	}
	for name, v := range map[string]any{"name": "no/name", "digest": "ab", "namespace": "0102", "generation": "x", "revision": 0} {
		var e *policy.Error
		require.ErrorAs(t, change(1, name, v), &e, name)
		require.Equal(t, name, e.Path)
	}
	require.NoError(t, change(0, "later", "a field of a later version"))
	for _, data := range []string{"", "null", "[]", `{"name":"a","name":"b"}`} {
		_, err := policy.ParseEvent(policy.EventApplied, []byte(data))
		require.ErrorIs(t, err, policy.ErrInvalid, data)
	}
	_, err := policy.ParseEvent("policy.forgotten", events()[0].Data)
	require.ErrorIs(t, err, policy.ErrInvalid)
}

// FuzzParseEvent: what is read names a document and a state, whatever was written.
func FuzzParseEvent(f *testing.F) {
	for _, e := range events() {
		f.Add(e.Type, e.Data)
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		told, err := policy.ParseEvent(kind, data)
		if err != nil {
			require.ErrorIs(t, err, policy.ErrInvalid)
			require.Zero(t, told)
			return
		}
		require.Equal(t, kind, told.Type)
		require.NotEmpty(t, told.Name)
		require.GreaterOrEqual(t, told.Revision, int64(1))
		require.Equal(t, kind == policy.EventApplied, told.Digest != "")
	})
}
