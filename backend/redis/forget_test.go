package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

func forgetting(ladder string, now time.Time) *backend.ForgetRequest {
	l, err := tiers.Parse(ladder)
	if err != nil {
		panic(err)
	}
	f := &backend.ForgetRequest{Key: forgetKey, Ladder: l, Now: now, Label: now.UnixNano(), Remember: time.Hour}
	for i := range l.Len() {
		f.TTLs = append(f.TTLs, l.At(i).Width+l.At(i).Keep)
	}
	return f
}

// fill gives forgetKey at once the hits of a long time.
func fill(t *testing.T, s sums, ladder string, from time.Time, hits int, step time.Duration) time.Time {
	f := forgetting(ladder, from)
	for range hits {
		take := &backend.TakeRequest{
			Now:  from,
			Keys: []backend.TakeKey{{Key: []byte(forgetKey), N: 1, Ladder: f.Ladder, TTLs: f.TTLs, Windows: []backend.Window{{Max: backend.MaxCount, Reach: time.Minute}}}},
		}
		require.NoError(t, s.Take(ctx, take))
		require.True(t, take.Allowed)
		from = from.Add(step)
	}
	return from
}

const forgetKey = "ab:1test:signup:ip:203.0.113.9"

// scripts returns the times of the scripts in the server's log since its reset: the
// median, and the longest, from which a busy machine takes the processor away.
func scripts(t *testing.T, client *goredis.Client) (median, longest time.Duration) {
	t.Helper()
	var took []time.Duration
	for _, entry := range client.SlowLogGet(ctx, 1000).Val() {
		if verb := entry.Args[0]; verb == "fcall" || strings.HasPrefix(verb, "eval") {
			took = append(took, entry.Duration)
		}
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)-1]
}

// Large keys are forgotten completely, in steps too short to hold up other callers.
func TestForgetLargeKeys(t *testing.T) {
	t.Parallel()
	seconds, thirds := long.Rounds(10_800, 86_400), long.Rounds(2_640, 26_352) // of a day, and of the hours of a year
	for _, c := range []struct {
		name, ladder string
		hits         int
		step         time.Duration
		leaves       int
	}{
		{"a day of a hit a second", "1s:1d, 1m:1d, 1h:1d", seconds, time.Second, seconds/3600 - 1},
		{"a year of three hits an hour", "1s:366d, 1m:366d, 1h:366d, 1d:366d", thirds, 20 * time.Minute, thirds/3 - 250}, // the newest are in the root
		{"a year of a hit a day", "1s:366d, 1d:366d", 366, 24 * time.Hour, 0},
		{"two Keeps", "1s:1h, 1m:1d, 1h:1d", 2_000, 2 * time.Second, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			// A busy machine takes the processor from a script or a caller now and then; a
			// step that is too long is too long in each round.
			const rounds = 4
			for round := 1; ; round++ {
				median, worst, failed := forgetLarge(t, c.ladder, c.hits, c.step, c.leaves)
				if long.Asked() && round < rounds && (failed > 0 || median >= 2*time.Millisecond || worst >= 20*time.Millisecond) {
					continue
				}
				if long.Asked() {
					require.Zero(t, failed)
				}
				long.Less(t, median, 2*time.Millisecond)
				long.Less(t, worst, 20*time.Millisecond)
				return
			}
		})
	}
}

// forgetLarge forgets a large key beside calls of another key, and returns the times
// of the scripts and the number of calls that failed.
func forgetLarge(t *testing.T, ladder string, hits int, step time.Duration, leaves int) (median, worst time.Duration, failures int64) {
	addr := servertest.Redis(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000")
	client, s := raw(t, addr), open(t, "redis://"+addr)
	now := fill(t, s, ladder, time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), hits, step)
	before := client.DBSize(ctx).Val()
	require.Greater(t, before, int64(leaves))

	other := newCounter(t, open(t, "redis://"+addr), counter.Config{Patience: 250 * time.Millisecond})
	var failed, calls atomic.Int64
	others, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); others.Err() == nil; <-tick.C {
			calls.Add(1)
			if _, err := other.Take(ctx, name(1), 1, counter.MustLimits("1000000/d")); err != nil {
				failed.Add(1)
			}
		}
	})
	require.NoError(t, client.SlowLogReset(ctx).Err())
	began := time.Now()
	require.NoError(t, s.Forget(ctx, forgetting(ladder, now)))
	spent := time.Since(began)
	median, worst = scripts(t, client)
	end()
	running.Wait()
	t.Logf("%d stored keys forgotten in %v, a script took %v, the slowest %v, %d of %d calls of another key failed", before, spent, median, worst, failed.Load(), calls.Load())
	require.Empty(t, client.Keys(ctx, "{"+forgetKey+"}*").Val())
	label := try.To(s.Forgotten(ctx, &backend.ForgetRequest{Key: forgetKey, Now: now}))(t)
	require.Equal(t, now.UnixNano(), label)
	return median, worst, failed.Load()
}

// A Forget that has failed in the middle is made again, and nothing is left.
func TestForgetAfterAFailedForget(t *testing.T) {
	const ladder = "1s:366d, 1m:366d, 1h:366d, 1d:366d"
	addr := servertest.Redis(t)
	client, s := raw(t, addr), open(t, "redis://"+addr)
	now := fill(t, s, ladder, time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), 3_000, 20*time.Minute)
	all := client.DBSize(ctx).Val()
	require.Greater(t, all, int64(700))
	proxy := servertest.NewProxy(t, addr, time.Millisecond)
	far := open(t, "redis://"+proxy.Addr)
	failed := make(chan error)
	go func() { failed <- far.Forget(ctx, forgetting(ladder, now)) }()
	require.Eventually(t, func() bool { return client.DBSize(ctx).Val() < all-200 }, patience, 100*time.Microsecond)
	proxy.Cut()
	if err := <-failed; err == nil {
		t.Log("it was over before the line was cut")
	}
	require.NoError(t, s.Forget(ctx, forgetting(ladder, now)))
	require.Empty(t, client.Keys(ctx, "{"+forgetKey+"}*").Val())
}

// A root that is written anew names its stale leaves no more, and they live on for a
// while: an Erase finds every leaf that there may be, of each group of tiers.
func TestEraseFindsLeavesWithoutARoot(t *testing.T) {
	addr := servertest.Redis(t)
	client, s := raw(t, addr), open(t, "redis://"+addr+"/0")
	now := time.Date(2026, 3, 2, 12, 30, 30, 0, time.UTC)
	for _, row := range []struct {
		ladder string
		leaves map[string]time.Duration // names of groups, and the lengths of their stretches
	}{
		{"1s:1d, 1m:1d, 1h:1d", map[string]time.Duration{"P": time.Hour}},
		{"1s:10m, 1m:1d, 1h:1d", map[string]time.Duration{"P": time.Minute, "Q": time.Hour}},
	} {
		f := forgetting(row.ladder, now)
		fill(t, s, row.ladder, now.Add(-time.Hour), 60, time.Minute)
		for group, stretch := range row.leaves {
			for i := range f.Ladder.Len() {
				for _, at := range []time.Time{now.Add(-2 * f.Ladder.At(i).Keep), now.Add(-f.TTLs[i]), now, now.Add(f.Ladder.At(i).Width)} {
					if group == "P" && i > 0 && len(row.leaves) > 1 {
						continue // a tier of the other group
					}
					for kind := 1; kind <= 4; kind++ {
						name := fmt.Sprintf("{%s}%s:%d.%d", forgetKey, group, tiers.Index(at.UnixNano(), stretch), kind)
						require.NoError(t, client.Set(ctx, name, "leaf", time.Hour).Err())
					}
				}
			}
		}
		f.Erase = true
		began := time.Now()
		require.NoError(t, s.Forget(ctx, f))
		t.Logf("%s: %s", row.ladder, time.Since(began))
		for _, name := range client.Keys(ctx, "*").Val() {
			require.NotContains(t, name, "203.0.113.9", row.ladder)
		}
	}
}
