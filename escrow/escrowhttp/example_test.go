package escrowhttp_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/escrow/escrowhttp"
)

// A node asks an authority, which is governance.Authority in earnest.
func Example() {
	authority := &authority{}
	who, err := escrowhttp.Bearer([]escrowhttp.Token{{Node: "node-1", Value: "thirty-two-random-bytes"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler, err := escrowhttp.Handler(authority, escrowhttp.HandlerOptions{Identify: who})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	client, err := escrowhttp.NewClient(escrowhttp.ClientOptions{
		URL: server.URL, Token: func() (string, error) { return "thirty-two-random-bytes", nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	answer, err := client.Beat(context.Background(), &escrow.Heartbeat{Node: "node-1", Boot: escrow.NewBootID(), BootNumber: 1, Sequence: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("revision", answer.Mark.Revision, "of the policies,", len(answer.Grants), "grants")
	// Output: revision 1 of the policies, 0 grants
}
