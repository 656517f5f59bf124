package ratelimit_test

import (
	"testing"

	"github.com/tallystick-go/tallystick/internal/mutate"
)

const (
	isModel = "TestPropertyBucketIsTheModel"
	merged  = "TestPropertyMergedBucketIsConservative"
)

var mutants = []mutate.Mutant{
	{Name: "refill drops the fraction", File: "drain.go", Test: isModel,
		Old: "b.head.frac = int64(frac)\n}",
		New: "b.head.frac = 0\n}"},
	{Name: "refill overflows after a long idle time", File: "wide.go", Test: isModel,
		Old: "hi, lo := bits.Mul64(a, b)\n\treturn wide{hi, lo}",
		New: "return wide{uint64(bits.Len64(0)), a * b}"},
	{Name: "the burst itself does not fit", File: "bucket.go", Test: isModel,
		Old: "case v.Debt <= l.Burst-cost:",
		New: "case v.Debt < l.Burst-cost:"},
	{Name: "one above the burst fits", File: "bucket.go", Test: isModel,
		Old: "case v.Debt <= l.Burst-cost:",
		New: "case v.Debt <= l.Burst-cost+1:"},
	{Name: "a raised limit is retroactive", File: "bucket.go", Test: isModel,
		Old: "return min(b.rate, perMinute)",
		New: "return perMinute"},
	{Name: "a lowered limit drains old debt at the old speed", File: "bucket.go", Test: isModel,
		Old: "return min(b.rate, perMinute)",
		New: "return b.rate"},
	{Name: "a refusal is written down", File: "bucket.go", Test: isModel,
		Old: "\tv, err = b.Peek(nowMicros, l, cost)\n\tif err != nil || !v.OK || cost == 0 {\n\t\treturn 0, v, err\n\t}\n\tif b.next",
		New: "\tb.see(nowMicros, l.PerMinute)\n\tv, err = b.Peek(nowMicros, l, cost)\n\tif err != nil || !v.OK || cost == 0 {\n\t\treturn 0, v, err\n\t}\n\tif b.next"},
	{Name: "the clock going back moves the anchor back", File: "bucket.go", Test: isModel,
		Old: "\tif now > b.anchor {\n\t\tb.drain(",
		New: "\tif now != b.anchor {\n\t\tb.drain("},
	{Name: "a raise drains", File: "bucket.go", Test: isModel,
		Old: "\tb.start(nowMicros)\n\tif b.rate == unseen {",
		New: "\tb.see(nowMicros, l.PerMinute)\n\tif b.rate == unseen {"},
	{Name: "debt is drained by time before it joined", File: "bucket.go", Test: isModel,
		Old: "\tif now <= b.anchor {\n\t\treturn 0\n\t}\n\treturn now",
		New: "\treturn 0"},
	{Name: "time before a birth drains what joined then", File: "drain.go", Test: isModel,
		Old: "clock.less(at) {\n\t\t\treturn at",
		New: "clock.less(at) {\n\t\t\treturn clock"},
	{Name: "the wait is rounded down", File: "bucket.go", Test: isModel,
		Old: "need.divUp(uint64(rate))}",
		New: "need.divUp(uint64(rate)) - 1}"},
	{Name: "a drained reservation is refunded from a neighbour", File: "segments.go", Test: isModel,
		Old: "\treturn -1\n}\n\n// remove",
		New: "\treturn len(b.segments) - 1\n}\n\n// remove"},
	{Name: "a cancel returns what is drained", File: "segments.go", Test: isModel,
		Old: "s.tokens = max(0, keep-b.head.drained)",
		New: "s.tokens = keep"},
	{Name: "a smaller settlement returns all", File: "segments.go", Test: isModel,
		Old: "\tfree := amount - keep\n\ts.tokens",
		New: "\tfree := amount\n\ts.tokens"},
	{Name: "a reservation can be returned twice", File: "segments.go", Test: isModel,
		Old: "\tif s.span <= 1 {\n\t\ts.close()\n\t}\n\tif s.tokens == 0",
		New: "\tif s.span > 1 {\n\t\ts.close()\n\t}\n\tif s.tokens == 0"},
	{Name: "the newest is drained first", File: "segments.go", Test: isModel,
		Old: "\tb.segments = append(b.segments, s)\n\tif s.born",
		New: "\tb.segments = append([]segment{s}, b.segments...)\n\tif s.born"},
	{Name: "a drained segment frees more bytes than it took", File: "drain.go", Test: "TestRoomIsNeverOverstated",
		Old: "b.room += uvarintLen(", New: "b.room += 4 + uvarintLen("},
	{Name: "a merge frees more bytes than it does", File: "segments.go", Test: "TestRoomIsNeverOverstated",
		Old: "return before - b.sizeOf(i, end-1)", New: "return before - b.sizeOf(i, end-1) + 1"},
	{Name: "settled debt of another age is merged", File: "segments.go", Test: isModel,
		Old: "if tail := &b.segments[n-1]; tail.terminal() && tail.born == s.born {",
		New: "if tail := &b.segments[n-1]; tail.terminal() {"},
	{Name: "a member of a merged head gets all of it", File: "segments.go", Test: merged,
		Old: "\tif amount <= h.drained {",
		New: "\th.drained, h.drainedFrac = 0, 0\n\tif amount <= h.drained {"},
	{Name: "the head is merged into", File: "segments.go", Test: merged,
		Old: "\tplace, least := 1, int64(math.MaxInt64)\n\tbefore := b.segments[1].tokens\n\tfor i := 2;",
		New: "\tplace, least := 0, int64(math.MaxInt64)\n\tbefore := b.segments[0].tokens\n\tfor i := 1;"},
	{Name: "merged debt is as old as its older part", File: "segments.go", Test: merged,
		Old: "\tp.born = max(p.born, s.born)\n",
		New: "\tif p.born == 0 && s.born != 0 {\n\t\tb.late--\n\t}\n"},
	{Name: "the encoding forgets what the head has drained", File: "codec.go", Test: isModel,
		Old: "\t\tflags |= hasFrac\n\t}\n\tif b.head.drained != 0 || b.head.drainedFrac != 0 {",
		New: "\t\tflags |= hasFrac\n\t}\n\tif false {"},
	{Name: "the encoding forgets when debt joined", File: "codec.go", Test: isModel,
		Old: "\t\tif s.born == 0 {\n\t\t\tdst",
		New: "\t\tif true {\n\t\t\tdst"},
	{Name: "what never fits gets a wait", File: "bucket.go", Test: isModel,
		Old: "case cost > l.Burst:",
		New: "case cost > l.Burst && rate < 0:"},
}

// Every mistake makes its test fail.
func TestMutants(t *testing.T) {
	mutate.Run(t, mutate.Suite{
		Files:   []string{"property_test.go", "model_test.go", "export_test.go", "room_test.go"},
		Checks:  2000,
		Mutants: mutants,
	})
}
