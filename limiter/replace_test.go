package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// on sets the ladder of r.
func on(ladder string, r limiter.Rule) limiter.Rule {
	if err := r.Ladder.UnmarshalText([]byte(ladder)); err != nil {
		panic(err)
	}
	return r
}

const fine, coarse = "100ms:1h, 1m:1h", "1s:1h, 1m:1h"

// Replacements under racing calls, which change limits, ladders and soft rules: in no
// window are there more hits than the larger Max of old and new.
func TestNeverOverTheLargerWhileRulesAreReplaced(t *testing.T) {
	one := []limiter.Rule{on("10ms:1s, 100ms:1s", by("user", "20/100ms, 60/1s")), soft(50, on("10ms:1s", by("user", "15/100ms")))}
	two := []limiter.Rule{on("20ms:1s, 100ms:1s", by("user", "25/100ms, 50/1s"))}
	lim := onMemory(t, one...)
	var done atomic.Bool
	var mu sync.Mutex
	admitted := map[string][]time.Time{}
	var racers sync.WaitGroup
	for i := range 64 {
		name := fmt.Sprint(i % 2)
		racers.Go(func() {
			for !done.Load() {
				v, err := lim.Allow(ctx, "signup", user(name))
				if err != nil {
					t.Error(err)
					return
				}
				if v.Allowed {
					mu.Lock()
					admitted[name] = append(admitted[name], v.At())
					mu.Unlock()
				}
				time.Sleep(rand.N(time.Millisecond)) // else the racers starve the replacements
			}
		})
	}
	replaced, began := 0, time.Now()
	for ; replaced < long.Rounds(200, 1000) || time.Since(began) < 2*time.Second; replaced++ {
		require.NoError(t, lim.Replace([][]limiter.Rule{two, one}[replaced%2]...))
		time.Sleep(rand.N(time.Millisecond))
	}
	done.Store(true)
	racers.Wait()
	require.EqualValues(t, 1+replaced, lim.Generation())
	for name, hits := range admitted {
		slices.SortFunc(hits, time.Time.Compare)
		require.Greater(t, len(hits), 60)
		for _, limit := range counter.MustLimits("25/100ms, 60/1s") {
			for i := range len(hits) - int(limit.Max) {
				apart := hits[i+int(limit.Max)].Sub(hits[i])
				require.GreaterOrEqual(t, apart, limit.Per, "%s: %d hits of %s", name, limit.Max+1, limit)
			}
		}
	}
}

// An error leaves the rules as they are; a Replace keeps counts and refunds.
func TestReplaceIsWholeOrNotAtAll(t *testing.T) {
	lim := onMemory(t, by("ip", "2/h"), limiter.Rule{Event: "login", Kind: "ip", Limits: counter.MustLimits("9/h")})
	v := allow(t, lim, ip("192.0.2.1"))
	login := lim.Rules("login")[0]
	for want, rules := range map[string][]limiter.Rule{
		`limiter: Replace: no rules, want at least one`: nil,
		`limiter: Replace: event "signup" has rules now, and would have none, want at least one rule, which may be Soft, or ReplaceAll`:                                          {login},
		`limiter: Replace: rule "signup" by "ip": Config.Rules[1].OnFailure is FailLocal, but Config.Local is nil, want a counter in this process, on a memory.Store of its own`: {login, onFailure(limiter.FailLocal, by("ip", "9/h"))},
		`limiter: Replace: rule "signup" by "ip": Config.Rules[1].Limits: counter: no limits, want at least one`:                                                                 {login, {Event: "signup", Kind: "ip", Ladder: tiers.Default}},
		`limiter: Replace: rule "signup" by "ip": Config.Rules[1].Percent`:                                                                                                       {login, {Event: "signup", Kind: "ip", Percent: 1}},
	} {
		require.ErrorContains(t, lim.Replace(rules...), want)
		require.EqualValues(t, 1, lim.Generation())
		require.EqualValues(t, 2, lim.Rules("signup")[0].Limits[0].Max)
	}
	require.NoError(t, lim.Replace(login, by("ip", "1/h"), soft(0, by("ip", "1/d"))))
	require.EqualValues(t, 2, lim.Generation())
	require.Len(t, lim.Rules("signup"), 2)
	require.False(t, allow(t, lim, ip("192.0.2.1")).Allowed)
	require.NoError(t, lim.Refund(ctx, &v))
	require.True(t, allow(t, lim, ip("192.0.2.1")).Allowed)
}

// ReplaceAll may leave an event out. Its calls are errors then, earlier hits can be
// refunded, and the counts are there if the event comes back.
func TestReplaceAllMayLeaveAnEventOut(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		login := limiter.Rule{Event: "login", Kind: "ip", Limits: counter.MustLimits("9/h")}
		lim, _ := withClock(t, store, newClock(), by("ip", "2/h"), login)
		home := ip("192.0.2.1")
		first := allow(t, lim, home)
		allow(t, lim, home)
		require.EqualError(t, lim.ReplaceAll(), "limiter: ReplaceAll: no rules, want at least one")
		require.NoError(t, lim.ReplaceAll(login))
		require.Equal(t, []string{"login"}, lim.Events())
		require.EqualValues(t, 2, lim.Generation())
		const unknown = `limiter: event "signup" has no rules; there are rules for "login"`
		v, err := lim.Allow(ctx, "signup", home)
		require.EqualError(t, err, unknown)
		require.Equal(t, limiter.Verdict{}, v)
		require.EqualError(t, lim.Forget(ctx, "signup", home), unknown)
		require.NoError(t, lim.Refund(ctx, &first))
		require.NoError(t, lim.ReplaceAll(login, by("ip", "2/h")))
		require.True(t, allow(t, lim, home).Allowed, "one hit was refunded")
		require.False(t, allow(t, lim, home).Allowed, "one hit was kept")
	})
}

// A call that waits for its turn ends when its event is left out, and when no wait will
// do any more.
func TestReplaceAllEndsWaitingCalls(t *testing.T) {
	login := limiter.Rule{Event: "login", Kind: "ip", Limits: counter.MustLimits("9/h")}
	for want, rules := range map[string][]limiter.Rule{
		`limiter: event "signup" has no rules; there are rules for "login"`:                  {login},
		`limiter: event "signup": n is 1, want at most 0 under 0/h by "ip": no wait will do`: {login, by("ip", "0/h")},
	} {
		synctest.Test(t, func(t *testing.T) {
			lim := onMemory(t, by("ip", "1/h"), login)
			allow(t, lim, ip("192.0.2.1"))
			w, began := waiters{lim: lim}, time.Now()
			ctx, cancel := context.WithTimeout(ctx, 24*time.Hour)
			defer cancel()
			for range 3 {
				w.wait(ctx, "ends:", 1, ip("192.0.2.1"))
			}
			require.NoError(t, lim.ReplaceAll(rules...))
			want = "ends: " + want
			require.Equal(t, []string{want, want, want}, w.now())
			require.Zero(t, time.Since(began))
		})
	}
}

// Hits that were admitted while the store failed are carried though their event has
// no rules any more, unless they are refunded before.
func TestReplaceAllKeepsLocalHits(t *testing.T) {
	s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "9/h"))}})
	s.store.broken.Store(true)
	first := allow(t, s.lim, ip("192.0.2.1"))
	allow(t, s.lim, ip("192.0.2.1"))
	require.NoError(t, s.lim.ReplaceAll(limiter.Rule{Event: "login", Kind: "ip", Limits: counter.MustLimits("9/h")}))
	require.NoError(t, s.lim.Refund(ctx, &first))
	s.store.broken.Store(false)
	require.NoError(t, s.lim.Close(ctx))
	require.EqualValues(t, 1, counted(t, s.c, "ip:192.0.2.1"))
}

// A changed ladder is kept by both, until the rules drop the former that they named.
func TestReplaceKeepsTheFormerLadder(t *testing.T) {
	denied := func(lim *limiter.Limiter) { require.False(t, allow(t, lim, ip("192.0.2.1")).Allowed) }
	rule := by("ip", "2/h")
	old, changed := on(fine, rule), on(coarse, rule)
	c := derivingCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{old}})
	allow(t, lim, ip("192.0.2.1"))
	require.NoError(t, lim.Replace(changed))
	former := &counter.Config{Ladder: old.Ladder}
	require.Equal(t, former, lim.Rules("signup")[0].Former)
	allow(t, lim, ip("192.0.2.1"))
	denied(lim)
	third := on("2s:1h, 1m:1h", rule)
	require.ErrorContains(t, lim.Replace(third), `Config.Rules[0].Ladder is "2s:1h, 1m:1h", but hits are counted by "1s:1h, 1m:1h" and still by the former ladder "100ms:1h, 1m:1h", want one of these: drop the former first, see Replace`)
	require.NoError(t, lim.Replace(changed))
	require.Equal(t, former, lim.Rules("signup")[0].Former, "kept, since no rule has named it")
	denied(lim)
	require.NoError(t, lim.Replace(old), "the way back")
	denied(lim)
	require.NoError(t, lim.Replace(changed))
	denied(lim)

	changed.Former = &counter.Config{Ladder: old.Ladder}
	require.NoError(t, lim.Replace(changed))
	changed.Former = nil
	require.NoError(t, lim.Replace(changed), "named, and named no more: dropped")
	require.Nil(t, lim.Rules("signup")[0].Former)
	require.True(t, allow(t, lim, ip("192.0.2.1")).Allowed, "the first hit was counted by the former ladder alone")
	third.Former = former
	require.ErrorContains(t, lim.Replace(third), `.Former has the ladder "100ms:1h, 1m:1h", but hits are counted by "1s:1h, 1m:1h", want that`)
	third.Former = nil
	require.NoError(t, lim.Replace(third))
	denied(lim)
}

// The enforced key of a soft rule keeps its counts on the way to another ladder.
func TestReplaceKeepsTheLadderOfASoftRule(t *testing.T) {
	lim := onMemory(t, soft(0, on(fine, by("ip", "2/h"))))
	for range 2 {
		allow(t, lim, ip("192.0.2.1"))
	}
	require.NoError(t, lim.Replace(on(coarse, by("ip", "2/h"))))
	require.False(t, allow(t, lim, ip("192.0.2.1")).Allowed)
}

// The local counter keeps a changed ladder by both as well.
func TestReplaceKeepsTheLocalCounts(t *testing.T) {
	rule := onFailure(limiter.FailLocal, by("ip", "2/h"))
	s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{on(fine, rule)}})
	require.True(t, allow(t, s.lim, ip("192.0.2.1")).Allowed)
	s.store.broken.Store(true)
	require.True(t, allow(t, s.lim, ip("192.0.2.1")).Allowed)
	require.NoError(t, s.lim.Replace(on(coarse, rule)))
	require.False(t, allow(t, s.lim, ip("192.0.2.1")).Allowed)
	s.store.broken.Store(false)
	require.Eventually(t, func() bool { return s.lim.Stats().Pending == 0 }, patience, time.Millisecond)
	require.False(t, allow(t, s.lim, ip("192.0.2.1")).Allowed)
	require.NoError(t, s.lim.Close(ctx))
}

// A waiting call keeps its place, and asks at once by the new rules.
func TestReplaceWakesWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := onMemory(t, by("ip", "1/h"))
		allow(t, lim, ip("192.0.2.1"))
		w, began := waiters{lim: lim}, time.Now()
		for _, name := range []string{"a", "b", "c"} {
			w.wait(ctx, name, 1, ip("192.0.2.1"))
		}
		require.NoError(t, lim.Replace(by("ip", "2/h")))
		require.Equal(t, []string{"a"}, w.now()) // a call that is asking meanwhile hears of the old rules
		require.NoError(t, lim.Replace(soft(0, by("ip", "2/h"))))
		require.Len(t, w.now(), 3)
		require.Zero(t, time.Since(began))
	})
}

// While a ladder changes, Usage tells the hits of both ladders, and the room that
// decisions find: a limit that the former ladder cannot hold has all its room.
func TestUsageWhileTheLadderChanges(t *testing.T) {
	lim := onMemory(t, by("user", "10/m"))
	for range 3 {
		require.True(t, allow(t, lim, user("7")).Allowed)
	}
	require.NoError(t, lim.Replace(by("user", "10/m, 20/7d")))
	usage := usageOf(t, lim, user("7"))
	v := peek(t, lim, 0, user("7"))
	three := counter.Count{Low: 3, High: 3}
	require.Equal(t, three, usage[0].Total)
	for i, remaining := range []int64{7, 20} {
		require.Equal(t, []any{three, remaining}, []any{usage[0].Limits[i].Count, usage[0].Limits[i].Remaining})
		require.Equal(t, remaining, v.All()[i].Remaining)
	}
}
