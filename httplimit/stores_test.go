package httplimit_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
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

var stores = []struct {
	name string
	open func(t *testing.T) backend.Store
}{
	{"memory", func(*testing.T) backend.Store { return memory.New(memory.Config{}) }},
	{"memcached", func(t *testing.T) backend.Store {
		store, err := memcache.New(memcache.Config{IOTimeout: patience}, servertest.Memcached(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}},
	{"redis", func(t *testing.T) backend.Store {
		store, err := redis.Open("redis://"+servertest.Redis(t)+"/0?pool_timeout=10s&read_timeout=10s", redis.Config{IOTimeout: patience})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}},
}

const requests = 1000

// TestExactlyTheLimit sends a thousand requests at once where ten are allowed:
// ten pass, whatever the store and the client, and whatever address the client
// claims to have.
func TestExactlyTheLimit(t *testing.T) {
	// Half past: racers at the edge of a bucket can refuse each other.
	shift := time.Until(time.Now().Truncate(time.Hour).Add(90 * time.Minute))
	now := func() time.Time { return time.Now().Add(shift) }
	loopback, others := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, backend := range stores {
		t.Run(backend.name, func(t *testing.T) {
			store := backend.open(t)
			rows := []struct {
				name    string
				client  func(s *site, line func(i int) string) []int
				ip      httplimit.ClientIP
				line    func(i int) string // a header of request i
				clients int
			}{
				{"curl", (*site).curl, httplimit.ClientIP{}, nil, 1},
				{"net/http", (*site).storm, httplimit.ClientIP{}, nil, 1},
				{"X-Forwarded-For of anybody", (*site).curl, httplimit.ClientIP{}, spoofed("X-Forwarded-For: %s"), 1},
				{"Forwarded of anybody", (*site).curl, httplimit.ClientIP{Proxies: others, Header: "Forwarded"}, spoofed("Forwarded: for=%s"), 1},
				{"CF-Connecting-IP of anybody", (*site).storm, httplimit.ClientIP{Proxies: others, Header: "CF-Connecting-IP"}, spoofed("CF-Connecting-IP: %s"), 1},
				{"X-Forwarded-For of a proxy", (*site).curl, httplimit.ClientIP{Proxies: loopback}, forwarded("X-Forwarded-For: 192.0.2.%d, 198.51.100.%d"), 20},
				{"Forwarded of a proxy", (*site).curl, httplimit.ClientIP{Proxies: loopback, Header: "Forwarded"}, forwarded("Forwarded: for=192.0.2.%d, for=198.51.100.%d"), 20},
			}
			if backend.name != "memory" {
				rows = rows[:2] // where the address comes from is no matter of the store
			}
			for _, row := range rows {
				t.Run(row.name, func(t *testing.T) {
					rule := limiter.Rule{Event: row.name, Kind: "ip", Limits: counter.MustLimits("10/h")}
					lim := newLimiterOn(t, store, counter.Config{Patience: patience, Now: now}, limiter.Config{DecideWithin: 2 * patience, Rules: []limiter.Rule{rule}})
					s := newSite(t, newLimit(t, httplimit.Config{Limiter: lim, Event: row.name, Features: []httplimit.Source{httplimit.IP(row.ip)}})(welcome))
					got := map[int]int{}
					for _, status := range row.client(s, row.line) {
						got[status]++
					}
					require.Equal(t, map[int]int{200: 10 * row.clients, 429: requests - 10*row.clients}, got)
				})
			}
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

// storm sends all requests at once, each on a connection of its own, and
// returns their status codes.
func (s *site) storm(line func(i int) string) []int {
	statuses := make([]int, requests)
	var all, ready sync.WaitGroup
	ready.Add(requests)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: patience}).DialContext}}
	for i := range requests {
		all.Go(func() {
			r, err := http.NewRequest("GET", s.URL, nil)
			if line != nil && err == nil {
				key, value, _ := strings.Cut(line(i), ": ")
				r.Header.Set(key, value)
			}
			ready.Done()
			ready.Wait()
			if err != nil {
				return
			}
			if got, err := client.Do(r); err == nil {
				statuses[i] = got.StatusCode
				_ = got.Body.Close()
			}
		})
	}
	all.Wait()
	return statuses
}

// curl is storm by another client, 300 requests at a time: the most that curl
// can.
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
	slices.Sort(statuses)
	require.Len(s.t, statuses, requests)
	return statuses
}
