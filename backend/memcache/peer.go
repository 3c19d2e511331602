package memcache

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/internal/redial"
)

// gate bounds the requests under way: one token for each goroutine that may
// have one.
type gate chan struct{}

func (g gate) enter() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

func (g gate) leave() { <-g }

// peer is a server with the connections to it, and with what is under way there.
type peer struct {
	address *server
	where   string // to begin errors with: the server, if it is known
	gate    gate
	timeout time.Duration
	maxIdle int
	connect *redial.Dialer

	// shared is the client of NewFromClient, which has connections of its own;
	// address and connect are nil then, and there are no listeners.
	shared *gomemcache.Client

	// answers counts the answers that have come, on any connection. An addition
	// after which it has not moved is one that the server is silent about.
	answers atomic.Uint64
	silence silence

	mu        sync.Mutex
	idle      []*link
	listening map[*link]struct{} // at most cap(gate)
	closed    bool
}

// dial connects, within timeout. A dial that takes longer is held against the
// server, as one that is refused.
func (p *peer) dial() (net.Conn, error) {
	return p.connect.DialContext(context.Background(), p.address.network, p.address.name)
}

// borrow returns a link that nobody else uses. Its connection may have been
// closed by the server: see link.ready.
func (p *peer) borrow() *link {
	if p.shared != nil {
		return &link{peer: p, client: p.shared}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		l := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		return l
	}
	return newLink(p, p.timeout)
}

// giveBack takes a link back. If it has been listening, it does so no longer.
func (p *peer) giveBack(l *link) {
	if p.shared != nil {
		return
	}
	p.mu.Lock()
	delete(p.listening, l)
	keep := !p.closed && len(p.idle) < p.maxIdle && l.conn != nil && l.conn.open
	if keep {
		p.idle = append(p.idle, l)
	}
	p.mu.Unlock()
	if !keep {
		l.drop()
	}
}

// listen tells whether l may go on waiting for an answer that nobody else waits
// for any more.
func (p *peer) listen(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.listening[l]; ok {
		return true
	}
	if p.closed || len(p.listening) >= cap(p.gate) {
		return false
	}
	if p.listening == nil {
		p.listening = map[*link]struct{}{}
	}
	p.listening[l] = struct{}{}
	return true
}

// answered takes note of bytes that came from the server.
func (p *peer) answered() {
	p.answers.Add(1)
	if p.silence.on.Load() {
		p.silence.end()
	}
}

// close closes the connections that are idle, and those that are listened on.
// The others are closed when they come back.
func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.idle {
		l.drop()
	}
	p.idle = nil
	for l := range p.listening {
		l.conn.Conn.Close()
	}
}
