package servertest

import (
	"net"
	"testing"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

// Serve accepts connections on the loopback interface until the end of the test, has
// each of them served in a goroutine of its own and closed afterwards, and returns
// the address.
func Serve(t testing.TB, serve func(net.Conn)) (addr string) {
	listener := try.To(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}
