package governance

import (
	"maps"
	"math"
	"slices"

	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/quota"
	"github.com/tallystick-go/tallystick/ratelimit"
)

// books is the naive model of what the stores hold: permits as plain values, and
// every account added up from them anew each time it is asked for. It trusts the
// pure cores (calendar, bucket) and nothing of this package.
type books struct {
	now     int64
	horizon int64
	permits map[PermitID]*paper
	windows map[ConstraintID]quota.Window
	frozen  map[AccountKey]bool
	granted map[AccountKey]int64
	buckets map[ConstraintID]*ratelimit.Bucket
	slots   map[ConstraintID]map[uint64]share
	current map[string]*keys.Principal // what is in force
	taken   map[ConstraintID]bool      // rows that another transaction holds now
}

type share struct{ count, expires int64 }

// paper is a permit of the model.
type paper struct {
	id          PermitID
	owner       Nonce
	asked       *asking // nil when the id was minted
	principal   *keys.Principal
	flags       Flags // free or unpriced
	tokens      int64
	cost        int64
	where       []place
	incarnation uint64

	state      State
	outcome    Outcome
	resolution Outcome
	tokensOpen bool // uncertain
	costOpen   bool
}

// asking is what a caller asked for.
type asking struct {
	key, model string
	bound      Bound
}

type place struct {
	id     ConstraintID
	kind   Kind
	window int64
	pieces []piece
}

type piece struct {
	seq    uint64
	amount int64
}

func newBooks() *books {
	return &books{
		permits: map[PermitID]*paper{}, windows: map[ConstraintID]quota.Window{}, frozen: map[AccountKey]bool{}, granted: map[AccountKey]int64{},
		buckets: map[ConstraintID]*ratelimit.Bucket{}, slots: map[ConstraintID]map[uint64]share{},
		current: map[string]*keys.Principal{}, taken: map[ConstraintID]bool{},
	}
}

// sum adds up an account from its permits.
func (b *books) sum(key AccountKey, kind Kind) (a quota.Account) {
	a.Granted, a.Frozen = b.granted[key], b.frozen[key]
	for _, p := range b.permits {
		for _, w := range p.where {
			if w.id != key.Constraint || w.window != key.WindowStart {
				continue
			}
			bound, said, found := p.tokens, p.outcome.Tokens, p.resolution.Tokens
			if kind == KindMoney {
				bound, said, found = p.cost, p.outcome.Cost, p.resolution.Cost
			}
			switch {
			case p.state == StateOpen:
				a.Reserved += bound
			case p.state == StateCancelled:
			case said.Certainty == Known:
				a.Consumed += said.Value
			case p.state == StateSettled:
				a.Uncertain += bound
				a.Observed += seen(said)
			default:
				a.Consumed += found.Value
				a.Observed += seen(said)
			}
		}
	}
	return a
}

func seen(m Measure) int64 {
	if m.Certainty == Impossible {
		return 0
	}
	return m.Value
}

// answer is what the model expects of a call.
type expected struct {
	what    string // as nameOf says
	changed bool
	retry   int64 // µs, of a refusal that can be retried
	binding int
}

func no(what string) expected { return expected{what: what} }

// window returns where a constraint's clock is, without entering it.
func (b *books) window(c *Constraint) quota.Window {
	if c.Kind != KindTokenQuota && c.Kind != KindMoney {
		return quota.Window{Start: 0, End: math.MaxInt64}
	}
	prev, used := b.windows[c.ID]
	w, err := quota.Window{}, error(nil)
	if used {
		w, err = c.Calendar.Roll(prev, b.now)
	} else {
		w, err = c.Calendar.Window(b.now)
	}
	if err != nil {
		panic(err)
	}
	return w
}

func (b *books) bucket(id ConstraintID) *ratelimit.Bucket {
	if b.buckets[id] == nil {
		b.buckets[id] = new(ratelimit.Bucket)
	}
	return b.buckets[id]
}

func (b *books) inUse(id ConstraintID) (n int64) {
	for _, s := range b.slots[id] {
		if s.expires > b.now {
			n += s.count
		}
	}
	return n
}

func most(limit int64) ratelimit.Limit {
	return ratelimit.Per(min(limit, ratelimit.MaxPerMinute))
}

// judge says why an amount does not fit, and how long to wait.
func (b *books) judge(id ConstraintID, kind Kind, w quota.Window, limit, need int64) (Reason, int64) {
	switch kind {
	case KindRequestRate, KindTokenRate:
		v, err := b.bucket(id).Peek(b.now, most(limit), need)
		switch {
		case err != nil:
			panic(err)
		case v.Never:
			return ReasonNeverFits, 0
		case !v.OK:
			return ReasonRate, v.RetryAfter.Microseconds()
		}
	case KindConcurrency:
		if need > limit {
			return ReasonNeverFits, 0
		}
		over := b.inUse(id) + need - limit
		if over <= 0 {
			return 0, 0
		}
		list := slices.Collect(maps.Values(b.slots[id]))
		slices.SortFunc(list, func(a, b share) int { return int(a.expires - b.expires) })
		for _, s := range list {
			if s.expires > b.now {
				if over -= s.count; over <= 0 {
					return ReasonConcurrency, s.expires - b.now
				}
			}
		}
	default:
		a := b.sum(AccountKey{id, w.Start}, kind)
		settled := a.Consumed + a.Uncertain + a.Granted
		switch {
		case a.Frozen:
			return ReasonFrozen, 0
		case need > limit:
			return ReasonNeverFits, 0
		case settled+a.Reserved+need <= limit:
			return 0, 0
		case settled+need <= limit:
			return ReasonReserved, 1_000_000
		case kind == KindMoney:
			return ReasonMoney, 0
		default:
			return ReasonQuota, w.End - b.now
		}
	}
	return 0, 0
}

// needs is what a bound asks of a constraint.
func needs(kind Kind, bound Bound) int64 {
	switch kind {
	case KindTokenRate, KindTokenQuota:
		return int64(bound.Tokens)
	case KindMoney:
		return int64(bound.Cost)
	default:
		return 1
	}
}

// inForce compares a principal with what is in force.
func (b *books) inForce(p *keys.Principal) string {
	now, ok := b.current[p.KeyID]
	switch {
	case !ok || now.Key.RevokedAt != nil:
		return "refused unauthenticated"
	case now.Key.Revision != p.Key.Revision || now.Team.Revision != p.Team.Revision:
		return "stale"
	}
	return ""
}

// verdict combines reasons as the table of refusals has it.
func verdict(reasons []Reason, waits []int64) expected {
	a := expected{what: "refused " + slices.Min(reasons).String(), binding: len(reasons)}
	if slices.Min(reasons) >= ReasonQuota {
		a.retry = slices.Max(waits)
	}
	return a
}
