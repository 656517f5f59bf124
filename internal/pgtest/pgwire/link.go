package pgwire

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgproto3"
)

// cancelRequest stands for the message that asks to cancel another connection's query.
const cancelRequest = "cancel"

const (
	cancelCode = 80877102
	longest    = 1 << 26 // of a message; more is not of this protocol
)

// link is one connection through the proxy.
type link struct {
	p              *Proxy
	client, server *net.TCPConn

	// Guarded by p.mu.
	ended   bool
	last    Side // the side whose message ends it: the other is not heard any more; zero: not yet
	how     End
	running int

	// Of fromClient alone.
	statements, portals map[string]string
}

// finish ends the link; the caller holds p.mu. A hole can be cut later.
func (l *link) finish(end End) {
	if l.ended && l.how == Cut {
		return
	}
	l.ended, l.how = true, end
	if end == Cut {
		// The server reads what it was sent before it sees the end; a plain close could take that away from it.
		_ = l.server.CloseWrite()
		_ = l.client.Close()
	}
}

// drop closes the link whatever is still in it.
func (l *link) drop() {
	l.ended, l.how = true, Cut
	_, _ = l.client.Close(), l.server.Close()
}

// gone counts the link's two halves down.
func (l *link) gone() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.running--; l.running == 0 {
		l.drop()
		delete(l.p.links, l)
	}
}

// over reports whether the link has ended, and whether in a hole.
func (l *link) over() (ended, hole bool) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.ended, l.ended && l.how == Hole
}

func (l *link) fromClient() {
	in, out := bufio.NewReaderSize(l.client, 1<<16), bufio.NewWriterSize(l.server, 1<<16)
	for first := true; ; first = false {
		body, kind, err := readMessage(in, first)
		if err != nil {
			if ended, _ := l.over(); !ended {
				_ = out.Flush()
				l.p.mu.Lock()
				l.finish(Cut)
				l.p.mu.Unlock()
			}
			return
		}
		v := l.p.read(l, Message{From: Client, Type: kind, SQL: l.statement(kind, body, first)})
		l.pass(out, body, v, in.Buffered() == 0)
	}
}

func (l *link) fromServer() {
	in, out := bufio.NewReaderSize(l.server, 1<<16), bufio.NewWriterSize(l.client, 1<<16)
	for {
		body, kind, err := readMessage(in, false)
		if err != nil {
			if _, hole := l.over(); !hole { // the client must not learn of it through a hole
				_ = out.Flush()
				l.p.mu.Lock()
				l.finish(Cut)
				l.p.mu.Unlock()
			}
			return
		}
		l.pass(out, body, l.p.read(l, Message{From: Server, Type: kind}), in.Buffered() == 0)
	}
}

// pass forwards a message or not. Writes are gathered while more is there to be read.
func (l *link) pass(out *bufio.Writer, body []byte, v verdict, flush bool) {
	if !v.lost {
		_, _ = out.Write(body) // an error comes back by the flush, and what was read is over then
	}
	if flush || v.end != 0 {
		_ = out.Flush()
	}
	if v.end != 0 {
		l.p.happen(l, v.end)
	}
}

// readMessage reads one message with its head. The first of a client has no letter.
func readMessage(in *bufio.Reader, first bool) (whole []byte, kind byte, err error) {
	head := 5
	if first {
		head = 4
	}
	whole = make([]byte, head)
	if _, err := io.ReadFull(in, whole); err != nil {
		return nil, 0, err
	}
	if !first {
		kind = whole[0]
	}
	n := int64(binary.BigEndian.Uint32(whole[head-4:])) - 4
	if n < 0 || n > longest {
		return nil, 0, io.ErrUnexpectedEOF
	}
	whole = append(whole, make([]byte, n)...)
	_, err = io.ReadFull(in, whole[head:])
	return whole, kind, err
}

// statement remembers what a client prepares and binds, and says what it executes.
func (l *link) statement(kind byte, whole []byte, first bool) string {
	if first {
		if len(whole) >= 8 && binary.BigEndian.Uint32(whole[4:]) == cancelCode {
			return cancelRequest
		}
		return ""
	}
	body := whole[5:]
	switch kind {
	case 'P':
		var m pgproto3.Parse
		if m.Decode(body) == nil {
			l.statements[m.Name] = m.Query
		}
	case 'B':
		var m pgproto3.Bind
		if m.Decode(body) == nil {
			l.portals[m.DestinationPortal] = l.statements[m.PreparedStatement]
		}
	case 'E':
		var m pgproto3.Execute
		if m.Decode(body) == nil {
			return l.portals[m.Portal]
		}
	case 'Q':
		var m pgproto3.Query
		if m.Decode(body) == nil {
			return m.String
		}
	}
	return ""
}
