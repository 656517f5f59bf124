package quota_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/tallystick-go/tallystick/quota"
)

// A budget of 100 per day, from one midnight in Amsterdam to the next.
func Example() {
	calendar := quota.Calendar{Period: quota.Day, Zone: "Europe/Amsterdam"}
	noon := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC).UnixMicro()
	window, err := calendar.Window(noon)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(time.Duration(window.End-window.Start) * time.Microsecond)

	var account quota.Account
	account, _ = account.Reserve(100, 80)
	_, err = account.Reserve(100, 30)
	fmt.Println(errors.Is(err, quota.ErrOverLimit), account.Check(100, 30).Pending)
	account, _ = account.Settle(80, 25)
	fmt.Printf("%+v\n", account.Check(100, 30))

	next, _ := calendar.Roll(window, window.End)
	fmt.Println(next.Start == window.End, time.UnixMicro(next.End).UTC().Format(time.RFC3339))
	// Output:
	// 23h0m0s
	// true true
	// {OK:true Frozen:false Never:false Pending:false Remaining:75}
	// true 2026-03-30T22:00:00Z
}
