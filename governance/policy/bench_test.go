package policy_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/tallystick-go/tallystick/governance/policy"
)

// many makes documents of three rules each, for as many teams.
func many(n int) []policy.Document {
	out := make([]policy.Document, n)
	for i := range out {
		out[i] = of(fmt.Sprintf("d%05d", i), policy.Subject{Team: fmt.Sprint("t", i)}, capped(""), rate(policy.FailOpen), allow("large", "small"))
	}
	return out
}

// Matching costs the same among ten documents and among ten thousand.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, policy.MaxDocuments} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e := mustSet(b, many(n)).Enforce(policy.Shared, policy.Enforcing{})
			b.ReportAllocs()
			for b.Loop() {
				if len(e.Match("t7", "ann")) != 3 {
					b.Fatal("no match")
				}
			}
		})
	}
}

func BenchmarkNewSet(b *testing.B) {
	documents := many(1000)
	for b.Loop() {
		mustSet(b, documents)
	}
}

// What a gateway does after an edit of one document among a thousand.
func BenchmarkRestore(b *testing.B) {
	documents := many(1000)
	s := mustSet(b, documents)
	var rows []policy.Row
	for _, d := range documents {
		text, err := json.Marshal(d)
		if err != nil {
			b.Fatal(err)
		}
		rows = append(rows, policy.Row{Name: d.Name, Text: string(text)})
	}
	for b.Loop() {
		if _, err := policy.Restore(s, policy.Mark{Generation: s.Generation()}, rows); err != nil {
			b.Fatal(err)
		}
	}
}
