package keysimport

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The most that an export may hold.
const (
	MaxRows     = 2_000_000
	MaxRowBytes = 1 << 20
	maxColumns  = 256
	readAhead   = 64 << 10
)

// record is one row: the text of each column that is not NULL. Lists and objects
// of JSON rows are their JSON text.
type record struct {
	line   int
	fields map[string]string
}

// readTable calls visit with every row of an export, CSV or JSON lines, whose
// columns must be among those given or be told of by unknown.
func readTable(table string, r io.Reader, required []string, visit func(record) error) error {
	in := bufio.NewReaderSize(r, readAhead)
	if mark, err := in.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = in.Discard(3)
	}
	rows := 0
	counted := func(rec record) error {
		if rows++; rows > MaxRows {
			return &TableError{Table: table, Line: rec.line, Why: fmt.Sprintf("more than %d rows: split the export", MaxRows)}
		}
		return visit(rec)
	}
	first, err := in.Peek(1)
	switch {
	case errors.Is(err, io.EOF):
		return &TableError{Table: table, Why: "is empty: an export has at least its header"}
	case err != nil:
		return unreadable(table)
	case first[0] == '{':
		return readJSON(table, in, required, counted)
	}
	return readCSV(table, in, required, counted)
}

func unreadable(table string) error { return &TableError{Table: table, Why: "cannot be read"} }

// guard ends a row that is too long before it fills the memory.
type guard struct {
	r    io.Reader
	left int
}

var errLong = errors.New("row too long")

func (g *guard) Read(p []byte) (int, error) {
	if g.left <= 0 {
		return 0, errLong
	}
	n, err := g.r.Read(p[:min(len(p), g.left)])
	g.left -= n
	return n, err
}

func readCSV(table string, in io.Reader, required []string, visit func(record) error) error {
	g := &guard{r: in}
	c := csv.NewReader(g)
	next := func() ([]string, int, error) {
		g.left = MaxRowBytes + readAhead
		row, err := c.Read()
		var parse *csv.ParseError
		switch {
		case err == nil:
			line, _ := c.FieldPos(0)
			return row, line, nil
		case errors.Is(err, io.EOF):
			return nil, 0, io.EOF
		case errors.Is(err, errLong):
			return nil, 0, &TableError{Table: table, Why: fmt.Sprintf("has a row of more than %d bytes", MaxRowBytes)}
		case errors.As(err, &parse):
			return nil, 0, &TableError{Table: table, Line: parse.Line, Why: "is no CSV with a header, as Postgres writes it"}
		}
		return nil, 0, unreadable(table)
	}
	header, _, err := next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = unreadable(table)
		}
		return err
	}
	seen := map[string]bool{}
	for _, name := range header {
		if seen[name] || len(header) > maxColumns {
			return &TableError{Table: table, Line: 1, Why: "the header names a column twice, or too many"}
		}
		seen[name] = true
	}
	for _, name := range required {
		if !seen[name] {
			return &TableError{Table: table, Line: 1, Column: name, Why: "the column is missing: export all columns"}
		}
	}
	header = append([]string{}, header...)
	for {
		row, line, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		rec := record{line: line, fields: make(map[string]string, len(row))}
		for i, text := range row {
			if !utf8.ValidString(text) {
				return &TableError{Table: table, Line: line, Why: "is not UTF-8"}
			}
			if text != "" && text != `\N` { // NULL, and in these columns an empty text is no more
				rec.fields[header[i]] = text
			}
		}
		if err := visit(rec); err != nil {
			return err
		}
	}
}

func readJSON(table string, in io.Reader, required []string, visit func(record) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, readAhead), MaxRowBytes)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		fields, present, err := object(lines.Bytes())
		if err != nil {
			return &TableError{Table: table, Line: n, Why: "is no JSON object with each name once"}
		}
		for _, name := range required {
			if !present[name] {
				return &TableError{Table: table, Line: n, Column: name, Why: "the column is missing: export all columns"}
			}
		}
		if err := visit(record{line: n, fields: fields}); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return &TableError{Table: table, Why: fmt.Sprintf("has a row of more than %d bytes", MaxRowBytes)}
	case err != nil:
		return unreadable(table)
	}
	return nil
}

var errObject = errors.New("no object")

// object reads one JSON object: the text of each member that is not null, and
// which members there are.
func object(data []byte) (fields map[string]string, present map[string]bool, err error) {
	if !utf8.Valid(data) {
		return nil, nil, errObject
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, nil, errObject
	}
	fields, present = map[string]string{}, map[string]bool{}
	for d.More() {
		token, err := d.Token()
		name, isName := token.(string)
		var raw json.RawMessage
		if err != nil || !isName || present[name] || len(present) >= maxColumns || d.Decode(&raw) != nil {
			return nil, nil, errObject
		}
		present[name] = true
		switch text := string(raw); {
		case text == "null":
		case strings.HasPrefix(text, `"`):
			var s string
			if json.Unmarshal(raw, &s) != nil {
				return nil, nil, errObject
			}
			if s != "" {
				fields[name] = s
			}
		default:
			fields[name] = text
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, errObject
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errObject
	}
	return fields, present, nil
}
