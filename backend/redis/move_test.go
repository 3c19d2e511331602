package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// A root is moved before its leaf, a late hit comes meanwhile, and then the leaf
// replaces any leaf made meanwhile. Nothing is counted too little afterwards, and
// nothing is an error: not a single late hit, nor many, nor a hit taken back.
func TestALeafThatComesLater(t *testing.T) {
	from, to := servertest.Redis(t), servertest.Redis(t)
	source, target := raw(t, from), raw(t, to)
	limits := counter.MustLimits("100000000000/d")
	for _, hits := range []int{20, 140, 450, 3000} {
		weights := []int64{1, 300, 70_000}
		if !long.Asked() {
			weights = weights[rand.IntN(len(weights)):][:1]
		}
		for _, weight := range weights {
			require.NoError(t, source.FlushAll(ctx).Err())
			now := time.Date(2026, 3, 2, 10, 0, 5, 0, time.UTC)
			clock := func() time.Time { return now }
			before := newCounter(t, open(t, "redis://"+from), counter.Config{Now: clock})
			step := 3500 * time.Second / time.Duration(hits)
			if hits > 700 {
				step = time.Second
			}
			var filled []time.Time
			for range hits {
				try.To(before.Take(ctx, signup, weight, limits))(t)
				filled = append(filled, now)
				now = now.Add(step)
			}
			end := now
			for _, late := range []int{1, 2, 30} {
				t.Run(fmt.Sprint(hits, " hits of ", weight, ", ", late, " late"), func(t *testing.T) {
					require.NoError(t, target.FlushAll(ctx).Err())
					now = end
					log := slices.Clone(filled) // the hits that stay
					after := newCounter(t, open(t, "redis://"+to), counter.Config{Now: clock})
					var leaves []string
					for _, key := range source.Keys(ctx, "*").Val() {
						if strings.Contains(key, "}P:") {
							leaves = append(leaves, key)
							continue
						}
						require.NoError(t, target.Restore(ctx, key, source.PTTL(ctx, key).Val(), source.Dump(ctx, key).Val()).Err())
					}
					var taken []counter.Verdict
					now = now.Add(-step) // the time of the last hit
					last := now
					for i := range late {
						now = last.Add(-time.Duration(2+7*i) * time.Second)
						v := try.To(after.Take(ctx, signup, weight, limits))(t)
						taken = append(taken, v)
						if i%3 > 0 || late == 1 { // not taken back
							log = append(log, now)
						}
					}
					now = last
					check := func(what string) {
						for _, window := range []time.Duration{time.Minute, 500 * time.Second, 1500 * time.Second, 2500 * time.Second, time.Hour, day} {
							hits := int64(0)
							for _, at := range log {
								if now.Sub(at) <= window {
									hits += weight
								}
							}
							n, err := after.Count(ctx, signup, window)
							require.NoError(t, err, what)
							require.GreaterOrEqual(t, n.High, hits, "%s, %s", what, window)
							v, err := after.Peek(ctx, signup, 1, counter.Limits{{Max: hits + 1, Per: window}, {Max: max(1, hits), Per: window}})
							require.NoError(t, err, what)
							require.Equal(t, hits == 0, v.Allowed, "%s, %s", what, window)
						}
					}
					check("before the leaf")
					for i := range taken {
						if i%3 == 0 && late > 1 {
							require.NoError(t, after.Refund(ctx, &taken[i]))
						}
					}
					for _, key := range leaves {
						require.NoError(t, target.RestoreReplace(ctx, key, source.PTTL(ctx, key).Val(), source.Dump(ctx, key).Val()).Err())
					}
					check("after the leaf")
					for range 40 {
						try.To(after.Take(ctx, signup, weight, limits))(t)
						log = append(log, now)
						now = now.Add(step)
					}
					check("later")
				})
			}
		}
	}
}

// Slots move between the masters of a Cluster under load, half of the load from
// callers whose clocks are behind. No key counts less than the hits of the key.
func TestSlotsThatMove(t *testing.T) {
	t.Parallel()
	const callers = 6
	keys := long.Rounds(8, 24)
	url, cluster := clusterURL(t)
	hits := make([]atomic.Int64, keys)
	limits := counter.MustLimits("100000000/d")
	base := time.Date(2026, 3, 2, 10, 0, 5, 0, time.UTC)
	began := time.Now()
	at := func() time.Time { return base.Add(time.Since(began) * 300) }
	var counters []*counter.Counter
	for i := range callers {
		behind := time.Duration(i%2) * 1500 * time.Millisecond
		counters = append(counters, newCounter(t, open(t, url), counter.Config{Skew: 2 * time.Second, Now: func() time.Time { return at().Add(-behind) }}))
	}
	loaded, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			for j := i; loaded.Err() == nil; j++ {
				v, err := counters[i].Take(ctx, name(j%keys), 1, limits)
				if err == nil && v.Allowed {
					hits[j%keys].Add(1)
				}
			}
		})
	}
	time.Sleep(time.Duration(long.Rounds(1, 4)) * 500 * time.Millisecond)
	nodes := map[string]*goredis.Client{}
	ids := map[string]string{}
	for _, addr := range cluster.Addrs {
		nodes[addr] = raw(t, addr)
		ids[addr] = nodes[addr].ClusterMyID(ctx).Val()
	}
	short, moves := 0, long.Rounds(1, 3)
	for move := range moves {
		for k := range keys {
			tag := ""
			for _, addr := range cluster.Addrs {
				for _, key := range nodes[addr].Keys(ctx, "*}P").Val() {
					if strings.Contains(key, name(k).Feature+"}") {
						tag = key
					}
				}
			}
			require.NotEmpty(t, tag)
			from := cluster.Master(tag)
			to := ""
			for _, addr := range cluster.Addrs {
				if addr != from && strings.Contains(nodes[addr].Info(ctx, "replication").Val(), "role:master") {
					to = addr
				}
			}
			moveSlot(t, nodes, ids, int(nodes[from].ClusterKeySlot(ctx, tag).Val()), from, to)
		}
		for k := range keys {
			atLeast := hits[k].Load()
			n := try.To(counters[0].Count(ctx, name(k), 24*time.Hour))(t)
			if n.High < atLeast {
				short++
				t.Errorf("move %d: key %d counts %d, of %d hits", move, k, n.High, atLeast)
			}
		}
	}
	end()
	running.Wait()
	sum := int64(0)
	for k := range keys {
		sum += hits[k].Load()
	}
	t.Logf("%d keys, %d moves each, %d hits: %d counts too small", keys, moves, sum, short)
}

// moveSlot moves a slot as redis-cli does with --cluster-replace, in batches of ten.
func moveSlot(t *testing.T, nodes map[string]*goredis.Client, ids map[string]string, slot int, from, to string) {
	require.NoError(t, nodes[to].Do(ctx, "cluster", "setslot", slot, "importing", ids[from]).Err())
	require.NoError(t, nodes[from].Do(ctx, "cluster", "setslot", slot, "migrating", ids[to]).Err())
	host, port, _ := strings.Cut(to, ":")
	for {
		keys := nodes[from].ClusterGetKeysInSlot(ctx, slot, 10).Val()
		if len(keys) == 0 {
			break
		}
		for _, key := range keys { // the root before its leaves, and time in between
			require.NoError(t, nodes[from].Do(ctx, "migrate", host, port, key, 0, 5000, "replace").Err())
			time.Sleep(time.Millisecond)
		}
	}
	for _, addr := range []string{to, from} {
		require.NoError(t, nodes[addr].Do(ctx, "cluster", "setslot", slot, "node", ids[to]).Err())
	}
}
