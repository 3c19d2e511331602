// Package redis_test measures what a limit costs a Redis server: its time for a
// call, from INFO commandstats, and its memory, from MEMORY USAGE, beside
// redis_rate (GCRA) and a log of every hit in a sorted set.
//
//	cd bench && go test -count=1 -v -timeout 30m ./redis
package redis_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	abacusredis "github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/servertest"
)

var (
	rounds = flag.Int("rounds", 7, "rounds; every contestant runs once in each")
	calls  = flag.Int("calls", 4000, "calls of each contestant in each round")
	addr   = flag.String("addr", "", "a Redis to measure on, which is filled with keys; default: one of its own")
)

const enough = 1_000_000_000

// bench is a server and the clock that all contestants but redis_rate, which
// reads the server's, live by.
type bench struct {
	*testing.T
	client *redis.Client
	now    time.Time
	rand   *rand.Rand
}

var ctx = context.Background()

// contestant is one way to limit; denied: under limits that are used up.
type contestant struct {
	name   string
	limits int
	peer   bool
	take   func(key string, denied bool) (allowed bool)
	scan   string // what its keys for one key match
}

// pattern is how a key is hit.
type pattern struct {
	name  string
	note  string
	warm  int           // calls before the measured ones
	step  time.Duration // mean time between hits
	fresh bool          // every call has a key of its own
	keys  int           // hit in turn
	deny  bool
}

func TestServerTime(t *testing.T) {
	if *addr == "" {
		*addr = servertest.Redis(t)
	}
	b := &bench{T: t, now: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), rand: rand.New(rand.NewPCG(1, 2))}
	b.client = redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true, ReadTimeout: 10 * time.Second})
	defer b.client.Close()
	version := b.client.InfoMap(ctx, "server").Item("Server", "redis_version")
	fmt.Printf("Redis %s, %d rounds of %d calls, us of server time for one call\n", version, *rounds, *calls)

	for _, p := range []pattern{
		{name: "cold", note: "every key is hit once", fresh: true},
		{name: "one second", note: "one key, again and again", keys: 1},
		{name: "sparse", note: "20 keys, 100 hits a day each", keys: 20, warm: 200, step: 864 * time.Second},
		{name: "sparse, denied", note: "the same, limits used up", keys: 20, warm: 200, step: 864 * time.Second, deny: true},
		{name: "medium", note: "5 keys, 2,000 hits a day each", keys: 5, warm: 2500, step: 43200 * time.Millisecond},
		{name: "dense", note: "one key, 200,000 hits a day", keys: 1, warm: 220_000, step: 432 * time.Millisecond},
		{name: "dense, denied", note: "the same, limits used up", keys: 1, warm: 220_000, step: 432 * time.Millisecond, deny: true},
	} {
		b.measure(p)
	}
}

func (b *bench) contestants() []contestant {
	return []contestant{b.abacus(1), b.rate(1), b.log(), b.abacus(3), b.rate(3)}
}

func (b *bench) abacus(n int) contestant {
	store, err := abacusredis.New(b.client, abacusredis.Config{Timeout: 10 * time.Second})
	require.NoError(b, err)
	prefix := fmt.Sprintf("b%x", rand.Uint32())
	c, err := counter.New(store, counter.Config{Prefix: prefix, Timeout: -1, Now: func() time.Time { return b.now }})
	require.NoError(b, err)
	admit := counter.MustLimits(map[int]string{1: fmt.Sprintf("%d/d", enough), 3: fmt.Sprintf("%d/m, %d/h, %d/d", enough, enough, enough)}[n])
	deny := counter.MustLimits(map[int]string{1: "60/d", 3: "10/m, 50/h, 60/d"}[n])
	seen := 0
	return contestant{name: fmt.Sprintf("abacus, %d limits", n), limits: n, scan: "{" + prefix + ":*", take: func(key string, denied bool) bool {
		limits := admit
		if denied {
			// Another Max each time: a denial that is remembered costs nothing.
			seen++
			limits = slices.Clone(deny)
			for i := range limits {
				limits[i].Max -= int64(seen % 7)
			}
		}
		v, err := c.Take(ctx, counter.Key{Event: "signup", Feature: key}, 1, limits)
		require.NoError(b, err)
		return v.Allowed
	}}
}

func (b *bench) rate(n int) contestant {
	limiter := redis_rate.NewLimiter(b.client)
	prefix := fmt.Sprintf("r%x:", rand.Uint32())
	periods := []time.Duration{24 * time.Hour, time.Minute, time.Hour}[:n]
	return contestant{name: fmt.Sprintf("redis_rate, %d calls", n), limits: n, peer: true, scan: "rate:" + prefix + "*", take: func(key string, denied bool) bool {
		allowed := true
		for i, period := range periods {
			limit := redis_rate.Limit{Rate: enough, Burst: enough, Period: period}
			name := prefix + key + strconv.Itoa(i)
			if denied {
				limit.Rate, limit.Burst = 1, 1
				name += "denied"
			}
			r, err := limiter.Allow(ctx, name, limit)
			require.NoError(b, err)
			allowed = allowed && r.Allowed > 0
		}
		return allowed
	}}
}

// log is the exact limiter that many write themselves.
func (b *bench) log() contestant {
	prefix := fmt.Sprintf("l%x:", rand.Uint32())
	script := redis.NewScript(`
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1] - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)
	seq := 0
	return contestant{name: "log in a sorted set", limits: 1, scan: prefix + "*", take: func(key string, denied bool) bool {
		seq++
		limit := enough
		if denied {
			limit = 1
		}
		allowed, err := script.Run(ctx, b.client, []string{prefix + key}, b.now.UnixMilli(), 24*time.Hour.Milliseconds(), limit, strconv.Itoa(seq)).Int()
		require.NoError(b, err)
		return allowed == 1
	}}
}

func (b *bench) measure(p pattern) {
	all := b.contestants()
	start := b.now
	fresh := make([]int, len(all))
	clocks := make([]time.Time, len(all))
	hit := func(c, i int, denied bool) {
		name := fmt.Sprintf("ip:203.0.113.%d", i%max(1, p.keys))
		if p.fresh {
			fresh[c]++
			name = fmt.Sprintf("ip:10.%d.%d.%d", fresh[c]>>16, fresh[c]>>8&255, fresh[c]&255)
		}
		allowed := all[c].take(name, denied)
		if denied && i >= 0 && all[c].limits >= 0 && allowed != !denied && !all[c].peer {
			b.Fatalf("%s, %s: allowed %v", p.name, all[c].name, allowed)
		}
		if i%max(1, p.keys) == 0 && p.step > 0 {
			b.now = b.now.Add(time.Duration(b.rand.Int64N(int64(2 * p.step))))
		}
	}
	for c := range all {
		b.now = start
		for i := range p.warm * max(1, p.keys) {
			hit(c, i, false)
		}
		if p.deny && all[c].peer {
			hit(c, 0, true)
		}
		clocks[c] = b.now
	}
	fmt.Printf("\n%s: %s\n", p.name, p.note)
	results := make([][]float64, len(all))
	for range *rounds {
		for c := range all {
			b.now = clocks[c]
			before := b.spent()
			for i := range *calls {
				hit(c, i, p.deny)
				if p.deny {
					b.now = clocks[c].Add(time.Duration(i) * time.Millisecond)
				}
			}
			results[c] = append(results[c], (b.spent()-before)/float64(*calls))
			if !p.deny {
				clocks[c] = b.now
			}
		}
	}
	for c := range all {
		var ratios []float64
		for r := range *rounds {
			for q := range all {
				if all[q].peer && all[q].limits == all[c].limits {
					ratios = append(ratios, results[c][r]/results[q][r])
				}
			}
		}
		slices.Sort(results[c])
		slices.Sort(ratios)
		fmt.Printf("%22s  %6.2f  [%.2f-%.2f]  to redis_rate %.2f [%.2f-%.2f]", all[c].name, results[c][*rounds/2], results[c][0], results[c][*rounds-1], ratios[*rounds/2], ratios[0], ratios[*rounds-1])
		if !p.fresh && !p.deny && p.keys > 0 {
			bytes, keys := b.memory(all[c].scan)
			fmt.Printf("  %d bytes in %.0f stored keys", bytes/p.keys, float64(keys)/float64(p.keys))
		}
		fmt.Println()
	}
}

// spent is the server's time for scripts so far, in microseconds.
func (b *bench) spent() float64 {
	text, err := b.client.Info(ctx, "commandstats").Result()
	require.NoError(b, err)
	sum := 0.0
	for line := range strings.SplitSeq(text, "\r\n") {
		if strings.HasPrefix(line, "cmdstat_eval") {
			_, rest, _ := strings.Cut(line, "usec=")
			field, _, _ := strings.Cut(rest, ",")
			us, err := strconv.ParseFloat(field, 64)
			require.NoError(b, err)
			sum += us
		}
	}
	return sum
}

// memory is what the keys that match cost, all together.
func (b *bench) memory(match string) (bytes, keys int) {
	iter := b.client.Scan(ctx, 0, match, 10_000).Iterator()
	for iter.Next(ctx) {
		n, err := b.client.MemoryUsage(ctx, iter.Val(), 0).Result()
		require.NoError(b, err)
		bytes += int(n)
		keys++
	}
	require.NoError(b, iter.Err())
	return bytes, keys
}
