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
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return l // over TLS, for example: no look without disturbing the connection
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

// alive tells whether the idle connection can be used: the server has neither
// closed the connection nor sent unrequested bytes. alive does not wait.
func (l *liveness) alive() bool {
	if l.raw == nil {
		return true
	}
	l.idle = false
	return l.raw.Control(l.look) == nil && l.idle
}
