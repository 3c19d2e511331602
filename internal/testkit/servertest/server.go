package servertest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// patience bounds the time of a server for anything; beyond, the test fails.
	// Only failures take so long, and a Sentinel on a machine that stood still: Sentinel
	// then does nothing for half a minute.
	patience = time.Minute

	// Ports are drawn from a range that is, with the buses of cluster nodes
	// busOffset above, below the ports that Linux gives to clients: so a server
	// that is down for a moment finds its port free again.
	lowestPort, highestPort = 12000, 22000
	busOffset               = 10000
)

// Server is one running server process.
type Server struct {
	Addr string // host:port on the loopback interface, the same after a Restart

	t       testing.TB
	program program
	port    int
	dir     string
	cmd     *exec.Cmd
	exited  chan struct{} // closed when cmd is no more
}

// program describes a kind of server.
type program struct {
	name    string                              // of the executable
	debian  string                              // the package it is in
	other   string                              // and that of other systems
	args    func(port int, dir string) []string // dir is for its files
	answers func(addr string, pid int) error    // nil as soon as the process serves
}

// errExited is the error of a server whose process has ended.
var errExited = errors.New("the process has exited")

func start(t testing.TB, program program) *Server {
	path, err := exec.LookPath(program.name)
	require.NoError(t, err, "servertest: %s is missing: install %s (Debian) or %s (Fedora, Homebrew); on Debian, make test as root installs it",
		program.name, program.debian, program.other)
	program.name = path
	s := &Server{t: t, program: program, dir: t.TempDir()}
	t.Cleanup(s.end)
	for range 20 {
		s.port = freePort(t)
		s.Addr = hostPort(s.port)
		if err = s.run(); !errors.Is(err, errExited) {
			break // what exits has most likely lost its port to another test
		}
	}
	require.NoError(t, err, "servertest: start %s", filepath.Base(path))
	return s
}

// Pid is the process id of the server, another one after a Restart.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Dir is the folder of the server's files, kept for a Restart and removed after the
// test.
func (s *Server) Dir() string { return s.dir }

// Pause makes the server half-open: connections are accepted (by the kernel)
// and what is sent arrives, but nothing is answered until Resume.
func (s *Server) Pause() {
	require.NoError(s.t, Suspend(s.cmd.Process), "servertest: suspend the server at %s", s.Addr)
}

// Resume ends a Pause. The server answers what has been sent meanwhile.
func (s *Server) Resume() {
	require.NoError(s.t, Continue(s.cmd.Process), "servertest: continue the server at %s", s.Addr)
}

// Kill ends the server at once, as a crash does, and returns when the process is
// gone. A second Kill does nothing.
func (s *Server) Kill() {
	s.cmd.Process.Kill() // fails only if it has exited
	<-s.exited
}

// Restart starts the server again, on the same port, and returns when the server
// answers. A running server is killed first. The new server is empty, unless its
// arguments make the server keep its data in Dir.
func (s *Server) Restart() {
	s.Kill()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = s.run(); !errors.Is(err, errExited) {
			break
		}
	}
	require.NoError(s.t, err, "servertest: restart the server at %s", s.Addr)
}

// run starts the process and waits until it answers.
func (s *Server) run() error {
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.program.name, s.program.args(s.port, s.dir)...)
	// A file, not a buffer: there is no goroutine that copies, and the server
	// never waits for us.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = s.dir
	if err := Start(cmd); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait() // how a server ended says its log
		close(exited)
	}()
	s.cmd, s.exited = cmd, exited
	return await(func() error {
		if s.gone() {
			return errExited
		}
		return s.program.answers(s.Addr, cmd.Process.Pid)
	})
}

// gone reports whether the process has exited.
func (s *Server) gone() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// end is the cleanup of the test.
func (s *Server) end() {
	if s.cmd == nil {
		return
	}
	s.Kill()
	if s.t.Failed() {
		s.t.Logf("the log of %s at %s ends:\n%s", filepath.Base(s.program.name), s.Addr, s.lastLines(20))
	}
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "log") }

func (s *Server) lastLines(n int) string {
	log, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(bytes.TrimSpace(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// await calls ready until it returns nil, errExited, or patience has run out.
func await(ready func() error) error {
	deadline := time.Now().Add(patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := ready()
		if err == nil || errors.Is(err, errExited) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready within %v: %w", patience, err)
		}
		time.Sleep(wait)
	}
}

// freePort returns a port that was free a moment ago, together with the port of a
// cluster's bus.
func freePort(t testing.TB) int {
	var err error
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if err = errors.Join(free(port), free(port+busOffset)); err == nil {
			return port
		}
	}
	require.NoError(t, err, "servertest: no free port between %d and %d", lowestPort, highestPort)
	return 0
}

func free(port int) error {
	listener, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		return err
	}
	return listener.Close()
}

// Start starts a process that ends with this process, as the servers do, even if
// stopped at the time; on systems other than Linux the process stays. The process
// has a process group of its own.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = dieWithUs()
	return onLastingThread(cmd.Start)
}

// starts hands functions to a thread of the operating system that never ends.
var starts = func() chan func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
}()

// onLastingThread calls start on a thread that lives as long as the process. Linux
// kills a child at the end of the thread that started the child, and Go ends
// threads at any time.
func onLastingThread(start func() error) error {
	result := make(chan error)
	starts <- func() { result <- start() }
	return <-result
}
