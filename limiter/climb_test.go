package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/limiter"
)

func climbing(r limiter.Rule, steps ...time.Duration) limiter.Rule { r.Ban = steps; return r }

// climber is a random script of racing calls under growing bans, next to what the rule
// says of them: times are known to a bucket.
type climber struct {
	*rand.Rand
	clock       *clock
	lim         *limiter.Limiter
	steps       []time.Duration
	begun, last time.Time // the last ban has begun between these; zero: none is remembered
	step        int       // of the last ban
	climbed     int       // bans after the first step
	hits        int64     // of all bans
}

// slack is how much later a ban of a length may end than it says.
func slack(length time.Duration) time.Duration {
	return length/20 + time.Second + 2*counter.DefaultSkew + counter.DefaultSettle
}

// round makes a call, or several at once, and returns what is wrong with the answers.
func (c *climber) round() error {
	verdicts := make([]limiter.Verdict, 1+c.IntN(2)*7)
	errs := make([]error, len(verdicts))
	before := c.clock.now()
	ticket.SideBySide(len(verdicts), func(i int) { verdicts[i], errs[i] = c.lim.Allow(ctx, "signup", ip("192.0.2.1")) })
	after := c.clock.now()
	var told time.Duration // of the ban
	denied := 0
	for i := range verdicts {
		v := &verdicts[i]
		switch {
		case errs[i] != nil || v.Degraded != nil:
			return fmt.Errorf("a call failed: %w, %v", errs[i], v.Degraded)
		case !v.Banned && c.on(before, after) == "holds":
			return fmt.Errorf("the ban of %s holds, got %+v", c.steps[c.step], v)
		case v.Banned:
			denied, told = denied+1, max(told, v.RetryAfter)
		}
	}
	on, left := c.on(before, after), c.last.Add(c.steps[c.step]+slack(c.steps[c.step])).Sub(before)
	switch {
	case denied == 0 || on != "is over" && told <= max(left, 12*time.Second): // as long as the limit of the rule
		return nil
	case on == "holds":
		return fmt.Errorf("the ban of %s was prolonged: at most %s left, got %s", c.steps[c.step], left, told)
	}
	return c.begins(before, after, told)
}

// on says of the last ban what is certain.
func (c *climber) on(before, after time.Time) string {
	length := c.steps[c.step]
	switch {
	case c.begun.IsZero() || before.After(c.last.Add(length+slack(length))):
		return "is over"
	case after.Before(c.begun.Add(length)):
		return "holds"
	}
	return "may hold"
}

// begins notes a ban that was told to last for so long.
func (c *climber) begins(before, after time.Time, told time.Duration) error {
	top := len(c.steps) - 1
	memory := 2 * c.steps[top]
	var want []int
	if c.begun.IsZero() || after.After(c.begun.Add(memory)) {
		want = append(want, 0)
	}
	if !c.begun.IsZero() && before.Before(c.last.Add(memory+slack(memory))) {
		want = append(want, min(c.step+1, top))
	}
	for _, step := range want {
		if length := c.steps[step]; told >= length-after.Sub(before) && told <= length+slack(length) {
			c.hits += 1 + 1<<(7*(step+1))
			if c.begun, c.last, c.step = before, after, step; step > 0 {
				c.climbed++
			}
			return nil
		}
	}
	return fmt.Errorf("after the step %d, want the steps %v of %s, got a ban of %s", c.step, want, c.steps, told)
}

// pass lets some time pass: up to about the end of the ban, or of its memory.
func (c *climber) pass() {
	length := c.steps[c.step]
	switch c.IntN(12) {
	case 0, 2:
		c.clock.pass(time.Duration(c.Int64N(int64(length))))
	case 1:
		memory := 2 * c.steps[len(c.steps)-1]
		c.clock.pass(memory + slack(memory) + time.Second)
	default:
		c.clock.pass(max(0, c.last.Add(length+slack(length)).Sub(c.clock.now())) + time.Second)
	}
}

// climb plays a script on a store, and returns what is wrong. The limits of the rule are
// shorter than its bans.
func climb(t *testing.T, r *rand.Rand, store backend.Store, rounds int, plant func(*limiter.Limiter)) error {
	c := &climber{Rand: r, clock: newClock(), steps: [][]time.Duration{
		{time.Minute, 10 * time.Minute, time.Hour}, {20 * time.Second, 24 * time.Hour}, {15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute},
	}[r.IntN(3)]}
	c.lim, _ = withClock(t, store, c.clock, climbing(by("ip", "1/10s"), c.steps...))
	if plant != nil {
		plant(c.lim)
	}
	require.NoError(t, c.lim.Erase(ctx, ip("192.0.2.1")))
	for i := range rounds {
		for range 1 + r.IntN(3) {
			if err := c.round(); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		used := usageOf(t, c.lim, ip("192.0.2.1"))[0]
		if on := c.on(c.clock.now(), c.clock.now()); (used.Banned > 0) != (on == "holds") && on != "may hold" || used.Banned > 0 && used.BanStep != c.step+1 {
			return fmt.Errorf("round %d: step %d %s, got a usage of step %d for %s", i, c.step+1, on, used.BanStep, used.Banned)
		}
		c.pass()
		if hits := limiter.BanHits(t, c.lim, "signup", "ip:192.0.2.1"); hits > c.hits {
			return fmt.Errorf("round %d: want at most %d hits of bans, each counted once, got %d", i, c.hits, hits)
		}
		if r.IntN(20) == 0 {
			require.NoError(t, c.lim.Forget(ctx, "signup", ip("192.0.2.1")))
			c.begun, c.last, c.step, c.hits = time.Time{}, time.Time{}, 0, 0
		}
	}
	if plant == nil && rounds > 30 {
		require.Positive(t, c.climbed)
	}
	return nil
}

// On every store each ban takes the next step, once whatever the race that has begun it,
// until the memory ends or a Forget.
func TestBansGrow(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		require.NoError(t, climb(t, random(t), store, long.Rounds(40, 1000), nil))
	})
}

// The script finds bans that do not grow, that grow with each racing call, that forget
// and that do not hold.
func TestFaultsOfGrowingBansAreFound(t *testing.T) {
	for name, plant := range map[string]limiter.BanFault{
		"takes the same step": limiter.BanOfOneStep, "counts racers": limiter.BanOfRacers,
		"remembers the ban alone": limiter.BanForgotten, "does not hold": limiter.BanUnseen,
	} {
		t.Run(name, func(t *testing.T) {
			store := backend.Wrap(memory.New(memory.Config{}), func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error {
				runtime.Gosched() // so that calls race
				return do(ctx)
			})
			var found error
			for i := 0; i < 20 && found == nil; i++ {
				found = climb(t, random(t), store, 40, func(l *limiter.Limiter) { limiter.PlantInBan(l, "signup", "ip", plant) })
			}
			require.Error(t, found)
			t.Log(found)
		})
	}
}

// In an outage a ban takes the step after those that the process knows, and the carry
// brings each to the store once. Two processes that begin the same step without the store
// have begun one.
func TestBansGrowWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []time.Duration{time.Minute, 10 * time.Minute, time.Hour}
		rule := onFailure(limiter.FailLocal, climbing(by("user", "1/10s"), steps...))
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{rule}})
		other := newLimiter(t, newCounter(t, struct{ backend.Atomic }{s.store}, counter.Config{}), limiter.Config{Rules: []limiter.Rule{rule}, Local: localCounter(t)})
		ada := user("ada")
		trip := func(step int, lims ...*limiter.Limiter) {
			for _, lim := range lims {
				require.True(t, allow(t, lim, ada).Allowed)
			}
			for _, lim := range lims {
				v := allow(t, lim, ada)
				require.Equal(t, []any{false, true}, []any{v.Allowed, v.Banned})
				require.InDelta(t, steps[step], v.RetryAfter, float64(slack(steps[step])))
				require.True(t, allow(t, lim, ada).Banned)
			}
		}
		back := func(hits int64) {
			s.store.broken.Store(false)
			time.Sleep(10 * time.Second) // for the carry
			require.Equal(t, hits, limiter.BanHits(t, s.lim, "signup", "user:ada"))
			for _, lim := range []*limiter.Limiter{s.lim, other, s.lim} {
				require.True(t, allow(t, lim, ada).Banned)
			}
		}
		s.store.broken.Store(true)
		trip(0, s.lim, other)
		back(2 * 129)
		s.store.broken.Store(true)
		time.Sleep(2 * time.Minute)
		trip(1, s.lim)
		back(2*129 + 1 + 128*128)
		time.Sleep(12 * time.Minute)
		trip(2, other)
		s.store.broken.Store(true) // s.lim does not know of the last ban
		time.Sleep(70 * time.Minute)
		trip(2, s.lim)
		trip(2, other)
		back(2*129 + 1 + 128*128 + 3*(1+128*128*128))
		require.Equal(t, 3, usageOf(t, other, ada)[0].BanStep)
		require.NoError(t, s.lim.Forget(ctx, "signup", ada))
		require.NoError(t, other.Forget(ctx, "signup", ada))
		trip(0, other)
		_, _ = s.lim.Close(over), other.Close(over)
	})
}

// A Replace keeps the bans if their ladder stays, by the times of the new rule, and
// begins from the first step otherwise.
func TestReplaceOfGrowingBans(t *testing.T) {
	m := time.Minute
	for _, row := range []struct {
		to     []time.Duration
		banned time.Duration // that is left after half a minute; 0: none
		next   time.Duration
	}{
		{[]time.Duration{m, 10 * m, 60 * m}, m / 2, 10 * m},
		{[]time.Duration{2 * m, 5 * m, 60 * m}, m * 3 / 2, 5 * m},
		{[]time.Duration{m, 60 * m}, m / 2, 60 * m},
		{[]time.Duration{m, 5 * m, 10 * m, 60 * m}, m / 2, 5 * m},
		{[]time.Duration{m, 10 * m, 30 * m}, 0, m},
		{[]time.Duration{m}, 0, m},
	} {
		t.Run(fmt.Sprint(row.to), func(t *testing.T) {
			clock := newClock()
			lim, _ := withClock(t, memory.New(memory.Config{}), clock, climbing(by("ip", "1/10s"), m, 10*m, 60*m))
			for _, want := range []bool{true, false} {
				require.Equal(t, want, allow(t, lim, ip("192.0.2.1")).Allowed)
			}
			clock.pass(m / 2)
			require.NoError(t, lim.Replace(climbing(by("ip", "1/10s"), row.to...)))
			v := peek(t, lim, 1, ip("192.0.2.1"))
			require.Equal(t, row.banned > 0, v.Banned)
			require.InDelta(t, row.banned, v.RetryAfter, float64(slack(row.banned)))
			clock.pass(2 * m)
			for _, want := range []bool{true, false} {
				v = allow(t, lim, ip("192.0.2.1"))
				require.Equal(t, want, v.Allowed)
			}
			require.InDelta(t, row.next, v.RetryAfter, float64(slack(row.next)))
		})
	}
}
