// Package loopback makes the official SDKs' clients for tests in which everything is on one
// machine and speaks plain HTTP.
package loopback

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/smithy-go/auth/bearer"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Bedrock returns AWS's client with a key, over a transport. It repeats calls as that SDK does
// unless a retryer says otherwise.
func Bedrock(url, key string, base http.RoundTripper, retryer aws.Retryer) *bedrockruntime.Client {
	return bedrockruntime.New(bedrockruntime.Options{
		BaseEndpoint: &url, Region: "us-east-1", AuthSchemePreference: []string{"httpBearerAuth"}, Retryer: retryer,
		BearerAuthTokenProvider: bearer.StaticTokenProvider{Token: bearer.Token{Value: key}}, BearerAuthSigner: plainBearer{},
		HTTPClient: &http.Client{Transport: owned{base}},
	})
}

// plainBearer puts the key on a request without TLS, which the SDK's own signer does not.
type plainBearer struct{}

func (plainBearer) SignWithBearerToken(_ context.Context, t bearer.Token, m bearer.Message) (bearer.Message, error) {
	m.(*smithyhttp.Request).Header.Set("Authorization", "Bearer "+t.Value)
	return m, nil
}

// owned sends a copy of the body. AWS's SDK closes its own as soon as an answer comes,
// which net/http, still looking for more of it, takes for a failed request: a race that
// a gateway on loopback is quick enough to win.
type owned struct{ http.RoundTripper }

func (o owned) RoundTrip(r *http.Request) (*http.Response, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	sent := r.Clone(r.Context())
	sent.Body = io.NopCloser(bytes.NewReader(data))
	return o.RoundTripper.RoundTrip(sent)
}
