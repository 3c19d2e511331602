//go:build unix

package memcache

import (
	"net"
	"syscall"
)

// liveness looks at an idle connection.
type liveness struct {
	raw  syscall.RawConn // nil if the connection cannot be looked at
	look func(fd uintptr)
	idle bool // nothing was there to be read
}

func newLiveness(nc net.Conn) *liveness {
	l := new(liveness)
	// A server that closes a connection over TLS says so in bytes, or by the end of
	// the connection below; one that waits sends nothing.
	if over, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = over.NetConn()
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return l
	}
	if raw, err := sc.SyscallConn(); err == nil {
		l.raw = raw
	}
	l.look = func(fd uintptr) {
		var one [1]byte
		_, err := syscall.Read(int(fd), one[:])
		l.idle = err == syscall.EAGAIN
	}
	return l
}

// alive reports whether the idle connection can be used: the server has neither
// closed the connection nor sent unrequested bytes. alive does not wait.
func (l *liveness) alive() bool {
	if l.raw == nil {
		return true
	}
	l.idle = false
	return l.raw.Control(l.look) == nil && l.idle
}
