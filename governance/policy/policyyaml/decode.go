package policyyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/tallystick-go/tallystick/governance/policy"
)

const (
	maxDepth  = 16 // as for JSON, where the whole stream is one list
	maxValues = 500_000
	// A parser makes nodes of everything before anybody can count them, so what could
	// begin one is counted first.
	maxMarks = 2 * maxValues
)

// Decode reads a stream of documents as YAML or JSON, and returns them in canonical
// form. A document of the stream may be a list of policies; empty ones are passed over. Places
// count the policies of the whole stream: documents[0].spec and so on.
//
// Errors: *policy.Error, for the first mistake.
func Decode(data []byte) ([]policy.Document, error) {
	switch {
	case len(data) > policy.MaxInputBytes:
		return nil, &policy.Error{Path: "documents", Why: fmt.Sprintf("must be at most %d bytes", policy.MaxInputBytes)}
	case !utf8.Valid(data):
		return nil, &policy.Error{Path: "documents", Why: "must be UTF-8"}
	case json.Valid(data):
		return policy.Decode(data)
	case marks(data) > maxMarks:
		return nil, tooMany(0)
	}
	c := converter{lines: map[string]int{}}
	if err := c.stream(data); err != nil {
		return nil, err
	}
	out, err := policy.Decode(append(c.json, ']'))
	var e *policy.Error
	if errors.As(err, &e) {
		return nil, &policy.Error{Path: e.Path, Why: e.Why, Line: c.line(e.Path)}
	}
	return out, err
}

func marks(data []byte) int {
	n := bytes.Count(data, []byte("- ")) + bytes.Count(data, []byte("-\n"))
	for _, mark := range []byte(",:[{?") {
		n += bytes.Count(data, []byte{mark})
	}
	return n
}

func tooMany(line int) error {
	return &policy.Error{Path: "documents", Why: fmt.Sprintf("must have at most %d values", maxValues), Line: line}
}

// converter writes a stream as one JSON list, and remembers where everything stood.
type converter struct {
	json   []byte
	lines  map[string]int // by place
	count  int            // policies
	values int
}

func (c *converter) stream(data []byte) error {
	c.json = append(c.json, '[')
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return notYAML(err)
		}
		for _, n := range document.Content {
			if err := c.top(n); err != nil {
				return err
			}
		}
	}
}

// top converts one document of the stream.
func (c *converter) top(n *yaml.Node) error {
	if empty(n) {
		return nil
	}
	list := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		if err := c.plain("documents", n); err != nil {
			return err
		}
		if list = n.Content; len(list) == 0 {
			return refuse(n, "documents", "must not be an empty list")
		}
	}
	for _, n := range list {
		if c.count > 0 {
			c.json = append(c.json, ',')
		}
		if err := c.value(fmt.Sprintf("documents[%d]", c.count), n, 1); err != nil {
			return err
		}
		c.count++
	}
	return nil
}

// empty reports a document with nothing in it, as there is one behind a last "---".
func empty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style == 0 && n.Value == "" && n.Anchor == ""
}

// value converts one value. Everything that is refused for what it is in YAML is refused here,
// all else where the JSON is read.
func (c *converter) value(path string, n *yaml.Node, depth int) error {
	if c.values++; c.values > maxValues {
		return tooMany(n.Line)
	}
	if depth >= maxDepth && n.Kind != yaml.ScalarNode {
		return refuse(n, path, "must not be nested so deep")
	}
	if err := c.plain(path, n); err != nil {
		return err
	}
	c.lines[path] = n.Line
	switch n.Kind {
	case yaml.ScalarNode:
		return c.scalar(path, n)
	case yaml.SequenceNode:
		c.json = append(c.json, '[')
		for i, v := range n.Content {
			if i > 0 {
				c.json = append(c.json, ',')
			}
			if err := c.value(fmt.Sprintf("%s[%d]", path, i), v, depth+1); err != nil {
				return err
			}
		}
		c.json = append(c.json, ']')
		return nil
	case yaml.MappingNode:
		c.json = append(c.json, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				c.json = append(c.json, ',')
			}
			if err := c.member(path, n.Content[i], n.Content[i+1], depth); err != nil {
				return err
			}
		}
		c.json = append(c.json, '}')
		return nil
	}
	return refuse(n, path, "must be a value")
}

func (c *converter) member(path string, key, v *yaml.Node, depth int) error {
	if err := c.plain(path, key); err != nil {
		return err
	}
	if key.Kind != yaml.ScalarNode {
		return refuse(key, path, "must have texts as keys")
	}
	place := policy.Member(path, key.Value)
	if why := mistakable(key); why != "" {
		return refuse(key, place, "the key "+why)
	}
	if key.Style == 0 && key.ShortTag() != "!!str" {
		return refuse(key, place, "the key must stand in quotes: it is a text")
	}
	c.text(key.Value)
	c.json = append(c.json, ':')
	if err := c.value(place, v, depth+1); err != nil {
		return err
	}
	c.lines[place] = key.Line
	return nil
}

// plain refuses what refers to another place or claims another type.
func (c *converter) plain(path string, n *yaml.Node) error {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return refuse(n, path, "must not have anchors or aliases: write it out")
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!merge":
		return refuse(n, path, "must not have a merge key: write it out")
	case n.Style&yaml.TaggedStyle != 0:
		return refuse(n, path, "must not have a tag")
	}
	return nil
}

var (
	number   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	sixties  = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)
	notTruth = []string{"y", "n", "yes", "no", "on", "off"}
)

// scalar converts a scalar. A quoted one is a text; a plain one is what it shows, or refused.
func (c *converter) scalar(path string, n *yaml.Node) error {
	if n.Style != 0 {
		c.text(n.Value)
		return nil
	}
	if why := mistakable(n); why != "" {
		return refuse(n, path, why)
	}
	switch n.ShortTag() {
	case "!!null":
		c.json = append(c.json, "null"...)
	case "!!bool", "!!int", "!!float":
		c.json = append(c.json, n.Value...)
	default:
		c.text(n.Value)
	}
	return nil
}

// mistakable says why a plain scalar could be read as something else than it shows.
func mistakable(n *yaml.Node) string {
	if n.Style != 0 {
		return ""
	}
	switch tag := n.ShortTag(); {
	case tag == "!!null" && n.Value != "" && n.Value != "null":
		return "must be left out, or stand in quotes if it is a text"
	case tag == "!!bool" && n.Value != "true" && n.Value != "false":
		return "must be true or false, in small letters, or stand in quotes if it is a text"
	case (tag == "!!int" || tag == "!!float") && !number.MatchString(n.Value):
		return "must be written as a decimal number, or stand in quotes if it is a text"
	case tag == "!!timestamp", sixties.MatchString(n.Value):
		return "must stand in quotes: some read it as a date or a time"
	case tag == "!!str":
		for _, word := range notTruth {
			if strings.EqualFold(n.Value, word) {
				return "must be true or false, or stand in quotes if it is a text"
			}
		}
	}
	return ""
}

func (c *converter) text(s string) {
	quoted, err := json.Marshal(s)
	if err != nil { // texts always can
		quoted = []byte(`""`)
	}
	c.json = append(c.json, quoted...)
}

// line is where a place stood, or the nearest one above it that did.
func (c *converter) line(path string) int {
	for path != "" {
		if line, ok := c.lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 0
}

func refuse(n *yaml.Node, path, why string) error {
	return &policy.Error{Path: path, Why: why, Line: n.Line}
}

var lineOf = regexp.MustCompile(`line ([0-9]+)`)

// notYAML keeps the line of what the library says, and nothing of the input.
func notYAML(err error) error {
	e := &policy.Error{Path: "documents", Why: "must be YAML: check indentation and quotes"}
	if strings.Contains(err.Error(), "unknown anchor") {
		e.Why = "must not have anchors or aliases: write it out"
	}
	if m := lineOf.FindStringSubmatch(err.Error()); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
	}
	return e
}
