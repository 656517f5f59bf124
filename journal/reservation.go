package journal

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/governance/amount"
)

// ID names one reservation for ever: a version 7 UUID, so that ids lie side by side in
// the order in which they were made.
type ID [16]byte

// NewID returns a fresh id.
func NewID() ID {
	var id ID
	_, _ = rand.Read(id[:])
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli())<<16)
	copy(id[:6], ms[:6])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

func (id ID) String() string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Need is what one attempt may cost at most in one account.
type Need struct {
	Account escrow.Account
	Amount  amount.MicroUSD
	// Soft says that the account is a meter: it counts and refuses nothing.
	Soft bool
}

// Reservation asks for the needs of one attempt, all or none.
type Reservation struct {
	ID    ID
	Needs []Need // each account once
}

// mostNeeds bounds the accounts of one reservation, and mostPortions its parts.
const (
	mostNeeds    = 256
	mostPortions = 4096
)

func (r *Reservation) validate() error {
	if r.ID == (ID{}) {
		return invalid("id", "must not be zero")
	}
	if len(r.Needs) > mostNeeds {
		return invalid("needs", fmt.Sprintf("must not be more than %d", mostNeeds))
	}
	for i := range r.Needs {
		n := &r.Needs[i]
		if n.Amount < 0 {
			return invalid(fmt.Sprintf("needs[%d].amount", i), "must not be negative")
		}
		if n.Account.Policy == "" || n.Account.Rule == "" {
			return invalid(fmt.Sprintf("needs[%d].account", i), "must name a policy and a rule")
		}
		for j := range i {
			if r.Needs[j].Account == n.Account {
				return invalid(fmt.Sprintf("needs[%d].account", i), "is there twice")
			}
		}
	}
	return nil
}

// fingerprint is a digest of the needs: a replay must ask for the same.
func (r *Reservation) fingerprint() [16]byte {
	buf := make([]byte, 0, 128)
	for i := range r.Needs {
		n := &r.Needs[i]
		buf = appendAccount(buf, &n.Account)
		buf = binary.BigEndian.AppendUint64(buf, uint64(n.Amount))
		if n.Soft {
			buf = append(buf, 1)
		} else {
			buf = append(buf, 0)
		}
	}
	return digest(buf)
}

// AccountKey is a digest of an account for stores to find it by.
func AccountKey(a escrow.Account) [16]byte { return digest(appendAccount(make([]byte, 0, 128), &a)) }

func digest(buf []byte) [16]byte {
	sum := sha256.Sum256(buf)
	return [16]byte(sum[:16])
}

// appendAccount puts the length before every text, so that no two accounts look the same.
func appendAccount(buf []byte, a *escrow.Account) []byte {
	for _, part := range [...]string{a.Policy, a.Rule, a.Subject.Team, a.Subject.User} {
		buf = binary.AppendUvarint(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	buf = append(buf, byte(a.Period))
	buf = binary.BigEndian.AppendUint64(buf, uint64(a.Window.Start))
	return binary.BigEndian.AppendUint64(buf, uint64(a.Window.End))
}

// State is where a reservation stands. The numbers are stored and never change.
type State uint8

// The states of a reservation.
const (
	Reserved  State = iota + 1 // on its way
	Settled                    // the cost is known
	Uncertain                  // the cost is not known: the bound is charged
	Unsent                     // nothing was sent: nothing is charged
	Burned                     // its process ended first: the bound is charged
)

func (s State) String() string {
	switch s {
	case Reserved:
		return "reserved"
	case Settled:
		return "settled"
	case Uncertain:
		return "uncertain"
	case Unsent:
		return "unsent"
	case Burned:
		return "burned"
	}
	return "none"
}

// Outcome is what became of an attempt. The zero Outcome says that nothing is known.
type Outcome struct {
	State State           // Settled, Uncertain or Unsent; zero is Uncertain
	Cost  amount.MicroUSD // of Settled: used; of Uncertain: what was seen, which is never charged by itself
}

// Used says that the attempt cost exactly so much.
func Used(cost amount.MicroUSD) Outcome { return Outcome{Settled, cost} }

// Unknown says that nobody knows what the attempt cost; seen is what is known of it.
func Unknown(seen amount.MicroUSD) Outcome { return Outcome{Uncertain, seen} }

// NotSent says that it is proved that the attempt cost nothing.
func NotSent() Outcome { return Outcome{State: Unsent} }

func (o Outcome) clean() (Outcome, error) {
	if o.State == 0 {
		o.State = Uncertain
	}
	switch {
	case o.State != Settled && o.State != Uncertain && o.State != Unsent:
		return o, invalid("outcome.state", "must be settled, uncertain or unsent")
	case o.Cost < 0:
		return o, invalid("outcome.cost", "must not be negative")
	case o.State == Unsent && o.Cost != 0:
		return o, invalid("outcome.cost", "must be zero for an attempt that was not sent")
	}
	return o, nil
}

// Record is a reservation as it is stored.
type Record struct {
	ID          ID
	Fingerprint [16]byte // of its needs
	State       State
	Cost        amount.MicroUSD // of its outcome
	Portions    []Portion
	Number      int64 // among those that ended, from 1; zero while it is on its way
}

// Portion is what a reservation holds of one grant or meter.
type Portion struct {
	Need   int // which of the reservation's needs it covers
	Grant  escrow.GrantID
	Amount amount.MicroUSD
}

const portionsVersion = 1

// AppendPortions encodes portions, which are in the order of their needs.
func AppendPortions(dst []byte, list []Portion) []byte {
	dst = append(dst, portionsVersion)
	for i := range list {
		dst = binary.AppendUvarint(dst, uint64(list[i].Need))
		dst = append(dst, list[i].Grant[:]...)
		dst = binary.AppendUvarint(dst, uint64(list[i].Amount))
	}
	return dst
}

// ParsePortions decodes what AppendPortions wrote, and nothing else.
//
// Errors: ErrCorrupt.
func ParsePortions(p []byte) ([]Portion, error) {
	bad := corrupt("the portions of a reservation cannot be read")
	if len(p) == 0 || p[0] != portionsVersion {
		return nil, bad
	}
	p = p[1:]
	var list []Portion
	for len(p) > 0 {
		var one Portion
		need, n := uvarint(p)
		if n <= 0 || need >= mostNeeds || len(p) < n+16 || len(list) == mostPortions {
			return nil, bad
		}
		one.Need = int(need)
		if len(list) > 0 && one.Need < list[len(list)-1].Need {
			return nil, bad
		}
		copy(one.Grant[:], p[n:])
		p = p[n+16:]
		sum, n := uvarint(p)
		if n <= 0 || sum > 1<<63-1 {
			return nil, bad
		}
		one.Amount, p = amount.MicroUSD(sum), p[n:]
		list = append(list, one)
	}
	return list, nil
}

// uvarint reads the shortest form only: one value has one encoding.
func uvarint(p []byte) (uint64, int) {
	v, n := binary.Uvarint(p)
	if n > 1 && p[n-1] == 0 {
		return 0, -1
	}
	return v, n
}
