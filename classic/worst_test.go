package classic_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	want := map[string]int64{
		"fixed-window":     200,
		"fixed-slots":      200,
		"sliding-log":      100,
		"sliding-counter":  199,
		"sliding-decay":    200,
		"token-bucket":     200,
		"gcra":             200,
		"leaky-meter":      200,
		"leaky-queue":      101,
		"textbook-tiers":   200,
		"first-hit-window": 199,
		"request-decay":    200,
		"token-shaper":     200,
	}
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
		require.Equal(t, want[k.name], worst)
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

// Requests of several hits leave a queue at once, and delay the next.
func TestTheWorstTrueWindowOfAQueue(t *testing.T) {
	c := clockAt(start)
	l := kinds[8].new(t, 100, time.Hour, 0, memory(t, classic.Config{Now: c.now}))
	var log oracle.Log
	for _, n := range []int64{1, 99, 100} {
		v := take(t, l, signup, n)
		if !v.Allowed {
			c.add(v.RetryAfter)
			v = take(t, l, signup, n)
		}
		require.True(t, v.Allowed)
		log.Add(c.now(), n)
	}
	require.EqualValues(t, 200, log.Worst(time.Hour))
}

// herd calls many times at the same instant, and returns the number of admitted
// calls.
func herd(t *testing.T, l classic.Limiter, callers, calls int) int64 {
	var admitted atomic.Int64
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for range callers {
		wg.Go(func() {
			<-begin
			for range calls {
				v, err := l.Take(ctx, signup, 1)
				if err != nil {
					t.Error(err)
				}
				if v.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	close(begin)
	wg.Wait()
	return admitted.Load()
}

// Of racers exactly as many are admitted as the instant admits; but not where
// the check and the addition are two trips.
func TestRacers(t *testing.T) {
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server, 10*time.Millisecond)
	each(t, func(t *testing.T, k kind) {
		const most = 20
		want := int64(most)
		if k.name == "leaky-queue" {
			want = 1
		}
		c := clockAt(start)
		cfg := classic.Config{Now: c.now, Grace: grace}
		for range 3 {
			c.add(24 * time.Hour)
			require.Equal(t, want, herd(t, k.new(t, most, time.Minute, most, memory(t, cfg)), 16, 20))
		}
		l := k.new(t, most, time.Minute, most, onRedis(t, server, cfg))
		if k.name != "textbook-tiers" {
			require.Equal(t, want, herd(t, l, 16, 20))
			return
		}
		herd(t, l, 1, 50) // the next day it is full, if nobody races
		require.False(t, take(t, l, signup, 1).Allowed)
		c.add(24 * time.Hour)
		far := k.new(t, most, time.Minute, most, onRedis(t, proxy.Addr, cfg))
		take(t, far, name(1), 1) // connects
		got := herd(t, far, 60, 1)
		t.Logf("60 callers at once, Max %d: %d admitted", most, got)
		require.Greater(t, got, want)
		require.LessOrEqual(t, got, want+60-1)
		require.False(t, take(t, far, signup, 1).Allowed, "who comes later sees them")
	})
}

// Weights race too: never more than there is room for. A queue lets go of one
// request at an instant, and tiers have no such bound on Redis.
func TestRacersOfSeveralHits(t *testing.T) {
	server := servertest.Redis(t)
	each(t, func(t *testing.T, k kind) {
		c := clockAt(start)
		for _, store := range []*classic.Store{memory(t, classic.Config{Now: c.now}), onRedis(t, server, classic.Config{Now: c.now, Grace: grace})} {
			l := k.new(t, 100, time.Minute, 100, store)
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for j := range 20 {
						n := int64(1 + (i+j)%7)
						v, err := l.Take(ctx, signup, n)
						if err != nil {
							t.Error(err)
						}
						if v.Allowed {
							admitted.Add(n)
						}
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 100, admitted.Load(), store)
		}
	}, "leaky-queue", "textbook-tiers")
}

// A limiter with another Max, on the same store, finds the state, and reads the
// state by its own rule.
func TestAChangedMaxFindsTheHistory(t *testing.T) {
	server := servertest.Redis(t)
	want := map[string][2]int64{ // after 60 of 100, and 6 minutes of an hour: what 200 leaves, and 50
		"fixed-window":     {140, 0},
		"fixed-slots":      {140, 0},
		"sliding-log":      {140, 0},
		"sliding-counter":  {140, 0},
		"sliding-decay":    {146, 0},  // 54 are left of 60
		"token-bucket":     {60, 45},  // 40 tokens, and 20 more, or 5
		"gcra":             {100, 25}, // 36 minutes of an hour, less 6
		"leaky-meter":      {160, 0},  // 60 units, less 20, or less 5
		"textbook-tiers":   {140, 0},
		"first-hit-window": {140, 0},
		"request-decay":    {160, 10}, // 40 are left for 200, and no time has passed for 50
		"token-shaper":     {100, 25},
	}
	each(t, func(t *testing.T, k kind) {
		c := clockAt(start)
		for _, store := range []*classic.Store{memory(t, classic.Config{Now: c.now}), onRedis(t, server, classic.Config{Now: c.now, Grace: grace})} {
			c.set(start)
			before := k.new(t, 100, time.Hour, 0, store)
			require.EqualValues(t, 40, take(t, before, signup, 60).Remaining)
			c.add(6 * time.Minute)
			for i, most := range []int64{200, 50} {
				after := k.new(t, most, time.Hour, 0, store)
				v := take(t, after, signup, 5000) // for ever too much: looks only
				require.False(t, v.Allowed)
				require.Equal(t, counter.Never, v.RetryAfter)
				require.Equal(t, want[k.name][i], v.Remaining, fmt.Sprint(store, " ", most))
			}
		}
	}, "leaky-queue")
}

// A full bucket stays full at another rate, and an empty bucket fills at the
// new rate.
func TestAChangeOfRateKeepsTokens(t *testing.T) {
	c := clockAt(start)
	store := memory(t, classic.Config{Now: c.now})
	slow := kinds[5].new(t, 60, time.Minute, 10, store)
	require.EqualValues(t, 3, take(t, slow, signup, 7).Remaining)
	fast := kinds[5].new(t, 600, time.Minute, 10, store)
	v := take(t, fast, signup, 3)
	require.True(t, v.Allowed)
	require.False(t, take(t, fast, signup, 1).Allowed)
	c.add(300 * time.Millisecond)
	require.EqualValues(t, 2, take(t, fast, signup, 1).Remaining, "3 in 300 ms, one of them taken")
	c.add(300 * time.Millisecond)
	v = take(t, slow, signup, 3)
	require.False(t, v.Allowed, "2.3 tokens at the slow rate")
	require.Equal(t, 700*time.Millisecond, v.RetryAfter)
}

// A hit, nine just before its window ends, and ten just after: 19 of 10.
func TestAWindowFromTheFirstHit(t *testing.T) {
	c := clockAt(start)
	l := kinds[10].new(t, 10, time.Minute, 0, memory(t, classic.Config{Now: c.now}))
	var log oracle.Log
	for _, row := range []struct {
		at   time.Duration
		n    int64
		left int64
	}{{0, 1, 9}, {time.Minute, 9, 0}, {time.Minute + time.Microsecond, 10, 0}} {
		c.set(start.Add(row.at))
		v := take(t, l, signup, row.n)
		require.True(t, v.Allowed)
		require.Equal(t, row.left, v.Remaining)
		log.Add(c.now(), row.n)
		v = take(t, l, signup, row.left+1)
		require.False(t, v.Allowed)
	}
	require.EqualValues(t, 19, log.Worst(time.Minute))
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
