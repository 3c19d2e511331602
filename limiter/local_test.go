package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// localCounter is a local counter for counters over a network with default
// Config.
func localCounter(t testing.TB) *counter.Counter {
	return newCounter(t, memory.New(memory.Config{}), counter.Config{Skew: counter.DefaultSkew + limiter.DefaultDecideWithin})
}

// A local counter must fit the counter on the store.
func TestNewChecksLocal(t *testing.T) {
	far := newCounter(t, newFarStore(0), counter.Config{})
	local := onFailure(limiter.FailLocal, by("ip", "5/h"))
	good := localCounter(t)
	for want, cfg := range map[string]limiter.Config{
		`limiter: rule "signup" by "ip": Config.Rules[0].OnFailure is FailLocal, but Config.Local is nil, want a counter in this process, on a memory.Store of its own`:                         {},
		`limiter: rule "signup" by "ip": Config.Rules[0].OnFailure is FailOpen and Config.MaxInFlight is 3, but Config.Local is nil, want a counter in this process for calls that get no turn`: {MaxInFlight: 3, Rules: []limiter.Rule{onFailure(limiter.FailOpen, by("ip", "5/h"))}},
		`limiter: Config.Local counts on a store over a network, want a store in this process, such as memory.New(memory.Config{})`:                                                             {Local: far},
		`limiter: Config.Local counts on a store that removes hits when it is full, or does not say, want a store that fails then, such as memory.New(memory.Config{Full: memory.Refuse})`:      {Local: newCounter(t, memory.New(memory.Config{Full: memory.EvictOldest}), counter.Config{Skew: time.Second})},
		`limiter: Config.Local has a Skew of 1s, want 1.1s, the Skew of the counter (100ms) and DecideWithin (1s), or more`:                                                                     {Local: newCounter(t, memory.New(memory.Config{}), counter.Config{Skew: time.Second})},
		`limiter: Config.Share is 1.5, want above 0 and at most 1, or 0 for 1`:                                                                                                                  {Local: good, Share: 1.5},
		`limiter: Config.Share is -0.5, want above 0 and at most 1, or 0 for 1`:                                                                                                                 {Local: good, Share: -0.5},
		`limiter: Config.MaxInFlight is -1, want 1 or more, or 0 for no bound`:                                                                                                                  {Local: good, MaxInFlight: -1},
	} {
		if cfg.Rules == nil {
			cfg.Rules = []limiter.Rule{local}
		}
		require.EqualError(t, try.Err(limiter.New(far, cfg)), want)
	}
	wrapped := backend.Wrap(memory.New(memory.Config{}), func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error { return do(ctx) })
	for _, here := range []*counter.Counter{good, newCounter(t, wrapped, counter.Config{Skew: 2 * time.Second})} {
		lim := newLimiter(t, far, limiter.Config{Rules: []limiter.Rule{local}, Local: here})
		require.NoError(t, lim.Close(ctx))
	}
}

// stage is a limiter with local counting on a store that can fail.
type localStage struct {
	store *flakyStore
	c     *counter.Counter
	here  *counter.Counter
	lim   *limiter.Limiter
}

func newLocalStage(t testing.TB, cfg limiter.Config) *localStage {
	s := &localStage{store: &flakyStore{Store: memory.New(memory.Config{})}, here: localCounter(t)}
	s.c = newCounter(t, struct{ backend.Atomic }{s.store}, counter.Config{})
	cfg.Local = s.here
	s.lim = newLimiter(t, s.c, cfg)
	return s
}

// The strictest policy of the rules decides, and Share bounds the local
// decisions.
func TestLocalPolicy(t *testing.T) {
	local := func(kind, limits string) limiter.Rule { return onFailure(limiter.FailLocal, by(kind, limits)) }
	home, ada := ip("192.0.2.1"), user("ada")
	for _, row := range []struct {
		name  string
		rules []limiter.Rule
		share float64
		want  []limiter.Outcome
	}{
		{"local", []limiter.Rule{local("ip", "2/h")}, 0, outcomes(7, 7, 6)},
		{"a share", []limiter.Rule{local("ip", "5/h")}, 0.5, outcomes(7, 7, 7, 6)},
		{"a share that floating point puts above", []limiter.Rule{local("ip", "100/h")}, 0.07, outcomes(7, 7, 7, 7, 7, 7, 7, 6)},
		{"the strictest limit", []limiter.Rule{local("ip", "9/h"), local("user", "2/h, 1/m")}, 0, outcomes(7, 6)},
		{"local before open", []limiter.Rule{onFailure(limiter.FailOpen, by("ip", "1/h")), local("user", "2/h")}, 0, outcomes(7, 6)},
		{"closed before local", []limiter.Rule{local("ip", "2/h"), by("user", "2/h")}, 0, outcomes(2, 2)},
		{"closed, but skipped", []limiter.Rule{local("ip", "1/h"), ifMissing(limiter.MissingSkip, by("email", "2/h"))}, 0, outcomes(7, 6)},
		{"no room at all", []limiter.Rule{local("ip", "0/h")}, 0, outcomes(0)}, // the Counter knows without asking
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newLocalStage(t, limiter.Config{Rules: row.rules, Share: row.share})
			s.store.broken.Store(true)
			for i, want := range row.want {
				require.Equal(t, want, peek(t, s.lim, 1, home, ada).Outcome(), "peek %d", i)
				v := allow(t, s.lim, home, ada)
				require.Equal(t, want, v.Outcome(), i)
				switch want {
				case limiter.OutcomeLocalAdmitted:
					require.ErrorIs(t, v.Degraded, errBroken)
					require.False(t, v.At().IsZero())
				case limiter.OutcomeLocalOverLimit:
					require.ErrorIs(t, v.Degraded, counter.ErrStore)
					require.Greater(t, v.RetryAfter, 50*time.Second, "the local counter's")
					require.LessOrEqual(t, v.RetryAfter, time.Hour+2*time.Second+2*(counter.DefaultSkew+limiter.DefaultDecideWithin))
				}
			}
			_ = s.lim.Close(over)
		})
	}
}

func outcomes(all ...limiter.Outcome) []limiter.Outcome { return all }

// More than the share, and not more than Max, may be admitted when the store is
// back: the RetryAfter is bounded.
func TestMoreThanTheShare(t *testing.T) {
	s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "10/h"))}, Share: 0.25})
	defer s.lim.Close(over)
	s.store.broken.Store(true)
	v := allowN(t, s.lim, 4, ip("192.0.2.1"))
	require.Equal(t, limiter.OutcomeLocalOverLimit, v.Outcome())
	requireRetry(t, v, "4 of 3")
	v = allowN(t, s.lim, 11, ip("192.0.2.1"))
	require.Equal(t, counter.Never, v.RetryAfter)
	v = allowN(t, s.lim, 2, ip("192.0.2.1"))
	require.Equal(t, counter.MustLimits("10/h")[0], v.Limit, "the rule's")
	require.EqualValues(t, 1, v.Remaining, "of the share")
}

// Thirty seconds without a store: what was let through is in the store
// afterwards, in the seconds in which it happened, and a Peek denies at once.
func TestCarryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "20/h"))}})
		home := ip("192.0.2.1")
		for range 5 {
			allow(t, s.lim, home)
		}
		s.store.broken.Store(true)
		time.Sleep(10 * time.Second)
		began := time.Now()
		admitted := map[int64]int64{}
		for range 30 {
			v := allow(t, s.lim, home)
			if v.Allowed {
				admitted[v.At().Unix()]++
			}
			time.Sleep(time.Second)
		}
		require.Len(t, admitted, 15)
		require.EqualValues(t, 15, s.lim.Stats().Pending)
		s.store.broken.Store(false)
		require.False(t, peek(t, s.lim, 1, home).Allowed, "before anything is carried")
		other := newLimiter(t, s.c, limiter.Config{Rules: []limiter.Rule{by("ip", "20/h")}})
		time.Sleep(4 * time.Second)
		require.Equal(t, limiter.OutcomeOverLimit, peek(t, other, 1, home).Outcome(), "another process")
		require.EqualValues(t, 20, counted(t, s.c, "ip:192.0.2.1"))
		points := try.To(s.c.Series(ctx, key("ip:192.0.2.1"), began, began.Add(30*time.Second), time.Second))(t)
		for _, p := range points {
			require.Equal(t, admitted[p.Start.Unix()], p.Count, p.Start)
		}
		require.Equal(t, limiter.Stats{LocalAdmitted: 15, LocalDenied: 15, Carried: 15}, s.lim.Stats())

		s.store.broken.Store(true)
		require.Equal(t, limiter.OutcomeLocalOverLimit, allow(t, s.lim, home).Outcome(), "the local counter is not emptied")
		synctest.Wait()
		s.store.broken.Store(false)
		time.Sleep(time.Hour)
		require.Equal(t, limiter.OutcomeAdmitted, allow(t, s.lim, home).Outcome())
		require.NoError(t, s.lim.Close(ctx))
		require.NoError(t, s.lim.Close(ctx))
		require.ErrorIs(t, try.Err(s.lim.Allow(ctx, "signup", home)), limiter.ErrClosed)
	})
}

// A key with pending hits is judged with them, and the numbers are the rule's.
func TestPendingHitsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stuckStore{flakyStore: flakyStore{Store: memory.New(memory.Config{})}}
		c := newCounter(t, struct{ backend.Atomic }{store}, counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "4/h, 9/d"))}, Local: localCounter(t)})
		home := ip("192.0.2.1")
		store.broken.Store(true)
		store.stuck = true
		for range 2 {
			require.Equal(t, limiter.OutcomeLocalAdmitted, allow(t, lim, home).Outcome())
		}
		store.broken.Store(false)
		v := allow(t, lim, home)
		require.Equal(t, []any{limiter.OutcomeAdmitted, "4/h"}, []any{v.Outcome(), v.Limit.String()})
		require.Equal(t, []int64{1, 6}, []int64{v.Remaining, v.All()[1].Remaining})
		require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, home).Outcome())
		require.False(t, allow(t, lim, home).Allowed)
		require.Equal(t, []int64{2, 2}, []int64{counted(t, c, "ip:192.0.2.1"), lim.Stats().Pending})
		time.Sleep(time.Hour + counter.DefaultSkew/2)
		require.False(t, allow(t, lim, home).Allowed, "a clock behind still has the hits in its window")
		require.ErrorContains(t, lim.Close(over), "limiter: Close: 2 hits that were admitted locally are not known to be in the store")
	})
}

// stuckStore takes no carry.
type stuckStore struct {
	flakyStore
	stuck bool
}

func (s *stuckStore) Do(ctx context.Context, r *backend.Request) error {
	if s.stuck && len(r.Add) > 0 {
		return errBroken
	}
	return s.flakyStore.Do(ctx, r)
}

// Refunds take back from the local counter, from the pending hits, and from the
// store what was carried.
func TestRefundOfLocalHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "3/h"))}})
		home := ip("192.0.2.1")
		for range 20 { // log-ins that succeed
			v := allow(t, s.lim, home)
			require.Equal(t, limiter.OutcomeAdmitted, v.Outcome())
			require.NoError(t, s.lim.Refund(ctx, &v))
		}
		require.Zero(t, counted(t, s.here, "ip:192.0.2.1"), "the mirror")
		s.store.broken.Store(true)
		for range 20 {
			v := allow(t, s.lim, home)
			require.Equal(t, limiter.OutcomeLocalAdmitted, v.Outcome())
			same := v
			require.NoError(t, s.lim.Refund(ctx, &v))
			require.Equal(t, limiter.Verdict{}, v)
			require.NoError(t, s.lim.Refund(ctx, &same), "a copy")
		}
		synctest.Wait() // for a carry that was under way
		require.Zero(t, s.lim.Stats().Pending)
		first, second := allow(t, s.lim, home), allow(t, s.lim, home)
		require.NoError(t, s.lim.Refund(ctx, &first))
		synctest.Wait()
		require.EqualValues(t, 1, s.lim.Stats().Pending)
		s.store.broken.Store(false)
		time.Sleep(4 * time.Second)
		require.EqualValues(t, 1, counted(t, s.c, "ip:192.0.2.1"))
		require.NoError(t, s.lim.Refund(ctx, &second))
		require.Zero(t, counted(t, s.c, "ip:192.0.2.1"), "carried, and given back")
		require.NoError(t, s.lim.Close(ctx))
	})
}

// Hits that are refunded while they are carried are given back after that.
func TestRefundDuringACarry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &thenStore{}
		flaky := &flakyStore{Store: memory.New(memory.Config{})}
		store.Atomic = flaky
		c := newCounter(t, store, counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "3/h"))}, Local: localCounter(t)})
		flaky.broken.Store(true)
		v := allow(t, lim, ip("192.0.2.1"))
		store.added = func() { require.NoError(t, lim.Refund(ctx, &v)) }
		flaky.broken.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, limiter.Verdict{}, v)
		require.Zero(t, counted(t, c, "ip:192.0.2.1"))
		require.NoError(t, lim.Close(ctx))
	})
}

// A denial that the store gave holds until its RetryAfter while the store fails,
// also where this process has admitted nothing, and only for as many hits.
func TestKnownDenialsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "10/h"))}})
		defer s.lim.Close(over)
		home, away := ip("192.0.2.1"), ip("192.0.2.2")
		require.NoError(t, s.c.Add(ctx, key("ip:192.0.2.1"), 10), "by another process")
		require.NoError(t, s.c.Add(ctx, key("ip:192.0.2.2"), 7), "by another process")
		v := allow(t, s.lim, home)
		require.Equal(t, limiter.OutcomeOverLimit, v.Outcome())
		retry := v.RetryAfter
		require.Equal(t, limiter.OutcomeOverLimit, allowN(t, s.lim, 5, away).Outcome())
		s.store.broken.Store(true)
		time.Sleep(30 * time.Minute)
		v = allow(t, s.lim, home)
		require.Equal(t, limiter.OutcomeLocalOverLimit, v.Outcome())
		require.ErrorIs(t, v.Degraded, errBroken)
		require.Equal(t, retry-30*time.Minute, v.RetryAfter)
		require.Equal(t, limiter.OutcomeLocalAdmitted, allow(t, s.lim, away).Outcome(), "a denied n of 5 says nothing of 1")
		require.Equal(t, limiter.OutcomeLocalOverLimit, allowN(t, s.lim, 6, away).Outcome())
		time.Sleep(31 * time.Minute)
		require.Equal(t, limiter.OutcomeLocalAdmitted, allow(t, s.lim, home).Outcome())
	})
}

// A local counter that is full denies, and denies the keys whose hits it could
// not mirror until these have left their windows.
func TestLocalCounterThatIsFull(t *testing.T) {
	store := &flakyStore{Store: memory.New(memory.Config{})}
	c := newCounter(t, struct{ backend.Atomic }{store}, counter.Config{})
	small := memory.New(memory.Config{MaxBuckets: 200})
	here := newCounter(t, small, counter.Config{Skew: counter.DefaultSkew + limiter.DefaultDecideWithin})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("user", "2/h"))}, Local: here})
	defer lim.Close(over)
	for i := range 50 {
		require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, user(fmt.Sprint(i))).Outcome(), "the store has room")
	}
	require.Positive(t, small.Stats().Refused)
	store.broken.Store(true)
	v := allow(t, lim, user("0"))
	require.Equal(t, limiter.OutcomeLocalAdmitted, v.Outcome(), "a key that was there before")
	for _, name := range []string{"49", "fresh"} {
		v = allow(t, lim, user(name))
		require.Equal(t, limiter.OutcomeFailedClosed, v.Outcome(), name)
		require.ErrorContains(t, v.Degraded, "; Config.Local: ", name)
		requireRetry(t, v, name)
	}
	require.NoError(t, here.Forget(ctx, key("user:0")))
	v = allow(t, lim, user("49"))
	require.Equal(t, limiter.OutcomeFailedClosed, v.Outcome(), "there is room now, but a hit is missing")
	require.ErrorContains(t, v.Degraded, "the local counter lacks hits of the key, since it was full")
	store.broken.Store(false)
	require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, user("49")).Outcome())
	store.broken.Store(true)
	require.Equal(t, limiter.OutcomeFailedClosed, allow(t, lim, user("49")).Outcome(), "one of two hits would not do")
}

// The store admits late: the caller was decided locally meanwhile, and its hit is
// counted once.
func TestLateAnswersUnderLocalRules(t *testing.T) {
	for callers, slow := range map[int]time.Duration{8: 300 * time.Millisecond, 40: 30 * time.Millisecond, 60: 300 * time.Millisecond} {
		most := min(10, callers/2)
		synctest.Test(t, func(t *testing.T) {
			store := newFarStore(slow)
			store.deaf = true
			c := farCounter(t, store)
			lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", fmt.Sprint(most, "/h")))}, Local: localCounter(t), DecideWithin: 10 * time.Millisecond})
			got := together(callers, func(i int) limiter.Verdict {
				time.Sleep(time.Duration(i%4) * 5 * time.Millisecond)
				began := time.Now()
				v := allow(t, lim, ip("192.0.2.1"))
				require.LessOrEqual(t, time.Since(began), 10*time.Millisecond)
				return v
			})
			require.Equal(t, most, got[limiter.OutcomeLocalAdmitted]+got[limiter.OutcomeAdmitted], got)
			if callers <= 8 { // more would wait in the counter's queue, and have ended
				require.Zero(t, lim.Stats().Carried, "calls are under way")
			}
			time.Sleep(10 * time.Second)
			require.EqualValues(t, most, counted(t, c, "ip:192.0.2.1"))
			require.EqualValues(t, most, lim.Stats().Carried)
			// No goroutine is left, else the bubble would not end: with nothing to
			// carry there is nothing to close.
		})
	}
}

// An answer in time that does not know what was let through meanwhile is judged
// once more: the store admits three of four, and of a share of two the first hit
// was admitted here, since its answer was late.
func TestSupersededAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFarStore(8 * time.Millisecond)
		c := farCounter(t, store)
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "4/h"))}, Local: localCounter(t), Share: 0.5, DecideWithin: 10 * time.Millisecond})
		store.deaf = true
		home := ip("192.0.2.1")
		got := together(3, func(i int) limiter.Verdict {
			time.Sleep([]time.Duration{0, 5 * time.Millisecond, 6 * time.Millisecond}[i])
			store.slow.Store(int64([]time.Duration{time.Second, 8 * time.Millisecond, 8 * time.Millisecond}[i]))
			return allow(t, lim, home)
		})
		require.Equal(t, map[limiter.Outcome]int{limiter.OutcomeLocalAdmitted: 1, limiter.OutcomeAdmitted: 1, limiter.OutcomeLocalOverLimit: 1}, got)
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 2, counted(t, c, "ip:192.0.2.1"))
		require.NoError(t, lim.Close(ctx))
	})
}

// Calls beyond MaxInFlight wait for a turn within their own time; then open rules
// count locally, and known denials take no turn.
func TestMaxInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFarStore(30 * time.Millisecond)
		store.deaf = true
		c := farCounter(t, store)
		lim := newLimiter(t, c, limiter.Config{
			Rules: []limiter.Rule{onFailure(limiter.FailOpen, by("ip", "4/h")), {Event: "mail", Kind: "ip", Limits: counter.MustLimits("4/h")}},
			Local: localCounter(t), DecideWithin: 50 * time.Millisecond, MaxInFlight: 1,
		})
		home := ip("192.0.2.1")
		// The first has its turn at once, the second after 30 ms and has its answer
		// too late, and the others get none in time.
		got := together(9, func(int) limiter.Verdict {
			began := time.Now()
			v := allow(t, lim, home)
			require.LessOrEqual(t, time.Since(began), 50*time.Millisecond)
			return v
		})
		require.Equal(t, map[limiter.Outcome]int{limiter.OutcomeAdmitted: 1, limiter.OutcomeFailedOpen: 1, limiter.OutcomeLocalAdmitted: 3, limiter.OutcomeLocalOverLimit: 4}, got)
		stats := lim.Stats()
		require.EqualValues(t, 3, stats.Pending+stats.Carried)
		stats.Pending, stats.Additions, stats.Carried = 0, 0, 0
		require.Equal(t, limiter.Stats{LocalAdmitted: 3, LocalDenied: 4, Waited: 1, Shed: 7}, stats)
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 5, counted(t, c, "ip:192.0.2.1"), "1 and 1 and 3")
		require.Equal(t, limiter.OutcomeOverLimit, allow(t, lim, home).Outcome())
		turn, cancel := context.WithCancel(ctx)
		go func() { _, _ = lim.Allow(ctx, "mail", home) }()
		synctest.Wait()
		began := time.Now()
		require.Equal(t, limiter.OutcomeOverLimit, allow(t, lim, home).Outcome())
		require.Zero(t, time.Since(began), "known, without a turn")
		time.AfterFunc(time.Millisecond, cancel)
		require.ErrorIs(t, try.Err(lim.Allow(turn, "mail", ip("192.0.2.2"))), context.Canceled)
		require.NoError(t, lim.Close(ctx))
	})
}
