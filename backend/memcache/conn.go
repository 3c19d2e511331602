package memcache

import (
	"context"
	"net"
	"time"
)

// dialer makes connections that do two things which gomemcache's do not.
type dialer struct {
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	timeout time.Duration
}

func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: nc, dialer: d, network: network, address: address}, nil
}

// conn is a connection of gomemcache, which writes a request, reads the answer
// and puts the connection by.
//
// A request has timeout from its first byte on. gomemcache extends that with
// each item of an answer, so that a server which trickles would hold on to a
// connection for as long as it likes.
//
// A connection that the server has closed meanwhile is replaced before anything
// is written. An addition must not be sent again once it may have arrived, so
// without that every idle connection would fail a call after a restart.
type conn struct {
	net.Conn
	dialer           dialer
	network, address string
	asking, used     bool
}

// SetDeadline does nothing: Write does it.
func (c *conn) SetDeadline(time.Time) error { return nil }

func (c *conn) Write(p []byte) (int, error) {
	if !c.asking {
		c.Conn.SetDeadline(time.Now().Add(c.dialer.timeout))
		if c.used && !alive(c.Conn) {
			if err := c.replace(); err != nil {
				return 0, err
			}
		}
		c.asking, c.used = true, true
	}
	return c.Conn.Write(p)
}

func (c *conn) Read(p []byte) (int, error) {
	c.asking = false
	return c.Conn.Read(p)
}

func (c *conn) replace() error {
	c.Conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), c.dialer.timeout)
	defer cancel()
	nc, err := c.dialer.connect(ctx, c.network, c.address)
	if err != nil {
		return err
	}
	c.Conn = nc
	return nc.SetDeadline(time.Now().Add(c.dialer.timeout))
}
