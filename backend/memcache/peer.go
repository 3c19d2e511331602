package memcache

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/internal/redial"
)

// gate bounds the requests in flight: a token for each goroutine that may have
// a request.
type gate chan struct{}

// maxUndos bounds the undos that are under way to a server, besides the requests
// in the gate. An undo is never held up by requests that came after its addition.
const maxUndos = 1 << 14

func (g gate) enter() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

func (g gate) leave() { <-g }

// crowded is the error of a request that found no place in the gate g.
func (p *peer) crowded(g gate) error {
	return fmt.Errorf("memcache: %s%w: %d requests were in flight, as many as Config.MaxInFlight allows", p.where, os.ErrDeadlineExceeded, cap(g))
}

// peer is a server with its connections and the requests in flight.
type peer struct {
	address *server
	where   string // prefix of errors: the server, if known
	gate    gate
	undos   gate // for undos, and those that wait for a token of the gate
	timeout time.Duration
	maxIdle int
	connect *redial.Dialer

	transport *transport // the shared connections; nil for NewFromClient

	// shared is the client of NewFromClient, with connections of its own. Then
	// address and connect are nil, and there are no listeners.
	shared *gomemcache.Client

	// answers counts the answers on all connections. If answers has not changed
	// since an addition was sent, the server is silent.
	answers atomic.Uint64
	silence silence

	mu        sync.Mutex
	idle      []*link
	listening map[*link]struct{} // at most twice cap(gate), half of them with a token
	closed    bool
}

// dial connects within timeout. A dial that lasts longer counts as a refusal by
// the server.
func (p *peer) dial() (net.Conn, error) {
	return p.connect.DialContext(context.Background(), p.address.network, p.address.name)
}

// borrow returns a link for the use of the caller alone. The server may have
// closed the connection: see link.ready.
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

// giveBack ends the use of a link, and its listening.
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

// listen records that l goes on waiting for an answer whose call has returned,
// unless p is closed. Beyond cap(gate) listeners l is to keep its token, and new
// requests wait.
func (p *peer) listen(l *link) (keep, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, false
	}
	keep = len(p.listening) >= cap(p.gate)
	if p.listening == nil {
		p.listening = map[*link]struct{}{}
	}
	p.listening[l] = struct{}{}
	return keep, true
}

// answered records bytes from the server.
func (p *peer) answered() {
	p.answers.Add(1)
	if p.silence.on.Load() {
		p.silence.end()
	}
}

// close closes the idle and the listening connections. Connections in use are
// closed when given back.
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
	if p.transport != nil {
		p.transport.close()
	}
}
