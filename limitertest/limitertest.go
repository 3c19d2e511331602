// Package limitertest has limiters for the tests of a program: without waiting, and
// without a server.
//
// [New] makes a Limiter on a [Clock]. The Clock stands still until the test moves the
// Clock. [Exhaust] uses up the limits of a caller: the next call is denied. [Faults]
// make a store fail, delay answers or lose answers, as a network and servers do, for
// tests of a rule's OnFailure.
//
// In a bubble of testing/synctest a Limiter needs no Clock: time.Now is the clock of
// the bubble, and time.Sleep moves the clock. A Limiter of the program, made inside of
// the bubble, goes by the clock of the bubble, with all timeouts:
//
//	func TestASecondSignUpAnHourLater(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			lim := newLimiter(memory.New(memory.Config{})) // as the program does
//			v := limitertest.Exhaust(t, lim, "signup", feature.IP(addr))
//			time.Sleep(v.RetryAfter) // takes no time
//			v, err := lim.Allow(t.Context(), "signup", feature.IP(addr)) // is admitted
//		})
//	}
package limitertest

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// Clock is a clock that stands still until Advance moves it. The zero Clock
// reads midnight of 2000-01-01, UTC. The method Now is a counter.Config.Now.
// Many goroutines may use a Clock at once.
type Clock struct{ passed atomic.Int64 }

// Now reads the clock.
func (c *Clock) Now() time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.passed.Load()))
}

// Advance moves the clock by d. A hit leaves its window with its bucket: after a
// denial, advance by the RetryAfter of the Verdict and not by the length of the
// window.
func (c *Clock) Advance(d time.Duration) { c.passed.Add(int64(d)) }

// New makes a Limiter with rules, on an empty store in memory and on a Clock of
// its own. Rules that New of package limiter refuses fail the test.
func New(t testing.TB, rules ...limiter.Rule) (*limiter.Limiter, *Clock) {
	t.Helper()
	return NewOn(t, memory.New(memory.Config{}), limiter.Config{Rules: rules})
}

// NewOn is New on a store, such as a store with [Faults], and with all of a
// Config. The ladder is tiers.For the windows of the rules. If cfg needs a
// Config.Local and has none, NewOn adds one. The Limiter is closed at the end of
// the test.
//
// Only labels go by the Clock: timeouts, the sleep of a Wait, and the carrying of
// local hits to a store that is back, go by time.Now. A test of these runs in a
// bubble of testing/synctest.
func NewOn(t testing.TB, store backend.Store, cfg limiter.Config) (*limiter.Limiter, *Clock) {
	t.Helper()
	clock := new(Clock)
	newCounter := func(store backend.Store, skew time.Duration) *counter.Counter {
		c, err := counter.New(store, counter.Config{Skew: skew, Now: clock.Now})
		if err != nil {
			t.Fatalf("limitertest: %v", err)
		}
		return c
	}
	c := newCounter(store, 0)
	local := func(r limiter.Rule) bool { return r.OnFailure == limiter.FailLocal || cfg.MaxInFlight > 0 }
	if cfg.Local == nil && slices.ContainsFunc(cfg.Rules, local) {
		cfg.Local = newCounter(memory.New(memory.Config{}), c.Config().Skew+max(0, cmp.Or(cfg.DecideWithin, limiter.DefaultDecideWithin)))
	}
	lim, err := limiter.New(c, cfg)
	if err != nil {
		t.Fatalf("limitertest: %v", err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = lim.Close(over) // hits that a failing store lacks are no failure of the test
	})
	return lim, clock
}

// Exhaust takes all hits for which the limits of event have room, and returns the
// Verdict of the next Allow, a denial. A single AllowN takes the hits, and
// Config.Observe sees the AllowN. Exhaust begins no ban, but the next Allow does,
// under a rule with a Ban. The test fails if no limit is asked: event has no
// rules, a feature is missing or not valid, all rules are skipped, or the store
// fails and no local counter decides.
func Exhaust(t testing.TB, lim *limiter.Limiter, event string, features ...feature.Feature) limiter.Verdict {
	t.Helper()
	ctx := context.Background()
	const tries = 10 // other callers may use the limits too
	for range tries {
		v, err := lim.Peek(ctx, event, 1, features...)
		if err == nil {
			switch v.Outcome() {
			case limiter.OutcomeOverLimit, limiter.OutcomeLocalOverLimit, limiter.OutcomeBanned:
				return v
			case limiter.OutcomeAdmitted, limiter.OutcomeLocalAdmitted:
				_, err = lim.AllowN(ctx, event, v.Remaining+1, features...)
			default:
				t.Fatalf("limitertest: Exhaust: %s (Degraded: %v), want a call that a limit admits or denies", v, v.Degraded)
			}
		}
		if err != nil {
			t.Fatalf("limitertest: Exhaust: %v", err)
		}
	}
	t.Fatalf("limitertest: Exhaust: event %q: still admitted after %d tries, want no hits given back meanwhile", event, tries)
	return limiter.Verdict{}
}
