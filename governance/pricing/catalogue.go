package pricing

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
)

// Catalogue is a set of prices by model. It never changes; a newer price file
// is another Catalogue.
//
// Concurrency: safe.
type Catalogue struct {
	rows       map[string]Row
	owners     map[string]string // model: provider
	refused    map[string]string // model: reason
	aliases    map[string]string
	report     *Report
	generation string
}

//go:embed bundled.json
var bundled []byte

var loadBundled = sync.OnceValues(func() (*Catalogue, error) {
	c, _, err := ParseLiteLLM(bytes.NewReader(bundled), nil)
	return c, err
})

// Bundled returns the small catalogue that comes with this library: a few
// well-known models, and demo models. Prices change; production reads a file of
// its own with [LoadLiteLLM].
//
// Errors: ErrCatalogue; none of a build that passes this package's tests.
func Bundled() (*Catalogue, error) { return loadBundled() }

// LoadLiteLLM reads a price file in the format that LiteLLM publishes, with
// default options. [Catalogue.Report] tells what it cannot price with.
//
// Errors: those of os.Open, ErrCatalogue.
func LoadLiteLLM(path string) (*Catalogue, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, _, err := ParseLiteLLM(f, nil)
	return c, err
}

// ParseLiteLLM reads prices in the format that LiteLLM publishes: one JSON
// object, a member per model, US dollars per token as JSON numbers. They are
// read as exact decimals.
//
// A file that is not exactly that is refused as a whole, as is one that names a
// model twice. An entry or field that cannot be priced with is in the Report,
// which [Catalogue.Report] also returns.
//
// Errors: ErrCatalogue.
// Source: internal/docs/architecture.md "Units".
func ParseLiteLLM(r io.Reader, o *Options) (*Catalogue, *Report, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	limit := o.MaxBytes
	if limit == 0 {
		limit = DefaultMaxBytes
	}
	entries, err := readEntries(r, limit)
	if err != nil {
		return nil, nil, err
	}
	c := &Catalogue{
		rows: map[string]Row{}, owners: map[string]string{}, refused: map[string]string{},
		aliases: maps.Clone(o.Aliases), report: &Report{Entries: len(entries)},
	}
	regions := map[string]bool{}
	uses := map[string]FieldUse{}
	for _, e := range entries {
		c.add(e, o, regions, uses)
	}
	for _, name := range o.Free {
		if c.rows[name].t == nil {
			c.add(entry{name: name}, o, regions, uses)
		}
	}
	if err := o.checkNames(c, regions); err != nil {
		return nil, nil, err
	}
	c.report.Priced = len(c.rows)
	for _, u := range uses {
		c.report.Fields = append(c.report.Fields, u)
	}
	c.report.sort()
	c.generation = c.digest()
	return c, c.report, nil
}

func (c *Catalogue) add(e entry, o *Options, regions map[string]bool, uses map[string]FieldUse) {
	b := builder{options: o, entry: e, used: map[string]bool{}, regions: regions}
	err := b.build()
	if err != nil {
		b.findings = []Finding{{Refused, e.name, "", err.Error()}}
		c.refused[e.name] = err.Error()
		b.used = map[string]bool{} // reading may have stopped half way
		for _, f := range e.fields {
			if costly(f.name) {
				b.used[f.name] = false
			}
		}
	} else {
		c.rows[e.name], c.owners[e.name] = Row{b.t}, b.provider
	}
	for name, priced := range b.used {
		c.report.count(uses, name, priced, err != nil)
	}
	c.report.Findings = append(c.report.Findings, b.findings...)
}

// digest covers everything that an answer of the catalogue depends on, in an
// order that the file has no part in.
func (c *Catalogue) digest() string {
	h := sha256.New()
	put := func(parts ...string) {
		for _, p := range parts {
			var n [8]byte
			binary.BigEndian.PutUint64(n[:], uint64(len(p)))
			h.Write(n[:])
			io.WriteString(h, p)
		}
	}
	put("tallystick prices 1")
	for _, name := range slices.Sorted(maps.Keys(c.rows)) {
		put("row", name, c.owners[name], string(c.rows[name].t.enc))
	}
	for _, name := range slices.Sorted(maps.Keys(c.aliases)) {
		put("alias", name, c.aliases[name])
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// Generation labels the content: the full digest of all prices, limits and
// aliases. Two catalogues with the same label give the same answers, however
// their files were laid out.
func (c *Catalogue) Generation() string { return c.generation }

// Report returns what the catalogue cannot price with. It must not be changed.
func (c *Catalogue) Report() *Report { return c.report }

// Models returns the names that have a price, sorted, without aliases.
func (c *Catalogue) Models() []string { return slices.Sorted(maps.Keys(c.rows)) }

// Price returns the price of a model.
//
// The name is looked for as an alias, then as it is. Then the parts that say
// where it runs are split off, and only an entry of that provider matches:
//
//	openai/X, anthropic/X, gemini/X, vertex_ai/X, P/X      X of that provider
//	bedrock/X, bedrock/REGION/X, bedrock/converse/X        X of Bedrock or its vendor
//	us.anthropic.X-v1:0, eu., apac., jp., au., global. ... anthropic.X-v1:0, X-v1:0, X of Bedrock or Anthropic
//	arn:aws:bedrock:…:foundation-model/X, inference-profile/X ... as bedrock/X
//
// ARNs that do not name the model (application inference profiles, provisioned
// throughput, imported models) have a price only by an alias.
//
// Where the name fixes a region for which the entry has a multiplier, the row
// holds it. Nothing else is guessed: no dates, no families.
//
// Errors: *MissingPriceError (ErrNoPrice). A missing price is never free.
func (c *Catalogue) Price(model string) (Row, error) {
	if to, ok := c.aliases[model]; ok {
		return c.rows[to], nil
	}
	if r, ok := c.rows[model]; ok {
		return r, nil
	}
	if reason, ok := c.refused[model]; ok {
		return Row{}, &MissingPriceError{Model: model, Reason: reason}
	}
	w := split(model)
	for _, name := range w.names {
		if r, ok := c.rows[name]; ok && serves(w.provider, c.owners[name]) {
			return r.at(w.provider == "bedrock", w.geo)
		}
		if reason, ok := c.refused[name]; ok && name != "" {
			return Row{}, &MissingPriceError{Model: model, Reason: reason}
		}
	}
	if len(model) > maxName {
		model = model[:maxName]
	}
	return Row{}, &MissingPriceError{Model: model}
}

// at returns the row as it is where the name says that the model runs: on Bedrock,
// which has tiers of its own, and in a region that may have a multiplier.
func (r Row) at(bedrock bool, region string) (Row, error) {
	t := *r.t
	if bedrock {
		t.flags &^= flagCapacity
	}
	for _, g := range t.geos {
		if g.name == region {
			t.pinned = g.multiplier
		}
	}
	if t.flags == r.t.flags && t.pinned == r.t.pinned {
		return r, nil
	}
	enc, err := t.encode()
	if err != nil {
		return Row{}, fmt.Errorf("%w: %w", &MissingPriceError{Model: t.model}, err)
	}
	t.enc = enc
	return Row{&t}, nil
}
