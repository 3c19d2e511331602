package servertest

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

// Proxy stands between clients and a server, as a network of a given delay
// that can be counted, silenced, garbled and cut. Its methods may be called at
// any time, by any goroutine.
//
// # Trips
//
// A round trip begins with bytes that a client sends when nothing is under
// way yet, or when something has been answered since the last trip began.
// Everything else that is sent before the first bytes of an answer leave the
// proxy for a client belongs to the same trip, on whatever connection. So
// requests side by side are one trip, and a request that waited for an answer
// is another:
//
//	A -->            A -->
//	B -->              <-- A
//	  <-- A          B -->
//	  <-- B            <-- B
//	one trip         two trips
//
// That counts the trips of one caller, who sends nothing on behalf of the next
// call before the last is over. Callers at the same time share trips. The
// delay must leave the caller time to send all of a trip before the first
// answer of it arrives, twice the delay later: 10 ms is plenty, 0 is not
// enough. What a client sends on a new connection before its first request
// are trips as well: make one call, then Reset.
type Proxy struct {
	Addr string // host:port on the loopback interface, instead of the server's

	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool
	flowing chan struct{} // closed unless the proxy is paused
	deaf    bool          // answers are dropped
	damage  Damage        // of answers
	random  *rand.Rand    // for damage

	toServer, toClient time.Duration // how much later bytes arrive

	closed   bool
	conns    int
	trips    int
	underWay bool // a trip has begun and nothing was answered since
}

// NewProxy starts a proxy to the server at target for the test. All bytes
// arrive delay later than they were sent, in either direction; the delay does
// not limit how many are under way. Connecting is not delayed.
func NewProxy(t testing.TB, target string, delay time.Duration) *Proxy {
	listener := try.To(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &Proxy{
		Addr: listener.Addr().String(), target: target, toServer: delay, toClient: delay, listener: listener,
		links: map[*link]bool{}, flowing: make(chan struct{}),
	}
	close(p.flowing)
	p.running.Go(func() { p.accept(t.Context()) })
	t.Cleanup(func() {
		p.listener.Close()
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Conns is the number of connections accepted since the start or Reset.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

// Open is the number of connections that are open.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Trips is the number of round trips since the start or Reset.
func (p *Proxy) Trips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// Reset sets Conns and Trips to 0. The connections stay. A trip that is under
// way is over: what is sent from now on begins another.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns, p.trips, p.underWay = 0, 0, false
}

// Pause makes the proxy a network that is silent: connections are accepted,
// bytes are taken, none arrives until Resume. Pausing twice is pausing once.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
		p.flowing = make(chan struct{})
	default:
	}
}

// Resume ends a Pause. What was sent meanwhile arrives, in order.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
	default:
		close(p.flowing)
	}
}

// DropReplies makes the proxy swallow the server's answers, while requests arrive,
// until a call with false. Swallowed answers are gone: a connection that waited for
// an answer is out of step and must be closed. DropReplies ends no trip.
func (p *Proxy) DropReplies(drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = drop
}

// Delay changes how much later bytes arrive, for what is sent from now on:
// requests on their way to the server, and answers on their way back. Bytes of
// one direction stay in order, so what is sent after a delay was shortened can
// still wait for what was sent before.
func (p *Proxy) Delay(requests, answers time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toServer, p.toClient = requests, answers
}

// Abort is Cut by a reset: either end learns at once that the connection is lost,
// and does not get bytes that were sent and not yet read.
func (p *Proxy) Abort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.abort()
	}
}

// Cut closes all connections at once, and what is under way is lost. New ones
// are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(ctx, client) })
	}
}

// serve carries bytes for a client until either side is through.
func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	p.conns++
	p.mu.Unlock()
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", p.target)
	if err != nil {
		return // with nobody behind it, the client's connection ends
	}
	defer server.Close()
	l := &link{proxy: p, client: client, server: server, gone: make(chan struct{})}
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	var directions sync.WaitGroup
	directions.Go(func() {
		l.carry(client, server, p.delayOf(&p.toServer), p.sent, func(request []byte) ([][]byte, bool) { return [][]byte{request}, false })
	})
	directions.Go(func() {
		var f frames
		l.carry(server, client, p.delayOf(&p.toClient), func() {}, func(answer []byte) ([][]byte, bool) { return p.answered(&f, answer) })
	})
	directions.Wait()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.links[l] = true
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// delayOf reads the delay of a direction.
func (p *Proxy) delayOf(direction *time.Duration) func() time.Duration {
	return func() time.Duration {
		p.mu.Lock()
		defer p.mu.Unlock()
		return *direction
	}
}

// sent is told that a client has sent something.
func (p *Proxy) sent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.underWay {
		p.trips++
		p.underWay = true
	}
}

// answered is called when an answer is due at the client, and returns the pieces to
// deliver, and whether the connection ends with them. The function may change the answer.
func (p *Proxy) answered(f *frames, answer []byte) (pieces [][]byte, end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf {
		return nil, false
	}
	p.underWay = false
	return f.hurt(answer, p.damage, p.random)
}

func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flowing
}
