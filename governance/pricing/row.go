package pricing

import (
	"fmt"
	"math/bits"
)

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

// dearest returns the highest price of a set of classes.
func (r *rates) dearest(set uint16) uint64 {
	var p uint64
	for set &= r.known; set != 0; set &= set - 1 {
		p = max(p, r.price[bits.TrailingZeros16(set)])
	}
	return p
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
	stated uint16      // classes with a standard price for any length
	tierOf [tiers]bool // the catalogue prices this tier
	rates  []rates     // by tier and step
	ceil   []ceilings  // by tier and step
}

// Row is the price of one model: everything that bounding and settling one
// attempt needs. It is small and is captured when the attempt is admitted;
// settlement uses nothing else, whatever happens to the catalogue meanwhile.
//
// The zero Row has no price. A Row never changes: copy it freely.
//
// Concurrency: safe.
// Source: internal/docs/architecture.md "State".
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

// at returns where the rates of a tier and step are.
func (t *table) at(tr tier, step int) int { return int(tr)*(len(t.steps)+1) + step }

// derive works out which price holds where, once, so that no call has to.
func (t *table) derive() {
	n := len(t.steps) + 1
	both := make([]rates, 2*int(tiers)*n)
	d := deriver{t, both[:int(tiers)*n]}
	t.rates, t.ceil = both[int(tiers)*n:], make([]ceilings, int(tiers)*n)
	t.tierOf = [tiers]bool{standard: true}
	for _, c := range t.cells {
		d.cells[t.at(c.tier, int(c.step))].set(c.class, c.price)
		t.tierOf[c.tier] = true
	}
	t.stated = d.cells[0].known
	for tr := range tiers {
		for step := range n {
			r := &t.rates[t.at(tr, step)]
			switch {
			case t.tierOf[tr]:
				for c := range classes {
					if p, ok := d.resolve(tr, step, c); ok {
						r.set(c, p)
					}
				}
			case tr == flex || tr == batch:
				*r = t.rates[step] // no discount
			}
			t.ceil[t.at(tr, step)] = t.ceiling(tr, step)
		}
	}
}

// deriver holds the prices as the catalogue states them, by tier and step.
type deriver struct {
	t     *table
	cells []rates
}

// resolve finds the price of a class. The rules for what the catalogue leaves
// open are in the package comment.
func (d *deriver) resolve(tr tier, step int, c class) (uint64, bool) {
	if p, ok := d.cells[d.t.at(tr, step)].get(c); ok {
		return p, true
	}
	discount := tr == flex || tr == batch
	own, stated := d.cells[0].get(c)
	switch c {
	case input, output, cacheWrite, cacheWriteLong:
		if discount {
			return d.resolve(standard, step, c)
		}
		return 0, false
	case cacheRead:
		if stated && discount {
			return d.resolve(standard, step, c)
		}
		return d.resolve(tr, step, input)
	}
	parent := parentOf(c)
	switch whole, _ := d.cells[0].get(parent); {
	case !stated:
		return d.resolve(tr, step, parent)
	case discount:
		return d.resolve(standard, step, c)
	case own == whole:
		return d.resolve(tr, step, parent)
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
		c = t.ceil[t.at(tr, step-1)]
	}
	for _, r := range [...]*rates{&t.rates[t.at(tr, step)], &t.rates[step]} {
		read := r.dearest(1<<input | 1<<cacheRead)
		write := r.dearest(1<<cacheWrite | 1<<cacheWriteLong)
		media := r.dearest(1<<audioInput | 1<<audioCacheRead | 1<<imageInput)
		text, other := r.dearest(1<<output|1<<reasoning), r.dearest(1<<audioOutput|1<<imageOutput)
		c.text = max(c.text, read)
		c.textWrite = max(c.textWrite, read, write)
		c.media = max(c.media, read, media)
		c.mediaWrite = max(c.mediaWrite, read, write, media)
		c.textOut = max(c.textOut, text)
		c.mediaOut = max(c.mediaOut, text, other)
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
