package eventlog_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/eventlog"
)

func isRegressed(err error) bool { return errors.Is(err, eventlog.ErrHistoryRegressed) }

// drawn is a snapshot beside the set of what had finished, of ids below 40.
func drawn(t *rapid.T, name string) (eventlog.Snapshot, map[uint64]bool) {
	top := rapid.Uint64Range(3, 30).Draw(t, name+" max")
	s := eventlog.Snapshot{Max: top, Next: top + rapid.Uint64Range(0, 5).Draw(t, name+" begun")}
	finished := map[uint64]bool{}
	for x := uint64(0); x < top; x++ {
		if x >= 3 && x < top && rapid.IntRange(0, 3).Draw(t, name) == 0 {
			s.Running = append(s.Running, x)
			continue
		}
		finished[x] = true
	}
	return s, finished
}

func TestPropertySnapshotIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, inA := drawn(t, "a")
		b, inB := drawn(t, "b")
		var more, less bool
		for x := uint64(0); x < 40; x++ {
			if a.Sees(x) != inA[x] {
				t.Fatalf("%v sees %d: %v", a, x, a.Sees(x))
			}
			if a.Open(x) != (x < a.Next && !inA[x]) {
				t.Fatalf("%v has %d open: %v", a, x, a.Open(x))
			}
			more, less = more || inA[x] && !inB[x], less || inB[x] && !inA[x]
			if n := a.Narrow(b); n.Open(x) != (a.Open(x) && !b.Sees(x)) {
				t.Fatalf("%v (next %d) narrowed by %v to %v (next %d) has %d open: %v", a, a.Next, b, n, n.Next, x, n.Open(x))
			}
		}
		want := map[[2]bool]eventlog.Relation{{false, false}: eventlog.Same, {true, false}: eventlog.After, {false, true}: eventlog.Before, {true, true}: eventlog.Concurrent}
		if got := a.Compare(b); got != want[[2]bool{more, less}] {
			t.Fatalf("%v to %v is %d", a, b, got)
		}
		if a.Empty() != (len(a.Running) == 0 && a.Next == a.Max) {
			t.Fatal("empty")
		}
		for x := range a.Oldest() {
			if !a.Sees(x) {
				t.Fatalf("%v does not see %d, older than %d", a, x, a.Oldest())
			}
		}
		if a.Sees(a.Oldest()) {
			t.Fatalf("%v sees its oldest", a)
		}
		again, err := eventlog.ParseSnapshot(a.String(), a.Next)
		if err != nil || again.Compare(a) != eventlog.Same || again.Next != a.Next || !slices.Equal(again.Running, a.Running) {
			t.Fatalf("%v is read as %v: %v", a, again, err)
		}
	})
}

func TestParseSnapshotRefuses(t *testing.T) {
	for _, bad := range []string{"", "1", "1:2", "1:2:3", "2:1:", "1:4:3,2", "1:4:2,2", "2:4:1", "1:4:4", "a:2:", "1:+2:", "01:2:", "1:2:,", "1:2::", "1:2: ", "-1:2:", "1:9223372036854775808:"} {
		_, err := eventlog.ParseSnapshot(bad, 100)
		require.ErrorIs(t, err, eventlog.ErrInvalid, bad)
	}
	_, err := eventlog.ParseSnapshot("1:5:", 4)
	require.ErrorIs(t, err, eventlog.ErrInvalid, "the next id is not before the end")
	var many strings.Builder
	for i := range eventlog.MaxOpen + 1 {
		fmt.Fprintf(&many, ",%d", i+10)
	}
	_, err = eventlog.ParseSnapshot("10:100000:"+many.String()[1:], 100000)
	require.ErrorIs(t, err, eventlog.ErrTooManyOpen)
}

func TestCursorsAreSmall(t *testing.T) {
	v := eventlog.View{Origin: eventlog.Origin{System: 7_500_000_000_000_000_000, Timeline: 3, Log: 1 << 60}, Head: 5_000_000_000, Snapshot: eventlog.Snapshot{Max: 9_000_000_000, Next: 9_000_000_003}}
	require.LessOrEqual(t, len(head(t, v).String()), 60)
	for x := range uint64(20) {
		v.Snapshot.Running = append(v.Snapshot.Running, 9_000_000_000-200+10*x)
	}
	require.LessOrEqual(t, len(head(t, v).String()), 111)
	v.Snapshot.Running = nil
	for x := range uint64(eventlog.MaxOpen) {
		v.Snapshot.Running = append(v.Snapshot.Running, 1_000_000+500_000*x)
	}
	text := head(t, v).String()
	require.LessOrEqual(t, len(text), eventlog.MaxCursor)
	_, err := eventlog.ParseCursor(text)
	require.NoError(t, err)
}

func TestParseCursorRefusesDamage(t *testing.T) {
	v := eventlog.View{Origin: eventlog.Origin{System: 7, Timeline: 3, Log: 9}, Head: 50, Snapshot: eventlog.Snapshot{Max: 90, Next: 93, Running: []uint64{70, 80}}}
	text := head(t, v).String()
	for i := range text {
		for _, b := range []byte("Az0_") {
			damaged := text[:i] + string(b) + text[i+1:]
			if damaged == text {
				continue
			}
			_, err := eventlog.ParseCursor(damaged)
			require.ErrorIs(t, err, eventlog.ErrInvalid, damaged)
		}
		_, err := eventlog.ParseCursor(text[:max(i, 1)])
		require.ErrorIs(t, err, eventlog.ErrInvalid)
	}
	var c eventlog.Cursor
	require.NoError(t, c.UnmarshalText([]byte(text)))
	again, err := c.MarshalText()
	require.NoError(t, err)
	require.Equal(t, text, string(again))
	require.ErrorIs(t, c.UnmarshalText([]byte(text+"A")), eventlog.ErrInvalid)
	require.Equal(t, text, c.String(), "what could not be read changed nothing")
	require.ErrorIs(t, c.UnmarshalText([]byte(strings.Repeat("A", eventlog.MaxCursor+1))), eventlog.ErrInvalid)
}

func FuzzParseCursor(f *testing.F) {
	v := eventlog.View{Origin: eventlog.Origin{System: 7, Timeline: 3, Log: 9}, Head: 50, Snapshot: eventlog.Snapshot{Max: 90, Next: 93, Running: []uint64{70, 80}}}
	c, err := v.At(50)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("")
	f.Add(c.String())
	f.Fuzz(func(t *testing.T, text string) {
		c, err := eventlog.ParseCursor(text)
		if err != nil {
			require.ErrorIs(t, err, eventlog.ErrInvalid)
			return
		}
		require.Equal(t, text, c.String(), "one spelling only")
		open := c.Open()
		require.True(t, slices.IsSorted(open.Running) && open.Next >= open.Max && c.Through() >= 0)
		c.Lookup()
	})
}

// FuzzCursorBody gets behind the checksum: whatever was damaged there, or made by somebody, is read as it was written or refused, and
// what is read can be used.
func FuzzCursorBody(f *testing.F) {
	sealed := func(body []byte) string {
		return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(body[:len(body):len(body)], crc32.ChecksumIEEE(body)))
	}
	body := func(c eventlog.Cursor) []byte {
		raw, err := base64.RawURLEncoding.DecodeString(c.String())
		if err != nil {
			f.Fatal(err)
		}
		return raw[:len(raw)-4]
	}
	v := eventlog.View{Origin: eventlog.Origin{System: 7, Timeline: 3, Log: 9}, Head: 50, Snapshot: eventlog.Snapshot{Max: 90, Next: 93, Running: []uint64{70, 80}}}
	c, err := v.At(50)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body(c))
	page, err := c.Page(v, 1, []eventlog.Recorded{{Position: 4}}, nil, true) // in the middle of late ones
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body(page.Next))
	f.Add(append(append([]byte{1}, make([]byte, 17)...), 0, 0, 0, 0xff, 0xff, 0x03)) // says that more are open than follow
	f.Fuzz(func(t *testing.T, body []byte) {
		text := sealed(body)
		c, err := eventlog.ParseCursor(text)
		if err != nil {
			require.ErrorIs(t, err, eventlog.ErrInvalid)
			return
		}
		require.Equal(t, text, c.String(), "one spelling only")
		open := c.Open()
		require.True(t, slices.IsSorted(open.Running) && len(open.Running) <= eventlog.MaxOpen && open.Next >= open.Max && c.Through() >= 0)
		c = c.Bring(v.Origin)
		v := v
		v.Head = max(v.Head, c.Through())
		c.Lookup()
		page, err := c.Page(v, 2, []eventlog.Recorded{{Position: 1}}, nil, true)
		require.NoError(t, err)
		again, err := eventlog.ParseCursor(page.Next.String())
		require.NoError(t, err)
		require.Equal(t, page.Next.String(), again.String())
		v.Pruned = v.Head
		past, skipped := c.Past(v)
		require.Equal(t, v.Head-c.Through(), skipped)
		require.NoError(t, past.Fit(v, true))
	})
}

func FuzzParseSnapshot(f *testing.F) {
	f.Add("10:20:10,12", uint64(25))
	f.Add("10:10:", uint64(10))
	f.Fuzz(func(t *testing.T, text string, next uint64) {
		s, err := eventlog.ParseSnapshot(text, next)
		if err != nil {
			return
		}
		for _, x := range s.Running {
			require.True(t, !s.Sees(x) && s.Open(x))
		}
		again, err := eventlog.ParseSnapshot(s.String(), next)
		require.NoError(t, err)
		require.Equal(t, eventlog.Same, s.Compare(again))
	})
}
