package httpgov

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strings"
)

// passError is an error that RoundTrip returns as it is: a client who left while
// the body was read, or routing that failed. Nothing was reserved.
type passError struct{ err error }

func (e *passError) Error() string { return e.err.Error() }
func (e *passError) Unwrap() error { return e.err }

// readBody reads a request's body, decoded, and closes it.
//
// Errors: *RequestError, *passError.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, bad("", "the body is missing")
	}
	defer r.Body.Close()
	encoding, err := contentEncoding(r.Header)
	if err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, tooLarge()
	}
	raw, err := readAtMost(r.Body, limit, r.ContentLength)
	var tooBig *http.MaxBytesError
	switch {
	case errors.As(err, &tooBig):
		return nil, tooLarge()
	case err != nil:
		return nil, &passError{err}
	case int64(len(raw)) > limit:
		return nil, tooLarge()
	}
	if encoding == "" {
		return raw, nil
	}
	decoded, err := decode(encoding, raw, limit)
	switch {
	case err != nil:
		return nil, bad("", "the body is not whole or not in the encoding that Content-Encoding names")
	case int64(len(decoded)) > limit:
		return nil, tooLarge()
	}
	return decoded, nil
}

func tooLarge() error {
	return &RequestError{Status: http.StatusRequestEntityTooLarge, Why: "the body is larger than this gateway takes"}
}

// contentEncoding returns gzip, deflate or nothing.
func contentEncoding(h http.Header) (string, error) {
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(h.Values("Content-Encoding"), ",")))
	switch encoding {
	case "", "identity":
		return "", nil
	case "gzip", "x-gzip":
		return "gzip", nil
	case "deflate":
		return encoding, nil
	}
	return "", &RequestError{
		Status: http.StatusUnsupportedMediaType,
		Why:    "the body's Content-Encoding is not known here; send it plain, or as gzip or deflate",
	}
}

// readAtMost reads one byte more than the limit at most.
func readAtMost(r io.Reader, limit, size int64) ([]byte, error) {
	var buf bytes.Buffer
	if size > 0 { // a length that is only claimed must not cost much
		buf.Grow(int(min(size, 256<<10)) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(io.LimitReader(r, limit+1))
	return buf.Bytes(), err
}

func decode(encoding string, raw []byte, limit int64) ([]byte, error) {
	in := bufio.NewReader(bytes.NewReader(raw))
	var r io.ReadCloser
	var err error
	switch {
	case encoding == "gzip":
		r, err = gzip.NewReader(in)
	case len(raw) >= 2 && raw[0]&0x0f == 8 && (int(raw[0])<<8|int(raw[1]))%31 == 0:
		r, err = zlib.NewReader(in)
	default: // what some clients call deflate
		r = flate.NewReader(in)
	}
	if err != nil {
		return nil, err
	}
	decoded, err := readAtMost(r, limit, 0)
	if err != nil || int64(len(decoded)) > limit {
		return decoded, err
	}
	if _, err := in.ReadByte(); err != io.EOF {
		return nil, errors.New("httpgov: bytes behind the end")
	}
	return decoded, nil
}
