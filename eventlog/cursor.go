package eventlog

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Origin is the history that a cursor belongs to. Equal origins mean one history.
type Origin struct {
	System   uint64 // the cluster's identifier; 0 for a store without clusters
	Timeline uint32 // changes when another server takes over
	Log      uint64 // which log; changes when it is restored or repaired
}

// Cursor is a place in a log: what was delivered and what was not. The zero Cursor is the
// beginning of any log. It is a value: reading with it changes nothing and can be repeated.
//
// It says: everything at a position up to Through was delivered, but what the transactions that were open in its
// snapshot had put there. Where such late rows fill a page of their own, it also has the snapshot that they
// are being delivered for, and how far.
//
// Its text form (String, ParseCursor) is opaque, checked against damage, and 40 to 120 bytes as a rule; each
// open transaction adds one to five bytes. It may be kept anywhere.
type Cursor struct {
	origin  Origin
	through int64
	open    Snapshot
	target  *Snapshot
	after   int64
}

// View is what a store sees of its log in one snapshot.
type View struct {
	Origin    Origin
	Snapshot  Snapshot
	Head      int64  // the highest position that is visible, or that was pruned
	Pruned    int64  // positions up to here may be gone
	PrunedXID uint64 // the latest transaction of which rows are gone
	Now       int64  // the store's clock, microseconds
}

// At is the cursor that has delivered what is visible up to position, and nothing after it.
//
// Errors: *FieldError for a position that is not from 0 to the head; ErrPruned below what is left.
func (v View) At(position int64) (Cursor, error) {
	switch {
	case position < 0 || position > v.Head:
		return Cursor{}, refuse("position", "must be from 0 to the head of the log")
	case position < v.Pruned:
		return Cursor{}, &PrunedError{Through: position, Pruned: v.Pruned}
	}
	return Cursor{origin: v.Origin, through: position, open: v.Snapshot}, nil
}

// PrunedError says how far retention went. It is ErrPruned.
type PrunedError struct {
	Through int64 // what the cursor had delivered
	Pruned  int64 // what may be gone
}

func (e *PrunedError) Error() string {
	return fmt.Sprintf("%v: it has delivered through %d, events up to %d may be gone", ErrPruned, e.Through, e.Pruned)
}

// Is makes errors.Is(err, ErrPruned) hold.
func (e *PrunedError) Is(target error) bool { return target == ErrPruned }

// IsZero reports whether c is the beginning of any log.
func (c Cursor) IsZero() bool { return c.origin == Origin{} && c.through == 0 && c.target == nil }

// Through is the position up to which all was delivered but what was open.
func (c Cursor) Through() int64 { return c.through }

// Origin is the history that the cursor belongs to.
func (c Cursor) Origin() Origin { return c.origin }

// Open is the snapshot of the last read: it says which transactions' rows are still to come.
func (c Cursor) Open() Snapshot { return c.open }

// Bring gives a cursor that was kept in the log's own database the log's origin of today. Cursor and events went
// the same way, so that it is right for whatever became of them; for any other cursor that is not so.
func (c Cursor) Bring(o Origin) Cursor {
	if !c.IsZero() {
		c.origin = o
	}
	return c
}

// Past gives the cursor of a checkpoint of which retention went further than it had delivered: from there, with the same
// transactions still to come. It says how many positions that leaves out.
func (c Cursor) Past(v View) (next Cursor, skipped int64) {
	if c.through >= v.Pruned {
		return c, 0
	}
	skipped = v.Pruned - c.through
	c.origin, c.through = v.Origin, v.Pruned
	return c, skipped
}

// Lookup is what a store looks up to answer a read: two queries, both in one snapshot.
type Lookup struct {
	Late  *Late // first, if not nil
	After int64 // then every row behind this position, by position; not asked for where Late.Target is there
}

// Late are rows at early positions of transactions that were open: those listed in Running, and those with From ≤ xid < To. Of
// these, the rows behind After and up to Through, by position; visible in Target too where there is one.
type Late struct {
	Running        []uint64
	From, To       uint64
	After, Through int64
	Target         *Snapshot
}

// Lookup says what a read from c needs.
func (c Cursor) Lookup() Lookup {
	l := Lookup{After: c.through}
	if c.through > 0 && !c.open.Empty() {
		l.Late = &Late{Running: c.open.Running, From: c.open.Max, To: c.open.Next, After: c.after, Through: c.through, Target: c.target}
	}
	return l
}

// Page is a piece of the log.
type Page struct {
	Events []Recorded // in the order of their streams; late ones first
	Next   Cursor     // what to read from once they are dealt with
	More   bool       // there is more now: read again before waiting
	Head   int64      // the log's last position
	Now    int64      // the store's clock, microseconds
}

// Page makes the answer to a read from c of the rows that were looked up in the snapshot of v, at most limit of
// each kind. registered says that the cursor is a checkpoint that retention heeds.
//
// Errors: *ResyncError, *PrunedError.
//
// Source: ADR-020 "The cursor".
func (c Cursor) Page(v View, limit int, late, fresh []Recorded, registered bool) (Page, error) {
	if err := c.Fit(v, registered); err != nil {
		return Page{}, err
	}
	p := Page{Head: v.Head, Now: v.Now, Next: c}
	p.Next.origin = v.Origin
	if c.target != nil {
		p.Events, p.More = late, true
		if len(late) >= limit {
			p.Next.after = late[len(late)-1].Position
			return p, nil
		}
		p.Next.open, p.Next.target, p.Next.after = c.open.Narrow(*c.target), nil, 0
		return p, nil
	}
	if len(late) >= limit {
		// What finishes while these are delivered must not be mistaken for delivered: the rest is
		// judged by the snapshot of now.
		target := v.Snapshot
		p.Events, p.More = late, true
		p.Next.target, p.Next.after = &target, late[len(late)-1].Position
		return p, nil
	}
	p.Next.open, p.Next.through = v.Snapshot, v.Head
	if room := limit - len(late); len(fresh) >= room {
		fresh, p.More = fresh[:room], true
		p.Next.through = fresh[room-1].Position
	}
	p.Events = append(late, fresh...)
	return p, nil
}

// Fit reports whether a read from c can go on in the log as it is.
//
// Errors: *ResyncError, *PrunedError.
func (c Cursor) Fit(v View, registered bool) error {
	if !c.IsZero() {
		why := Reason(0)
		switch {
		case c.origin.System != v.Origin.System:
			why = ForeignCluster
		case c.origin.Log != v.Origin.Log:
			why = ForeignLog
		case c.through > v.Head:
			why = Regressed
		case c.origin.Timeline != v.Origin.Timeline:
			why = TimelineChanged
		}
		if why != 0 {
			return &ResyncError{Reason: why, Through: c.through, Head: v.Head}
		}
	}
	if c.through < v.Pruned || !registered && c.missed(v) {
		return &PrunedError{Through: c.through, Pruned: v.Pruned}
	}
	return nil
}

// missed reports whether retention may have removed late rows before they were delivered: of a
// transaction that was open here, has finished, and is not later than one of which rows are gone.
func (c Cursor) missed(v View) bool {
	for _, x := range c.open.Running {
		if x <= v.PrunedXID && v.Snapshot.Sees(x) {
			return true
		}
	}
	return c.open.Max < c.open.Next && c.open.Max <= v.PrunedXID
}

const (
	cursorFormat = 1
	// MaxCursor bounds the text of a cursor.
	MaxCursor = 512 << 10
)

// String is the cursor's text; the zero Cursor's is empty.
func (c Cursor) String() string {
	if c.IsZero() {
		return ""
	}
	b := []byte{cursorFormat}
	b = binary.BigEndian.AppendUint64(b, c.origin.System)
	b = binary.AppendUvarint(b, uint64(c.origin.Timeline))
	b = binary.BigEndian.AppendUint64(b, c.origin.Log)
	b = binary.AppendUvarint(b, uint64(c.through))
	b = appendSnapshot(b, c.open)
	if c.target != nil {
		b = binary.AppendUvarint(b, uint64(c.after))
		b = appendSnapshot(b, *c.target)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// appendSnapshot writes the running transactions as distances: they lie close together.
func appendSnapshot(b []byte, s Snapshot) []byte {
	b = binary.AppendUvarint(b, s.Max)
	b = binary.AppendUvarint(b, s.Next-s.Max)
	b = binary.AppendUvarint(b, uint64(len(s.Running)))
	last := s.Max
	for i := len(s.Running) - 1; i >= 0; i-- {
		b = binary.AppendUvarint(b, last-s.Running[i])
		last = s.Running[i]
	}
	return b
}

// ParseCursor reads a cursor's text.
//
// Errors: *FieldError.
func ParseCursor(text string) (Cursor, error) {
	bad := refuse("cursor", "is not one of this package's, or was damaged")
	if text == "" {
		return Cursor{}, nil
	}
	if len(text) > MaxCursor {
		return Cursor{}, bad
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < 5 || raw[0] != cursorFormat {
		return Cursor{}, bad
	}
	body, sum := raw[:len(raw)-4], binary.BigEndian.Uint32(raw[len(raw)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return Cursor{}, bad
	}
	r := reader{rest: body[1:]}
	var c Cursor
	c.origin.System = r.fixed()
	c.origin.Timeline = uint32(r.below(1 << 32))
	c.origin.Log = r.fixed()
	c.through = int64(r.below(1 << 63))
	c.open = r.snapshot()
	if len(r.rest) > 0 {
		c.after = int64(r.below(1 << 63))
		target := r.snapshot()
		c.target = &target
	}
	if r.failed || len(r.rest) > 0 || c.String() != text { // one spelling only
		return Cursor{}, bad
	}
	return c, nil
}

// MarshalText implements encoding.TextMarshaler.
func (c Cursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Cursor) UnmarshalText(text []byte) error {
	parsed, err := ParseCursor(string(text))
	if err == nil {
		*c = parsed
	}
	return err
}

// reader reads the parts of a cursor; after a failure it reads zeros.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) fixed() uint64 {
	if len(r.rest) < 8 {
		r.failed, r.rest = true, nil
		return 0
	}
	n := binary.BigEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return n
}

func (r *reader) below(limit uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n >= limit {
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) snapshot() Snapshot {
	s := Snapshot{Max: r.below(1 << 63)}
	s.Next = s.Max + r.below(1<<63)
	count := r.below(MaxOpen + 1)
	if count == 0 || uint64(len(r.rest)) < count {
		r.failed = r.failed || count > 0
		return s
	}
	s.Running = make([]uint64, count)
	last := s.Max
	for i := int(count) - 1; i >= 0; i-- {
		d := r.below(1 << 63)
		if d == 0 || d > last {
			r.failed = true
			return s
		}
		last -= d
		s.Running[i] = last
	}
	return s
}
