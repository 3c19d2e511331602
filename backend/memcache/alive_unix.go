//go:build unix

package memcache

import (
	"net"
	"syscall"
)

// alive tells whether nc, which is idle, can be written to: the server has
// neither closed it nor sent what nobody has asked for. It does not wait.
func alive(nc net.Conn) bool {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return true // over TLS, say: not to be known without disturbing it
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
