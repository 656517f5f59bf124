package keys

import (
	"bytes"
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"
)

// decodeObject reads one JSON object into fields, by exact name. Unlike
// encoding/json it refuses unknown names, another case, and repetitions.
func decodeObject(data []byte, fields map[string]any) error {
	return eachMember(data, func(name string, raw json.RawMessage) error {
		target, known := fields[name]
		if !known {
			// The name is the caller's text: bounded and printable, or not shown.
			if len(name) > 64 || validText("", name, 64) != nil {
				name = "field"
			}
			return refuse(name, "unknown field")
		}
		return within(name, decodeValue(raw, target))
	})
}

// eachMember calls visit for every member of one JSON object, each name once.
func eachMember(data []byte, visit func(name string, raw json.RawMessage) error) error {
	if !utf8.Valid(data) {
		return refuse("", "must be UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return refuse("", "must be a JSON object")
	}
	seen := make(map[string]bool)
	for decoder.More() {
		token, err := decoder.Token()
		name, isName := token.(string)
		if err != nil || !isName {
			return refuse("", "must be a JSON object")
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return refuse("", "must be a JSON object")
		}
		if seen[name] {
			return refuse("", "names a field twice")
		}
		seen[name] = true
		if err := visit(name, raw); err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return refuse("", "must be a JSON object")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return refuse("", "must be one JSON object")
	}
	return nil
}

// decodeValue reads one member. null is refused where a value is always there.
func decodeValue(raw []byte, target any) error {
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		switch target.(type) {
		case *string, *int64, *time.Time:
			return refuse("", "must not be null")
		}
	}
	if metadata, ok := target.(*map[string]string); ok {
		return decodeMetadata(raw, metadata)
	}
	err := json.Unmarshal(raw, target)
	switch err.(type) {
	case nil, *FieldError:
		return err
	}
	switch target.(type) {
	case *string:
		return refuse("", "must be a string")
	case *[]string:
		return refuse("", "must be a list of strings")
	case *time.Time:
		return refuse("", "must be an RFC 3339 time")
	case **time.Time:
		return refuse("", "must be an RFC 3339 time, or null")
	case *int64:
		return refuse("", "must be a whole number that fits 64 bits")
	}
	return refuse("", "must be a whole number that fits 64 bits, or null")
}

func decodeMetadata(raw []byte, metadata *map[string]string) error {
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		*metadata = nil
		return nil
	}
	out := make(map[string]string)
	err := eachMember(raw, func(name string, raw json.RawMessage) error {
		var value string
		if err := decodeValue(raw, &value); err != nil {
			return err
		}
		out[name] = value
		return nil
	})
	if err != nil {
		return err
	}
	*metadata = out
	return nil
}
