package limiter_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/limiter"
)

// Charge counts under all rules, over or not, and later calls find the hits.
func TestCharge(t *testing.T) {
	var seen []limiter.Outcome
	c := localCounter(t)
	lim := newLimiter(t, c, limiter.Config{
		Rules:   []limiter.Rule{by("ip", "5/h"), by("user", "9/d")},
		Observe: func(d limiter.Decision) { seen = append(seen, d.Outcome) },
	})
	home, ada := ip("192.0.2.1"), user("ada")
	v := charge(t, lim, 4, home, ada)
	require.Equal(t, []any{true, int64(1)}, []any{v.Allowed, v.Remaining})
	over := charge(t, lim, 3, home, ada)
	require.False(t, over.Allowed)
	require.False(t, over.At().IsZero(), "counted")
	require.Equal(t, []any{"ip", int64(7)}, []any{over.Kind(), counted(t, c, "ip:192.0.2.1")})
	require.EqualValues(t, 7, counted(t, c, "user:ada"))
	now := peek(t, lim, 0, home, ada)
	require.False(t, now.Allowed)
	require.InDelta(t, over.RetryAfter, now.RetryAfter, float64(time.Second))
	require.False(t, allow(t, lim, home, ada).Allowed)
	require.NoError(t, lim.Refund(ctx, &over))
	now = peek(t, lim, 0, home, ada)
	require.Equal(t, []any{true, int64(1)}, []any{now.Allowed, now.Remaining})

	missing := charge(t, lim, 1, home)
	require.Equal(t, "user", missing.Missing)
	require.True(t, missing.At().IsZero(), "not counted")
	require.Equal(t, []limiter.Outcome{limiter.OutcomeAdmitted, limiter.OutcomeOverLimit, limiter.OutcomeOverLimit, limiter.OutcomeMissing}, seen)
}

// While the store fails, a charge is counted in the process, over or not, and
// carried to the store. Under the other policies nothing is counted, and the
// Verdict says so.
func TestChargeWhileTheStoreFails(t *testing.T) {
	s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "5/h"))}})
	home := ip("192.0.2.1")
	s.store.broken.Store(true)
	for i, want := range outcomes(limiter.OutcomeLocalAdmitted, limiter.OutcomeLocalOverLimit, limiter.OutcomeLocalOverLimit) {
		v := charge(t, s.lim, 4, home)
		require.Equal(t, want, v.Outcome(), i)
		require.False(t, v.At().IsZero())
	}
	s.store.broken.Store(false)
	require.Eventually(t, func() bool { return counted(t, s.c, "ip:192.0.2.1") == 12 }, patience, 10*time.Millisecond)
	require.Equal(t, limiter.OutcomeOverLimit, charge(t, s.lim, 1, home).Outcome())
	require.EqualValues(t, 13, counted(t, s.c, "ip:192.0.2.1"))
	require.EqualValues(t, 13, counted(t, s.here, "ip:192.0.2.1"), "mirrored")
	require.NoError(t, s.lim.Close(ctx))

	for policy, want := range map[limiter.OnFailure]limiter.Outcome{limiter.FailOpen: limiter.OutcomeFailedOpen, limiter.FailClosed: limiter.OutcomeFailedClosed} {
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(policy, by("ip", "5/h"))}})
		s.store.broken.Store(true)
		v := charge(t, s.lim, 1, home)
		require.Equal(t, []any{want, true}, []any{v.Outcome(), v.At().IsZero()})
	}
}

// A charge beyond the largest count is the caller's mistake, not a failure of the
// store: no policy lets it through.
func TestChargeBeyondMaxCount(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		for _, policy := range []limiter.OnFailure{limiter.FailOpen, limiter.FailClosed} {
			rule := onFailure(policy, by("user", "5/h"))
			lim, c := withClock(t, store, newClock(), rule)
			ada := user(policy.String())
			charge(t, lim, counter.MaxCount, ada)
			v, err := lim.Charge(ctx, "signup", 1, ada)
			require.ErrorIs(t, err, backend.ErrMaxCount)
			require.NotErrorIs(t, err, counter.ErrStore)
			require.ErrorContains(t, err, `event "signup": `)
			require.ErrorContains(t, err, "the count would exceed 2^53-1")
			require.Equal(t, limiter.Verdict{}, v)
			require.NotErrorIs(t, c.Add(ctx, counter.Key{Event: "signup", Feature: "user:" + policy.String()}, counter.MaxCount), counter.ErrStore)
		}
	})
}

// A Charge below zero gives back the newest hits of each feature, and observes nothing.
func TestCredit(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		clock, decisions := newClock(), 0
		c := derivingCounter(t, store, counter.Config{Patience: patience, Now: clock.now})
		banning := by("user", "9/h")
		banning.Ban = limiter.Bans{2 * time.Hour}
		lim := newLimiter(t, c, limiter.Config{
			Rules:        []limiter.Rule{by("ip", "5/h"), banning, soft(0, by("user", "3/d")), soft(0, ifMissing(limiter.MissingSkip, by("email", "9/s, 3/d")))},
			DecideWithin: 2 * patience, Observe: func(limiter.Decision) { decisions++ },
		})
		home, ada, mail := ip("192.0.2.1"), user("ada"), feature.Email("ada@example.org")
		credit := func(n int64, features ...feature.Feature) limiter.Verdict {
			v := charge(t, lim, n, features...)
			require.True(t, v.At().IsZero(), "a credit has no hits")
			return v
		}
		v := credit(-3, home, ada, mail)
		require.True(t, v.Allowed)
		require.EqualValues(t, 5, v.Remaining, "no count is below zero")

		charge(t, lim, 3, home, ada, mail)
		decisions = 0
		clock.pass(5 * time.Second)
		v = credit(-2, home, ada, mail)
		require.EqualValues(t, 4, v.Remaining)
		require.Len(t, v.Soft, 2)
		require.EqualValues(t, 1, countedBy(t, lim, ada))
		require.EqualValues(t, 1, countedBy(t, lim, mail), "the key that counts for the soft rule")

		charge(t, lim, 6, home, ada)
		v = credit(-1, home, limiter.Times(ada, 4), limiter.Charged(ada))
		require.False(t, v.Allowed, "6 of 5 are left")
		require.Equal(t, counter.Limit{Max: 5, Per: time.Hour}, v.Limit)
		require.EqualValues(t, 3, countedBy(t, lim, ada))
		credit(-9, limiter.Times(home, 0), limiter.Times(ada, 0))
		require.EqualValues(t, 6, countedBy(t, lim, home), "nothing is given back")
		credit(-9, limiter.Times(home, 0), ada)
		require.Equal(t, []int64{6, 0}, []int64{countedBy(t, lim, home), countedBy(t, lim, ada)})
		require.Equal(t, []any{"user", int64(6)}, []any{credit(-2, home).Missing, countedBy(t, lim, home)})

		for _, n := range []int64{math.MinInt64, -counter.MaxCount - 1} {
			v, err := lim.Charge(ctx, "signup", n, home, ada)
			require.EqualError(t, err, fmt.Sprintf(`limiter: event "signup": n is %d, want -9007199254740991 to -1, or 1 to 9007199254740991`, n))
			require.Equal(t, limiter.Verdict{}, v)
		}
		require.EqualValues(t, 6, countedBy(t, lim, home))
		credit(-counter.MaxCount, home, home, ada)
		require.Zero(t, countedBy(t, lim, home))
		require.Equal(t, 1, decisions, "of the second Charge")

		require.False(t, allowN(t, lim, 9, ip("192.0.2.3"), ada).Allowed)
		charge(t, lim, 9, ip("192.0.2.3"), ada)
		require.Equal(t, limiter.OutcomeBanned, allow(t, lim, ip("192.0.2.2"), ada).Outcome())
		v = credit(-9, ip("192.0.2.2"), ada)
		require.True(t, v.Banned, "a ban holds on")
		require.Zero(t, countedBy(t, lim, ada))
	})
}

// countedBy is the count of the enforced key of a feature.
func countedBy(t *testing.T, lim *limiter.Limiter, f feature.Feature) int64 {
	t.Helper()
	usage := usageOf(t, lim, f)
	return usage[0].Total.High
}

// A credit of a failing store is its error under every policy, and nothing is given
// back in the process.
func TestCreditWhileTheStoreFails(t *testing.T) {
	for _, policy := range []limiter.OnFailure{limiter.FailClosed, limiter.FailOpen, limiter.FailLocal} {
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(policy, by("ip", "5/h"))}})
		home := ip("192.0.2.1")
		require.True(t, allowN(t, s.lim, 3, home).Allowed)
		before := counted(t, s.here, "ip:192.0.2.1")
		s.store.broken.Store(true)
		v, err := s.lim.Charge(ctx, "signup", -2, home)
		require.ErrorIs(t, err, counter.ErrStore)
		require.ErrorContains(t, err, `limiter: credit: `)
		require.Equal(t, limiter.Verdict{}, v)
		s.store.broken.Store(false)
		require.EqualValues(t, 3, counted(t, s.c, "ip:192.0.2.1"))
		charge(t, s.lim, -2, home)
		require.EqualValues(t, 1, counted(t, s.c, "ip:192.0.2.1"))
		require.Equal(t, before, counted(t, s.here, "ip:192.0.2.1"))
		require.NoError(t, s.lim.Close(ctx))
	}
}

// A refund gives back in all keys of the call, once for all copies.
func TestRefund(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "5/h"), by("user", "5/h")}})
	features := featuresOf(ip("192.0.2.1"), user("ada"), user("bob"))
	both := func(want int64) {
		for _, feature := range []string{"ip:192.0.2.1", "user:ada", "user:bob"} {
			require.Equal(t, want, counted(t, c, feature), feature)
		}
	}
	first := allow(t, lim, features...)
	v := allowN(t, lim, 3, features...)
	both(4)
	same := v
	require.NoError(t, lim.Refund(ctx, &v))
	both(1)
	require.Equal(t, limiter.Verdict{}, v)
	require.NoError(t, lim.Refund(ctx, &v), "an empty one")
	require.NoError(t, lim.Refund(ctx, &same), "a copy")
	require.Equal(t, limiter.Verdict{}, same)
	both(1)
	require.NoError(t, lim.Refund(ctx, &first))
	both(0)
}

// A verdict without a hit gives nothing back.
func TestRefundOfNothing(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "2/h"), ifMissing(limiter.MissingSkip, by("user", "2/h"))}})
	home := ip("192.0.2.1")
	allow(t, lim, home)
	allow(t, lim, home)
	denied := allow(t, lim, home)
	require.False(t, denied.Allowed)
	peeked := peek(t, lim, 1, home)
	missing := allow(t, lim)
	for name, v := range map[string]limiter.Verdict{"denied": denied, "peeked": peeked, "missing": missing, "zero": {}} {
		require.False(t, v.Allowed, name)
		require.NoError(t, lim.Refund(ctx, &v), name)
		require.Equal(t, limiter.Verdict{}, v, name)
		require.Equal(t, []any{limiter.OutcomeOverLimit, "", 0}, []any{v.Outcome(), v.Kind(), len(v.All())}, "the zero Verdict denies")
	}
	require.EqualValues(t, 2, counted(t, c, "ip:192.0.2.1"))
}

// A refund whose caller is gone before the first call can be tried again: the
// hit is not lost. A refund whose store failed cannot, since nobody knows the
// effect of the call.
func TestRefundThatFails(t *testing.T) {
	store := &flakyStore{Store: memory.New(memory.Config{})}
	c := newCounter(t, store, counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "2/h"), by("user", "2/h")}})
	features := featuresOf(ip("192.0.2.1"), user("ada"))
	v := allow(t, lim, features...)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	err := lim.Refund(gone, &v)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "limiter: refund: ")
	require.True(t, v.Allowed)
	require.NoError(t, lim.Refund(ctx, &v))
	require.Equal(t, []int64{0, 0}, []int64{counted(t, c, "ip:192.0.2.1"), counted(t, c, "user:ada")})

	v = allow(t, lim, features...)
	same := v
	store.broken.Store(true)
	err = lim.Refund(ctx, &v)
	require.ErrorIs(t, err, counter.ErrStore)
	require.ErrorContains(t, err, "limiter: refund: ")
	require.NotContains(t, err.Error(), "192.0.2.1")
	require.Equal(t, limiter.Verdict{}, v)
	store.broken.Store(false)
	require.NoError(t, lim.Refund(ctx, &same))
	require.EqualValues(t, 1, counted(t, c, "user:ada"))

	other := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("ip", "2/h")}})
	v = allow(t, lim, features...)
	require.ErrorContains(t, other.Refund(ctx, &v), "of another Counter")
}

// A denial that open hits alone explain is told a short wait, and begins no ban.
func TestOpenHits(t *testing.T) {
	rule := by("ip", "2/15m, 3/d")
	rule.Ban = limiter.Bans{24 * time.Hour}
	lim := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: []limiter.Rule{rule}})
	home := ip("192.0.2.1")
	open := func() limiter.Verdict {
		t.Helper()
		v := allowOpen(t, lim, 1, home)
		return v
	}
	first, second := open(), open()
	require.True(t, first.Allowed && second.Allowed)
	for _, v := range []limiter.Verdict{open(), allow(t, lim, home)} {
		require.False(t, v.Allowed || v.Banned)
		require.LessOrEqual(t, v.RetryAfter, 1500*time.Millisecond)
		require.Equal(t, v.RetryAfter, v.All()[0].RetryAfter)
		lim.Keep(&v) // no hits
	}
	require.Greater(t, peek(t, lim, 1, home).RetryAfter, 14*time.Minute, "a Peek counts open hits like hits that stay")
	require.NoError(t, lim.Refund(ctx, &first))
	third := open()
	require.True(t, third.Allowed)
	lim.Keep(&second)
	lim.Keep(&second)
	require.LessOrEqual(t, open().RetryAfter, 1500*time.Millisecond)
	lim.Keep(&third)
	require.NoError(t, lim.Refund(ctx, &third), "a hit that is kept can be refunded")
	last := open()
	require.True(t, last.Allowed)
	lim.Keep(&last)
	denied := open()
	require.True(t, denied.Banned)
	require.GreaterOrEqual(t, denied.RetryAfter, 24*time.Hour)
}

// Hits that are undone while a call is denied are open hits to that call.
func TestOpenHitsUndoneDuringACall(t *testing.T) {
	home := ip("192.0.2.1")
	for name, undo := range map[string]func(*limiter.Limiter, *limiter.Verdict) error{
		"Refund": func(lim *limiter.Limiter, v *limiter.Verdict) error { return lim.Refund(ctx, v) },
		"Settle": func(lim *limiter.Limiter, v *limiter.Verdict) error { return lim.Settle(ctx, v, 0) },
	} {
		rule := by("ip", "2/15m")
		rule.Ban = limiter.Bans{24 * time.Hour}
		store := &thenStore{Atomic: memory.New(memory.Config{})}
		lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{rule}})
		v := allowOpen(t, lim, 1, home)
		allow(t, lim, home)
		store.taken = func() { require.NoError(t, undo(lim, &v)) }
		denied := allowOpen(t, lim, 1, home)
		require.False(t, denied.Allowed || denied.Banned, name)
		require.LessOrEqual(t, denied.RetryAfter, 1500*time.Millisecond, name)
	}
}

// thenStore calls a function once, between a step, or an addition, and its answer.
type thenStore struct {
	backend.Atomic
	taken, added func()
}

func (s *thenStore) Take(ctx context.Context, r *backend.TakeRequest) error {
	defer once(&s.taken)
	return s.Atomic.Take(ctx, r)
}

func (s *thenStore) Do(ctx context.Context, r *backend.Request) error {
	err := s.Atomic.Do(ctx, r)
	if err == nil && r.N > 0 {
		once(&s.added)
	}
	return err
}

func once(f *func()) {
	if then := *f; then != nil {
		*f = nil
		then()
	}
}

// Attempts that come side by side on a limit that failures have filled are denied, and
// keep no ban away from each other.
func TestDeniedCallsKeepNoBanAway(t *testing.T) {
	const took, callers, attempts = 2 * time.Millisecond, 4, 50
	synctest.Test(t, func(t *testing.T) {
		rule := by("ip", "10/15m")
		rule.Ban = limiter.Bans{24 * time.Hour}
		lim := newLimiter(t, newCounter(t, newFarStore(took), counter.Config{}), limiter.Config{Rules: []limiter.Rule{rule}})
		var banned atomic.Int64
		ticket.SideBySide(callers, func(i int) {
			time.Sleep(time.Duration(i) * took / callers)
			for range attempts {
				v, err := lim.AllowOpen(ctx, "signup", 1, ip("192.0.2.1"))
				assert.NoError(t, err)
				lim.Keep(&v) // a wrong password
				if v.Banned {
					banned.Add(1)
				}
				time.Sleep(took / callers)
			}
		})
		require.Greater(t, banned.Load(), int64(callers*attempts-10-4*callers))
	})
}
