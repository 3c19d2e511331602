package memcache_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
)

// tell sends a line to a memcached and returns the answer, up to a line in
// ends.
func tell(t testing.TB, addr, line string, ends ...string) []string {
	conn := try.To(net.Dial("tcp", addr))(t)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	try.To(fmt.Fprintf(conn, "%s\r\n", line))(t)
	var lines []string
	for in := bufio.NewScanner(conn); in.Scan(); {
		if strings.HasPrefix(in.Text(), "BUSY") { // with a crawl of the server's own
			try.To(fmt.Fprintf(conn, "%s\r\n", line))(t)
			continue
		}
		lines = append(lines, in.Text())
		for _, end := range ends {
			if strings.HasPrefix(in.Text(), end) {
				return lines
			}
		}
	}
	require.Fail(t, "no answer", "%s to %s: %q", line, addr, lines)
	return nil
}

// stat returns a statistic of memcached.
func stat(t testing.TB, addr, name string) string {
	for _, line := range tell(t, addr, "stats", "END") {
		if value, ok := strings.CutPrefix(line, "STAT "+name+" "); ok {
			return value
		}
	}
	require.Fail(t, "no such stat", name)
	return ""
}

func number(t testing.TB, s string) int64 { return try.To(strconv.ParseInt(s, 10, 64))(t) }

// left returns the seconds that an item has left to live.
func left(t testing.TB, addr, item string) float64 {
	answer := tell(t, addr, "mg "+item+" t", "HD", "EN")[0]
	seconds, ok := strings.CutPrefix(answer, "HD t")
	require.True(t, ok, answer)
	return float64(number(t, seconds))
}

// crowd calls f for each number below n, all at once.
var crowd = ticket.SideBySide

// newFake starts a server for the test, with meta commands or without. Many goroutines
// call reply, once for each line, and send the result; "" closes the connection.
func newFake(t testing.TB, meta bool, reply func(line string) string) *fake {
	t.Helper()
	f := &fake{lines: make(chan string, 1000)}
	f.addr = servertest.Serve(t, func(conn net.Conn) {
		for in := bufio.NewScanner(conn); in.Scan(); {
			line, answer := in.Text(), ""
			tag, asks := strings.CutPrefix(line, "ma |abacus D0")
			switch {
			case asks && tag == "" && !meta:
				answer = "ERROR\r\n"
			case asks:
				answer = "NF" + tag + "\r\n"
			case line == "get |abacus":
				answer = "END\r\n"
			default:
				if (strings.HasPrefix(line, "add ") || strings.HasPrefix(line, "cas ")) && in.Scan() {
					line += " " + in.Text()
				}
				f.lines <- line
				answer = reply(line)
			}
			if _, err := io.WriteString(conn, answer); err != nil || answer == "" {
				return
			}
		}
	})
	return f
}

// counting is a dial that is counted.
func counting(dials *atomic.Int64) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

// fake is a server that answers each line by a script, one line at a time over
// all connections.
type fake struct {
	addr  string
	lines chan string // the lines received
}

// asked returns the lines received so far.
func (f *fake) asked() (lines []string) {
	for {
		select {
		case line := <-f.lines:
			lines = append(lines, line)
		default:
			return lines
		}
	}
}

// next returns the next line received.
func (f *fake) next(t testing.TB) string {
	select {
	case line := <-f.lines:
		return line
	case <-time.After(patience):
		require.Fail(t, "nothing was asked")
		return ""
	}
}

// metaAnswer is the answer of a server with meta commands to a line: no item to the
// probe of a new connection and to the end of a read, END to a multi-get, otherwise
// the count.
func metaAnswer(line string, count uint64) string {
	if tag, ok := strings.CutPrefix(line, "ma |abacus D0"); ok {
		return "NF" + tag + "\r\n"
	}
	if strings.HasPrefix(line, "get ") {
		return "END\r\n"
	}
	number := strconv.FormatUint(count, 10)
	return fmt.Sprintf("VA %d %s\r\n%s\r\n", len(number), line[strings.LastIndexByte(line, 'O'):], number)
}

// join carries bytes between conn and the server at addr until either side ends.
func join(conn net.Conn, addr string) {
	defer conn.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer conn.Close()
		io.Copy(conn, server)
	}()
	io.Copy(server, conn)
}

var tag = regexp.MustCompile(` O\d+`)

// untagged are the lines received so far, without the tags of additions.
func (f *fake) untagged() (lines []string) {
	for _, line := range f.asked() {
		lines = append(lines, tag.ReplaceAllString(line, ""))
	}
	return lines
}

// oldMemcached starts a memcached that does not know meta commands, and returns its
// address, and the address of the memcached behind it.
func oldMemcached(t testing.TB) (old, addr string) {
	t.Helper()
	addr = servertest.Memcached(t)
	return relay(t, addr, noMeta), addr
}

// noMeta has the answer of a memcached before 1.6 to meta commands.
var noMeta = map[string]string{"ma": "ERROR\r\n"}

// relay is a proxy of the memcached at addr. It answers the lines, or first words of lines,
// in answers itself, and hangs up where the answer is "" and, like twemproxy, on a time to
// live below zero.
func relay(t testing.TB, addr string, answers map[string]string) string {
	t.Helper()
	return servertest.Serve(t, func(conn net.Conn) {
		server, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer server.Close()
		go io.Copy(conn, server)
		for in := bufio.NewReader(conn); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			answer, own := answers[strings.TrimSpace(line)]
			if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); !own {
				answer, own = answers[word]
			}
			switch {
			case own && answer == "", strings.Contains(line, " 0 -"):
				return
			case own:
				io.WriteString(conn, answer)
			default:
				io.WriteString(server, line)
			}
		}
	})
}
