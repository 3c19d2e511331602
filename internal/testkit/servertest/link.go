package servertest

import (
	"net"
	"sync"
	"time"
)

// link is one connection through a [Proxy].
type link struct {
	proxy          *Proxy
	client, server net.Conn
	once           sync.Once
	gone           chan struct{} // closed by cut
}

// chunk is the bytes of a read, and the time of their arrival.
type chunk struct {
	bytes []byte // empty: the sender will send no more
	due   time.Time
}

// inFlight bounds the chunks of a direction; beyond, the link reads no more, as a
// network does: at 10 ms, enough for 100,000 chunks a second.
const inFlight = 1024

// cut ends the link in both directions.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.gone)
		l.client.Close()
		l.server.Close()
	})
}

// abort ends the link as a crash of both ends would: each gets a reset, and
// loses what it has not read yet.
func (l *link) abort() {
	for _, conn := range []net.Conn{l.client, l.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) // fails only on a connection that is closed
		}
	}
	l.cut()
}

// carry takes bytes from an end to the other, a direction of the link, until the
// sender is through or the link is cut. delay is the time until a chunk is due.
// carry calls arrived for each incoming chunk, and deliver for a chunk that is due;
// deliver may change the chunk, returns the pieces that go out, and says whether the
// link ends with them.
func (l *link) carry(from, to net.Conn, delay func() time.Duration, arrived func(), deliver func(bytes []byte) (pieces [][]byte, end bool)) {
	// Each chunk has its own due time, and one is read while others wait: the
	// delay is a delay, and no limit on the throughput.
	chunks := make(chan chunk, inFlight)
	go func() {
		defer close(chunks)
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			due := time.Now().Add(delay())
			if n > 0 {
				arrived()
				chunks <- chunk{append([]byte(nil), buffer[:n]...), due}
			}
			if err != nil {
				chunks <- chunk{nil, due}
				return
			}
		}
	}()
	for c := range chunks {
		if !l.waitFor(c.due) {
			continue // drained, so that the reader can end
		}
		if len(c.bytes) == 0 {
			// The sender may still want the answers to what it has sent.
			if half, ok := to.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
				l.cut()
			}
			continue
		}
		pieces, end := deliver(c.bytes)
		for _, piece := range pieces {
			if _, err := to.Write(piece); err != nil {
				end = true
				break
			}
		}
		if end {
			l.cut()
		}
	}
}

// waitFor waits until due and until the proxy lets bytes flow. It is false if
// the link was cut meanwhile.
func (l *link) waitFor(due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-l.gone:
		return false
	case <-timer.C:
	}
	select {
	case <-l.gone:
		return false
	case <-l.proxy.gate():
	}
	select {
	case <-l.gone: // both may have been ready
		return false
	default:
		return true
	}
}
