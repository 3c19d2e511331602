package classic_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/classic/servers"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

func memcached(t testing.TB, addr string, cfg classic.Config) *classic.Store {
	client := memcache.New(addr)
	client.Timeout, client.MaxIdleConns = patience, 100
	t.Cleanup(func() { client.Close() })
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	return try.To(servers.Memcached(client, cfg))(t)
}

// ask sends a line to a server, and returns the answer up to the end.
func ask(t *testing.T, addr, line, end string) string {
	conn := try.To(net.Dial("tcp", addr))(t)
	defer conn.Close()
	try.To(conn.Write([]byte(line + "\r\n")))(t)
	var answer strings.Builder
	for in := bufio.NewReader(conn); !strings.HasSuffix(answer.String(), end+"\r\n"); {
		line := try.To(in.ReadString('\n'))(t)
		answer.WriteString(line)
	}
	return answer.String()
}

// statsOf are the counts of a memcached.
func statsOf(t *testing.T, addr string) map[string]int64 {
	all := map[string]int64{}
	for line := range strings.Lines(ask(t, addr, "stats", "END")) {
		var name string
		var n int64
		if _, err := fmt.Sscanf(line, "STAT %s %d", &name, &n); err == nil {
			all[name] = n
		}
	}
	require.Contains(t, all, "cmd_get")
	return all
}

var tiersOn = kinds[9]

// The reads of the textbooks' example, by the count of the server: 142 for a day at
// 23:30:33. A hit is an incr in each tier, and an add where there is no item yet.
func TestTheReadsOfTheTextbook(t *testing.T) {
	addr := servertest.Memcached(t)
	proxy := servertest.NewProxy(t, addr, 5*time.Millisecond)
	c := clockAt(time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC))
	l := tiersOn.new(t, 2, 24*time.Hour, 0, memcached(t, proxy.Addr, classic.Config{Now: c.now, Grace: grace}))
	held(t, l, name(1)) // connects
	for i, row := range []struct {
		allowed                   bool
		trips, writes, incr, adds int64
	}{{true, 7, 6, 3, 3}, {true, 4, 3, 3, 0}, {false, 1, 0, 0, 0}} {
		before, cost := statsOf(t, addr), l.Cost()
		proxy.Reset()
		require.Equal(t, row.allowed, take(t, l, signup, 1).Allowed)
		after := statsOf(t, addr)
		grown := func(name string) int64 { return after[name] - before[name] }
		require.EqualValues(t, 142, grown("cmd_get"), "call %d", i)
		require.Equal(t, row.incr, grown("incr_hits")+grown("incr_misses"))
		require.Equal(t, row.adds, grown("cmd_set"))
		require.EqualValues(t, row.trips, proxy.Trips())
		require.Equal(t, classic.Cost{Calls: 1, Trips: row.trips, Reads: 142, Writes: row.writes}, since(l, cost))
	}
	require.InEpsilon(t, statsOf(t, addr)["bytes"], held(t, l, signup), 0.1, "as the server counts")
}

func TestRacersOnMemcached(t *testing.T) {
	addr := servertest.Memcached(t)
	checkThenAdd(t, func(delay time.Duration, cfg classic.Config) *classic.Store {
		return memcached(t, servertest.NewProxy(t, addr, delay).Addr, cfg)
	})
}

// An item ends by itself, also where memcached wants a date.
func TestItemsEnd(t *testing.T) {
	addr, now := servertest.Memcached(t), time.Now()
	for per, text := range map[time.Duration]string{time.Hour: "1h", 40 * 24 * time.Hour: "40d"} {
		l := tiersOn.new(t, 5, per, 0, memcached(t, addr, classic.Config{Now: func() time.Time { return now }}))
		require.True(t, take(t, l, signup, 1).Allowed)
		for unit, width := range map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour} {
			item := fmt.Sprintf("cl:textbook-tiers:%s{signup:ip:203.0.113.9}%s%d", text, unit, now.Unix()/int64(width/time.Second))
			var ttl int64
			require.NoError(t, try.Err(fmt.Sscanf(ask(t, addr, "mg "+item+" t", ""), "HD t%d", &ttl)), item)
			require.Greater(t, ttl, int64((per-time.Minute)/time.Second), item)
			require.LessOrEqual(t, ttl, int64((per+width)/time.Second)+5, item)
		}
	}
}

func TestMemcachedFails(t *testing.T) {
	server := servertest.StartMemcached(t)
	l := tiersOn.new(t, 5, time.Minute, 0, memcached(t, server.Addr, classic.Config{}))
	require.True(t, take(t, l, signup, 1).Allowed)
	client := memcache.New(server.Addr)
	defer client.Close()
	for _, name := range l.Keys(signup) {
		require.NoError(t, client.Set(&memcache.Item{Key: name, Value: []byte("x")}))
	}
	fails := func(text string) {
		v, err := l.Take(ctx, signup, 1)
		require.ErrorIs(t, err, counter.ErrStore)
		require.ErrorContains(t, err, `classic: textbook-tiers: event "signup": memcached: `+text)
		require.NotContains(t, err.Error(), "203.0.113.9")
		require.Equal(t, counter.Verdict{}, v)
	}
	fails("")
	server.Kill()
	fails("")
	require.ErrorIs(t, try.Err(l.Bytes(ctx, signup)), counter.ErrStore)
}

// The longest name there is fits into a name of memcached.
func TestTheLongestName(t *testing.T) {
	addr := servertest.Memcached(t)
	l := tiersOn.new(t, 5, 365*24*time.Hour+23*time.Hour+59*time.Minute+59*time.Second, 0,
		memcached(t, addr, classic.Config{Prefix: strings.Repeat("p", 32), Now: clockAt(time.Date(1700, 1, 2, 0, 0, 0, 0, time.UTC)).now}))
	for _, n := range []int{157, 158, 195, 196, 197} {
		take(t, l, counter.Key{Event: "e", Feature: strings.Repeat("f", n)}, 1)
	}
}
