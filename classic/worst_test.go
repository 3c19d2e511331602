package classic_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// attack is a client who knows the rule: a hit, a pause, all hits that an instant
// admits, and then every hit as soon as the limiter admits it, through two windows.
func attack(t *testing.T, l classic.Limiter, c *clock, per time.Duration, begin time.Time, pause time.Duration) *oracle.Log {
	var log oracle.Log
	for c.set(begin); c.now().Before(begin.Add(2*per + per/2)); {
		v := take(t, l, signup, 1)
		if v.Allowed {
			log.Add(c.now(), 1)
			c.add(pause)
			pause = 0
		} else {
			c.add(v.RetryAfter)
		}
	}
	return &log
}

// The worst case of each limiter's doc is reached, and not exceeded, by
// attackers who begin at any phase of the windows.
func TestTheWorstTrueWindow(t *testing.T) {
	const (
		most = 100
		per  = time.Hour
	)
	each(t, func(t *testing.T, k kind) {
		hour := start.Truncate(time.Hour)
		var worst int64
		for _, phase := range []time.Duration{0, time.Microsecond, 999_999 * time.Microsecond, 10 * time.Minute, per / 2, per - time.Second, per - time.Microsecond} {
			for _, pause := range []time.Duration{0, per} {
				c := clockAt(start)
				l := k.new(t, most, per, most, memory(t, classic.Config{Now: c.now}))
				log := attack(t, l, c, per, hour.Add(phase), pause)
				worst = max(worst, log.Worst(per))
				if k.name == "textbook-tiers" {
					require.LessOrEqual(t, log.Worst(per-time.Second), int64(most))
				}
			}
		}
		t.Logf("Max %d: %d in the worst true window, %.2fx", most, worst, float64(worst)/most)
		require.Equal(t, k.worst, worst)
	})
}

// A burst of its own: burst + Max.
func TestTheWorstTrueWindowOfABurst(t *testing.T) {
	for _, k := range append(kinds[5:8:8], kinds[12]) {
		c := clockAt(start)
		l := k.new(t, 100, time.Hour, 10, memory(t, classic.Config{Now: c.now}))
		require.EqualValues(t, 110, attack(t, l, c, time.Hour, start, 0).Worst(time.Hour), k.name)
	}
}

// Hits by hand, all of them admitted: requests of several hits leave a queue at once,
// and delay the next; and a window begins with its first hit.
func TestTheWorstTrueWindowByHand(t *testing.T) {
	type hits struct {
		at time.Duration
		n  int64
	}
	for _, row := range []struct {
		kind
		max   int64
		per   time.Duration
		hits  []hits
		worst int64
	}{
		{kinds[8], 100, time.Hour, []hits{{0, 1}, {36 * time.Second, 99}, {time.Hour, 100}}, 200},
		{kinds[10], 10, time.Minute, []hits{{0, 1}, {time.Minute, 9}, {time.Minute + time.Microsecond, 10}}, 19},
	} {
		c := clockAt(start)
		l := row.new(t, row.max, row.per, 0, memory(t, classic.Config{Now: c.now}))
		var log oracle.Log
		for _, h := range row.hits {
			c.set(start.Add(h.at))
			require.True(t, take(t, l, signup, h.n).Allowed, "%s after %s", row.name, h.at)
			log.Add(c.now(), h.n)
		}
		require.Equal(t, row.worst, log.Worst(row.per), row.name)
	}
}

// herd calls many times at the same instant, with 1 to most hits, and returns the
// number of admitted hits.
func herd(t *testing.T, l classic.Limiter, callers, calls, most int) int64 {
	var admitted atomic.Int64
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			<-begin
			for j := range calls {
				n := int64(1 + (i+j)%most)
				v, err := l.Take(ctx, signup, n)
				assert.NoError(t, err)
				if v.Allowed {
					admitted.Add(n)
				}
			}
		})
	}
	close(begin)
	wg.Wait()
	return admitted.Load()
}

// Of racers exactly as many hits are admitted as the instant admits; but not where the
// check and the addition are two trips. A queue lets go of one request at an instant.
func TestRacers(t *testing.T) {
	server := servertest.Redis(t)
	each(t, func(t *testing.T, k kind) {
		const max = 20
		c := clockAt(start)
		for i, store := range both(t, server, classic.Config{Now: c.now, Grace: grace}) {
			l := k.new(t, max, time.Minute, max, store)
			for _, most := range []int{1, 1, 1, 7} {
				c.add(24 * time.Hour)
				switch {
				case k.name != "leaky-queue" && (k.name != "textbook-tiers" || i == 0):
					require.EqualValues(t, max, herd(t, l, 16, 20, most), store)
				case k.name == "leaky-queue" && most == 1:
					require.EqualValues(t, 1, herd(t, l, 16, 20, most), store)
				}
			}
		}
	})
	checkThenAdd(t, func(delay time.Duration, cfg classic.Config) *classic.Store {
		return onRedis(t, servertest.NewProxy(t, server, delay).Addr, cfg)
	})
}

// checkThenAdd has callers race who check before the first of them adds: more are
// admitted than Max, and every admitted hit counts.
func checkThenAdd(t *testing.T, on func(time.Duration, classic.Config) *classic.Store) {
	c := clockAt(start)
	store := on(10*time.Millisecond, classic.Config{Now: c.now, Grace: grace})
	far := tiersOn.new(t, 20, time.Minute, 0, store)
	take(t, far, name(1), 1) // connects
	got := herd(t, far, 60, 1, 1)
	require.Greater(t, got, int64(20))
	require.LessOrEqual(t, got, int64(20+60-1))
	require.False(t, take(t, far, signup, 1).Allowed, "who comes later sees them")
	require.Equal(t, 1000-got-1, take(t, tiersOn.new(t, 1000, time.Minute, 0, store), signup, 1).Remaining)
}

// A limiter with another Max, on the same store, finds the state, and reads the
// state by its own rule.
func TestAChangedMaxFindsTheHistory(t *testing.T) {
	server := servertest.Redis(t)
	want := map[string][2]int64{ // after 60 of 100, and 6 minutes of an hour: what 200 leaves, and 50
		"sliding-decay": {146, 0},  // 54 are left of 60
		"token-bucket":  {60, 45},  // 40 tokens, and 20 more, or 5
		"gcra":          {100, 25}, // 36 minutes of an hour, less 6
		"leaky-meter":   {160, 0},  // 60 units, less 20, or less 5
		"request-decay": {160, 10}, // 40 are left for 200, and no time has passed for 50
		"token-shaper":  {100, 25},
	}
	each(t, func(t *testing.T, k kind) {
		c := clockAt(start)
		for _, store := range both(t, server, classic.Config{Now: c.now, Grace: grace}) {
			c.set(start)
			before := k.new(t, 100, time.Hour, 0, store)
			require.EqualValues(t, 40, take(t, before, signup, 60).Remaining)
			c.add(6 * time.Minute)
			for i, most := range []int64{200, 50} {
				after := k.new(t, most, time.Hour, 0, store)
				v := take(t, after, signup, 5000) // for ever too much: looks only
				require.False(t, v.Allowed)
				require.Equal(t, counter.Never, v.RetryAfter)
				left, is := want[k.name]
				if !is {
					left = [2]int64{140, 0}
				}
				require.Equal(t, left[i], v.Remaining, fmt.Sprint(store, " ", most))
			}
		}
	}, "leaky-queue")
}

// Polling once a second for an hour: 10 of 10 a minute, where a meter admits 609;
// and a client that waits for its turn loses nothing.
func TestWhoPollsIsDeniedForEver(t *testing.T) {
	for _, row := range []struct {
		kind     int
		interval time.Duration
		admitted int
	}{{11, time.Second, 10}, {7, time.Second, 609}, {11, 6 * time.Second, 600}, {7, 6 * time.Second, 600}} {
		c := clockAt(start)
		l := kinds[row.kind].new(t, 10, time.Minute, 10, memory(t, classic.Config{Now: c.now}))
		admitted := 0
		for ; c.now().Before(start.Add(time.Hour)); c.add(row.interval) {
			if take(t, l, signup, 1).Allowed {
				admitted++
			}
		}
		require.Equal(t, row.admitted, admitted, "%s, every %s", l.Name(), row.interval)
	}
}
