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

// link is one connection to a server, with a gomemcache client of its own that
// speaks on it and on no other. So the Store knows which connection an answer
// is awaited on, and can send a taking back on the very connection that the
// addition was answered on: a server that has restarted meanwhile never gets it.
// One goroutine at a time uses a link.
type link struct {
	peer    *peer
	client  *gomemcache.Client
	conn    *conn         // nil before the first; nil for NewFromClient
	timeout time.Duration // from the first byte of a request to the last of its answer

	call      *call // whose addition is under way, nil if none is
	keep      bool  // the connection, though the client closes it
	listening bool  // under the lock of call, as until: it has given its token of the gate back
	until     time.Time
}

// listenFor is for how long the answer to an addition is listened for when its
// call has given up.
const listenFor = time.Minute

// errLost is the error of a request that may go over one connection only, which
// is no more.
var errLost = errors.New("the connection was lost")

func newLink(p *peer, timeout time.Duration) *link {
	l := &link{peer: p, timeout: timeout}
	l.client = gomemcache.NewFromSelector(only{p.address})
	l.client.MaxIdleConns = 1
	l.client.DialContext = l.hand
	return l
}

// only is the selector of one server.
type only struct{ address *server }

func (o only) PickServer(string) (net.Addr, error)    { return o.address, nil }
func (o only) Each(f func(addr net.Addr) error) error { return f(o.address) }

// hand gives the connection to the client, once.
func (l *link) hand(context.Context, string, string) (net.Conn, error) {
	if l.conn == nil || l.conn.handed {
		return nil, errLost
	}
	l.conn.handed = true
	return l.conn, nil
}

// ready connects if there is no connection, or if the server has closed it. An
// addition must not be sent again once it may have arrived, so without that
// every idle connection would fail a call after a restart.
func (l *link) ready() error {
	if l.peer.shared != nil {
		return nil
	}
	if c := l.conn; c != nil {
		if c.open && (!c.used || alive(c.Conn)) {
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
	l.client.Close() // forgets the connection, if the client still has it
	l.conn.Close()
	l.conn = nil
}

// maxNoRoom is how often a taking back is sent that the server had no room for.
const maxNoRoom = 6

// decrement takes n from an item, if it is there. A server that is full and may
// not evict refuses that while somebody else reads the item, since it then
// makes a new one: it says so, nothing has happened, and after a moment it is
// asked again, on the same connection.
func (l *link) decrement(item string, n uint64) (count uint64, err error) {
	for i := range maxNoRoom {
		l.keep = true
		count, err = l.client.Decrement(item, n)
		l.keep = false
		if err == nil {
			return count, nil
		}
		if err == gomemcache.ErrCacheMiss {
			return 0, nil
		}
		if !noRoom(err) {
			break
		}
		if i < maxNoRoom-1 {
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

// unanswered tells of a request that failed with err whether it was sent
// without an answer, so that nobody knows what the server has made of it.
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

// conn is the connection of a link, in the hands of gomemcache, which writes a
// request, reads the answer and puts the connection by.
//
// A request has the link's timeout from its first byte on. gomemcache extends
// that with each item of an answer, so that a server which trickles would hold
// on to a connection for as long as it likes. When the time is up and the
// request is an addition, it can be listened for longer.
type conn struct {
	net.Conn
	link   *link
	handed bool // to the client
	open   bool // nobody has closed it here
	used   bool // it has carried a request
	asking bool // a request is being written
	broken bool // a request was not answered
}

// SetDeadline does nothing: Write does it.
func (c *conn) SetDeadline(time.Time) error { return nil }

func (c *conn) Write(p []byte) (int, error) {
	if !c.asking {
		c.Conn.SetDeadline(time.Now().Add(c.link.timeout))
		c.asking, c.used = true, true
	}
	n, err := c.Conn.Write(p)
	c.broken = c.broken || err != nil
	return n, err
}

func (c *conn) Read(p []byte) (int, error) {
	c.asking = false
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

// listen decides, when the time of a request is up, whether to wait longer.
func (c *conn) listen() bool {
	call := c.link.call
	if call == nil {
		return false
	}
	until, ok := call.overdue(c.link)
	return ok && c.Conn.SetReadDeadline(until) == nil
}

func (c *conn) Close() error {
	if c.link.keep {
		c.handed = false // the client may have it again
		return nil
	}
	c.open = false
	return c.Conn.Close()
}
