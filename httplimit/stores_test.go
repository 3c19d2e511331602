package httplimit_test

import (
	"context"
	"flag"
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

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
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
		store := try.To(redis.Open("redis://"+servertest.Redis(t), redis.Config{IOTimeout: ioTimeout}))(t)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}},
	{"memcached", func(t *testing.T, ioTimeout time.Duration) backend.Store {
		store := try.To(memcache.New(memcache.Config{IOTimeout: ioTimeout}, servertest.Memcached(t)))(t)
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

var herdRounds = flag.Int("herd", 4, "rounds on each service of a herd in TestHerd")

// protocols are the ways in which a herd comes: each request on a connection of
// its own, or many on few connections, without TLS.
var protocols = []struct {
	name  string
	proto string
	set   func(*http.Protocols)
}{
	{"HTTP 1.1", "HTTP/1.1", func(p *http.Protocols) { p.SetHTTP1(true) }},
	{"HTTP 2", "HTTP/2.0", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }},
}

// patienceOver is the earliest end of a call without time for another try. A
// call does not begin a try for which less time is left than the first try
// took, so a first try of half the patience, but for the pause between tries,
// is the last.
const patienceOver = counter.DefaultPatience * 2 / 5

// slowPatience is the patience of calls on a machine with much other work to do.
const slowPatience = time.Minute

// A herd of a thousand at once meets a rule of ten a day, with all defaults:
// ten pass, all others are denied, and no answer tells of a store that failed.
// The first round of a service has no connection to the store yet, later rounds
// have warm connections.
//
// A machine with other work to do can keep a herd waiting until its patience
// ends, and such a round may be inexact; so may a round in which calls wait for
// an event that never comes, which must fail. So a round may be inexact only if its
// slowest answer came when the patience was over. If more than half of all rounds are,
// or all first rounds, another service has the patience of a slow machine, and must be
// exact. In no round do more than ten pass. The short form has the patience of a slow
// machine at once.
func TestHerd(t *testing.T) {
	for _, on := range stores[1:] {
		for _, protocol := range protocols {
			t.Run(on.name+", "+protocol.name, func(t *testing.T) {
				start := func(ioTimeout time.Duration, cfg counter.Config) *herd {
					return newHerd(t, on.open(t, ioTimeout), cfg, protocol.proto, protocol.set)
				}
				if long.Asked() && exactByDefault(start) {
					return
				}
				h := start(slowPatience, counter.Config{Patience: slowPatience, Settle: patience})
				for round := range *herdRounds {
					require.True(t, h.exact(round, slowPatience), "a patient herd")
				}
			})
		}
	}
}

// exactByDefault reports whether, of the rounds of two services with all defaults,
// at least a half was exact, and a first round.
func exactByDefault(start func(time.Duration, counter.Config) *herd) bool {
	const services = 2
	slow, cold := 0, 0
	for range services {
		h := start(0, counter.Config{})
		for round := range *herdRounds {
			if h.exact(round, patienceOver) {
				continue
			}
			slow++
			if round == 0 {
				cold++
			}
		}
	}
	return 2*slow <= services**herdRounds && cold < services
}

// herd is a service with a rule of ten a day for each user, and its clients.
type herd struct {
	t      *testing.T
	url    string
	proto  string
	client http.Client

	mu     sync.Mutex
	failed map[string]int // errors of the store, how often each
}

func newHerd(t *testing.T, store backend.Store, cfg counter.Config, proto string, set func(*http.Protocols)) *herd {
	rule := limiter.Rule{Event: "signup", Kind: "user", Limits: counter.MustLimits("10/d"), OnFailure: limiter.FailClosed}
	h := &herd{t: t, proto: proto, failed: map[string]int{}}
	lim := newLimiterOn(t, store, cfg, limiter.Config{Rules: []limiter.Rule{rule}, DecideWithin: cfg.Patience, Observe: func(d limiter.Decision) {
		if d.Degraded != nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.failed[d.Degraded.Error()]++
		}
	}})
	var p http.Protocols
	set(&p)
	server := &http.Server{Handler: newLimit(t, httplimit.Config{Limiter: lim, Features: []httplimit.Source{byUser}})(welcome), Protocols: &p}
	listener := try.To(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	transport := &http.Transport{Protocols: &p, DialContext: (&net.Dialer{Timeout: patience}).DialContext}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		// A request that an open rule has let through may still be on its way to
		// the store.
		require.NoError(t, server.Shutdown(context.WithoutCancel(t.Context())))
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	h.url, h.client.Transport = "http://"+listener.Addr().String(), transport
	return h
}

// exact reports whether as many requests of a herd passed as there are places, and the
// others were denied. A round that is not exact, and whose slowest answer came before
// over, is an error of the test, and so is a round in which too many passed.
func (h *herd) exact(round int, over time.Duration) bool {
	h.t.Helper()
	const places = 10
	racers := long.Rounds(200, 1000)
	got, slowest := h.run(racers, fmt.Sprint("round ", round))
	h.t.Logf("round %d: %v, the slowest after %s %v", round, got, slowest.Round(time.Millisecond), h.failed)
	require.LessOrEqual(h.t, got[http.StatusOK], places)
	exact := got[http.StatusOK] == places && got[http.StatusTooManyRequests] == racers-places
	if !exact && slowest < over {
		h.t.Errorf("round %d: got %v, want %d times 200 and %d times 429", round, got, places, racers-places)
	}
	return exact
}

// run sends n requests of a user at once. It returns the number of answers by
// status, and the time of the slowest answer.
func (h *herd) run(n int, user string) (got map[int]int, slowest time.Duration) {
	awayFromTheHour()
	clear(h.failed)
	statuses, took := make([]int, n), make([]time.Duration, n)
	errs := make([]error, n)
	var all, ready sync.WaitGroup
	ready.Add(n)
	for i := range n {
		all.Go(func() {
			r, err := http.NewRequest("GET", h.url, nil)
			ready.Done()
			ready.Wait()
			if err != nil {
				errs[i] = err
				return
			}
			r.Header.Set("User", user)
			began := time.Now()
			answer, err := h.client.Do(r)
			took[i] = time.Since(began)
			if err != nil {
				errs[i] = err
				return
			}
			statuses[i] = answer.StatusCode
			if answer.Proto != h.proto {
				errs[i] = fmt.Errorf("answered by %s, want %s", answer.Proto, h.proto)
			}
			// A denied caller is told when to come back, also amid calls that are not
			// decided yet.
			if denied := answer.StatusCode != http.StatusOK; denied != (answer.Header.Get("Retry-After") != "") {
				errs[i] = fmt.Errorf("status %d with Retry-After %q", answer.StatusCode, answer.Header.Get("Retry-After"))
			}
			_ = answer.Body.Close()
		})
	}
	all.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.client.CloseIdleConnections()
	got = map[int]int{}
	for i := range n {
		require.NoError(h.t, errs[i])
		got[statuses[i]]++
	}
	return got, slices.Max(took)
}

// awayFromTheHour returns when the end of an hour, the width of the tickets of a
// day, is some seconds away: racers on both sides of it are not promised every
// place on a store without an atomic step.
func awayFromTheHour() {
	const near = 5 * time.Second
	now := time.Now()
	if begun := now.Add(near).Truncate(time.Hour); begun.After(now.Add(-near)) {
		<-time.After(begun.Add(near).Sub(now))
	}
}
