package redis_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// Keys of every length, with room and without, with sums of every width, in leaves and
// before: a Take is admitted where the hits of the key leave room, and only there; its
// Remaining is a lower bound, and exact after a denial and in a Peek.
func TestHeadsOfEveryLength(t *testing.T) {
	seed := seedOf(t)
	random := rand.New(rand.NewPCG(seed, 0))
	s := open(t, "redis://"+servertest.Redis(t))
	type hit struct {
		at time.Time
		n  int64
	}
	decisions, denials, lower := 0, 0, 0
	for i := 0; i < 60; i += long.Rounds(5, 1) { // every pace, and every weight
		pace := []time.Duration{300 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, 30 * time.Minute}[i%6]
		heavy := []int64{1, 3, 40_000, 1 << 31, 1 << 42}[i/6%5]
		key, now := name(i), time.Date(2026, 3, 2, 3, 20, 0, 0, time.UTC)
		if i%7 == 0 {
			now = now.AddDate(-71, 0, 0) // numbers of stretches are below zero
		}
		c := newCounter(t, s, counter.Config{Skew: -1, Now: func() time.Time { return now }})
		var log []hit
		within := func(per time.Duration) (sum int64) {
			edge := now.Add(-per).Truncate(time.Second)
			for _, h := range log {
				if !h.at.Before(edge) {
					sum += h.n
				}
			}
			return sum
		}
		for range long.Rounds(200, 500) {
			if random.IntN(4) > 0 {
				now = now.Add(time.Duration(random.Int64N(int64(2 * pace))))
			}
			n := 1 + random.Int64N(heavy)
			var limits counter.Limits
			for _, per := range []time.Duration{time.Minute, time.Hour, 5 * time.Hour, day} {
				switch random.IntN(4) {
				case 0: // about to be used up
					limits = append(limits, counter.Limit{Max: max(n, within(per)+n-1+random.Int64N(2)), Per: per})
				case 1:
					limits = append(limits, counter.Limit{Max: 2*within(per) + n, Per: per})
				}
			}
			// A denial is remembered for an equal call: no two calls are equal.
			limits = append(limits, counter.Limit{Max: 1<<52 - int64(decisions), Per: day})
			fits := true
			for _, limit := range limits {
				fits = fits && within(limit.Per)+n <= limit.Max
			}
			again := fmt.Sprintf("key %d, %d hits, now %v, %d more under %v", i, len(log), now, n, limits)
			peek, err := c.Peek(ctx, key, n, limits)
			require.NoError(t, err, again)
			require.Equal(t, fits, peek.Allowed, again)
			v, err := c.Take(ctx, key, n, limits)
			require.NoError(t, err, again)
			require.Equal(t, fits, v.Allowed, again)
			decisions++
			if !fits {
				denials++
			}
			for j, state := range v.All() {
				exact := peek.All()[j]
				left := max(0, state.Limit.Max-within(state.Limit.Per))
				if fits {
					left -= n
				}
				require.Equal(t, left, exact.Remaining, again)
				require.LessOrEqual(t, state.Remaining, left, again)
				if state.Remaining < left {
					lower++
					require.True(t, fits, again)
				}
				require.Equal(t, exact.RetryAfter, state.RetryAfter, again)
			}
			if fits {
				log = append(log, hit{now, n})
			}
		}
	}
	t.Logf("%d decisions, %d denials, %d numbers of an admitted call too low", decisions, denials, lower)
	require.Positive(t, denials)
	require.Positive(t, lower)
}

// The first hit of a new key is written without a read, once the process has
// seen such a key; a known key is read first, and a wrong guess costs a read and no hit.
func TestTheFirstHitOfAKey(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	now := time.Now() // a hit of the next second would be written otherwise
	cfg := counter.Config{Now: func() time.Time { return now }}
	near, far := newCounter(t, open(t, "redis://"+addr), cfg), newCounter(t, open(t, "redis://"+addr), cfg)
	for i, limits := range []string{"2/d", "2/h, 3/d", "2/m, 3/h, 4/d", "2/m, 3/h, 4/d, 5/2h"} {
		key := func(j int) counter.Key { return counter.Key{Event: fmt.Sprint("first", i), Feature: fmt.Sprint(j)} }
		require.True(t, take(t, far, key(10), 1, limits).Allowed) // guesses that the next is missing too
		for j := range 4 {
			require.NoError(t, client.ConfigResetStat(ctx).Err())
			v := take(t, near, key(j), 1, limits)
			require.True(t, v.Allowed)
			require.EqualValues(t, 1, v.Remaining)
			reads := strings.Contains(client.Info(ctx, "commandstats").Val(), "cmdstat_getrange")
			require.Equal(t, i+j == 0, reads, "key %d under %s", j, limits)
		}
		require.EqualValues(t, 0, take(t, far, key(0), 1, limits).Remaining)
		require.False(t, take(t, far, key(0), 1, limits).Allowed)
		require.NoError(t, client.ConfigResetStat(ctx).Err())
		require.True(t, take(t, near, key(1), 1, limits).Allowed)
		stats := client.Info(ctx, "commandstats").Val()
		require.Contains(t, stats, "cmdstat_getrange")
		require.NotContains(t, stats, "cmdstat_set:")
		require.False(t, take(t, near, key(2), 3, limits).Allowed)
		require.False(t, take(t, near, key(20), 3, limits).Allowed)
		require.EqualValues(t, 1, count(t, near, key(2)))
		require.Zero(t, count(t, near, key(20)))
	}
}
