package redis_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// bench is a Redis of its own and a client.
type bench struct {
	*testing.T
	client *redis.Client
	addr   string
	now    time.Time // of contestants that do not ask the server
}

func newBench(t *testing.T) *bench {
	addr := servertest.Redis(t)
	return &bench{T: t, addr: addr, client: connect(t, addr, 0), now: time.Date(2026, 3, 2, 10, 20, 30, 0, time.UTC)}
}

func connect(t *testing.T, addr string, connections int) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: 10 * time.Second, PoolSize: connections})
	t.Cleanup(func() { client.Close() })
	return client
}

// setting returns a setting on the bench's clock, for a contestant of its own.
func (b *bench) setting(limits counter.Limits) setting {
	return setting{client: b.client, limits: limits, now: func() time.Time { return b.now }, timeout: -1, prefix: fmt.Sprintf("b%08x", rand.Uint32())}
}

// stat is the server's statistic of a command.
type stat struct{ calls, us float64 }

func (s stat) since(before stat) stat { return stat{s.calls - before.calls, s.us - before.us} }
func (s stat) plus(other stat) stat   { return stat{s.calls + other.calls, s.us + other.us} }

func sum(before, after map[string]stat, commands ...string) (all stat) {
	for _, name := range commands {
		all = all.plus(after[name].since(before[name]))
	}
	return all
}

// scripts returns the time of contestants that send scripts only. Calls from the
// script are in the time, though the server counts such calls once more.
func scripts(before, after map[string]stat) stat {
	return sum(before, after, "eval", "evalsha", "fcall")
}

// transactions returns the time of contestants that send transactions only, with the
// commands inside.
func transactions(before, after map[string]stat) stat { return sum(before, after, "multi", "exec") }

// stats is INFO commandstats.
func (b *bench) stats() map[string]stat {
	text, err := b.client.Info(ctx, "commandstats").Result()
	require.NoError(b, err)
	all := map[string]stat{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, fields, is := strings.Cut(strings.TrimPrefix(lines.Text(), "cmdstat_"), ":calls=")
		if !is {
			continue
		}
		var s stat
		_, err := fmt.Sscanf(fields, "%f,usec=%f,", &s.calls, &s.us)
		require.NoError(b, err, lines.Text())
		all[name] = s
	}
	return all
}

// cpu returns the computing time of the server's main thread so far, in
// microseconds: commands, and reading and writing them.
func (b *bench) cpu() float64 {
	info := b.client.InfoMap(ctx, "cpu")
	require.NoError(b, info.Err())
	seconds := 0.0
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		s, err := strconv.ParseFloat(info.Item("CPU", field), 64)
		require.NoError(b, err)
		seconds += s
	}
	return seconds * 1e6
}

// memory returns the memory of all stored keys that match.
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
