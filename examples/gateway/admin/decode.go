package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fields decodes one JSON object by exact names, each at most once, none unknown.
func fields(data []byte, targets map[string]any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return invalid("", "must be a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		name, ok := token.(string)
		var raw json.RawMessage
		if err != nil || !ok || d.Decode(&raw) != nil {
			return invalid("", "must be a JSON object")
		}
		target, known := targets[name]
		switch {
		case !known && len(name) <= 64 && strconv.Quote(name) == `"`+name+`"`:
			return invalid(name, "unknown field")
		case !known:
			return invalid("", "unknown field")
		case seen[name]:
			return invalid(name, "stands here twice")
		}
		seen[name] = true
		if err := value(name, raw, target); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return invalid("", "must be a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalid("", "must be one JSON object")
	}
	return nil
}

func value(name string, raw json.RawMessage, target any) error {
	if nested, ok := target.(map[string]any); ok {
		err := fields(raw, nested)
		var p *Problem
		if errors.As(err, &p) {
			path := name
			if p.Field != "" {
				path += "." + p.Field
			}
			return invalid(path, p.Message)
		}
		return err
	}
	if bytes.Equal(raw, []byte("null")) {
		return invalid(name, "must not be null")
	}
	if json.Unmarshal(raw, target) == nil {
		return nil
	}
	switch target.(type) {
	case *int64:
		return invalid(name, "must be a whole number that fits 64 bits")
	case *bool:
		return invalid(name, "must be true or false")
	case *[]string:
		return invalid(name, "must be a list of texts")
	case *time.Time:
		return invalid(name, "must be an RFC 3339 time")
	}
	return invalid(name, "must be a text")
}

// parameters reads the query: each name at most once, none unknown.
func (c *call) parameters(targets map[string]any) error {
	query, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return invalid("", "the parameters are not well formed")
	}
	for name, values := range query {
		target, known := targets[name]
		if !known {
			names := make([]string, 0, len(targets))
			for n := range targets {
				names = append(names, n)
			}
			slices.Sort(names)
			if len(names) == 0 {
				return invalid("", "this request has no parameters")
			}
			return invalid("", "unknown parameter; known are: "+strings.Join(names, ", "))
		}
		if len(values) != 1 {
			return invalid(name, "stands here twice")
		}
		var err error
		switch t := target.(type) {
		case *string:
			*t = values[0]
		case *int:
			*t, err = strconv.Atoi(values[0])
		case *int64:
			*t, err = strconv.ParseInt(values[0], 10, 64)
		case *bool:
			*t, err = strconv.ParseBool(values[0])
		}
		if err != nil {
			return invalid(name, "is not what this parameter takes")
		}
	}
	return nil
}
