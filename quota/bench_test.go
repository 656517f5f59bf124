package quota_test

import (
	"testing"

	"github.com/tallystick-go/tallystick/quota"
)

func BenchmarkWindow(b *testing.B) {
	now := at(b, "2026-03-29T12:00:00Z")
	for name, c := range map[string]quota.Calendar{
		"utc-day":       {Period: quota.Day},
		"utc-month":     {Period: quota.Month},
		"amsterdam-day": {Period: quota.Day, Zone: "Europe/Amsterdam"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Window(now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What an admission does: compare the stored end, reserve.
func BenchmarkRollAndReserve(b *testing.B) {
	c := quota.Calendar{Period: quota.Month}
	now := at(b, "2026-03-29T12:00:00Z")
	w := window(b, c, now)
	a := quota.Account{Consumed: 10, Reserved: 20}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Roll(w, now); err != nil {
			b.Fatal(err)
		}
		if _, err := a.Reserve(1000, 5); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckRefused(b *testing.B) {
	a := quota.Account{Consumed: 990}
	b.ReportAllocs()
	for b.Loop() {
		if v := a.Check(1000, 50); v.OK {
			b.Fatal(v)
		}
	}
}
