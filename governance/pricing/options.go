package pricing

import (
	"fmt"
	"slices"
)

// BoundBy says what bounds the input of a request.
type BoundBy string

const (
	// BoundByBytes takes the caller's bound, such as [InputBound], where there is
	// one, and the context window where there is none. It is the default.
	BoundByBytes BoundBy = "bytes"
	// BoundByContext always takes the context window.
	BoundByContext BoundBy = "context"
)

// Options say what a price file leaves open. The zero value and nil are the
// defaults. A name in them that means nothing is an error, never ignored.
type Options struct {
	// Aliases maps names that callers use to names in the catalogue. They come
	// before the catalogue's own names.
	Aliases map[string]string
	// Free names models that cost nothing, in the catalogue or not. An entry
	// that exists only by this has no window and no maximum.
	Free []string
	// Region is where the provider processes requests by contract: "eu", "us".
	// Models with an uplift for it cost that much more.
	Region string
	// AutoTier is the service tier of requests that name none: "standard" if the
	// account is known to use no other. Empty means that it may be any that the
	// catalogue prices, and bounds are the dearest of them.
	AutoTier string
	// Bound sets how the input of a model is bounded; "*" stands for every model
	// that is not named.
	Bound map[string]BoundBy
	// Windows sets context windows that were verified to differ from the
	// catalogue's, in tokens.
	Windows map[string]int64
	// Ignore names cost fields that this package does not know and that cannot
	// apply to any call made here. Entries with others are refused.
	Ignore []string
	// MaxBytes bounds the file; 0 means [DefaultMaxBytes].
	MaxBytes int64
}

// check refuses what cannot be right without looking at the file.
func (o *Options) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: options: %s", ErrCatalogue, fmt.Sprintf(format, args...))
	}
	if o.AutoTier != "" && o.AutoTier != "standard" {
		return bad("AutoTier is %q, not empty or \"standard\"", o.AutoTier)
	}
	if o.MaxBytes < 0 {
		return bad("MaxBytes is negative")
	}
	for name, by := range o.Bound {
		if by != BoundByBytes && by != BoundByContext {
			return bad("Bound of %q is %q, not %q or %q", name, by, BoundByBytes, BoundByContext)
		}
	}
	for name, n := range o.Windows {
		if n <= 0 || n > maxTokens {
			return bad("window of %q is %d tokens", name, n)
		}
	}
	for _, name := range o.Free {
		if err := validName(name); err != nil {
			return bad("Free: %v", err)
		}
	}
	for name, to := range o.Aliases {
		if validName(name) != nil || name == to {
			return bad("alias %q", name)
		}
	}
	return nil
}

// checkNames refuses names that stand for nothing in the catalogue.
func (o *Options) checkNames(c *Catalogue, regions map[string]bool) error {
	bad := func(what, name string) error {
		return fmt.Errorf("%w: options: %s names %q, which is not in the catalogue", ErrCatalogue, what, name)
	}
	for name, to := range o.Aliases {
		if c.rows[to].t == nil {
			return bad("alias "+name, to)
		}
	}
	for name := range o.Bound {
		if name != "*" && c.rows[name].t == nil {
			return bad("Bound", name)
		}
	}
	for name := range o.Windows {
		if c.rows[name].t == nil {
			return bad("Windows", name)
		}
	}
	if o.Region != "" && !regions[o.Region] {
		return bad("Region", o.Region)
	}
	return nil
}

func (o *Options) boundBy(model string) BoundBy {
	if by, ok := o.Bound[model]; ok {
		return by
	}
	return o.Bound["*"]
}

func (o *Options) free(model string) bool    { return slices.Contains(o.Free, model) }
func (o *Options) ignores(field string) bool { return slices.Contains(o.Ignore, field) }
