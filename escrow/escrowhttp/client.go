package escrowhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
)

// ClientOptions say how a node reaches its authority. URL is required; nil and zero fields
// are the defaults.
type ClientOptions struct {
	// URL is the authority's address, such as https://control.example.com; Path is added.
	URL string
	// Token returns what the node presents. It is asked before every heartbeat, so that
	// a token can be changed under a running node. Nil: the transport presents a
	// certificate.
	Token func() (string, error)
	// AllowPlaintext allows http to other machines.
	AllowPlaintext bool
	// Transport carries the requests. Default: one of its own, with TLS as Go has it. For
	// client certificates give one with a tls.Config. It must not follow redirects by
	// itself, as http.Transport does not.
	Transport http.RoundTripper
	// Timeout bounds one heartbeat, from the connection to the end of the answer. Default 10 s.
	Timeout time.Duration
}

// Client asks an authority over HTTP.
//
// Concurrency: safe for concurrent use.
//
// Source: ADR-045 "Failure and operational boundaries".
type Client struct {
	url   string
	token func() (string, error)
	http  *http.Client
	most  int64 // bytes of an answer
}

var _ escrow.Authority = (*Client)(nil)

// NewClient makes a client. It does no I/O.
//
// Errors: one that says what of the options cannot be used.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("escrowhttp: the URL of the authority must be like https://control.example.com")
	case u.User != nil:
		return nil, errors.New("escrowhttp: the URL of the authority must not carry a name or password: that is what the token is for")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("escrowhttp: the URL of the authority must end with its path")
	case u.Scheme == "http" && !loopback(u.Hostname()) && !o.AllowPlaintext:
		return nil, errors.New("escrowhttp: the URL of the authority must be https: the token would go over the network in plain text")
	case o.Timeout < 0:
		return nil, errors.New("escrowhttp: options.timeout must not be negative; zero is the default")
	case o.Timeout == 0:
		o.Timeout = 10 * time.Second
	}
	if o.Transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.DisableCompression = true // the bound is of what is read, not of what came
		own.MaxResponseHeaderBytes = 64 << 10
		own.MaxIdleConnsPerHost = 1
		o.Transport = own
	}
	return &Client{
		url: strings.TrimSuffix(u.String(), "/") + Path, token: o.Token, most: escrow.MaxAnswerBytes,
		http: &http.Client{
			Transport: o.Transport, Timeout: o.Timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes the connections that wait for the next heartbeat.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Beat sends a heartbeat and waits for the answer.
//
// Retry: as escrow.Authority says.
// Errors: those of escrow.Authority, as the other side had them; ErrDenied; ErrUnavailable
// together with the context's error. An answer in other words than the protocol's is
// ErrIncompatible, unless it is an outage of something in between.
//
// Source: ADR-045 "Failure and operational boundaries".
func (c *Client) Beat(ctx context.Context, h *escrow.Heartbeat) (*escrow.Answer, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(h)
	if err != nil {
		return nil, &escrow.Error{Why: "does not encode"}
	}
	if len(data) > escrow.MaxHeartbeatBytes {
		return nil, &escrow.Error{Field: "heartbeat", Why: fmt.Sprintf("must be at most %d bytes", escrow.MaxHeartbeatBytes)}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(data))
	if err != nil {
		return nil, unanswered(err)
	}
	r.Header.Set("Content-Type", ContentType)
	r.Header.Set("Accept", ContentType)
	if c.token != nil {
		token, err := c.token()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDenied, err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w, err := c.http.Do(r)
	if err != nil {
		return nil, unanswered(err)
	}
	defer w.Body.Close()
	return c.read(w)
}

// read reads what came back.
func (c *Client) read(w *http.Response) (*escrow.Answer, error) {
	encoding := w.Header.Get("Content-Encoding")
	ours := spoken(w.Header.Get("Content-Type")) && (encoding == "" || strings.EqualFold(encoding, "identity"))
	most := int64(maxFailureBytes)
	if ours && w.StatusCode == http.StatusOK {
		most = c.most
	}
	data, err := io.ReadAll(io.LimitReader(w.Body, most+1))
	switch {
	case err != nil:
		return nil, unanswered(err)
	case !ours:
		return nil, foreign(w.StatusCode)
	case int64(len(data)) > most:
		return nil, fmt.Errorf("%w: an answer of more than %d bytes", escrow.ErrIncompatible, most)
	case w.StatusCode != http.StatusOK:
		if err, is := decodeFailure(w.StatusCode, data); is {
			return nil, err
		}
		return nil, foreign(w.StatusCode)
	}
	a := new(escrow.Answer)
	if err := decode(data, a); err != nil {
		return nil, fmt.Errorf("%w: %v", escrow.ErrIncompatible, err) // not %w: an *escrow.Error is about what we said
	}
	return a, nil
}
