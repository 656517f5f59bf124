package server

import (
	"errors"
	"fmt"
	"os"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/governance/pricing"
)

// ErrPrices means that the price list cannot be used.
var ErrPrices = errors.New("server: the price list cannot be used")

// loadPrices reads the list that a configuration names, or the bundled one.
func loadPrices(c config.Prices) (*pricing.Catalogue, error) {
	if c.File == "" {
		return pricing.Bundled()
	}
	f, err := os.Open(c.File)
	if err != nil {
		return nil, fmt.Errorf("%w: prices.file: %w", ErrPrices, err)
	}
	defer f.Close()
	catalogue, _, err := pricing.ParseLiteLLM(f, &pricing.Options{Aliases: c.Aliases, Free: c.Free})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPrices, err)
	}
	return catalogue, nil
}
