package admin

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
)

// Client calls the API, over the network or in this process.
type Client struct {
	// Base is where the admin listener is, such as http://127.0.0.1:8081.
	Base string
	// Token is what operators present.
	Token string
	// Transport carries the requests. Default http.DefaultTransport. See Local.
	Transport http.RoundTripper
}

// maxAnswer is more than the largest page.
const maxAnswer = 64 << 20

// Do makes one call. path is behind Prefix; body and into may be nil.
//
// Errors: *Problem as the API answered it; others when there was no answer.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	target := strings.TrimSuffix(c.Base, "/") + Prefix + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("admin: the request does not encode: %w", err)
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, payload)
	if err != nil {
		return errors.New("admin: the address is not a URL such as http://127.0.0.1:8081")
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: c.Transport}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("admin: no answer from %s: %w", c.Base, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("admin: the answer broke off: %w", err)
	}
	if resp.StatusCode >= 300 {
		var failed struct {
			Error *Problem `json:"error"`
		}
		if json.Unmarshal(data, &failed) != nil || failed.Error == nil {
			return fmt.Errorf("admin: %s answered %s, which is not this API", c.Base, resp.Status)
		}
		failed.Error.Status = resp.StatusCode
		return failed.Error
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("admin: the answer is not understood: %w", err)
	}
	return nil
}

// Local carries requests to a handler in this process.
func Local(h http.Handler) http.RoundTripper { return local{h} }

type local struct{ handler http.Handler }

func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &recorder{header: http.Header{}}
	l.handler.ServeHTTP(w, r)
	if w.code == 0 {
		w.code = http.StatusOK
	}
	return &http.Response{
		StatusCode: w.code, Status: fmt.Sprintf("%d %s", w.code, http.StatusText(w.code)), Header: w.header,
		Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// recorder keeps an answer in memory.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}
