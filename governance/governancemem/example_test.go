package governancemem_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/keys"
)

func Example() {
	ctx := context.Background()
	st, err := governancemem.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	gov, err := governance.New(st, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer gov.Close(ctx)
	if _, err := st.Keys.CreateTeam(ctx, keys.CreateTeam{ID: "research", Limits: keys.Limits{TokensPerDay: keys.Limit(1000)}}); err != nil {
		log.Fatal(err)
	}
	made, err := st.Keys.CreateKey(ctx, keys.CreateKey{TeamID: "research"})
	if err != nil {
		log.Fatal(err)
	}
	caller, err := st.Keys.Resolve(ctx, made.Token.Reveal())
	if err != nil {
		log.Fatal(err)
	}
	request := governance.Request{Principal: &caller, Model: "small", Bound: governance.Bound{Tokens: 600}}
	for range 2 {
		reply, err := governance.Do(ctx, gov, request, func(context.Context, *governance.Permit) (string, governance.Outcome, error) {
			return "an answer", governance.Used(550, 0), nil
		})
		var refused *governance.Refusal
		if errors.As(err, &refused) {
			fmt.Println("refused:", refused.Reason, "left:", refused.Verdict.Remaining())
			continue
		}
		fmt.Println(reply, err)
	}
	// Output:
	// an answer <nil>
	// refused: quota left: 450
}
