package servertest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServersDieWithTheTestBinary(t *testing.T) {
	t.Parallel()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+t.TempDir())
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	addrs := strings.Fields(line)
	require.Len(t, addrs, 2)
	for _, addr := range addrs {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		conn.Close()
	}

	require.NoError(t, child.Process.Kill())
	child.Wait() // the error is that it was killed
	for _, addr := range addrs {
		require.NoError(t, await(func() error {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return nil
			}
			defer conn.Close()
			return os.ErrExist
		}), "the server at %s has outlived the test binary", addr)
	}
}

func TestServersOutliveTheThreadThatAskedForThem(t *testing.T) {
	t.Parallel()
	servers, thread := startAndEndThread(t)
	require.NoError(t, await(func() error {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread)); err != nil {
			return nil
		}
		return os.ErrExist
	}), "the thread has ended")
	for _, s := range servers {
		require.NoError(t, s.program.answers(s.Addr, s.Pid()))
	}
}

// startAndEndThread starts servers from a thread that ends then.
func startAndEndThread(t testing.TB) (servers []*Server, thread int) {
	done := make(chan struct{})
	release := make(chan struct{})
	defer close(release)
	var run func()
	run = func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if thread = syscall.Gettid(); thread == os.Getpid() {
			go run()  // the main thread never ends
			<-release // and is kept from taking the next goroutine too
			return
		}
		defer close(done)
		servers = []*Server{StartMemcached(t), StartRedis(t)}
	}
	go run()
	<-done
	require.Len(t, servers, 2)
	return servers, thread
}
