// Package pgwire is a proxy for the Postgres protocol that breaks a connection at one chosen
// message. It does not import testing: tests go through it by the DSN that it gives.
//
// A cut is clean on the server's side: what was let through is read to the last byte before the
// server sees the end. So the message at which a connection breaks says exactly what the server did.
package pgwire

import (
	"errors"
	"net"
	"net/url"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// Side says who sent a message.
type Side int

// The sides.
const (
	Client Side = iota + 1
	Server
)

func (s Side) String() string {
	if s == Client {
		return "client"
	}
	return "server"
}

// End is what becomes of a connection.
type End int

// The ends.
const (
	Cut  End = iota + 1 // both sides see that it is over
	Hole                // it stays open, and nothing comes through any more in either direction
)

// Fault is what happens at one message.
type Fault struct {
	From Side // whose messages are counted
	At   int  // at which of them, from 1, counted over all connections since Arm
	Pass bool // that one still gets through
	Then End  // what becomes of its connection
	Gone bool // no other connection gets through either, open or new, until Heal
}

// Message is one message that the proxy has read.
type Message struct {
	From Side
	Type byte   // the protocol's letter; 0 for what opens a connection
	SQL  string // of what is executed (Execute, Query), where the statement is known
	Lost bool   // it did not get through
}

// Proxy stands between clients and one server.
//
// Concurrency: safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	dsn      string
	work     sync.WaitGroup

	mu       sync.Mutex
	links    map[*link]struct{}
	fault    *Fault // armed
	fired    chan struct{}
	counts   [Server + 1]int
	messages []Message
	end      End  // of every connection, until Heal
	deaf     bool // requests to cancel get lost
	closed   bool
}

// Start gives a proxy in front of the server of a DSN, which must be a URL with one TCP host and sslmode=disable.
func Start(dsn string) (*Proxy, error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("pgwire: the DSN is not readable") // the driver's text can hold the password
	}
	u, err := url.Parse(dsn)
	if err != nil || config.TLSConfig != nil || len(config.Fallbacks) > 0 {
		return nil, errors.New("pgwire: the DSN must be a URL with one host and sslmode=disable")
	}
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	if network != "tcp" {
		return nil, errors.New("pgwire: the server must listen on TCP")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u.Host = l.Addr().String()
	p := &Proxy{listener: l, target: address, dsn: u.String(), links: map[*link]struct{}{}, fired: make(chan struct{})}
	p.work.Go(p.accept)
	return p, nil
}

// DSN leads through the proxy.
func (p *Proxy) DSN() string { return p.dsn }

// Arm forgets what was counted and read so far and waits for the fault's message; the zero Fault
// only counts. The channel is closed when the fault has happened.
func (p *Proxy) Arm(f Fault) (happened <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.fired, p.counts, p.messages = &f, make(chan struct{}), [Server + 1]int{}, nil
	if f.At <= 0 {
		p.fault = nil
	}
	return p.fired
}

// Messages returns what was read since Arm, in the order in which it was read; of one side it is
// the order in which it was sent.
func (p *Proxy) Messages() []Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Message(nil), p.messages...)
}

// Sever ends every connection in this way, open and new ones, until Heal.
func (p *Proxy) Sever(end End) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sever(end)
}

// sever is Sever; the caller holds mu.
func (p *Proxy) sever(end End) {
	p.end = end
	for l := range p.links {
		l.finish(end)
	}
}

// Heal lets new connections through. Connections in a hole are cut: what waits in them comes to nothing.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end, p.deaf = 0, false
	for l := range p.links {
		if l.ended {
			l.finish(Cut)
		}
	}
}

// Deafen makes requests to cancel a query get lost, until Heal.
func (p *Proxy) Deafen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

// Close cuts everything and waits until nothing of the proxy runs any more.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.drop()
	}
	p.mu.Unlock()
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		end := p.end
		p.mu.Unlock()
		if end == Cut {
			_ = client.Close()
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.join(client.(*net.TCPConn), server.(*net.TCPConn))
	}
}

func (p *Proxy) join(client, server *net.TCPConn) {
	l := &link{p: p, client: client, server: server, statements: map[string]string{}, portals: map[string]string{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_, _ = client.Close(), server.Close()
		return
	}
	p.links[l] = struct{}{}
	if p.end != 0 {
		l.finish(p.end)
	}
	l.running = 2
	p.work.Go(func() { defer l.gone(); l.fromClient() })
	p.work.Go(func() { defer l.gone(); l.fromServer() })
}

// verdict is what is to be done with a message.
type verdict struct {
	lost bool // it does not get through
	end  End  // then the connection ends, if not 0
}

// read notes a message and says what becomes of it.
func (p *Proxy) read(l *link, m Message) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.ended || l.last != 0 && m.From != l.last {
		return verdict{lost: true}
	}
	var v verdict
	if m.Type == 0 && m.SQL == cancelRequest && p.deaf {
		v.lost, v.end = true, Cut
	}
	p.counts[m.From]++
	if f := p.fault; f != nil && f.From == m.From && p.counts[m.From] == f.At {
		v = verdict{lost: !f.Pass, end: f.Then}
		l.last = m.From // from here on the other side is not heard any more: no answer outruns the end
	}
	m.Lost = v.lost
	p.messages = append(p.messages, m)
	return v
}

// happen ends a connection, at the fault's message where it is due to one.
func (p *Proxy) happen(l *link, end End) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.finish(end)
	if f := p.fault; f != nil && p.counts[f.From] >= f.At {
		p.fault = nil
		if f.Gone {
			p.sever(f.Then)
		}
		close(p.fired)
	}
}
