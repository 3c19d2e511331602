package redis_test

import (
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	abacusredis "github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// several is one way to count a hit of several keys.
type several struct {
	name  string
	hit   func() error
	spent func(before, after map[string]stat) stat // the server's, for its commands
	used  func() (int64, error)                    // hits of the last key

	wall, server, cpu measure.Series // of the rounds, us for a call
}

var increments = redis.NewScript(`
for i = 1, #KEYS do
  redis.call('INCRBY', KEYS[i], 1)
  redis.call('EXPIRE', KEYS[i], ARGV[i])
end
return 1`)

func TestThreeKeysOnRedis(t *testing.T) {
	rounds, calls := measure.Pick(2, 7, 9), measure.Pick(40, 500, 1_500)
	s := measure.Open(t, "On Redis: three keys of three ladders")
	s.Say("%d rounds of %s calls, one caller, loopback; us for one call, the median of the rounds and their spread. A call takes three keys, under a limit of a minute, of an hour and of a day, each on the ladder of "+
		"its window; abacus in one TakeAll, redis_rate one after the other. INCRBY with EXPIRE counts, and limits nothing: a floor. abacus lives by a made-up clock. \"Server\" and \"CPU\" as above.", rounds, measure.Count(int64(calls)))
	b := newBench(t)
	features, limits := []string{"address", "user", "everybody"}, roomy(3, 1_000_000)
	all := []*several{b.pipeline(features), b.script(features), b.rates(features, limits),
		b.takeAll("abacus", abacusredis.Sums, features, limits), b.takeAll("abacus, Plain", abacusredis.Plain, features, limits)}
	hits := int64(0)
	for _, p := range []struct {
		name  string
		apart time.Duration
	}{{"in the same second", 0}, {"a second apart", time.Second}} {
		for _, c := range all {
			c.wall, c.server, c.cpu = nil, nil, nil
		}
		measure.Turns(rounds, len(all), func(i, _ int) {
			c := all[i]
			cpu, before, began := b.cpu(), b.stats(), time.Now()
			for range calls {
				require.NoError(t, c.hit(), c.name)
				b.now = b.now.Add(p.apart)
			}
			wall, n := time.Since(began), float64(calls)
			c.wall = append(c.wall, float64(wall.Nanoseconds())/1e3/n)
			c.server = append(c.server, c.spent(before, b.stats()).us/n)
			c.cpu = append(c.cpu, (b.cpu()-cpu)/n)
		})
		table := measure.Table{Head: []string{"", "wall, us", "server, us", "to the script", "CPU, us"}}
		for _, c := range all {
			table.Row(c.name, c.wall.Spread(), c.server.Spread(), measure.Num(c.server.To(all[1].server).Median()), measure.Num(c.cpu.Median()))
		}
		s.Table("Hits "+p.name, table)
		hits += int64(rounds * calls)
	}
	for _, c := range all {
		require.Equal(t, hits, try.To(c.used())(t), c.name)
	}
}

// The windows of a fixed window by hand, in seconds.
var lives = []any{120, 7_200, 172_800}

func (b *bench) pipeline(features []string) *several {
	return &several{name: "INCRBY and EXPIRE, one pipeline", hit: func() error {
		_, err := b.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, feature := range features {
				pipe.IncrBy(ctx, "pipeline:"+feature, 1)
				pipe.Do(ctx, "expire", "pipeline:"+feature, lives[i])
			}
			return nil
		})
		return err
	}, spent: func(before, after map[string]stat) stat {
		return sum(before, after, "incrby", "expire")
	}, used: func() (int64, error) { return b.client.Get(ctx, "pipeline:"+features[2]).Int64() }}
}

func (b *bench) script(features []string) *several {
	return &several{name: "INCRBY and EXPIRE, one script", hit: func() error {
		return increments.Run(ctx, b.client, features, lives...).Err()
	}, spent: scripts, used: func() (int64, error) { return b.client.Get(ctx, features[2]).Int64() }}
}

func (b *bench) rates(features []string, limits counter.Limits) *several {
	rates, hits := redis_rate.NewLimiter(b.client), int64(0)
	return &several{name: "redis_rate", hit: func() error {
		for i, feature := range features {
			r, err := rates.Allow(ctx, feature, redis_rate.Limit{Rate: int(limits[i].Max), Burst: int(limits[i].Max), Period: limits[i].Per})
			if err = answered(err == nil && r.Allowed == 0, err); err != nil {
				return err
			}
		}
		hits++
		return nil
	}, spent: scripts, used: func() (int64, error) { return hits, nil }} // its count leaks
}

func (b *bench) takeAll(name string, layout abacusredis.Layout, features []string, limits counter.Limits) *several {
	set := b.setting(limits)
	store, err := abacusredis.New(set.client, abacusredis.Config{Layout: layout, IOTimeout: 10 * time.Second})
	require.NoError(b, err)
	c, err := counter.New(store, counter.Config{Prefix: set.prefix, Patience: set.timeout, Now: set.now})
	require.NoError(b, err)
	var asks []counter.Ask
	for i, limit := range limits {
		on, err := c.With(tiers.For(limit.Per), nil)
		require.NoError(b, err)
		asks = append(asks, counter.Ask{Key: counter.Key{Event: "request", Feature: features[i]}, N: 1, Limits: counter.Limits{limit}, On: on})
	}
	spent := scripts
	if layout == abacusredis.Plain {
		spent = transactions
	}
	return &several{name: name, hit: func() error {
		v, err := c.TakeAll(ctx, asks...)
		return answered(!v.Allowed, err)
	}, spent: spent, used: func() (int64, error) {
		last := asks[len(asks)-1]
		n, err := last.On.Count(ctx, last.Key, last.Limits[0].Per)
		return n.High, err
	}}
}
