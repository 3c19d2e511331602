package limiter_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/limiter"
)

// A limit of calls next to a limit of tokens: the estimate of the tokens is settled, and
// who waits has the room at once.
func TestSettle(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		c := newCounter(t, store, counter.Config{Patience: patience})
		tokens := by("model", "100/h")
		tokens.Soft, tokens.Percent = true, 0
		lim := newLimiter(t, c, limiter.Config{DecideWithin: patience, Rules: []limiter.Rule{by("user", "500/h"), by("tenant", "100/h, 500/d"), tokens}})
		for i, used := range []int64{0, 30, 80, 130} {
			name := string(rune('a' + i))
			of := []feature.Feature{limiter.Times(feature.New("user", name), 1), feature.New("tenant", name), feature.New("model", name)}
			v := try.To(lim.AllowN(ctx, "signup", 80, of...))(t)
			require.True(t, v.Allowed)
			waits := make(chan error, 1)
			if used < 80 {
				short, cancel := context.WithCancel(ctx)
				defer time.AfterFunc(patience, cancel).Stop()
				go func() {
					_, err := lim.WaitN(short, "signup", 50, limiter.Times(feature.New("user", name), 1), feature.New("tenant", name))
					waits <- err
				}()
				require.Eventually(t, func() bool { return lim.Stats().Waiting == 1 }, patience, time.Millisecond)
			}
			again := v
			require.NoError(t, lim.Settle(ctx, &v, used))
			if used >= 80 {
				require.True(t, v.Allowed)
				require.Equal(t, used > 100, v.RetryAfter > 0)
				require.Equal(t, max(0, 100-used), v.Remaining)
				require.EqualValues(t, 1, v.N(), "of the first feature")
				require.Equal(t, "tenant:"+name, v.Key.Feature)
				all := v.All()
				require.Len(t, all, 3)
				require.EqualValues(t, 499, all[0].Remaining, "calls are not tokens")
				require.Equal(t, 500-used, all[2].Remaining)
			} else {
				require.NoError(t, <-waits)
				used += 50
			}
			for _, v := range []*limiter.Verdict{&again, &v} {
				before := *v
				require.ErrorIs(t, lim.Settle(ctx, v, 7), counter.ErrSettled)
				require.ErrorIs(t, lim.Refund(ctx, v), counter.ErrSettled)
				require.Equal(t, before.All(), v.All())
			}
			require.EqualValues(t, used, counted(t, c, "tenant:"+name))
			require.LessOrEqual(t, counted(t, c, "user:"+name), int64(2), "calls are not tokens")
		}
	})
}

// What a local counter has admitted is settled there, and carried so. What the store has
// admitted is settled in both.
func TestSettleOfLocalHits(t *testing.T) {
	for _, row := range []struct {
		name       string
		down, back bool // at the Take; at the Settle
		used       int64
		pending    int64 // after the Settle, while the store is down
	}{
		{name: "less in the store", back: true, used: 2},
		{name: "more in the store", back: true, used: 7},
		{name: "less, not carried yet", down: true, used: 2, pending: 2},
		{name: "none, not carried yet", down: true, used: 0},
		{name: "more, not carried yet", down: true, used: 7, pending: 7},
		{name: "less, carried", down: true, back: true, used: 2},
		{name: "more, carried", down: true, back: true, used: 7, pending: 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "10/h"))}})
				home := ip("192.0.2.1")
				s.store.broken.Store(row.down)
				v := allowN(t, s.lim, 5, home)
				require.True(t, v.Allowed)
				if row.down && row.back {
					s.store.broken.Store(false)
					time.Sleep(4 * time.Second) // carried
					require.Zero(t, s.lim.Stats().Pending)
				}
				synctest.Wait()
				again := v
				for _, used := range []int64{-1, counter.MaxCount + 1} {
					require.ErrorContains(t, s.lim.Settle(ctx, &v, used), "want 0 to")
				}
				require.ErrorIs(t, s.lim.Settle(over, &v, row.used), context.Canceled)
				require.Equal(t, again, v)
				require.NoError(t, s.lim.Settle(ctx, &v, row.used))
				require.Equal(t, 10-row.used, v.Remaining)
				require.Equal(t, row.used, v.N())
				for _, v := range []*limiter.Verdict{&again, &v, &again} {
					require.ErrorIs(t, s.lim.Settle(ctx, v, 9), counter.ErrSettled)
					require.ErrorIs(t, s.lim.Refund(ctx, v), counter.ErrSettled)
				}
				require.Equal(t, row.used, counted(t, s.here, "ip:192.0.2.1"))
				if !row.back {
					require.Equal(t, row.pending, s.lim.Stats().Pending)
				}
				s.store.broken.Store(false)
				time.Sleep(4 * time.Second)
				require.Equal(t, row.used, counted(t, s.c, "ip:192.0.2.1"))
				require.Zero(t, s.lim.Stats().Pending)
				require.NoError(t, s.lim.Close(ctx))
			})
		})
	}
}

// A Settle of any Verdict of a Limiter: what it counts, and what the answer says then.
func TestSettleOfAnyVerdict(t *testing.T) {
	home, ada := ip("192.0.2.1"), user("ada")
	for name, row := range map[string]struct {
		rules []limiter.Rule
		take  func(lim *limiter.Limiter) (limiter.Verdict, error)
		used  int64
		left  int64 // afterwards; the Settle is refused if it is below 0
	}{
		"up to": {used: 2, left: 8, rules: []limiter.Rule{by("ip", "10/h")},
			take: func(lim *limiter.Limiter) (limiter.Verdict, error) {
				return lim.AllowUpTo(ctx, "signup", 30, home)
			}},
		"a Charge that was over": {used: 4, left: 6, rules: []limiter.Rule{by("ip", "10/h")},
			take: func(lim *limiter.Limiter) (limiter.Verdict, error) { return lim.Charge(ctx, "signup", 30, home) }},
		"a rule with a ban": {used: 4, left: 6, rules: []limiter.Rule{banned(time.Hour, by("ip", "10/h")), by("user", "90/h")},
			take: func(lim *limiter.Limiter) (limiter.Verdict, error) {
				return lim.AllowN(ctx, "signup", 5, home, ada)
			}},
		"open hits": {used: 8, left: 2, rules: []limiter.Rule{by("ip", "10/h")},
			take: func(lim *limiter.Limiter) (limiter.Verdict, error) {
				return lim.AllowOpen(ctx, "signup", 5, home)
			}},
		"no rule limits": {used: 8, rules: []limiter.Rule{{Event: "signup", Kind: "ip", Limits: counter.MustLimits("10/h"), Percent: 0, Soft: true}},
			take: func(lim *limiter.Limiter) (limiter.Verdict, error) { return lim.AllowN(ctx, "signup", 5, home) }},
		"a charged feature next to a soft rule": {used: 8, left: 2, rules: []limiter.Rule{by("ip", "10/h"), soft(0, by("user", "9/h"))},
			take: func(lim *limiter.Limiter) (limiter.Verdict, error) {
				return lim.AllowN(ctx, "signup", 5, limiter.Charged(home), ada)
			}},
		"a charged feature next to another": {used: 7, left: 1, rules: []limiter.Rule{by("ip", "8/h"), by("user", "9/h")},
			take: func(lim *limiter.Limiter) (limiter.Verdict, error) {
				return lim.AllowN(ctx, "signup", 5, limiter.Charged(home), ada)
			}},
		"no rule is asked": {used: 8, rules: []limiter.Rule{ifMissing(limiter.MissingSkip, by("ip", "10/h"))},
			take: func(lim *limiter.Limiter) (limiter.Verdict, error) { return lim.AllowN(ctx, "signup", 5, ada) }},
		"denied": {used: 8, left: -1, rules: []limiter.Rule{by("ip", "10/h")},
			take: func(lim *limiter.Limiter) (limiter.Verdict, error) { return lim.AllowN(ctx, "signup", 50, home) }},
		"with a receipt": {used: 3, left: -1, rules: []limiter.Rule{by("ip", "10/h")},
			take: func(lim *limiter.Limiter) (limiter.Verdict, error) {
				v := allowN(t, lim, 5, home)
				_, err := lim.Receipt(&v)
				return v, err
			}},
	} {
		c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: row.rules, ReceiptKey: receiptKey})
		v, err := row.take(lim)
		require.NoError(t, err, name)
		before := v
		require.ErrorContains(t, lim.Settle(ctx, &v, -1), "used is -1", name)
		require.Equal(t, before, v, name)
		err = lim.Settle(ctx, &v, row.used)
		if row.left < 0 {
			require.ErrorIs(t, err, counter.ErrSettled, name)
			require.Equal(t, before, v, name)
			continue
		}
		require.NoError(t, err, name)
		require.True(t, v.Allowed && v.RetryAfter == 0 && !v.Banned, name)
		require.Equal(t, row.left, v.Remaining, name)
		require.Equal(t, before.At().IsZero(), v.At().IsZero(), name)
		if !v.At().IsZero() {
			require.Equal(t, row.used, v.N(), name)
			require.Equal(t, row.used, counted(t, c, "ip:192.0.2.1"), name)
			require.ErrorIs(t, try.Err(lim.Receipt(&v)), counter.ErrSettled, name)
			require.ErrorContains(t, func() error { _, err := lim.Receipt(&before); return err }(), "was refunded, settled or has a receipt", name)
		}
		denied := allowN(t, lim, row.left+1, home) // not for hits that are still open
		require.Equal(t, row.left > 0, denied.RetryAfter > time.Minute, name)
		require.NoError(t, lim.Close(ctx))
	}
}

// While the store fails, a call that was let through without a count has nothing to
// settle, and a ban that has begun meanwhile is told.
func TestSettleWithoutTheStore(t *testing.T) {
	store := &flakyStore{Store: memory.New(memory.Config{})}
	lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{banned(time.Hour, onFailure(limiter.FailOpen, by("ip", "10/h")))}})
	home := ip("192.0.2.1")
	before := allowN(t, lim, 4, home)
	store.broken.Store(true)
	v := allowN(t, lim, 5, home)
	require.NoError(t, lim.Settle(ctx, &v, 8))
	require.True(t, v.Allowed)
	store.broken.Store(false)
	require.True(t, allowN(t, lim, 7, home).Banned)
	require.NoError(t, lim.Settle(ctx, &before, 3))
	require.True(t, before.Allowed && before.Banned)
	require.Zero(t, before.Remaining)
	require.Greater(t, before.RetryAfter, 50*time.Minute)
}

// Racing settlements and refunds of a Verdict that was decided here, or mirrored here: one
// has an effect, in the local counter and on what is carried.
func TestASettleOfLocalHitsRaces(t *testing.T) {
	for _, down := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("user", "100/h"))}})
			s.store.broken.Store(down)
			verdicts, errs := make([]limiter.Verdict, 100), [4][100]error{}
			for i := range verdicts {
				verdicts[i] = allowN(t, s.lim, 5, user(strconv.Itoa(i)))
			}
			ticket.SideBySide(len(errs), func(racer int) {
				for i, v := range verdicts {
					if racer == 0 {
						errs[racer][i] = s.lim.Refund(ctx, &v)
					} else {
						errs[racer][i] = s.lim.Settle(ctx, &v, int64(2+2*racer))
					}
				}
			})
			s.store.broken.Store(false)
			time.Sleep(4 * time.Second)
			for i := range verdicts {
				want, won := int64(0), 0
				for racer := range errs {
					if err := errs[racer][i]; err != nil {
						require.ErrorIs(t, err, counter.ErrSettled)
					} else if won++; racer > 0 {
						want = int64(2 + 2*racer)
					}
				}
				require.Equal(t, 1, won)
				require.Equal(t, want, counted(t, s.here, "user:"+strconv.Itoa(i)), "here")
				require.Equal(t, want, counted(t, s.c, "user:"+strconv.Itoa(i)), "in the store")
			}
			require.Zero(t, s.lim.Stats().Pending)
			require.NoError(t, s.lim.Close(ctx))
			v := verdicts[0]
			require.ErrorIs(t, s.lim.Settle(ctx, &v, 3), limiter.ErrClosed)
		})
	}
}

// An excess without room in the local counter is counted in the store, and known as
// missing here.
func TestSettleWithoutRoom(t *testing.T) {
	lim, store, room := withoutRoom(t)
	v := try.To(lim.AllowN(ctx, "signup", 2, user("ada")))(t)
	room.broken.Store(true)
	require.NoError(t, lim.Settle(ctx, &v, 4))
	require.EqualValues(t, 1, v.Remaining)
	require.EqualValues(t, 2, lim.Stats().Unmirrored)
	room.broken.Store(false)
	store.broken.Store(true)
	require.Equal(t, limiter.OutcomeFailedClosed, try.To(lim.Allow(ctx, "signup", user("ada")))(t).Outcome(), "the local counter lacks hits")
}
