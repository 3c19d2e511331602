package redis_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/counter"
)

// Limiters that many write themselves: the cheapest limit, which admits 2N, and the
// exact limit, which keeps every hit.

func newFixed(_ *testing.T, set setting) *contestant {
	name := func(key string, i int) string {
		return fmt.Sprintf("%s:%s:%d:%d", set.prefix, key, i, set.now().UnixNano()/int64(set.limits[i].Per))
	}
	ask := func(key string, limits counter.Limits) error {
		counts := make([]*redis.IntCmd, len(limits))
		if _, err := set.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, limit := range limits {
				counts[i] = pipe.Incr(ctx, name(key, i))
				pipe.ExpireNX(ctx, name(key, i), limit.Per)
			}
			return nil
		}); err != nil {
			return err
		}
		for i, limit := range limits {
			if counts[i].Val() > limit.Max {
				return errRefused
			}
		}
		return nil
	}
	last := len(set.limits) - 1
	return &contestant{
		hit:     func(key string) error { return ask(key, set.limits) },
		refused: func(key string) error { return ask(key, set.usedUp(0)) },
		used:    func(key string) (int64, error) { return set.client.Get(ctx, name(key, last)).Int64() },
		spent:   func(before, after map[string]stat) stat { return sum(before, after, "incr", "expire") },
		stored:  set.prefix + ":*", rule: calendar,
	}
}

// The log is trimmed by its longest window; arguments after the first three are
// pairs of a window and a limit.
var logScript = redis.NewScript(`
local now = tonumber(ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[#ARGV - 1])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[#ARGV]) then
  return 0
end
for i = 3, #ARGV - 2, 2 do
  if redis.call('ZCOUNT', KEYS[1], '(' .. now - ARGV[i], '+inf') >= tonumber(ARGV[i + 1]) then
    return 0
  end
end
redis.call('ZADD', KEYS[1], now, ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[#ARGV - 1])
return 1`)

func newLog(_ *testing.T, set setting) *contestant {
	member := 0
	name := func(key string) string { return set.prefix + ":" + key }
	ask := func(key string, limits counter.Limits) error {
		member++
		args := []any{set.now().UnixMilli(), strconv.Itoa(member)}
		for _, limit := range limits {
			args = append(args, limit.Per.Milliseconds(), limit.Max)
		}
		admitted, err := logScript.Run(ctx, set.client, []string{name(key)}, args...).Bool()
		return answered(!admitted, err)
	}
	last := len(set.limits) - 1
	return &contestant{
		hit:     func(key string) error { return ask(key, set.limits) },
		refused: func(key string) error { return ask(key, set.usedUp(0)) },
		used: func(key string) (int64, error) {
			after := set.now().Add(-set.limits[last].Per).UnixMilli()
			return set.client.ZCount(ctx, name(key), fmt.Sprintf("(%d", after), "+inf").Result()
		},
		// Hits older than the window were trimmed by later hits: 129 members once
		// make a set large for ever.
		fill: func(key string, at []time.Time) error {
			for len(at) > 0 {
				n := min(len(at), 1000)
				if _, err := set.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
					pipe.ZRemRangeByScore(ctx, name(key), "-inf", strconv.FormatInt(at[n-1].Add(-set.limits[last].Per).UnixMilli(), 10))
					for _, t := range at[:n] {
						member++
						pipe.ZAdd(ctx, name(key), redis.Z{Score: float64(t.UnixMilli()), Member: strconv.Itoa(member)})
					}
					return nil
				}); err != nil {
					return err
				}
				at = at[n:]
			}
			return nil
		},
		spent: scripts, stored: set.prefix + ":*", rule: sliding,
	}
}
