package pricing

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// modes of the catalogue whose calls are charged by tokens. Those that make
// something else than text are true.
var modes = map[string]bool{
	"": false, "chat": false, "completion": false, "responses": false, "embedding": false,
	"image_generation": true, "audio_transcription": true, "audio_speech": true, "realtime": true,
}

// builder turns one entry of the file into a table.
type builder struct {
	options  *Options
	entry    entry
	provider string
	mode     string

	t        *table
	prices   []statedPrice
	fees     [3]number
	charged  bool // something costs, be it in a unit that is not priced here
	findings []Finding
	used     map[string]bool // cost field: priced with or not
	regions  map[string]bool
}

type statedPrice struct {
	place
	number
	field string
}

// build reads the entry. An error is why it has no price.
func (b *builder) build() error {
	name := b.entry.name
	b.t = &table{model: name}
	if name == "sample_spec" {
		return fmt.Errorf("it documents the format")
	}
	if err := validName(name); err != nil {
		return err
	}
	if b.entry.twice != "" {
		return fmt.Errorf("field %q occurs twice", b.entry.twice)
	}
	if len(b.entry.fields) > maxFields {
		return fmt.Errorf("more than %d fields", maxFields)
	}
	for _, f := range b.entry.fields {
		if err := b.field(f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	for _, step := range [...]func() error{b.judge, b.units, b.scale, b.limits} {
		if err := step(); err != nil {
			return err
		}
	}
	b.t.derive()
	b.gaps()
	enc, err := b.t.encode()
	if err != nil {
		return err
	}
	b.t.enc = enc
	return nil
}

func (b *builder) find(k Kind, field, format string, args ...any) {
	b.findings = append(b.findings, Finding{k, b.entry.name, field, fmt.Sprintf(format, args...)})
}

func (b *builder) field(f field) error {
	switch f.name {
	case "litellm_provider":
		b.provider, _ = f.value.(string)
		return nil
	case "mode":
		mode, ok := f.value.(string)
		if _, known := modes[mode]; !ok || !known {
			return fmt.Errorf("calls of mode %q are not charged by tokens alone", fmt.Sprint(f.value))
		}
		b.mode = mode
		return nil
	case "max_input_tokens":
		return b.limit(&b.t.maxInput, f)
	case "max_output_tokens":
		return b.limit(&b.t.maxOutput, f)
	case "tool_use_system_prompt_tokens":
		var n int64
		if err := b.limit(&n, f); err != nil {
			return err
		}
		if n > toolPrompt {
			b.find(Gap, f.name, "%d tokens, more than the %d that InputBound adds for tools", n, toolPrompt)
		}
		return nil
	}
	if !costly(f.name) {
		return nil
	}
	b.used[f.name] = false
	if f.value == nil {
		b.find(Unpriced, f.name, "is null: missing, not free")
		return nil
	}
	return b.cost(f)
}

func (b *builder) limit(to *int64, f field) error {
	if f.value == nil {
		return nil
	}
	n, err := parseTokens(f.value)
	if err == nil && n == 0 {
		b.find(Gap, f.name, "is zero: taken as missing")
	}
	*to = n
	return err
}

// cost reads a field that speaks of money.
func (b *builder) cost(f field) error {
	if p, ok := placeOf(f.name); ok {
		n, err := parseNumber(f.value)
		if err != nil {
			return err
		}
		b.charged = b.charged || n.coefficient > 0
		b.prices = append(b.prices, statedPrice{p, n, f.name})
		b.used[f.name] = true
		return nil
	}
	if region, ok := strings.CutPrefix(f.name, regionPrefix); ok {
		m, err := parseMultiplier(f.value)
		if err != nil {
			return err
		}
		b.regions[region] = true
		if region == b.options.Region {
			b.t.region = m
			b.used[f.name] = true
			return nil
		}
		b.find(Unpriced, f.name, "not applied: Options.Region is %q", b.options.Region)
		return nil
	}
	switch f.name {
	case searchFee:
		return b.searchFees(f)
	case specificEntry:
		return b.specific(f)
	}
	return b.unpriced(f)
}

// unpriced reads a field that no cost uses.
func (b *builder) unpriced(f field) error {
	stem, _ := cutAbove(f.name)
	u, isUnit := units[stem]
	switch {
	case isUnit || toolFees[f.name] || b.options.ignores(f.name):
	case isAmount(f.value):
		return fmt.Errorf("a price of a kind that is not known here; if it cannot apply, add it to Options.Ignore")
	default:
		b.find(Unpriced, f.name, "is no amount")
		return nil
	}
	if n, err := parseNumber(f.value); err == nil && n.coefficient == 0 {
		b.find(Unpriced, f.name, "is zero")
		return nil
	}
	b.charged = true
	switch {
	case isUnit:
		b.t.unpriced |= u.media
		b.find(Unpriced, f.name, "%s", u.reason)
	case toolFees[f.name]:
		b.find(Unpriced, f.name, "a fee of a hosted tool: requests with hosted tools have no bound")
	default:
		b.find(Unpriced, f.name, "left out by Options.Ignore")
	}
	return nil
}

// isAmount reports whether a value could be money: a number that is not zero,
// or something that holds others.
func isAmount(v any) bool {
	switch v := v.(type) {
	case json.Number:
		n, err := parseNumber(v)
		return err != nil || n.coefficient > 0
	case object, []any:
		return true
	default:
		return false
	}
}

// searchFees reads the fee of one search by the size of its context.
func (b *builder) searchFees(f field) error {
	o, ok := f.value.(object)
	if !ok || o.twice != "" {
		return fmt.Errorf("not an object of three fees")
	}
	names := [3]string{"search_context_size_low", "search_context_size_medium", "search_context_size_high"}
	found := 0
	for _, size := range o.fields {
		i := slices.Index(names[:], size.name)
		if i < 0 {
			return fmt.Errorf("%s is not known", size.name)
		}
		n, err := parseNumber(size.value)
		if err != nil {
			return fmt.Errorf("%s: %w", size.name, err)
		}
		b.fees[i], b.charged = n, b.charged || n.coefficient > 0
		found++
	}
	if found != len(names) {
		return fmt.Errorf("not an object of three fees")
	}
	b.t.searches, b.used[f.name] = true, true
	if b.fees[0] != b.fees[1] || b.fees[1] != b.fees[2] {
		b.find(Gap, f.name, "the fee depends on the size of the context, which is not reported: calls with searches cost Unknown")
	}
	return nil
}

// specific reads the multipliers of a provider: its fast mode, and regions by
// their names of two letters.
func (b *builder) specific(f field) error {
	o, ok := f.value.(object)
	if !ok || o.twice != "" {
		return fmt.Errorf("not an object of multipliers")
	}
	for _, m := range o.fields {
		factor, err := parseMultiplier(m.value)
		switch {
		case m.name != "fast" && len(m.name) != 2:
			return fmt.Errorf("%s is not known", m.name)
		case err != nil:
			return fmt.Errorf("%s: %w", m.name, err)
		case m.name == "fast":
			b.t.fast = factor
		default:
			b.t.geos = append(b.t.geos, geo{m.name, factor})
		}
	}
	slices.SortFunc(b.t.geos, func(x, y geo) int { return cmp.Compare(x.name, y.name) })
	if len(b.t.geos) > maxGeos {
		return fmt.Errorf("more than %d regions", maxGeos)
	}
	b.used[f.name] = true
	return nil
}

// stated returns the price of a class at any length in the standard tier.
func (b *builder) stated(c class) (statedPrice, bool) {
	for _, p := range b.prices {
		if p.place == (place{class: c}) {
			return p, true
		}
	}
	return statedPrice{}, false
}

// judge decides whether the entry can be priced, and what kind of model it is.
func (b *builder) judge() error {
	b.t.setFlag(flagNoOutput, b.mode == "embedding")
	b.t.setFlag(flagMedia, modes[b.mode])
	b.t.setFlag(flagCapacity, b.provider == "anthropic" || strings.Contains(b.entry.name, "claude") && !b.onBedrock())
	b.t.setFlag(flagAutoStandard, b.options.AutoTier == "standard")
	b.t.setFlag(flagContext, b.options.boundBy(b.entry.name) == BoundByContext)
	for i, p := range b.prices {
		for _, q := range b.prices[:i] {
			if p.place == q.place && p.number != q.number {
				return fmt.Errorf("%s and %s differ", q.field, p.field)
			}
		}
	}
	in, hasIn := b.stated(input)
	out, hasOut := b.stated(output)
	if hasIn && hasOut && in.coefficient == 0 && out.coefficient == 0 && !b.charged {
		b.t.setFlag(flagFree, true)
		b.find(Assumed, "", "free: input and output cost zero and nothing else costs anything")
	}
	if b.options.free(b.entry.name) {
		b.t.setFlag(flagFree, true)
		return nil
	}
	switch {
	case !hasIn:
		return fmt.Errorf("%s is missing", stemOf[input])
	case !hasOut && b.mode != "embedding":
		return fmt.Errorf("%s is missing", stemOf[output])
	case searchesAlways(b.entry.name) && !b.options.ignores(searchFee):
		return fmt.Errorf("it searches on every call for a fee that no usage reports; add %s to Options.Ignore to price its tokens alone", searchFee)
	}
	_, long := b.stated(cacheWriteLong)
	b.t.setFlag(flagLifetimes, long || b.t.flags&flagCapacity != 0 || b.onBedrock())
	return nil
}

// onBedrock reports whether the entry is one of Bedrock's, whose tiers are its own.
func (b *builder) onBedrock() bool { return strings.HasPrefix(b.provider, "bedrock") }

// searchesAlways recognises the models that are a search.
func searchesAlways(name string) bool {
	return strings.Contains(name, "-search-preview") || strings.Contains(name, "-search-api")
}

func (t *table) setFlag(flag uint64, on bool) {
	if on {
		t.flags |= flag
	}
}

// units settles which media stay without a price: not those for which the
// entry states a price per token as well.
func (b *builder) units() error {
	for i, f := range b.findings {
		stem, _ := cutAbove(f.Field)
		u, ok := units[stem]
		if !ok || u.none || f.Kind != Unpriced {
			continue
		}
		if p, instead := b.stated(u.instead); instead {
			b.t.unpriced &^= u.media
			b.findings[i].Reason = "an alternative to " + p.field + ", which is used"
		}
	}
	if b.t.flags&flagMedia != 0 && b.t.flags&flagFree == 0 && b.t.unpriced&mediaOut != 0 {
		return fmt.Errorf("what it makes is not charged by tokens")
	}
	return nil
}

// scale turns the prices into integers of one unit.
func (b *builder) scale() error {
	t := b.t
	t.scale = minScale
	for _, p := range b.prices {
		t.scale = max(t.scale, p.places)
		if p.above > maxTokens {
			return fmt.Errorf("%s: a threshold of %d tokens", p.field, p.above)
		}
		if p.above > 0 && !slices.Contains(t.steps, p.above) {
			t.steps = append(t.steps, p.above)
		}
	}
	for _, f := range b.fees {
		t.scale = max(t.scale, f.places)
	}
	slices.Sort(t.steps)
	if len(t.steps) > maxSteps {
		return fmt.Errorf("more than %d thresholds", maxSteps)
	}
	if t.scale > maxScale {
		return fmt.Errorf("a price with more than %d decimals", maxScale)
	}
	for _, p := range b.prices {
		v, ok := p.at(t.scale)
		if !ok {
			return fmt.Errorf("%s: too large beside a price with %d decimals", p.field, t.scale)
		}
		c := cell{p.tier, uint8(slices.Index(t.steps, p.above) + 1), p.class, v}
		if !slices.Contains(t.cells, c) { // a synonym
			t.cells = append(t.cells, c)
		}
	}
	slices.SortFunc(t.cells, func(x, y cell) int { return cmp.Compare(x.key(), y.key()) })
	for i, f := range b.fees {
		v, ok := f.at(t.scale)
		if !ok {
			return fmt.Errorf("%s: too large", searchFee)
		}
		t.search[i] = v
	}
	return nil
}

// limits settles the context window.
func (b *builder) limits() error {
	t := b.t
	t.window = t.maxInput
	if w, ok := b.options.Windows[b.entry.name]; ok {
		t.window = w
	}
	if t.window == 0 {
		b.find(Gap, "max_input_tokens", "missing: only requests with an input that is bounded otherwise have a bound")
	}
	if t.maxOutput == 0 && t.flags&flagNoOutput == 0 {
		b.find(Gap, "max_output_tokens", "missing: only requests that state a maximum have a bound")
	}
	if n := len(t.steps); n > 0 && t.window > 0 && t.window <= t.steps[n-1] {
		b.find(Gap, "max_input_tokens", "%d, yet there are prices above %d tokens: set Options.Windows if the longer window is in use", t.window, t.steps[n-1])
	}
	return nil
}

// gaps reports prices that a tier or a length leaves open.
func (b *builder) gaps() {
	t := b.t
	if t.flags&flagFree != 0 {
		return
	}
	for tr := range tiers {
		if !t.tierOf[tr] {
			continue
		}
		for step := range len(t.steps) + 1 {
			above := int64(0)
			if step > 0 {
				above = t.steps[step-1]
			}
			b.gapsAt(tr, step, above)
		}
	}
}

func (b *builder) gapsAt(tr tier, step int, above int64) {
	t := b.t
	r := &t.rates[t.at(tr, step)]
	if _, ok := r.get(input); !ok {
		b.find(Gap, fieldOf(input, tr, above), "missing: usage there costs Unknown")
		return
	}
	for c := range classes {
		if t.stated&(1<<c) == 0 {
			continue
		}
		p, ok := r.get(c)
		in, _ := r.get(input)
		own := slices.ContainsFunc(t.cells, func(x cell) bool { return x.tier == tr && int(x.step) == step && x.class == c })
		switch {
		case !ok:
			b.find(Gap, fieldOf(c, tr, above), "missing: usage of it costs Unknown")
		case c == cacheRead && !own && p == in && (tr == standard || tr == priority):
			b.find(Assumed, fieldOf(c, tr, above), "missing: priced as input, a discount that is not stated is not given")
		}
	}
}
