package httplimit_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/limiter"
)

// patience is the budget of a call: a stalled machine must not turn a test of
// limits into one of failures.
const patience = 10 * time.Second

// stores are stores in memory and on real servers. An ioTimeout of 0 is the default.
var stores = []struct {
	name string
	open func(t *testing.T, ioTimeout time.Duration) backend.Store
}{
	{"memory", func(*testing.T, time.Duration) backend.Store { return memory.New(memory.Config{}) }},
	{"redis", func(t *testing.T, ioTimeout time.Duration) backend.Store {
		store, err := redis.Open("redis://"+servertest.Redis(t), redis.Config{IOTimeout: ioTimeout})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}},
	{"memcached", func(t *testing.T, ioTimeout time.Duration) backend.Store {
		store, err := memcache.New(memcache.Config{IOTimeout: ioTimeout}, servertest.Memcached(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}},
}

const requests = 1000

// TestExactlyTheLimit sends a thousand requests at once where ten are allowed: ten
// pass, whatever address the client claims to have. TestHerd does so on servers.
func TestExactlyTheLimit(t *testing.T) {
	loopback, others := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, row := range []struct {
		name    string
		ip      httplimit.ClientIP
		line    func(i int) string // a header of request i
		clients int
	}{
		{"no header", httplimit.ClientIP{}, nil, 1},
		{"X-Forwarded-For of anybody", httplimit.ClientIP{}, spoofed("X-Forwarded-For: %s"), 1},
		{"Forwarded of anybody", httplimit.ClientIP{Proxies: others, Header: "Forwarded"}, spoofed("Forwarded: for=%s"), 1},
		{"CF-Connecting-IP of anybody", httplimit.ClientIP{Proxies: others, Header: "CF-Connecting-IP"}, spoofed("CF-Connecting-IP: %s"), 1},
		{"X-Forwarded-For of a proxy", httplimit.ClientIP{Proxies: loopback}, forwarded("X-Forwarded-For: 192.0.2.%d, 198.51.100.%d"), 20},
		{"Forwarded of a proxy", httplimit.ClientIP{Proxies: loopback, Header: "Forwarded"}, forwarded("Forwarded: for=192.0.2.%d, for=198.51.100.%d"), 20},
	} {
		t.Run(row.name, func(t *testing.T) {
			lim := newLimiterOn(t, memory.New(memory.Config{}), counter.Config{Patience: patience}, limiter.Config{DecideWithin: 2 * patience, Rules: []limiter.Rule{by("ip", "10/h")}})
			s := newSite(t, newLimit(t, httplimit.Config{Limiter: lim, Features: []httplimit.Source{httplimit.IP(row.ip)}})(welcome))
			got := map[int]int{}
			for _, status := range s.curl(row.line) {
				got[status]++
			}
			require.Equal(t, map[int]int{200: 10 * row.clients, 429: requests - 10*row.clients}, got)
		})
	}
}

// spoofed is another address for each request.
func spoofed(line string) func(int) string {
	return func(i int) string { return fmt.Sprintf(line, netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})) }
}

// forwarded is the header of a proxy behind the claims of its twenty clients.
func forwarded(line string) func(int) string {
	return func(i int) string { return fmt.Sprintf(line, i%250, 1+i%20) }
}

// curl sends all requests, 300 at a time: the most that curl can. It returns their
// status codes.
func (s *site) curl(line func(i int) string) []int {
	s.t.Helper()
	var config strings.Builder
	for i := range requests {
		fmt.Fprintf(&config, "url = %q\noutput = /dev/null\nwrite-out = %q\n", s.URL, `%{http_code}\n`)
		if line != nil {
			fmt.Fprintf(&config, "header = %q\n", line(i))
		}
		config.WriteString("next\n")
	}
	path, err := exec.LookPath("curl")
	require.NoError(s.t, err, "make servers installs it")
	cmd := exec.CommandContext(s.t.Context(), path, "--disable", "--silent", "--show-error", "--parallel", "--parallel-immediate", "--parallel-max", "300", "--config", "-")
	cmd.Stdin = strings.NewReader(strings.TrimSuffix(config.String(), "next\n"))
	out, err := cmd.Output()
	require.NoError(s.t, err, "%s", err)
	var statuses []int
	for word := range strings.FieldsSeq(string(out)) {
		var status int
		_, err := fmt.Sscan(word, &status)
		require.NoError(s.t, err)
		statuses = append(statuses, status)
	}
	require.Len(s.t, statuses, requests)
	return statuses
}
