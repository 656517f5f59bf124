package keysimport

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/tallystick-go/tallystick/governance/amount"
)

var errValue = errors.New("cannot be read")

// parseBool reads what Postgres, MySQL, SQLite and JSON write for a boolean.
func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "", "f", "false", "0", "n", "no":
		return false, nil
	case "t", "true", "1", "y", "yes":
		return true, nil
	}
	return false, errValue
}

// parseTime reads a timestamp as Postgres and JSON write it; without a zone it is
// UTC.
func parseTime(text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	for _, layout := range []string{
		"2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999Z07:00",
		"2006-01-02T15:04:05.999999999", time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z07",
	} {
		if t, err := time.Parse(layout, text); err == nil {
			t = t.UTC().Truncate(time.Microsecond)
			if t.Year() < 1970 || t.Year() > 9999 || t.UnixMicro() <= 0 {
				return nil, errValue
			}
			return &t, nil
		}
	}
	return nil, errValue
}

// parseSeconds reads seconds since 1970.
func parseSeconds(text string) (time.Time, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || n > 253402300799 {
		return time.Time{}, errValue
	}
	return time.Unix(n, 0).UTC(), nil
}

// parseDecimal reads a number exactly, within what a double can be.
func parseDecimal(text string) (*big.Rat, error) {
	mantissa, exponent, scientific := strings.Cut(strings.ToLower(text), "e")
	digits := strings.TrimLeft(mantissa, "+-")
	if len(mantissa) > 400 || digits == "" || strings.Trim(digits, "0123456789.") != "" {
		return nil, errValue
	}
	if n, err := strconv.Atoi(exponent); scientific && (err != nil || n < -400 || n > 400) {
		return nil, errValue
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, errValue
	}
	return r, nil
}

// microUSD is usd rounded down, within what an amount can be, and never negative.
func microUSD(usd *big.Rat) amount.MicroUSD {
	scaled := new(big.Rat).Mul(usd, big.NewRat(1_000_000, 1))
	whole := new(big.Int).Div(scaled.Num(), scaled.Denom()) // towards minus infinity: the denominator is positive
	switch {
	case whole.Sign() < 0:
		return 0
	case !whole.IsInt64():
		return amount.MicroUSD(1<<63 - 1)
	}
	return amount.MicroUSD(whole.Int64())
}

// parseList reads a list of texts: a JSON array, or an array as Postgres writes it.
func parseList(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	if strings.HasPrefix(text, "[") {
		var list []string
		if json.Unmarshal([]byte(text), &list) != nil {
			return nil, errValue
		}
		return list, nil
	}
	body, open := strings.CutPrefix(text, "{")
	body, closed := strings.CutSuffix(body, "}")
	if !open || !closed {
		return nil, errValue
	}
	if body == "" {
		return []string{}, nil
	}
	list := []string{}
	for {
		item, rest, more, err := parseItem(body)
		if err != nil {
			return nil, err
		}
		if list = append(list, item); !more {
			return list, nil
		}
		body = rest
	}
}

// parseItem reads one item of a Postgres array and what is behind its comma.
func parseItem(body string) (item, rest string, more bool, err error) {
	if !strings.HasPrefix(body, `"`) {
		item, rest, more = strings.Cut(body, ",")
		if item == "" || strings.EqualFold(item, "null") || strings.ContainsAny(item, `{}"\`) {
			return "", "", false, errValue
		}
		return item, rest, more, nil
	}
	var out strings.Builder
	for i := 1; i < len(body); i++ {
		switch body[i] {
		case '\\':
			if i++; i == len(body) {
				return "", "", false, errValue
			}
			out.WriteByte(body[i])
		case '"':
			rest = body[i+1:]
			if rest == "" {
				return out.String(), "", false, nil
			}
			rest, more = strings.CutPrefix(rest, ",")
			if !more || rest == "" {
				return "", "", false, errValue
			}
			return out.String(), rest, true, nil
		default:
			out.WriteByte(body[i])
		}
	}
	return "", "", false, errValue
}

// empty reports whether a JSON or list column says nothing.
func empty(text string) bool {
	switch strings.TrimSpace(text) {
	case "", "{}", "[]", "null", "false", "f", "0":
		return true
	}
	return false
}

// shortID makes an identifier of 96 bits out of text that cannot be one.
func shortID(prefix, text string) string {
	sum := sha256.Sum256([]byte("keysimport\x00" + prefix + "\x00" + text))
	return prefix + hex.EncodeToString(sum[:12])
}
