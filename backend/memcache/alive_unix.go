//go:build unix

package memcache

import (
	"net"
	"syscall"
)

// alive tells whether the idle connection nc can be used: the server has
// neither closed nc nor sent unrequested bytes. alive does not wait.
func alive(nc net.Conn) bool {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return true // over TLS, for example: no look without disturbing the connection
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	waiting := false
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, err := syscall.Read(int(fd), one[:])
		waiting = err == syscall.EAGAIN
		return true
	})
	return err == nil && waiting
}
