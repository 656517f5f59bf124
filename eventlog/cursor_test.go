package eventlog_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tallystick-go/tallystick/eventlog"
)

// cluster is a database as far as a cursor goes: transactions take ids and positions, and end in any order.
type cluster struct {
	nextXID, done uint64 // the next id; the highest that has finished
	nextPos       int64
	open          []*transaction
	rows          []row // committed
	lastOf        map[string]*writer
}

type transaction struct {
	xid  uint64
	rows []row
}

type row struct {
	pos     int64
	xid     uint64
	stream  string
	version int64
}

// writer is who wrote the newest version of a stream.
type writer struct {
	version int64
	by      *transaction // nil: committed
	before  int64        // the committed version that it goes back to
}

func newCluster() *cluster {
	return &cluster{nextXID: 3, done: 2, nextPos: 1, lastOf: map[string]*writer{}}
}

func (c *cluster) begin() {
	c.open = append(c.open, &transaction{xid: c.nextXID})
	c.nextXID++
}

// insert appends to a stream, or does nothing where that would wait for another transaction.
func (c *cluster) insert(t *transaction, stream string) {
	w := c.lastOf[stream]
	if w == nil {
		w = &writer{}
		c.lastOf[stream] = w
	}
	if w.by != nil && w.by != t {
		return
	}
	if w.by == nil {
		w.by, w.before = t, w.version
	}
	w.version++
	t.rows = append(t.rows, row{c.nextPos, t.xid, stream, w.version})
	c.nextPos++
}

func (c *cluster) end(t *transaction, commit bool) {
	c.open = slices.DeleteFunc(c.open, func(o *transaction) bool { return o == t })
	c.done = max(c.done, t.xid)
	for _, w := range c.lastOf {
		if w.by == t {
			w.by = nil
			if !commit {
				w.version = w.before
			}
		}
	}
	if commit {
		c.rows = append(c.rows, t.rows...)
		slices.SortFunc(c.rows, func(a, b row) int { return int(a.pos - b.pos) })
	}
}

// crash ends all that is open. Ids and positions that nobody committed are handed out again.
func (c *cluster) crash(random *rand.Rand) {
	for len(c.open) > 0 {
		c.end(c.open[0], false)
	}
	xid, pos := uint64(2), int64(0)
	for _, r := range c.rows {
		xid, pos = max(xid, r.xid), max(pos, r.pos)
	}
	c.nextXID -= random.Uint64N(c.nextXID - xid)
	c.nextPos -= random.Int64N(c.nextPos - pos)
	c.done = c.nextXID - 1
}

func (c *cluster) view() eventlog.View {
	v := eventlog.View{Origin: eventlog.Origin{System: 7, Timeline: 1, Log: 9}, Snapshot: eventlog.Snapshot{Max: c.done + 1, Next: c.nextXID}}
	for _, t := range c.open {
		if t.xid < v.Snapshot.Max {
			v.Snapshot.Running = append(v.Snapshot.Running, t.xid)
		}
	}
	slices.Sort(v.Snapshot.Running)
	if len(c.rows) > 0 {
		v.Head = c.rows[len(c.rows)-1].pos
	}
	return v
}

func recorded(r row) eventlog.Recorded {
	return eventlog.Recorded{Position: r.pos, Stream: r.stream, Version: r.version}
}

// read does what a store does.
func (c *cluster) read(at eventlog.Cursor, limit int) (eventlog.Page, error) {
	l := at.Lookup()
	var late, fresh []eventlog.Recorded
	for _, r := range c.rows {
		if q := l.Late; q != nil && len(late) < limit && r.pos > q.After && r.pos <= q.Through &&
			(slices.Contains(q.Running, r.xid) || r.xid >= q.From && r.xid < q.To) && (q.Target == nil || q.Target.Sees(r.xid)) {
			late = append(late, recorded(r))
		}
		if (l.Late == nil || l.Late.Target == nil) && len(fresh) < limit && r.pos > l.After {
			fresh = append(fresh, recorded(r))
		}
	}
	return at.Page(c.view(), limit, late, fresh, false)
}

// reader follows the cluster.
type reader struct {
	cursor   eventlog.Cursor
	had      map[int64]bool
	versions map[string]int64
}

func (r *reader) take(t *rapid.T, c *cluster, limit int) (more bool) {
	page, err := c.read(r.cursor, limit)
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Events) > limit {
		t.Fatalf("a page of %d has %d events", limit, len(page.Events))
	}
	for _, e := range page.Events {
		if r.had[e.Position] {
			t.Fatalf("position %d comes twice", e.Position)
		}
		if e.Version != r.versions[e.Stream]+1 {
			t.Fatalf("version %d of %s comes after %d", e.Version, e.Stream, r.versions[e.Stream])
		}
		r.had[e.Position], r.versions[e.Stream] = true, e.Version
	}
	text := page.Next.String()
	if r.cursor, err = eventlog.ParseCursor(text); err != nil || r.cursor.String() != text {
		t.Fatalf("%v does not survive being kept: %v", page.Next, err)
	}
	return page.More
}

// drain must find all that is committed, whatever is open.
func (r *reader) drain(t *rapid.T, c *cluster, limit int) {
	for r.take(t, c, limit) {
	}
	for _, row := range c.rows {
		if !r.had[row.pos] {
			t.Fatalf("position %d of transaction %d was committed and did not come", row.pos, row.xid)
		}
	}
	if len(r.had) != len(c.rows) {
		t.Fatalf("%d events came, %d were committed", len(r.had), len(c.rows))
	}
}

// cursorAgainstModel has transactions and readers do whatever comes. The choices come from a seed: rapid's own
// prefer small numbers, with which little is open at once.
func cursorAgainstModel(t *rapid.T) {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	c := newCluster()
	var readers []*reader
	for range 3 {
		readers = append(readers, &reader{had: map[int64]bool{}, versions: map[string]int64{}})
	}
	someone := func() *transaction {
		if len(c.open) == 0 {
			c.begin()
		}
		return c.open[random.IntN(len(c.open))]
	}
	for range 150 {
		r, limit := readers[random.IntN(len(readers))], 1+random.IntN(4)
		switch random.IntN(16) {
		case 0, 1, 2:
			c.begin()
		case 3:
			c.nextXID++ // a savepoint
		case 4, 5, 6, 7:
			tx := someone()
			for range 1 + random.IntN(4) {
				c.insert(tx, string(rune('a'+random.IntN(5))))
			}
		case 8, 9:
			c.end(someone(), true)
		case 10:
			c.end(someone(), random.IntN(2) == 0)
		case 11, 12, 13:
			r.take(t, c, limit)
		case 14:
			r.drain(t, c, limit)
		case 15:
			if random.IntN(6) == 0 {
				c.crash(random)
			}
		}
	}
	for len(c.open) > 0 {
		c.end(someone(), true)
	}
	for _, r := range readers {
		r.drain(t, c, 1+random.IntN(4))
	}
}

func TestPropertyCursorAgainstAModel(t *testing.T) { rapid.Check(t, cursorAgainstModel) }

func head(t *testing.T, v eventlog.View) eventlog.Cursor {
	t.Helper()
	c, err := v.At(v.Head)
	require.NoError(t, err)
	return c
}

func TestCursorsOfOtherHistoriesAreRefused(t *testing.T) {
	v := eventlog.View{Origin: eventlog.Origin{System: 1, Timeline: 2, Log: 3}, Head: 10, Snapshot: eventlog.Snapshot{Max: 50, Next: 52, Running: []uint64{44}}}
	c := head(t, v)
	for name, change := range map[string]struct {
		do  func(*eventlog.View)
		why eventlog.Reason
	}{
		"cluster":  {func(v *eventlog.View) { v.Origin.System = 9 }, eventlog.ForeignCluster},
		"timeline": {func(v *eventlog.View) { v.Origin.Timeline = 3 }, eventlog.TimelineChanged},
		"log":      {func(v *eventlog.View) { v.Origin.Log = 9 }, eventlog.ForeignLog},
		"head":     {func(v *eventlog.View) { v.Head = 9 }, eventlog.Regressed},
		"promoted": {func(v *eventlog.View) { v.Head, v.Origin.Timeline = 9, 3 }, eventlog.Regressed},
	} {
		t.Run(name, func(t *testing.T) {
			now := v
			change.do(&now)
			_, err := c.Page(now, 1, nil, nil, false)
			var e *eventlog.ResyncError
			require.ErrorAs(t, err, &e)
			require.Equal(t, eventlog.ResyncError{Reason: change.why, Through: 10, Head: now.Head}, *e)
			require.ErrorIs(t, err, eventlog.ErrResync)
			require.Equal(t, change.why == eventlog.Regressed, isRegressed(err))
			require.NotContains(t, err.Error(), "no reason")
			_, err = eventlog.Cursor{}.Page(now, 1, nil, nil, false)
			require.NoError(t, err, "the beginning is the beginning of any history")
			_, err = c.Bring(now.Origin).Page(now, 1, nil, nil, false)
			require.Equal(t, change.why == eventlog.Regressed, err != nil, "a checkpoint went the same way as the events, but must not be ahead of them")
		})
	}
	_, err := c.Page(v, 1, nil, nil, false)
	require.NoError(t, err)
	require.True(t, eventlog.Cursor{}.Bring(v.Origin).IsZero())
}

// TestACheckpointThatRetentionPassed goes on from what is left, and what was open for it still comes.
func TestACheckpointThatRetentionPassed(t *testing.T) {
	v := eventlog.View{Origin: eventlog.Origin{Log: 9}, Head: 50, Snapshot: eventlog.Snapshot{Max: 90, Next: 93, Running: []uint64{70, 80}}}
	c, err := v.At(20)
	require.NoError(t, err)
	same, skipped := c.Past(v)
	require.Zero(t, skipped)
	require.Equal(t, c, same)
	v.Pruned, v.Snapshot = 30, eventlog.Snapshot{Max: 200, Next: 200}
	past, skipped := c.Past(v)
	require.Equal(t, int64(10), skipped)
	require.Equal(t, int64(30), past.Lookup().After)
	require.Equal(t, &eventlog.Late{Running: []uint64{70, 80}, From: 90, To: 93, Through: 30}, past.Lookup().Late)
	require.NoError(t, past.Fit(v, true))
	begin, skipped := eventlog.Cursor{}.Past(v)
	require.Equal(t, int64(30), skipped)
	require.NoError(t, begin.Fit(v, true))
}

func TestCursorsBehindRetentionAreRefused(t *testing.T) {
	v := eventlog.View{Origin: eventlog.Origin{Log: 3}, Head: 10, Snapshot: eventlog.Snapshot{Max: 50, Next: 52, Running: []uint64{44}}}
	c := head(t, v)
	later := v
	later.Pruned, later.Head, later.Snapshot = 10, 20, eventlog.Snapshot{Max: 90, Next: 90}
	for _, r := range []struct {
		name       string
		pruned     int64
		xid        uint64
		ended      bool
		registered bool
		refused    bool
	}{
		{name: "as far as it has delivered", pruned: 10, ended: true},
		{name: "further", pruned: 11, ended: true, refused: true},
		{name: "further than a checkpoint", pruned: 11, ended: true, registered: true, refused: true},
		{name: "rows of a late transaction may be among it", pruned: 10, xid: 44, ended: true, refused: true},
		{name: "of one that is still open there are none", pruned: 5, xid: 45, ended: false},
		{name: "of one that had begun and was not listed", pruned: 10, xid: 50, ended: true, refused: true},
		{name: "a checkpoint's late rows are kept", pruned: 10, xid: 60, ended: true, registered: true},
		{name: "of earlier ones", pruned: 10, xid: 43, ended: true},
	} {
		now := later
		now.Pruned, now.PrunedXID = r.pruned, r.xid
		if !r.ended {
			now.Snapshot = eventlog.Snapshot{Max: 90, Next: 90, Running: []uint64{44}}
		}
		err := c.Fit(now, r.registered)
		require.Equal(t, r.refused, err != nil, r.name)
		if err != nil {
			require.ErrorIs(t, err, eventlog.ErrPruned)
		}
	}
	require.ErrorIs(t, eventlog.Cursor{}.Fit(later, false), eventlog.ErrPruned, "the beginning is gone too")
	unlisted := head(t, eventlog.View{Origin: v.Origin, Head: 10, Snapshot: eventlog.Snapshot{Max: 50, Next: 52}})
	later.PrunedXID = 50
	require.ErrorIs(t, unlisted.Fit(later, false), eventlog.ErrPruned)
	later.PrunedXID = 49
	require.NoError(t, unlisted.Fit(later, false))
	_, err := later.At(9)
	require.ErrorIs(t, err, eventlog.ErrPruned)
	for _, wrong := range []int64{-1, 21} {
		_, err = later.At(wrong)
		require.ErrorIs(t, err, eventlog.ErrInvalid)
	}
}

func TestWitness(t *testing.T) {
	var w eventlog.Witness
	at := func(head int64, timeline uint32) eventlog.View {
		return eventlog.View{Origin: eventlog.Origin{System: 1, Timeline: timeline, Log: 1}, Head: head}
	}
	early := w.Mark()
	require.NoError(t, w.See(early, at(5, 1)))
	early = w.Mark()
	require.NoError(t, w.See(early, at(10, 1)))
	require.NoError(t, w.See(early, at(7, 1)), "a read that began before may show less")
	require.NoError(t, w.See(w.Mark(), at(10, 1)))
	require.NoError(t, w.See(w.Mark(), at(10, 2)), "another server took over, and has it all")
	mark := w.Mark()
	err := w.See(mark, at(9, 3))
	require.ErrorIs(t, err, eventlog.ErrHistoryRegressed)
	require.ErrorIs(t, err, eventlog.ErrResync)
	require.Equal(t, int64(10), w.Regressed().Through)
	require.ErrorIs(t, w.See(w.Mark(), at(30, 3)), eventlog.ErrHistoryRegressed, "it stays refused when it has grown again")
	w.Accept()
	require.Nil(t, w.Regressed())
	require.NoError(t, w.See(w.Mark(), at(9, 3)))
	require.NoError(t, w.See(w.Mark(), eventlog.View{Origin: eventlog.Origin{System: 1, Timeline: 3, Log: 2}, Head: 1}), "another log is another history")
}
