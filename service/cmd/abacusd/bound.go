package main

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// bound is a listener with a bound on its open connections. One above it closes another:
// the oldest that has not sent a request yet, else the one that has been idle for longest.
// If all are busy, it is closed itself. So connections that only open, however many, keep
// no one out; netutil.LimitListener would have callers wait behind them.
type bound struct {
	net.Listener
	most   int
	closed func() // is called for each connection that the bound closes

	mu    sync.Mutex
	conns [http.StateIdle + 1]list.List // of *conn, by state, the oldest first
}

// conn is a connection of a bound, with the state of http.Server. A connection of gRPC is
// active from its preface on.
type conn struct {
	net.Conn
	of    *bound
	state http.ConnState
	place *list.Element // in of.conns[state]
}

// bound makes a bound of a listener.
func (s *service) bound(l net.Listener, name string) *bound {
	return &bound{Listener: l, most: s.cfg.Connections, closed: s.connections.WithLabelValues(name).Inc}
}

// Accept waits for a connection that may stay.
func (b *bound) Accept() (net.Conn, error) {
	for {
		accepted, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: accepted, of: b}
		out := b.add(c)
		if out != nil {
			b.closed()
			_ = out.Close() // its client may be gone
		}
		if out != c {
			return c, nil
		}
	}
}

// add adds c, and returns the connection to be closed, nil if there is room.
func (b *bound) add(c *conn) *conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh, idle := &b.conns[http.StateNew], &b.conns[http.StateIdle]
	c.place = fresh.PushBack(c)
	switch {
	case fresh.Len()+idle.Len()+b.conns[http.StateActive].Len() <= b.most:
		return nil
	case fresh.Len() == 1 && idle.Len() > 0:
		return idle.Front().Value.(*conn)
	}
	return fresh.Front().Value.(*conn)
}

// closeNew closes the connections that have not sent a request.
func (b *bound) closeNew() {
	b.mu.Lock()
	var all []*conn
	for e := b.conns[http.StateNew].Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*conn))
	}
	b.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // its client may be gone
	}
}

// set notes a state of c. StateClosed is the last.
func (c *conn) set(state http.ConnState) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.state == http.StateClosed {
		return
	}
	c.of.conns[c.state].Remove(c.place)
	if c.state = state; state != http.StateClosed {
		c.place = c.of.conns[state].PushBack(c)
	}
}

// noteState is the ConnState of a http.Server on a bound.
func noteState(nc net.Conn, state http.ConnState) {
	if t, is := nc.(*tls.Conn); is {
		nc = t.NetConn()
	}
	nc.(*conn).set(state)
}

// SetDeadline sets the deadline. A grpc.Server clears it once the preface has come.
func (c *conn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.set(http.StateActive)
	}
	return c.Conn.SetDeadline(t)
}

// Close closes c, which gives its place free.
func (c *conn) Close() error {
	c.set(http.StateClosed)
	return c.Conn.Close()
}
