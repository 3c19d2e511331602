package memcache

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
)

// link is a connection to a server, with a gomemcache client that uses no other
// connection. So the store knows on which connection an answer is awaited, and
// sends a taking back on the connection that the addition was answered on: a
// server that has restarted since never gets the taking back. A link is used by
// one goroutine at a time.
type link struct {
	peer    *peer
	client  *gomemcache.Client
	conn    *conn         // nil before the first request, and for NewFromClient
	timeout time.Duration // from the first byte of a request to the last byte of its answer

	call      *call // the call whose addition is in flight, nil if none is
	keepOpen  bool  // Close keeps the connection
	listening bool  // the token of the gate is given back; under the lock of call, like until
	until     time.Time
}

// listenFor is the time for which the answer to an addition is awaited after
// its call has returned.
const listenFor = time.Minute

// errLost is the error of a request on a connection that is closed, if no other
// connection will do.
var errLost = errors.New("the connection was lost")

func newLink(p *peer, timeout time.Duration) *link {
	l := &link{peer: p, timeout: timeout}
	l.client = gomemcache.NewFromSelector(singleServer{p.address})
	l.client.MaxIdleConns = 1
	l.client.DialContext = l.dialOnce
	return l
}

// singleServer is a selector for a single server.
type singleServer struct{ address *server }

func (o singleServer) PickServer(string) (net.Addr, error)    { return o.address, nil }
func (o singleServer) Each(f func(addr net.Addr) error) error { return f(o.address) }

// dialOnce gives the connection of the link to the client, once.
func (l *link) dialOnce(context.Context, string, string) (net.Conn, error) {
	if l.conn == nil || l.conn.inClient {
		return nil, errLost
	}
	l.conn.inClient = true
	return l.conn, nil
}

// ready connects if the link has no connection, or if the server has closed the
// connection. An addition must not be repeated once sent, so without ready
// every idle connection would fail a call after a restart of the server.
func (l *link) ready() error {
	if l.peer.shared != nil {
		return nil
	}
	if c := l.conn; c != nil {
		if c.open && (!c.used || newLiveness(c.Conn).alive()) {
			return nil
		}
		l.drop()
	}
	nc, err := l.peer.dial()
	if err != nil {
		return err
	}
	l.conn = &conn{Conn: nc, link: l, open: true}
	return nil
}

func (l *link) drop() {
	if l.conn == nil {
		return
	}
	l.client.Close() // the client forgets the connection
	l.conn.Close()
	l.conn = nil
}

// maxDecrements bounds the requests of a taking back on a server without room.
const maxDecrements = 6

// decrement takes n from an item, if the item exists. A full server that must
// not evict refuses while another client reads the item, since memcached then
// needs a new item. The refusal says that nothing has changed, so decrement
// asks again after a moment, on the same connection.
func (l *link) decrement(item string, n uint64) (count uint64, err error) {
	for i := range maxDecrements {
		l.keepOpen = true
		count, err = l.client.Decrement(item, n)
		l.keepOpen = false
		if err == nil {
			return count, nil
		}
		if err == gomemcache.ErrCacheMiss {
			return 0, nil
		}
		if !noRoom(err) {
			break
		}
		if i < maxDecrements-1 {
			time.Sleep(time.Millisecond << i)
		}
	}
	if l.conn != nil {
		l.conn.Close()
	}
	return 0, err
}

func noRoom(err error) bool {
	var answer *strconv.NumError
	return errors.As(err, &answer) && strings.HasPrefix(answer.Num, "SERVER_ERROR out of memory")
}

// unanswered tells whether a request that failed with err was sent without an
// answer, so that the effect on the server is unknown.
func (l *link) unanswered(err error) bool {
	if l.peer.shared == nil {
		return l.conn != nil && l.conn.broken
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op != "dial"
	}
	return errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded)
}

// conn is the connection of a link, in use by gomemcache, which writes a
// request, reads the answer and keeps the connection.
//
// A request has the timeout of the link from its first byte on. gomemcache
// would extend the timeout with each item of an answer, and a server that
// trickles could hold a connection without bound. After the timeout, the
// connection may go on listening for the answer to an addition.
type conn struct {
	net.Conn
	link     *link
	inClient bool // given to the client
	open     bool // not closed on this side
	used     bool // carried a request before
	writing  bool // a request is being written
	broken   bool // a request was not answered
}

// SetDeadline does nothing: Write sets the deadline.
func (c *conn) SetDeadline(time.Time) error { return nil }

func (c *conn) Write(p []byte) (int, error) {
	if !c.writing {
		c.Conn.SetDeadline(time.Now().Add(c.link.timeout))
		c.writing, c.used = true, true
	}
	n, err := c.Conn.Write(p)
	c.broken = c.broken || err != nil
	return n, err
}

func (c *conn) Read(p []byte) (int, error) {
	c.writing = false
	for {
		n, err := c.Conn.Read(p)
		if n > 0 {
			c.link.peer.answered()
			return n, err
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !c.listen() {
			c.broken = c.broken || err != nil
			return n, err
		}
	}
}

// listen decides, after the timeout of a request, whether to go on waiting.
func (c *conn) listen() bool {
	call := c.link.call
	if call == nil {
		return false
	}
	until, ok := call.overdue(c.link)
	return ok && c.Conn.SetReadDeadline(until) == nil
}

func (c *conn) Close() error {
	if c.link.keepOpen {
		c.inClient = false // the client may get the connection again
		return nil
	}
	c.open = false
	return c.Conn.Close()
}
