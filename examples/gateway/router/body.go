package router

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/tallystick-go/tallystick/examples/gateway/wire"
	"github.com/tallystick-go/tallystick/governance/httpgov"
)

// body is a request's body, decoded, with the place where it names the model.
type body struct {
	data       []byte
	model      string
	start, end int    // of the model's value in data; zero: the path names the model
	action     string // what the path has behind the model
}

// readBody reads a body of at most limit bytes and finds the model, if the path does
// not name one. A wire.Error is for the client; any other error means that the client
// has left.
func readBody(r *http.Request, limit int64) (*body, *wire.Error, error) {
	if r.Body == nil {
		return nil, &wire.Error{Status: http.StatusBadRequest, Code: "invalid_request", Message: "the body is missing"}, nil
	}
	defer r.Body.Close()
	data, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, nil, err
	}
	tooLarge := &wire.Error{Status: http.StatusRequestEntityTooLarge, Code: "invalid_request", Message: "the body is larger than this gateway takes"}
	if int64(len(data)) > limit {
		return nil, tooLarge, nil
	}
	switch strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))) {
	case "", "identity":
	case "gzip":
		data, err = gunzip(data, limit)
		if err != nil {
			return nil, &wire.Error{Status: http.StatusBadRequest, Code: "invalid_request", Message: "the body is not whole, or not gzip"}, nil
		}
		if int64(len(data)) > limit {
			return nil, tooLarge, nil
		}
	default:
		return nil, &wire.Error{Status: http.StatusUnsupportedMediaType, Code: "invalid_request", Message: "send the body plain or as gzip"}, nil
	}
	b := &body{data: data}
	if model, action, ok := httpgov.ModelPath(r.URL); ok {
		b.model, b.action = model, action
		return b, nil, nil
	}
	if err := b.find(); err != nil {
		return nil, &wire.Error{Status: http.StatusBadRequest, Code: "invalid_request", Message: err.Error()}, nil
	}
	return b, nil, nil
}

func gunzip(data []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, limit+1))
}

var (
	errNoObject = errors.New("the body is not a JSON object")
	errNoModel  = errors.New("model: must be there once, as a text")
)

// find looks for the member model of the outermost object, by its exact name.
func (b *body) find() error {
	d := json.NewDecoder(bytes.NewReader(b.data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errNoObject
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return errNoObject
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return errNoObject
		}
		if name != "model" {
			continue
		}
		if b.end != 0 || json.Unmarshal(value, &b.model) != nil || b.model == "" {
			return errNoModel
		}
		b.end = int(d.InputOffset())
		b.start = b.end - len(value)
	}
	if _, err := d.Token(); err != nil {
		return errNoObject
	}
	if b.end == 0 {
		return errNoModel
	}
	return nil
}

// path returns the path for another model, as it is meant and as it is written.
func (b *body) path(asked *url.URL, base, model string) (plain, escaped string) {
	if b.action == "" {
		return base + asked.Path, ""
	}
	return base + "/model/" + model + "/" + b.action, (&url.URL{Path: base}).EscapedPath() + "/model/" + url.PathEscape(model) + "/" + b.action
}

// as returns the body with another model.
func (b *body) as(model string) []byte {
	if model == b.model || b.action != "" {
		return b.data
	}
	name, err := json.Marshal(model)
	if err != nil {
		panic("router: a name does not encode: " + err.Error())
	}
	out := make([]byte, 0, len(b.data)+len(name))
	out = append(out, b.data[:b.start]...)
	out = append(out, name...)
	return append(out, b.data[b.end:]...)
}
