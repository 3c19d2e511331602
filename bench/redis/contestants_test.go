// Package redis_test sets the Redis store beside other limiters on Redis.
//
//	cd bench && go test ./redis                          a test, of seconds
//	cd bench && go test -v -count=1 ./redis -size short  a benchmark
package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	abacusredis "github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

const day = 24 * time.Hour

var (
	errRefused = errors.New("a call was refused")
	ctx        = context.Background()
)

// setting is the configuration of a contestant. All keys have the same limits, the
// longest last.
type setting struct {
	client  *redis.Client
	limits  counter.Limits
	now     func() time.Time // of contestants that do not ask the server
	timeout time.Duration    // of ours: counter.Config.Timeout
	prefix  string           // of all stored keys
}

// usedUp is the limits with another Max of the longest.
func (s setting) usedUp(max int64) counter.Limits {
	last := len(s.limits) - 1
	return append(s.limits[:last:last], counter.Limit{Max: max, Per: s.limits[last].Per})
}

// contestant is one way to limit keys on Redis.
type contestant struct {
	hit func(key string) error // counts a hit; errRefused if a limit has no room
	// refused asks as hit does, but where the longest limit is used up. The first
	// such call of a key may use it up.
	refused func(key string) error
	used    func(key string) (int64, error)          // hits under the longest limit
	fill    func(key string, at []time.Time) error   // as if it had been hit then; nil: what was long ago makes no difference
	spent   func(before, after map[string]stat) stat // the server's, for its commands
	stored  string                                   // a pattern of its stored keys
	lasting bool                                     // stored keys that outlive their window make no difference

	// The hits that count under the longest limit: of the last day by our clock, of
	// the calendar day, or all hits minus the leak.
	rule rule
}

type rule int

const (
	sliding rule = iota
	calendar
	firstHit
	leaking
)

// kind makes contestants of a kind.
type kind struct {
	name string
	how  string
	make func(*testing.T, setting) *contestant
}

// kinds are the contestants, each as in its documentation. Contestants that know a
// single limit only are asked for each limit in turn, the longest first.
var kinds = []kind{
	{"abacus", "one Take with all limits", newAbacus},
	{"redis_rate", "Allow", newRate},
	{"ulule/limiter", "its Redis store, Get", newUlule},
	{"throttled", "goredisstore for go-redis v9, RateLimitCtx", newThrottled},
	{"INCR, EXPIRE", "a fixed window of our own writing, all limits in one pipeline: a floor. Refused hits count", newFixed},
	{"sorted set", "a log of every hit of our own writing, one script for all limits: exact, and what exactness costs without buckets", newLog},
}

// withPlain are all kinds, with a contestant that is measured beside the others only
// where its counters by the thousand need not grow old.
var withPlain = append(slices.Clip(kinds), kind{"abacus, Plain", "one Take with all limits, by ticket, on plain counters", newPlain})

// newPlain makes a contestant with a counter for each bucket, which may stay stored for
// longer than it counts.
func newPlain(t *testing.T, set setting) *contestant {
	c := newLayout(t, set, abacusredis.Plain)
	c.lasting, c.spent = true, transactions
	return c
}

func newAbacus(t *testing.T, set setting) *contestant { return newLayout(t, set, abacusredis.Sums) }

func newLayout(t *testing.T, set setting, layout abacusredis.Layout) *contestant {
	store := try.To(abacusredis.New(set.client, abacusredis.Config{Layout: layout, IOTimeout: 10 * time.Second}))(t)
	c := try.To(counter.New(store, counter.Config{
		Ladder: set.limits.Ladder(), Prefix: set.prefix, Patience: set.timeout, Now: set.now,
	}))(t)
	key := func(feature string) counter.Key { return counter.Key{Event: "signup", Feature: feature} }
	take := func(feature string, limits counter.Limits) error {
		v, err := c.Take(ctx, key(feature), 1, limits)
		return answered(!v.Allowed, err)
	}
	var usedUp []counter.Limits
	for i := range int64(7) {
		usedUp = append(usedUp, set.usedUp(1+i)) // a denial is remembered for the same call: these calls differ
	}
	asked := 0
	var then time.Time
	filler := try.To(counter.New(store, counter.Config{Ladder: c.Config().Ladder, Prefix: set.prefix, Patience: set.timeout, Now: func() time.Time { return then }}))(t)
	return &contestant{
		hit: func(feature string) error { return take(feature, set.limits) },
		refused: func(feature string) error {
			asked++
			return take(feature, usedUp[asked%len(usedUp)])
		},
		used: func(feature string) (int64, error) {
			n, err := c.Count(ctx, key(feature), set.limits[len(set.limits)-1].Per)
			return n.High, err
		},
		// The hits of a second are a single Take, since all share a bucket.
		fill: func(feature string, at []time.Time) error {
			for len(at) > 0 {
				n := 1
				for n < len(at) && at[n].Unix() == at[0].Unix() {
					n++
				}
				then = at[0]
				v, err := filler.Take(ctx, key(feature), int64(n), set.limits)
				if err = answered(!v.Allowed, err); err != nil {
					return err
				}
				at = at[n:]
			}
			return nil
		},
		spent: scripts, stored: "{" + set.prefix + ":*", rule: sliding,
	}
}

// single is a limiter that knows a single limit.
type single struct {
	hit  func(key string) error
	used func(key string) (int64, error)
}

// inTurn makes a contestant of a limiter for each limit, on a prefix of its own, since
// two limits on a counter would share a count, and of a limiter that is used up.
func inTurn(set setting, make func(prefix string, limit counter.Limit) single) *contestant {
	var all []single
	for i, limit := range set.limits {
		all = append(all, make(set.prefix+strconv.Itoa(i), limit))
	}
	last := len(all) - 1
	return &contestant{
		hit: func(key string) error {
			for i := last; i >= 0; i-- {
				if err := all[i].hit(key); err != nil {
					return err
				}
			}
			return nil
		},
		refused: make(set.prefix+"used-up", set.usedUp(1)[last]).hit,
		used:    all[last].used,
		spent:   scripts, stored: set.prefix + "[0-9]:*",
	}
}

// answered is the error of a call: errRefused if it was refused.
func answered(refused bool, err error) error {
	if err == nil && refused {
		return errRefused
	}
	return err
}

func newRate(_ *testing.T, set setting) *contestant {
	l := redis_rate.NewLimiter(set.client)
	c := inTurn(set, func(prefix string, limit counter.Limit) single {
		allow := func(key string, n int) (redis_rate.Result, error) {
			r, err := l.AllowN(ctx, prefix+":"+key, redis_rate.Limit{Rate: int(limit.Max), Burst: int(limit.Max), Period: limit.Per}, n)
			if err != nil {
				return redis_rate.Result{}, err
			}
			return *r, nil
		}
		return single{
			hit: func(key string) error {
				r, err := allow(key, 1)
				return answered(r.Allowed == 0, err)
			},
			used: func(key string) (int64, error) {
				r, err := allow(key, 0)
				return limit.Max - int64(r.Remaining), err
			},
		}
	})
	c.stored, c.rule = "rate:"+c.stored, leaking
	return c
}

func newUlule(t *testing.T, set setting) *contestant {
	c := inTurn(set, func(prefix string, limit counter.Limit) single {
		store := try.To(ululeredis.NewStoreWithOptions(set.client, ulule.StoreOptions{Prefix: prefix}))(t)
		l := ulule.New(store, ulule.Rate{Period: limit.Per, Limit: limit.Max})
		return single{
			hit: func(key string) error {
				c, err := l.Get(ctx, key)
				return answered(c.Reached, err)
			},
			used: func(key string) (int64, error) {
				c, err := l.Peek(ctx, key)
				return c.Limit - c.Remaining, err
			},
		}
	})
	c.rule = firstHit
	return c
}

func newThrottled(t *testing.T, set setting) *contestant {
	c := inTurn(set, func(prefix string, limit counter.Limit) single {
		store := try.To(goredisstore.NewCtx(set.client, prefix+":"))(t)
		l := try.To(throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(int(limit.Max), limit.Per), MaxBurst: int(limit.Max) - 1}))(t)
		return single{
			hit: func(key string) error {
				limited, _, err := l.RateLimitCtx(ctx, key, 1)
				return answered(limited, err)
			},
			used: func(key string) (int64, error) {
				_, r, err := l.RateLimitCtx(ctx, key, 0)
				return int64(r.Limit - r.Remaining), err
			},
		}
	})
	// TIME and GET, then SETNX and EXPIRE or a script, whose own GETs are in the time
	// of EVAL already: there are as many others as there are TIMEs.
	c.spent = func(before, after map[string]stat) stat {
		get := after["get"].since(before["get"])
		alone := stat{after["time"].since(before["time"]).calls, 0}
		if get.calls > 0 {
			alone.us = get.us * alone.calls / get.calls
		}
		return sum(before, after, "time", "setnx", "expire", "eval").plus(alone)
	}
	c.rule = leaking
	return c
}

// A limiter that does not count would win every race.
func TestEveryContestantCountsAndRefuses(t *testing.T) {
	b := newBench(t)
	for _, kind := range withPlain {
		t.Run(kind.name, func(t *testing.T) {
			for _, row := range []struct {
				limits string
				room   int
			}{
				{"7/d", 7},
				{"30/m, 20/h, 7/d", 7},
				{"2/m, 20/h, 70/d", 2},
			} {
				c := kind.make(t, b.setting(counter.MustLimits(row.limits)))
				for _, key := range []string{"a", "b"} {
					for i := range row.room {
						require.NoError(t, c.hit(key), "hit %d under %s", i, row.limits)
					}
					require.ErrorIs(t, c.hit(key), errRefused, row.limits)
					require.NoError(t, c.hit(fmt.Sprint("not ", key)))
					for range 3 {
						if err := c.refused(key); err != nil {
							require.ErrorIs(t, err, errRefused)
						}
					}
					require.ErrorIs(t, c.refused(key), errRefused)
				}
			}
		})
	}
	stored := try.To(b.client.Keys(ctx, "*").Result())(t)
	require.NotEmpty(t, stored)
	for _, key := range stored {
		require.Positive(t, try.To(b.client.TTL(ctx, key).Result())(t), "time to live of %s", key)
	}
}
