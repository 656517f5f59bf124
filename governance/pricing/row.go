package pricing

import "fmt"

// class is a kind of token that can have a price of its own.
type class uint8

const (
	input class = iota
	cacheRead
	cacheWrite     // kept for the provider's default lifetime
	cacheWriteLong // kept for an hour or longer
	output
	reasoning
	audioInput
	audioCacheRead
	imageInput
	audioOutput
	imageOutput
	classes // how many there are
)

// tier is a service tier with prices of its own.
type tier uint8

const (
	standard tier = iota
	priority
	flex
	batch
	tiers // how many there are
)

// media that a model is charged for in a unit that no token count gives.
const (
	mediaAudioIn = 1 << iota
	mediaImageIn
	mediaVideoIn
	mediaAudioOut
	mediaImageOut
	mediaVideoOut
	mediaIn  = mediaAudioIn | mediaImageIn | mediaVideoIn
	mediaOut = mediaAudioOut | mediaImageOut | mediaVideoOut
)

const (
	flagFree         = 1 << iota // explicitly free
	flagNoOutput                 // an embedding: nothing is generated
	flagMedia                    // what it makes is not text, or not text alone
	flagLifetimes                // its provider keeps caches for several lifetimes
	flagCapacity                 // priority is bought capacity at standard prices
	flagAutoStandard             // a request that names no tier is served as standard
	flagContext                  // bound by the context window, never by the body
	flagsKnown       = flagFree | flagNoOutput | flagMedia | flagLifetimes | flagCapacity | flagAutoStandard | flagContext
)

const (
	maxSteps = 7   // long-context thresholds of one model
	maxGeos  = 8   // regions with a multiplier
	maxName  = 128 // bytes of a model name
	maxRow   = 512 // bytes of an encoded row

	minScale, maxScale = 6, 24  // prices are integers of 10^-scale dollars
	one                = 10_000 // multipliers are integers of 1/one
	maxMultiplier      = 100 * one
	maxTokens          = 1 << 40 // any window or threshold above is a mistake
)

// cell is one price as the catalogue states it.
type cell struct {
	tier  tier
	step  uint8 // 0: any length, n: input above the n-th threshold
	class class
	price uint64
}

func (c cell) key() uint16 { return uint16(c.tier)<<12 | uint16(c.step)<<8 | uint16(c.class) }

type geo struct {
	name       string
	multiplier uint64
}

// rates are the prices that hold for one tier and length of input.
type rates struct {
	price [classes]uint64
	known uint16 // bit per class
}

func (r *rates) get(c class) (uint64, bool) { return r.price[c], r.known&(1<<c) != 0 }

func (r *rates) set(c class, p uint64) {
	r.price[c] = p
	r.known |= 1 << c
}

// ceilings are the dearest prices that a token can have in a tier at any length
// up to a threshold.
type ceilings struct {
	text, textWrite, media, mediaWrite uint64 // input: with and without cache writes
	textOut, mediaOut                  uint64
}

// table is what a row knows. It never changes once it is built.
type table struct {
	model     string
	flags     uint64
	unpriced  uint64 // media bits
	window    int64  // 0: unknown
	maxInput  int64
	maxOutput int64
	scale     int
	steps     []int64
	cells     []cell
	region    uint64 // multiplier of all prices, or 0
	fast      uint64 // multiplier of the fast mode, or 0
	pinned    uint64 // multiplier of the region that the model's name fixes, or 0
	geos      []geo
	search    [3]uint64 // fee of one search by size of context; all zero: none
	searches  bool      // there is a search fee

	// Derived.
	enc    []byte
	rates  [tiers][]rates
	ceil   [tiers][]ceilings
	tierOf [tiers]bool // the catalogue prices this tier
}

// Row is the price of one model: everything that bounding and settling one
// attempt needs. It is small and is captured when the attempt is admitted;
// settlement uses nothing else, whatever happens to the catalogue meanwhile.
//
// The zero Row has no price. A Row never changes: copy it freely.
//
// Concurrency: safe.
// Source: design "Settlement".
type Row struct{ t *table }

// Model returns the catalogue's name of the model.
func (r Row) Model() string {
	if r.t == nil {
		return ""
	}
	return r.t.model
}

// IsZero reports whether r is the zero Row, which has no price.
func (r Row) IsZero() bool { return r.t == nil }

// Equal reports whether both rows state the same.
func (r Row) Equal(o Row) bool {
	if r.t == nil || o.t == nil {
		return r.t == o.t
	}
	return string(r.t.enc) == string(o.t.enc)
}

// Free reports whether the model is explicitly free: its input and output
// prices are stated and zero and nothing else of it costs anything, or the
// options name it free. A missing price is never free. Money constraints do not
// apply to a free model, rates do.
func (r Row) Free() bool { return r.t != nil && r.t.flags&flagFree != 0 }

// ContextTokens returns the largest input that the model takes.
func (r Row) ContextTokens() (int64, bool) {
	if r.t == nil {
		return 0, false
	}
	return r.t.window, r.t.window > 0
}

// MaxInput returns the catalogue's max_input_tokens. It differs from
// ContextTokens where the options set the window.
func (r Row) MaxInput() (int64, bool) {
	if r.t == nil {
		return 0, false
	}
	return r.t.maxInput, r.t.maxInput > 0
}

// MaxOutput returns the most tokens that the model generates in one answer. It
// is zero for a model that generates nothing.
func (r Row) MaxOutput() (int64, bool) {
	if r.t == nil {
		return 0, false
	}
	return r.t.maxOutput, r.t.maxOutput > 0 || r.t.flags&flagNoOutput != 0
}

// String names the model.
func (r Row) String() string {
	if r.t == nil {
		return "no price"
	}
	return fmt.Sprintf("price of %q", r.t.model)
}

func (t *table) has(tr tier, step int, c class) (uint64, bool) {
	for _, x := range t.cells {
		if x.tier == tr && int(x.step) == step && x.class == c {
			return x.price, true
		}
	}
	return 0, false
}

// derive works out which price holds where, once, so that no call has to.
func (t *table) derive() {
	for _, c := range t.cells {
		t.tierOf[c.tier] = true
	}
	t.tierOf[standard] = true
	n := len(t.steps) + 1
	for tr := range tiers {
		t.rates[tr], t.ceil[tr] = make([]rates, n), make([]ceilings, n)
		for step := range n {
			for c := range classes {
				if p, ok := t.resolve(tr, step, c); ok {
					t.rates[tr][step].set(c, p)
				}
			}
			t.ceil[tr][step] = t.ceiling(tr, step)
		}
	}
}

// resolve finds the price of a class. The rules for what the catalogue leaves
// open are in the package comment.
func (t *table) resolve(tr tier, step int, c class) (uint64, bool) {
	if p, ok := t.has(tr, step, c); ok {
		return p, true
	}
	base := tr == standard && step == 0
	discount := tr == flex || tr == batch
	switch c {
	case input, output, cacheWrite, cacheWriteLong:
		if discount {
			return t.resolve(standard, step, c)
		}
		return 0, false
	case cacheRead:
		if _, stated := t.has(standard, 0, c); stated && discount {
			return t.resolve(standard, step, c)
		}
		return t.resolve(tr, step, input)
	}
	parent := parentOf(c)
	own, stated := t.has(standard, 0, c)
	switch whole, _ := t.has(standard, 0, parent); {
	case !stated:
		return t.resolve(tr, step, parent)
	case discount:
		return t.resolve(standard, step, c)
	case !base && own == whole:
		return t.resolve(tr, step, parent)
	}
	return 0, false
}

// parentOf returns the class whose price a kind of token has that the catalogue
// does not price apart.
func parentOf(c class) class {
	switch c {
	case audioInput, imageInput, cacheRead:
		return input
	case audioCacheRead:
		return audioInput
	default:
		return output
	}
}

// ceiling returns the dearest prices up to a threshold, in the tier or in the
// standard one: a provider may serve a request in the standard tier after all.
func (t *table) ceiling(tr tier, step int) ceilings {
	var c ceilings
	if step > 0 {
		c = t.ceil[tr][step-1]
	}
	for _, r := range [...]*rates{&t.rates[tr][step], &t.rates[standard][step]} {
		raise := func(to *uint64, from ...class) {
			for _, k := range from {
				if p, ok := r.get(k); ok {
					*to = max(*to, p)
				}
			}
		}
		raise(&c.text, input, cacheRead)
		raise(&c.textWrite, input, cacheRead, cacheWrite, cacheWriteLong)
		raise(&c.media, input, cacheRead, audioInput, audioCacheRead, imageInput)
		raise(&c.mediaWrite, input, cacheRead, cacheWrite, cacheWriteLong, audioInput, audioCacheRead, imageInput)
		raise(&c.textOut, output, reasoning)
		raise(&c.mediaOut, output, reasoning, audioOutput, imageOutput)
	}
	return c
}

// step returns how many thresholds an input of n tokens exceeds.
func (t *table) step(n int64) int {
	step := 0
	for _, s := range t.steps {
		if n > s {
			step++
		}
	}
	return step
}
