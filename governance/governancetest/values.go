package governancetest

import (
	"bytes"
	"errors"
	"math"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/quota"
	"github.com/tallystick-go/tallystick/ratelimit"
)

func valuesCases() []scenario {
	return []scenario{
		{name: "AmountsOf63Bits", run: valuesAmounts},
		{name: "PermitsWithExtremes", run: valuesPermits},
		{name: "TermsAreOpaque", run: valuesTerms},
		{name: "Buckets", run: valuesBuckets},
		{name: "Slots", run: valuesSlots},
		{name: "WindowsBefore1970", run: valuesWindows},
		{name: "CorruptStateIsRefused", run: valuesCorrupt},
		{name: "CorruptTermsAreRefused", run: valuesCorruptTerms},
	}
}

func valuesAmounts(e *env) {
	e.tampered = true
	w := e.today()
	for _, n := range []int64{0, 1, math.MaxInt32, math.MaxInt32 + 1, 3_542_971_632, math.MaxUint32 + 1, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64} {
		c := account(cid(1), w, quota.Account{Consumed: n, Uncertain: n - 1, Reserved: n, Granted: n, Observed: n})
		c.Entries = n
		c.Account.Uncertain = max(c.Account.Uncertain, 0)
		e.write(&governance.Changes{Cells: []governance.Cell{c}})
		e.equal("cell", e.describeCell(pointer(e.cell(c.Key))), e.describeCell(&c))
	}
}

func valuesPermits(e *env) {
	rec := e.newRecord(governance.BatchID{})
	copy(rec.Owner[:], bytes.Repeat([]byte{255}, 16))
	rec.Fingerprint = governance.Fingerprint{}
	rec.Tokens, rec.Cost, rec.Segments = math.MaxInt64, math.MaxInt64, nil
	rec.Flags = math.MaxUint16
	id := e.admitted([]governance.Record{rec})
	have := e.record(rec.ID)
	rec.Batch, rec.Terms = id, []byte("terms of the batch")
	e.equal("permit", describeRecord(&have), describeRecord(&rec))

	for _, change := range []func(rec *governance.Record){ // what no Governor begins with
		func(rec *governance.Record) { rec.At = 5 }, func(rec *governance.Record) { rec.EndedAt = 7 },
		func(rec *governance.Record) { rec.Version = math.MaxInt32 - 1 }, func(rec *governance.Record) { rec.State = governance.StateSettled },
		func(rec *governance.Record) { rec.Outcome = governance.Used(1, 2) }, func(rec *governance.Record) { rec.Resolution = governance.Used(3, 4) },
	} {
		other, plain := e.newRecord(governance.BatchID{}), e.newRecord(governance.BatchID{})
		change(&other)
		other.Batch = e.admitted([]governance.Record{other, plain})
		plain.Batch, other.Terms, plain.Terms = other.Batch, rec.Terms, rec.Terms
		e.equal("permit", describeRecord(pointer(e.record(other.ID))), describeRecord(&other))
		e.equal("permit beside it", describeRecord(pointer(e.record(plain.ID))), describeRecord(&plain))
	}

	rec.State, rec.EndedAt, rec.Version = governance.StateResolved, math.MaxInt64, 2
	rec.Segments = bytes.Repeat([]byte{0, 255}, 600)
	rec.Outcome = governance.Outcome{Tokens: governance.Measure{Certainty: governance.Impossible}, Cost: governance.Measure{Value: int64(governance.MaxCost)}}
	rec.Resolution = governance.Used(governance.MaxTokens, governance.MaxCost)
	e.write(&governance.Changes{Permits: []governance.Record{rec}})
	have = e.record(rec.ID)
	e.equal("permit", describeRecord(&have), describeRecord(&rec))

	rec.Version, rec.Outcome, rec.Resolution, rec.Flags, rec.Segments = 3, governance.NotSent(), governance.Outcome{}, 0, nil
	e.write(&governance.Changes{Permits: []governance.Record{rec}})
	have = e.record(rec.ID)
	e.equal("permit", describeRecord(&have), describeRecord(&rec))
}

func valuesTerms(e *env) {
	e.tampered = true
	b := &governance.Batch{ID: e.batchID(), At: e.now(), Terms: [][]byte{
		{}, {0}, []byte("'; DROP TABLE permits; --"), bytes.Repeat([]byte{0, 1, 254, 255}, 4000), {0}, []byte("ä€😀\x00\xff"),
	}}
	for i := range b.Terms {
		rec := e.newRecord(b.ID)
		rec.TermsIndex = i
		b.Permits = append(b.Permits, rec)
	}
	e.write(&governance.Changes{Batch: b})
	for i := range b.Permits {
		if have := e.record(b.Permits[i].ID).Terms; !bytes.Equal(have, b.Terms[i]) {
			e.Fatalf("terms %d are %q, want %q", i, have, b.Terms[i])
		}
	}
}

func valuesBuckets(e *env) {
	e.tampered = true
	limit := ratelimit.Limit{PerMinute: 60, Burst: 1 << 40}
	c := governance.Cell{Key: governance.AccountKey{Constraint: cid(1)}, End: math.MaxInt64, Kind: governance.KindTokenRate}
	now := e.now()
	for i := range int64(300) { // as many segments as a bucket keeps, and the largest encoding
		if _, v, err := c.Bucket.Admit(now+i*1000, limit, 1_000_000+i*i*100); err != nil || !v.OK {
			e.Fatalf("admit %d: %+v %v", i, v, err)
		}
		if i%40 == 0 || i == 299 {
			saved := c
			saved.Bucket = c.Bucket.Clone()
			e.write(&governance.Changes{Cells: []governance.Cell{saved}})
			e.equal("bucket", e.describeCell(pointer(e.cell(c.Key))), e.describeCell(&c))
		}
	}
}

func valuesSlots(e *env) {
	e.tampered = true
	c := governance.Cell{Key: governance.AccountKey{Constraint: cid(1)}, End: math.MaxInt64, Kind: governance.KindConcurrency}
	c.Slots.Holders = []governance.SlotHolder{{Incarnation: 1, Count: 1, Expires: 0}, {Incarnation: math.MaxUint64, Count: 1 << 40, Expires: math.MaxInt64}}
	saved := c
	saved.Slots = c.Slots.Clone()
	e.write(&governance.Changes{Cells: []governance.Cell{saved}})
	e.equal("slots", e.describeCell(pointer(e.cell(c.Key))), e.describeCell(&c))
	c.Slots = governance.Slots{}
	e.write(&governance.Changes{Cells: []governance.Cell{c}})
	e.equal("slots", e.describeCell(pointer(e.cell(c.Key))), e.describeCell(&c))
}

func valuesWindows(e *env) {
	e.tampered = true
	w := quota.Window{Start: -62_135_596_800_000_000, End: -1}
	c := account(cid(1), w, quota.Account{Consumed: 3})
	e.write(&governance.Changes{Cells: []governance.Cell{c}})
	l, err := e.store.View(e.ctx, e.plan(cid(1)))
	e.ok(err)
	e.equal("window", l.Current[0].Window, w)
	e.equal("consumed", l.Current[0].Cell.Account.Consumed, int64(3))
}

// valuesCorrupt writes slots that no version of the library writes. A store that
// encodes them must refuse them when it reads; none may turn them into others.
func valuesCorrupt(e *env) {
	e.tampered = true
	c := governance.Cell{Key: governance.AccountKey{Constraint: cid(1)}, End: math.MaxInt64, Kind: governance.KindConcurrency}
	c.Slots.Holders = []governance.SlotHolder{{Incarnation: 5, Count: 1}, {Incarnation: 5, Count: 1}}
	saved := c
	saved.Slots = c.Slots.Clone()
	e.write(&governance.Changes{Cells: []governance.Cell{saved}})
	l, err := e.store.View(e.ctx, e.plan(cid(1)))
	if err != nil {
		e.is(err, governance.ErrCorrupt)
	} else {
		e.equal("slots", e.describeCell(&l.Current[0].Cell), e.describeCell(&c))
	}
	called := false
	err = e.store.Step(e.ctx, e.plan(cid(1)), func(*governance.Loaded) *governance.Changes { called = true; return nil })
	if err != nil {
		e.is(err, governance.ErrCorrupt)
		e.equal("decide was called", called, false)
	}
}

func valuesCorruptTerms(e *env) {
	e.tampered = true
	rec := e.newRecord(governance.BatchID{})
	c := account(cid(1), e.today(), quota.Account{Reserved: 10})
	e.admitted([]governance.Record{rec}, c)
	_, err := e.g.Holds(e.ctx, governance.HoldQuery{})
	e.is(err, governance.ErrCorrupt)
	_, err = e.g.Resolve(e.ctx, governance.Evidence{ID: rec.ID, Outcome: governance.NotSent(), Actor: "ops", Reason: "test"})
	e.is(err, governance.ErrCorrupt)
	if _, err = e.g.Verify(e.ctx, governance.VerifyQuery{}); !errors.Is(err, governance.ErrCorrupt) {
		e.Fatalf("Verify over terms that cannot be read: %v", err)
	}
}
