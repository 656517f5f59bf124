package usage

import "math"

// num is one number as it was written. The zero value is absent.
type num struct {
	seen bool // written, if only as null
	null bool
	Count
}

// set takes a value for a name. A second value for the same name makes it
// Unknown: which of them counts is anybody's guess.
func (n *num) set(raw []byte) {
	if n.seen {
		*n = num{seen: true, Count: Count{State: worse(Unknown, n.State), N: n.N}}
		if parseCount(raw).State == Invalid {
			n.State = Invalid
		}
		return
	}
	n.seen = true
	if isNull(raw) {
		n.null = true
		return
	}
	n.Count = parseCount(raw)
}

// given reports whether there is a value, good or bad.
func (n num) given() bool { return n.seen && !n.null }

// or returns the count, or d where nothing was given.
func (n num) or(d Count) Count {
	if n.given() {
		return n.Count
	}
	return d
}

// parseCount applies the rules for numbers of the package comment. raw is
// valid JSON.
func parseCount(raw []byte) Count {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return Count{}
	}
	digits, negative := raw, raw[0] == '-'
	if negative {
		digits = raw[1:]
	}
	var n int64
	for i, c := range digits {
		if c < '0' || c > '9' {
			return parseFraction(digits[i:], n != 0, negative)
		}
		d := int64(c - '0')
		if n > (math.MaxInt64-d)/10 {
			return Count{State: Invalid}
		}
		n = n*10 + d
	}
	if negative {
		if n == 0 {
			return Count{} // -0
		}
		return Count{State: Invalid}
	}
	return Count{State: Known, N: n}
}

// parseFraction judges a number that is not written as plain digits.
func parseFraction(rest []byte, nonzero, negative bool) Count {
	half, exponent := false, false
	for _, c := range rest {
		switch {
		case c == 'e' || c == 'E':
			exponent = true
		case !exponent && c >= '1' && c <= '9':
			half, nonzero = true, true
		}
	}
	if negative && nonzero || half && !exponent {
		return Count{State: Invalid}
	}
	return Count{}
}

// fold takes a later report of a cumulative number: it replaces the earlier
// one. A number that goes down is not cumulative, so neither reading is sure.
func (n *num) fold(next num) {
	if !next.given() {
		n.seen = n.seen || next.seen
		return
	}
	if !n.given() {
		*n = next
		return
	}
	state, high := worse(n.State, next.State), max(n.N, next.N)
	if state == Known && next.N < n.N {
		state = Unknown
	}
	*n = num{seen: true, Count: Count{State: state, N: high}}
}
