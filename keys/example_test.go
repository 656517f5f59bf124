package keys_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

func ExampleMint() {
	token, err := keys.Mint(bytes.NewReader(make([]byte, 32))) // nil for real randomness
	if err != nil {
		panic(err)
	}
	fmt.Println(token)
	fmt.Println(token.Reveal())
	_, err = keys.Parse(token.Reveal() + "\n")
	fmt.Println(err)
	// Output:
	// [redacted]
	// tly_00000000000000000000000000000000000000000001N4bGd
	// keys: unknown key
}

func ExampleLimits() {
	var limits keys.Limits
	err := json.Unmarshal([]byte(`{"requests_per_minute": 60, "cost_per_month_microusd": 5000000, "tokens_per_day": null}`), &limits)
	fmt.Println(*limits.RequestsPerMinute, *limits.CostPerMonth, limits.TokensPerDay == nil, err)

	err = json.Unmarshal([]byte(`{"request_per_minute": 60}`), &limits)
	var field *keys.FieldError
	fmt.Println(errors.As(err, &field), errors.Is(err, keys.ErrInvalid), err)
	// Output:
	// 60 $5.000000 true <nil>
	// true true keys: invalid request_per_minute: unknown field
}

func ExampleUpdateKey() {
	edit := keys.UpdateKey{
		ID: "ci", IfRevision: 4,
		Limits: keys.LimitsChange{
			CostPerDay:  keys.Set(keys.Cost(amount.MicroUSD(2_000_000))),
			Concurrency: keys.Set[*int64](nil), // unlimited; what is not set stays as it is
		},
	}
	encoded, err := json.Marshal(edit)
	fmt.Println(string(encoded), err)
	// Output:
	// {"if_revision":4,"limits":{"concurrency":null,"cost_per_day_microusd":2000000}} <nil>
}

func ExampleDefinition_Check() {
	p := keys.Principal{KeyID: "ci", Key: keys.Key{Revision: 4}, Team: keys.Team{Revision: 1}}
	now := time.Now().UnixMicro()

	read := keys.Definition{Found: true, KeyRevision: 4, TeamRevision: 1}
	fmt.Println(read.Check(&p, now))
	read.KeyRevision++ // an administrator edited the key after it was resolved
	fmt.Println(read.Check(&p, now))
	read.RevokedAt = now
	fmt.Println(read.Check(&p, now))
	// Output:
	// <nil>
	// keys: changed since it was read
	// keys: revoked
}
