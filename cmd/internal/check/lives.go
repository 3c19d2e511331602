package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// shortest is a ladder whose buckets live for a few seconds on any store.
var shortest = tiers.For(tiers.MinWindow)

// expiringSuffix follows the prefix of keys that are to expire while the check runs.
const expiringSuffix = "x"

// lives checks that all stored keys have a time to live, and none a longer time
// than promised.
func (r *run) lives(ctx context.Context) (Result, error) {
	result := Result{Name: "lives", Promise: "every key has a TTL", Status: OK}
	if r.local() {
		return result, errNotHere
	}
	c, err := r.counter(shortest, Patience(r.cfg.Timeout), expiringSuffix)
	if err != nil {
		return result, err
	}
	began := time.Now()
	if err := c.Add(ctx, counter.Key{Event: "expiry", Feature: "one"}, 1); err != nil {
		return result, orSlow(began, err)
	}
	var n int
	var longest time.Duration
	var forever string
	err = r.ttls(ctx, nil, func(key string, ttl time.Duration) {
		switch {
		case ttl == stores.Gone:
			return
		case ttl == stores.Never:
			forever = key
		case strings.HasPrefix(strings.TrimPrefix(key, "{"), r.cfg.Prefix+expiringSuffix):
			r.expiring = append(r.expiring, key)
		}
		n++
		longest = max(longest, ttl)
	})
	if errors.Is(err, stores.ErrNoTTL) {
		result.Status, result.Seen, result.Means = Warning, "memcached "+version(r.servers[0])+": "+err.Error(), "From 1.6 on it does, and this could be seen."
		return result, nil
	}
	if err != nil {
		return result, err
	}
	promised := r.store.Life(tiers.Default, counter.DefaultSkew, r.settle())
	result.Seen = fmt.Sprintf("%d keys, the longest for %s", n, dur.Format(longest.Round(time.Second)))
	result.Numbers = map[string]float64{"keys": float64(n), "longest_s": longest.Seconds()}
	switch {
	case forever != "":
		result.Status, result.Means = Failed, fmt.Sprintf("%.60q never expires: the store fills up.", forever)
	case longest > promised:
		result.Status, result.Means = Failed, fmt.Sprintf("They should expire within %s.", dur.Format(promised))
	case n == 0:
		result.Status, result.Means = Failed, "What was stored is gone already: counts are lost."
	}
	return result, nil
}

// expiry waits until the keys with the shortest time to live are gone.
func (r *run) expiry(ctx context.Context) (Result, error) {
	result := Result{Name: "expiry", Promise: "what expires is gone", Status: OK}
	if len(r.expiring) == 0 {
		return result, errNotHere
	}
	began := time.Now()
	var left time.Duration
	look := func() (there int, err error) {
		err = r.ttls(ctx, r.expiring, func(_ string, ttl time.Duration) {
			if ttl != stores.Gone {
				there++
				left = max(left, ttl)
			}
		})
		return there, err
	}
	there, err := look()
	// memcached counts whole seconds, by a clock that ticks once a second.
	for patience := left + 3*time.Second; err == nil && there > 0 && time.Since(began) < patience; there, err = look() {
		select {
		case <-ctx.Done():
			return result, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err != nil {
		return result, err
	}
	result.Seen = fmt.Sprintf("%d of %d with a TTL of some seconds are left", there, len(r.expiring))
	if there > 0 {
		result.Status, result.Means = Failed, "The store fills up with what nobody reads any more."
	}
	return result, nil
}

// ttls calls f with the time to live of the stored keys; of all keys of the check
// if keys is nil.
func (r *run) ttls(ctx context.Context, keys []string, f func(key string, ttl time.Duration)) error {
	if m := r.store.Memcached; m != nil {
		if keys == nil {
			keys = slices.Compact(slices.Sorted(m.Written(r.cfg.Prefix)))
		}
		return m.TTLs(ctx, slices.Values(keys), f)
	}
	ask := func(client goredis.UniversalClient, keys []string) error {
		answers, err := client.Pipelined(ctx, func(p goredis.Pipeliner) error {
			for _, key := range keys {
				p.PTTL(ctx, key)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, answer := range answers {
			f(keys[i], answer.(*goredis.DurationCmd).Val())
		}
		return nil
	}
	if keys != nil {
		return ask(r.store.Redis.Client, keys)
	}
	return r.store.Redis.Scan(ctx, stores.KeysOf(r.cfg.Prefix), func(master *goredis.Client, keys []string) error { return ask(master, keys) })
}
