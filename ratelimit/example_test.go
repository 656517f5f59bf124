package ratelimit_test

import (
	"fmt"
	"time"

	"github.com/tallystick-go/tallystick/ratelimit"
)

// A bucket under a limit of 600 tokens per minute: reserve the bound of a call, then
// settle it with what the call used.
func Example() {
	var (
		b     ratelimit.Bucket
		limit = ratelimit.Per(600)
		now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	)
	seq, v, _ := b.Admit(now, limit, 500)
	fmt.Println("500:", v.OK)

	_, v, _ = b.Admit(now, limit, 200)
	fmt.Println("200:", v.OK, "retry after", v.RetryAfter)

	returned, _ := b.Return(seq, 500, 120) // it used 120
	fmt.Println("returned:", returned)

	_, v, _ = b.Admit(now, limit, 200)
	fmt.Println("200:", v.OK)

	_, v, _ = b.Admit(now, limit, 601)
	fmt.Println("601:", v.OK, "never", v.Never)

	bytes, _ := b.AppendBinary(nil)
	var again ratelimit.Bucket
	_ = again.UnmarshalBinary(bytes)
	debt, _ := again.Debt(now+10_000_000, limit)
	fmt.Println("held ten seconds later:", debt)
	// Output:
	// 500: true
	// 200: false retry after 10s
	// returned: 380
	// 200: true
	// 601: false never true
	// held ten seconds later: 220
}

func ExampleLimiter() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	limiter, err := ratelimit.NewLimiter(ratelimit.Per(2), &ratelimit.LimiterOptions{
		Now: func() time.Time { return now }, // leave it out to use the real clock
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		v, err := limiter.Allow("alice", 1)
		fmt.Println(v.OK, v.RetryAfter, err)
	}
	// Output:
	// true 0s <nil>
	// true 0s <nil>
	// false 30s <nil>
}
