package classic_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// grace of random scripts: their clocks go back by less, and no server forgets
// a state during a script.
const grace = time.Hour

// script is the random history of a key.
type script struct {
	setup
	forward bool // the clock never goes back
	calls   []hitAt
}

type hitAt struct{ at, n int64 }

// randomScript crowds a limit: time goes on in steps of every size, often to an
// edge of a window or one microsecond beside it, and n is now and then too large
// for ever.
func randomScript(r *rand.Rand, k kind, calls int) script {
	pers := []time.Duration{10 * time.Millisecond, time.Second, 7 * time.Second, time.Minute, time.Hour, 24 * time.Hour, 366 * 24 * time.Hour}
	maxes := []int64{0, 1, 2, 3, 5, 7, 12, 60}
	switch k.name {
	case "textbook-tiers":
		pers = []time.Duration{time.Second, 2 * time.Second, 7 * time.Second, time.Minute, 90 * time.Second, time.Hour, 5 * time.Hour}
	case "sliding-log":
	default:
		maxes = append(maxes, 1000, 999_983, 1<<31+1, classic.MaxHits-6, classic.MaxHits)
	}
	var s script
	for {
		s.max, s.per = maxes[r.IntN(len(maxes))], pers[r.IntN(len(pers))].Microseconds()
		s.room = 1 + r.Int64N(2*max(1, s.max))
		switch {
		case r.IntN(2) == 0:
			s.room = s.max
		case k.name == "leaky-queue":
			s.room = 0
		}
		s.room = min(s.room, classic.MaxHits)
		if k.shape == windowed || s.max > 0 && (s.room <= s.max || s.per <= 183*24*3600*1e6) && (k.name != "leaky-queue" || s.max <= s.per) {
			break
		}
	}
	starts := []time.Time{start, time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC), time.Date(1700, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2248, 1, 1, 0, 0, 0, 0, time.UTC)}
	now := starts[r.IntN(len(starts))].UnixMicro()
	if r.IntN(2) == 0 {
		now = start.UnixMicro()
	}
	s.forward = r.IntN(2) == 0
	latest := now
	interval := max(1, s.per/max(1, s.max))
	for range calls {
		switch r.IntN(9) {
		case 0: // to an edge, or beside it
			unit := []int64{s.per, 1e6, 60e6, 3600e6}[r.IntN(4)]
			now = max(now, (floor(now, unit)+1)*unit+int64(r.IntN(3)-1))
		case 1: // out of a window, or nearly
			now += s.per + int64(r.IntN(5)-2)
		case 2:
			now += r.Int64N(4*s.per/3 + 1)
		case 3, 4:
			now += r.Int64N(2*interval + 1)
		case 5:
			if !s.forward {
				now -= r.Int64N(min(2*s.per, grace.Microseconds()/2) + 1)
				now = max(now, latest-grace.Microseconds())
			}
		}
		now = min(now, time.Date(2249, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro())
		latest = max(latest, now)
		most := max(k.most(s.setup), 1)
		c := hitAt{now, 1}
		switch r.IntN(6) {
		case 0:
			c.n = 1 + r.Int64N(most)
		case 1:
			c.n = max(1, most-r.Int64N(2))
		case 2:
			if r.IntN(4) == 0 {
				c.n = min(most+1+r.Int64N(3), classic.MaxHits)
			}
		}
		s.calls = append(s.calls, c)
	}
	return s
}

// Every limiter, in memory and on the servers, answers what the plain model of its rule
// says, at any time, also when clocks go back; and all stores answer alike to the last
// field.
func TestScriptsAgainstTheModels(t *testing.T) {
	addr, items := servertest.Redis(t), servertest.Memcached(t)
	each(t, func(t *testing.T, k kind) {
		r := dice(t)
		c := clockAt(start)
		scripts, admitted, denied := long.Rounds(6, 80), 0, 0
		for i := range scripts {
			s := randomScript(r, k, 60)
			m := modelOf(k, s.setup, s.forward)
			cfg := classic.Config{Now: c.now, Grace: grace}
			stores := both(t, addr, cfg)
			if k.name == "textbook-tiers" {
				stores = append(stores, memcached(t, items, cfg))
			}
			var log oracle.Log
			var weight, latest int64 = 0, s.calls[0].at
			for j, call := range s.calls {
				c.set(time.UnixMicro(call.at).Add(time.Duration(r.IntN(1000)))) // what is beyond microseconds does not count
				var got counter.Verdict
				for n, store := range stores {
					v := take(t, k.new(t, s.max, s.window(), s.room, store), name(i), call.n)
					if n == 0 {
						got = v
					}
					require.Equal(t, got, v, "script %d %+v, call %d %+v: memory and %s", i, s.setup, j, call, store)
				}
				latest = max(latest, call.at)
				if got.Allowed {
					admitted++
					weight = max(weight, call.n)
					log.Add(time.UnixMicro(call.at), call.n)
				} else {
					denied++
				}
				judge(t, k, m, s.setup, call, latest, got)
				if t.Failed() {
					t.Fatalf("script %d %+v, call %d %+v: %+v", i, s.setup, j, call, got)
				}
			}
			if s.forward || k.name == "sliding-log" {
				require.LessOrEqual(t, log.Worst(s.window()), bound(k, s.setup, weight), "script %d %+v", i, s)
			}
			if s.forward && k.name == "textbook-tiers" {
				require.LessOrEqual(t, log.Worst(s.window()-time.Second), s.max)
			}
		}
		require.Greater(t, admitted, scripts)
		require.Greater(t, denied, scripts)
	})
}

// Both stores make the same of a state that a limiter with another Max has left.
func TestScriptsOfChangingLimits(t *testing.T) {
	addr := servertest.Redis(t)
	each(t, func(t *testing.T, k kind) {
		r := dice(t)
		c := clockAt(start)
		cfg := classic.Config{Now: c.now, Grace: grace}
		stores := both(t, addr, cfg)
		for i := range long.Rounds(8, 40) {
			per := []time.Duration{time.Second, 7 * time.Second, time.Minute, 10 * time.Hour}[r.IntN(4)]
			var limiters [][2]classic.Measured
			for range 4 {
				max := []int64{1, 2, 3, 7, 11, 60, 997, 100_003}[r.IntN(8)]
				room := 1 + r.Int64N(max)
				limiters = append(limiters, [2]classic.Measured{k.new(t, max, per, room, stores[0]), k.new(t, max, per, room, stores[1])})
			}
			for j := range 60 {
				c.add(time.Duration(r.Int64N(int64(per))) >> r.IntN(12))
				l, n := limiters[r.IntN(4)], 1+r.Int64N(5)
				require.Equal(t, take(t, l[0], name(i), n), take(t, l[1], name(i), n), "script %d, call %d", i, j)
			}
		}
	})
}

// bound is the most hits in a window of per, both ends included, by a limiter's
// doc, if no call has more than the given weight.
func bound(k kind, s setup, weight int64) int64 {
	switch k.name {
	case "sliding-log":
		return s.max
	case "sliding-counter", "first-hit-window":
		return max(2*s.max-1, s.max)
	case "token-bucket", "gcra", "leaky-meter", "token-shaper":
		return s.room + s.max
	case "leaky-queue":
		return s.max + weight
	}
	return 2 * s.max
}

// judge holds a verdict on a call against what the model says, and then tells the
// model of the hit.
func judge(t *testing.T, k kind, m model, s setup, c hitAt, latest int64, v counter.Verdict) {
	t.Helper()
	most := k.most(s)
	if can := m.can(c.at, c.n) && c.n <= most; can != v.Allowed {
		t.Errorf("allowed %v, the model says %v", v.Allowed, can)
	}
	if v.Allowed {
		m.hit(c.at, c.n)
	} else if a, is := m.(asked); is {
		a.deny(c.at)
	}
	many := most
	if k.name == "leaky-queue" {
		many = 1 // in sequence, none after the first
	}
	if v.Remaining > 0 && !m.can(c.at, v.Remaining) || v.Remaining < many && m.can(c.at, v.Remaining+1) {
		t.Errorf("remaining %d is not what the model has room for", v.Remaining)
	}
	// Hits of clocks ahead, in windows to come, are seen by slower callers only
	// then.
	seesAll := c.at >= latest || k.name != "fixed-window" && k.name != "fixed-slots" && k.name != "textbook-tiers"
	early := k.name != "textbook-tiers" // the cover knows minutes and hours only as a sum
	retry, reset := v.RetryAfter.Microseconds(), v.ResetAfter.Microseconds()
	switch {
	case v.Allowed:
		if retry != 0 {
			t.Errorf("admitted, RetryAfter %s", v.RetryAfter)
		}
	case c.n > most:
		if v.RetryAfter != counter.Never {
			t.Errorf("n %d of %d never passes, RetryAfter %s", c.n, most, v.RetryAfter)
		}
	case !seesAll:
	case retry <= 0 || !m.can(c.at+retry, c.n):
		t.Errorf("denied after RetryAfter %s", v.RetryAfter)
	case early && m.can(c.at+retry-1, c.n):
		t.Errorf("admitted before RetryAfter %s", v.RetryAfter)
	}
	if full := min(most, 1<<62); k.name != "leaky-queue" && most > 0 && seesAll {
		if !m.can(c.at+reset, full) {
			t.Errorf("not empty after ResetAfter %s", v.ResetAfter)
		}
		if early && reset > 0 && m.can(c.at+reset-1, full) {
			t.Errorf("empty before ResetAfter %s", v.ResetAfter)
		}
	}
	if k.name == "leaky-queue" && (!m.can(c.at+reset, 1) || reset > 0 && m.can(c.at+reset-1, 1)) {
		t.Errorf("ResetAfter %s is not when the queue is empty", v.ResetAfter)
	}
}

// A counter that is empty has nothing to wait for, also where the last request came
// from a clock ahead.
func TestRequestDecayThatIsEmpty(t *testing.T) {
	c := clockAt(start)
	l := try.To(classic.NewRequestDecay(counter.Limit{Max: 3, Per: time.Minute}, memory(t, classic.Config{Now: c.now})))(t)
	require.True(t, take(t, l, signup, 1).Allowed)
	c.add(time.Hour)
	require.False(t, take(t, l, signup, 4).Allowed)
	c.add(-30 * time.Minute)
	v := take(t, l, signup, 4)
	require.EqualValues(t, 3, v.Remaining)
	require.Zero(t, v.ResetAfter)
}
