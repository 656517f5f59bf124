package eventlog

import (
	"slices"
	"strconv"
	"strings"
)

// MaxOpen is how many transactions a snapshot may list. A cluster has at most max_connections +
// max_prepared_transactions of them.
const MaxOpen = 16384

// Snapshot is what a database saw as finished at one moment: every transaction below Max that is not listed.
//
// Transactions that are running are of three kinds. Those in Running. Those from Max to Next, which had begun but later
// than all that had finished: Postgres does not list them, and an event of theirs can have an early position. And those from Next on,
// which had not begun, so that whatever they append lies behind everything that was there.
//
// The zero Snapshot is that of a store whose positions are in commit order: nothing is ever open.
type Snapshot struct {
	Max     uint64   // the first transaction that had not finished and is not listed
	Next    uint64   // the first that had not begun; at least Max
	Running []uint64 // below Max, ascending
}

// ParseSnapshot reads Postgres's text of a snapshot, xmin:xmax:running, beside the next transaction id.
//
// Errors: *FieldError; ErrTooManyOpen.
func ParseSnapshot(text string, next uint64) (Snapshot, error) {
	bad := refuse("snapshot", "must be xmin:xmax:xip,xip with ascending numbers, and next not before xmax")
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return Snapshot{}, bad
	}
	low, err1 := number(parts[0])
	high, err2 := number(parts[1])
	if err1 != nil || err2 != nil || low > high || next < high {
		return Snapshot{}, bad
	}
	s := Snapshot{Max: high, Next: next}
	if parts[2] != "" {
		for text := range strings.SplitSeq(parts[2], ",") {
			x, err := number(text)
			if err != nil {
				return Snapshot{}, bad
			}
			s.Running = append(s.Running, x)
			if len(s.Running) > MaxOpen {
				return Snapshot{}, ErrTooManyOpen
			}
		}
	}
	if len(s.Running) > 0 && s.Running[0] < low || !s.valid() {
		return Snapshot{}, bad
	}
	return s, nil
}

// number refuses what ParseUint takes and Postgres does not write.
func number(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err == nil && strconv.FormatUint(n, 10) != text {
		err = strconv.ErrSyntax
	}
	return n, err
}

func (s Snapshot) valid() bool {
	for i, x := range s.Running {
		if x >= s.Max || i > 0 && x <= s.Running[i-1] {
			return false
		}
	}
	return s.Next >= s.Max && len(s.Running) <= MaxOpen
}

// String is Postgres's text.
func (s Snapshot) String() string {
	var b strings.Builder
	b.WriteString(strconv.FormatUint(s.Oldest(), 10) + ":" + strconv.FormatUint(s.Max, 10) + ":")
	for i, x := range s.Running {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(x, 10))
	}
	return b.String()
}

// Oldest is the first transaction that may not have finished: all below it had.
func (s Snapshot) Oldest() uint64 {
	if len(s.Running) > 0 {
		return s.Running[0]
	}
	return s.Max
}

// Sees reports whether the transaction had finished.
func (s Snapshot) Sees(xid uint64) bool {
	if xid >= s.Max {
		return false
	}
	_, listed := slices.BinarySearch(s.Running, xid)
	return !listed
}

// Open reports whether the transaction had begun and not finished.
func (s Snapshot) Open(xid uint64) bool { return xid < s.Next && !s.Sees(xid) }

// Empty reports whether nothing was open.
func (s Snapshot) Empty() bool { return len(s.Running) == 0 && s.Max == s.Next }

// Narrow keeps of what was open in s what a later snapshot still sees open.
func (s Snapshot) Narrow(later Snapshot) Snapshot {
	out := Snapshot{Max: max(s.Max, later.Max)}
	out.Next = max(s.Next, out.Max)
	for _, x := range s.Running {
		if !later.Sees(x) {
			out.Running = append(out.Running, x)
		}
	}
	for _, x := range later.Running {
		if x >= s.Max && x < s.Next {
			out.Running = append(out.Running, x)
		}
	}
	return out
}

// Relation is how two snapshots of one history stand to each other.
type Relation int

// The relations. Snapshots are not in one line: each of two can see what the other does not.
const (
	Same       Relation = iota + 1
	Before              // the other sees all that this one does, and more
	After               // this one sees all that the other does, and more
	Concurrent          // each sees something that the other does not
)

// Compare says how s stands to other, by what they see.
func (s Snapshot) Compare(other Snapshot) Relation {
	more, less := s.seesMore(other), other.seesMore(s)
	switch {
	case more && less:
		return Concurrent
	case more:
		return After
	case less:
		return Before
	}
	return Same
}

// seesMore reports whether s sees a transaction that other does not.
func (s Snapshot) seesMore(other Snapshot) bool {
	for _, x := range other.Running {
		if s.Sees(x) {
			return true
		}
	}
	if s.Max <= other.Max {
		return false
	}
	// From other.Max to s.Max there are s.Max - other.Max transactions; does s list every one of them?
	i, _ := slices.BinarySearch(s.Running, other.Max)
	return uint64(len(s.Running)-i) < s.Max-other.Max
}
