package httpgov

import (
	"context"
	"io"
	"net/http"
	"net/textproto"
	"strings"
)

// withheld are headers of a client that no provider gets.
var withheld = []string{
	// Who the client is to us, and whose account it would like to use.
	"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Proxy-Authorization", "Cookie",
	"Openai-Organization", "Openai-Project", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256",
	// With one of these net/http would send the request twice under one permit.
	"Idempotency-Key", "X-Idempotency-Key",
	// Of one connection only.
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect",
}

// strip takes out of a header what must not go on, and asks for an answer that
// can be read.
func strip(h http.Header) {
	for _, names := range h.Values("Connection") {
		for name := range strings.SplitSeq(names, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	for _, name := range withheld {
		h.Del(name)
	}
	h.Set("Accept-Encoding", "identity")
}

// outgoing makes the request of an attempt: a body that can be sent once, and
// none of the headers that spoke of the old one.
func outgoing(ctx context.Context, r *http.Request, body io.ReadCloser, size int64) *http.Request {
	out := r.Clone(ctx)
	out.Body, out.ContentLength, out.GetBody = body, size, nil
	out.TransferEncoding, out.Trailer, out.Close = nil, nil, false
	strip(out.Header)
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Md5", "Digest", "Content-Digest", "Range", "If-Range"} {
		out.Header.Del(name)
	}
	if out.Header.Get("Content-Type") == "" {
		out.Header.Set("Content-Type", "application/json")
	}
	return out
}
