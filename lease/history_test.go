package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func shows(origin string, g Generation) Row {
	return Row{Name: "n", Origin: origin, Generation: g, Holder: "a"}
}

func TestHistory(t *testing.T) {
	claim, mine := Claim{Name: "n"}, Lease{Name: "n", Holder: "a", Generation: 5}
	seen := func() (*History, Mark) {
		h := &History{}
		_, err := h.Acquired(claim, h.Mark("n"), Answer{shows("x", 5), true})
		require.NoError(t, err)
		return h, h.Mark("n")
	}
	h, m := seen()
	require.Equal(t, Mark{"x", 5}, m)
	require.Equal(t, Mark{"x", 0}, h.Mark("another name"))
	for name, try := range map[string]func(h *History, m Mark, r Row) error{
		"acquired": func(h *History, m Mark, r Row) error {
			_, err := h.Acquired(claim, m, Answer{r, false})
			return err
		},
		"renewed": func(h *History, m Mark, r Row) error { _, err := h.Renewed(mine, m, Answer{r, true}); return err },
		"released": func(h *History, m Mark, r Row) error {
			return h.Released(mine, m, Answer{r, true})
		},
		"looked": func(h *History, m Mark, r Row) error { _, err := h.Looked(m, r); return err },
	} {
		t.Run(name, func(t *testing.T) {
			h, m := seen()
			require.NotErrorIs(t, try(h, m, shows("x", 5)), ErrHistoryRegressed, "the same")
			require.ErrorIs(t, try(h, m, shows("x", 4)), ErrHistoryRegressed, "less")
			require.ErrorIs(t, try(h, m, shows("x", 0)), ErrHistoryRegressed, "nothing")
			require.ErrorIs(t, try(h, m, shows("y", 6)), ErrHistoryRegressed, "more, of another origin")
			require.Equal(t, Mark{"x", 5}, h.Mark("n"), "what is refused is not remembered")
			require.NotErrorIs(t, try(h, m, shows("x", 6)), ErrHistoryRegressed, "more")
			require.Equal(t, Mark{"x", 6}, h.Mark("n"))
			require.NotErrorIs(t, try(h, m, shows("x", 5)), ErrHistoryRegressed, "an answer that was overtaken: its statement was sent before 6 was seen")
			require.Equal(t, Mark{"x", 6}, h.Mark("n"))
		})
	}
	_, err := h.Acquired(claim, m, Answer{shows("x", 5), true})
	require.ErrorIs(t, err, ErrHistoryRegressed, "an acquisition that raised nothing")

	// A lease that another History saw granted was seen all the same.
	fresh := &History{}
	_, err = fresh.Renewed(mine, fresh.Mark("n"), Answer{shows("", 4), false})
	require.ErrorIs(t, err, ErrHistoryRegressed)
	err = fresh.Released(mine, fresh.Mark("n"), Answer{shows("", 4), false})
	require.ErrorIs(t, err, ErrHistoryRegressed)
}

func TestWhatAnAnswerMeans(t *testing.T) {
	h := &History{}
	mine := Lease{Name: "n", Holder: "a", Generation: 2}
	row := func(holder string, g Generation) Row { return Row{Name: "n", Holder: holder, Generation: g} }
	_, err := h.Acquired(Claim{Name: "n", Holder: "a"}, Mark{}, Answer{row("b", 2), false})
	require.ErrorIs(t, err, ErrHeld)
	_, err = h.Renewed(mine, Mark{}, Answer{row("a", 2), false})
	require.ErrorIs(t, err, ErrLost)
	require.ErrorContains(t, err, "it lapsed")
	_, err = h.Renewed(mine, Mark{}, Answer{row("b", 3), false})
	require.ErrorContains(t, err, "generation 3 was acquired since")
	_, err = h.Renewed(mine, Mark{}, Answer{row("", 2), false})
	require.ErrorContains(t, err, "it was released")
	require.NoError(t, h.Released(mine, Mark{}, Answer{row("", 2), true}))
	require.NoError(t, h.Released(mine, Mark{}, Answer{row("", 2), false}), "already")
	require.ErrorIs(t, h.Released(mine, Mark{}, Answer{row("", 3), false}), ErrLost, "another had it since")
	require.ErrorIs(t, h.Released(mine, Mark{}, Answer{row("b", 3), false}), ErrLost)
	anyOfMine := Lease{Name: "n", Holder: "a"}
	require.NoError(t, h.Released(anyOfMine, Mark{}, Answer{row("", 3), false}))
	require.NoError(t, h.Released(anyOfMine, Mark{}, Answer{Row{Name: "n"}, false}), "never acquired")
	require.ErrorIs(t, h.Released(anyOfMine, Mark{}, Answer{row("b", 3), false}), ErrLost)
}

func TestRowIsJudgedOnItsOwnClock(t *testing.T) {
	now := time.Unix(1000, 0)
	r := Row{Holder: "a", Generation: 1, Now: now, ExpiresAt: now.Add(time.Second)}
	require.True(t, r.Held())
	require.Equal(t, time.Second, r.Remaining())
	r.ExpiresAt = now
	require.False(t, r.Held(), "not at its end")
	r.ExpiresAt, r.Holder = now.Add(time.Second), ""
	require.False(t, r.Held())
	require.Zero(t, r.Remaining())
}

func TestHolders(t *testing.T) {
	a, b := NewHolder("pod-7"), NewHolder("pod-7")
	require.NotEqual(t, a, b, "a label is no identity")
	require.True(t, strings.HasPrefix(a, "pod-7-"))
	for _, label := range []string{"", "pod\n7", "pod\xff", strings.Repeat("ü", 500)} {
		require.NoError(t, Claim{Name: "n", Holder: NewHolder(label), TTL: DefaultTTL}.Validate(), "%q", label)
	}
}

func FuzzClaim(f *testing.F) {
	f.Add("sweep", "pod", int64(DefaultTTL))
	f.Add("", "\xff", int64(-1))
	f.Fuzz(func(t *testing.T, name, label string, ttl int64) {
		c := Claim{Name: name, Holder: NewHolder(label), TTL: time.Duration(ttl)}
		err := c.Validate()
		if err == nil {
			require.NoError(t, Lease{Name: name, Holder: c.Holder, Generation: 1}.Validate(false))
			require.NotContains(t, name+c.Holder, "\x00")
			return
		}
		require.ErrorIs(t, err, ErrInvalid)
		if len(name) > 8 {
			require.NotContains(t, err.Error(), name)
		}
	})
}

func TestStitchedClock(t *testing.T) {
	var s stitched
	read := func(mono, wall time.Duration) time.Duration {
		return s.read(mono*time.Second, wall*time.Second) / time.Second
	}
	require.EqualValues(t, 1, read(1, 1))
	require.EqualValues(t, 601, read(2, 601), "asleep: only the wall clock went on")
	require.EqualValues(t, 602, read(3, 100), "the wall clock was set back")
	require.EqualValues(t, 603, read(4, 101))
	require.EqualValues(t, 700, read(5, 198), "and forward")
	require.EqualValues(t, 700, read(5, 198))
	require.EqualValues(t, 700, read(4, 150), "nothing sets it back")
	a := SinceBoot()
	require.GreaterOrEqual(t, SinceBoot(), a)
	require.Positive(t, a)
}
