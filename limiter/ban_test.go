package limiter_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/limiter"
)

func banned(per time.Duration, r limiter.Rule) limiter.Rule { r.Ban = limiter.Bans{per}; return r }

// Of racing calls beyond the limit one begins the ban. No call during the ban is
// admitted or counted, none prolongs the ban, and after the RetryAfter of any of
// them a call is admitted.
func TestBan(t *testing.T) {
	const racers, length = 20, 15 * time.Minute
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		clock := newClock()
		lim, _ := withClock(t, store, clock, banned(length, by("ip", "2/m")), by("user", "900/h"))
		home, ada := ip("192.0.2.1"), user("ada")
		for before := range int64(2) {
			v := allow(t, lim, home, ada)
			require.Equal(t, []any{true, false, "ip", counter.MustLimits("2/m")[0], 1 - before}, []any{v.Allowed, v.Banned, v.Kind(), v.Limit, v.Remaining})
		}
		peek := func() limiter.Verdict {
			v := peek(t, lim, 1, home, ada)
			return v
		}
		peeked := peek()
		require.False(t, peeked.Allowed || peeked.Banned, "a Peek begins no ban")
		require.Zero(t, limiter.BanHits(t, lim, "signup", "ip:192.0.2.1"))

		verdicts, began := make([]limiter.Verdict, racers), clock.now()
		ticket.SideBySide(len(verdicts), func(i int) {
			var err error
			verdicts[i], err = lim.Allow(ctx, "signup", home, ada)
			assert.NoError(t, err)
		})
		begun := clock.now() // the ban was
		for _, v := range verdicts {
			require.Equal(t, []any{false, true, "ip", limiter.OutcomeBanned}, []any{v.Allowed, v.Banned, v.Kind(), v.Outcome()})
			require.Zero(t, v.Remaining)
			require.LessOrEqual(t, v.RetryAfter, length+time.Second+2*counter.DefaultSkew)
		}
		clock.pass(counter.DefaultSkew + counter.DefaultSettle) // what the racers add and take back is settled
		require.EqualValues(t, 1, limiter.BanHits(t, lim, "signup", "ip:192.0.2.1"))

		earliest, latest := began.Add(length), begun.Add(length+time.Second+2*counter.DefaultSkew) // ends
		var last limiter.Verdict
		elsewhere := int64(0)
		for clock.now().Before(earliest) {
			before := clock.now()
			v := allow(t, lim, home, ada)
			require.Equal(t, []any{false, true, limiter.OutcomeBanned}, []any{v.Allowed, v.Banned, v.Outcome()})
			require.False(t, clock.now().Add(v.RetryAfter).Before(earliest), "%s after the beginning", before.Sub(began))
			require.False(t, before.Add(v.RetryAfter).After(latest), "never prolonged: %s after the beginning", before.Sub(began))
			states := v.All()
			require.Len(t, states, 2, "of the limits alone")
			require.Equal(t, []any{counter.MustLimits("2/m")[0], int64(0), v.RetryAfter}, []any{states[0].Limit, states[0].Remaining, states[0].RetryAfter})
			require.Equal(t, []any{"user:ada", 898 - elsewhere, time.Duration(0)}, []any{states[1].Key.Feature, states[1].Remaining, states[1].RetryAfter})
			peeked := peek()
			require.Equal(t, []any{false, true}, []any{peeked.Allowed, peeked.Banned})
			require.InDelta(t, v.RetryAfter, peeked.RetryAfter, float64(5*time.Second))
			elsewhere++
			require.True(t, allow(t, lim, ip("192.0.2.2"), ada).Allowed, "from elsewhere")
			require.EqualValues(t, 1, limiter.BanHits(t, lim, "signup", "ip:192.0.2.1"))
			last = v
			clock.pass(time.Minute + 7*time.Second)
		}
		clock.pass(last.RetryAfter - time.Minute - 7*time.Second)
		v := allow(t, lim, home, ada)
		require.Equal(t, []any{true, false, int64(1)}, []any{v.Allowed, v.Banned, v.Remaining})
	})
}

// A limit that waits for longer than the ban has the longer wait; a call for more
// than a Max begins no ban; several features of a call are banned each.
func TestBanBesideLimits(t *testing.T) {
	clock := newClock()
	lim, _ := withClock(t, memory.New(memory.Config{}), clock, banned(time.Minute, by("ip", "1/m, 3/h")), banned(time.Hour, by("user", "1/m")))
	home, ada, bob := ip("192.0.2.1"), user("ada"), user("bob")
	v := allowN(t, lim, 2, home, ada)
	require.Equal(t, []any{false, false, counter.Never}, []any{v.Allowed, v.Banned, v.RetryAfter})
	require.True(t, allow(t, lim, home, ada, bob).Allowed)
	v = allow(t, lim, home, ada, bob)
	require.Equal(t, []any{true, "user", limiter.OutcomeBanned}, []any{v.Banned, v.Kind(), v.Outcome()})
	require.InDelta(t, time.Hour, v.RetryAfter, float64(2*time.Second))
	for feature, want := range map[string]int64{"ip:192.0.2.1": 1, "user:ada": 1, "user:bob": 1} {
		require.Equal(t, want, limiter.BanHits(t, lim, "signup", feature), feature)
	}
	for i, state := range v.All() {
		require.InDelta(t, []time.Duration{time.Minute, time.Minute, time.Hour, time.Hour}[i], state.RetryAfter, float64(2*time.Second), state)
	}
	for _, name := range []string{"cyd", "dan"} {
		clock.pass(2 * time.Minute)
		require.True(t, allow(t, lim, home, user(name)).Allowed)
	}
	clock.pass(2 * time.Minute)
	v = allow(t, lim, home, user("eve"))
	require.Equal(t, []any{false, true, "ip", counter.MustLimits("3/h")[0]}, []any{v.Allowed, v.Banned, v.Kind(), v.Limit})
	require.Greater(t, v.RetryAfter, 50*time.Minute)
}

// During a ban a denial is known to the process without a call to the store, and
// when the store fails the policy decides.
func TestBanWhileTheStoreFails(t *testing.T) {
	for policy, want := range map[limiter.OnFailure][]limiter.Outcome{
		limiter.FailClosed: outcomes(limiter.OutcomeFailedClosed, limiter.OutcomeFailedClosed),
		limiter.FailOpen:   outcomes(limiter.OutcomeFailedOpen, limiter.OutcomeFailedOpen),
		limiter.FailLocal:  outcomes(limiter.OutcomeLocalOverLimit, limiter.OutcomeLocalAdmitted),
	} {
		t.Run(policy.String(), func(t *testing.T) {
			store, now := newCountingStore(), time.Unix(1_772_494_233, 0)
			flaky := &flakyStore{Store: store.Store}
			clock := counter.Config{Now: func() time.Time { return now }}
			c := derivingCounter(t, struct{ backend.Atomic }{flaky}, clock)
			clock.Skew = counter.DefaultSkew + limiter.DefaultDecideWithin
			var seen []limiter.Decision
			lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{banned(15*time.Minute, onFailure(policy, by("ip", "1/m")))}, Local: newCounter(t, memory.New(memory.Config{}), clock), Observe: func(d limiter.Decision) { seen = append(seen, d) }})
			defer lim.Close(over)
			home := ip("192.0.2.1")
			require.True(t, allow(t, lim, home).Allowed)
			require.True(t, allow(t, lim, home).Banned)
			now = now.Add(2 * time.Minute)
			require.Equal(t, limiter.OutcomeBanned, allow(t, lim, home).Outcome())
			flaky.broken.Store(true)
			require.Equal(t, limiter.OutcomeBanned, allow(t, lim, home).Outcome(), "known for a second")
			require.Equal(t, []limiter.Outcome{limiter.OutcomeAdmitted, limiter.OutcomeBanned, limiter.OutcomeBanned, limiter.OutcomeBanned},
				[]limiter.Outcome{seen[0].Outcome, seen[1].Outcome, seen[2].Outcome, seen[3].Outcome})
			require.Equal(t, "ip", seen[3].Kind)
			now = now.Add(2 * time.Second)
			v := allow(t, lim, home)
			require.Equal(t, []any{want[0], policy == limiter.FailLocal}, []any{v.Outcome(), v.Banned})
			now = now.Add(15 * time.Minute)
			require.Equal(t, want[1], allow(t, lim, home).Outcome(), "when the ban is over")
		})
	}
}

// lateBans is a store over a network that does not answer calls which begin a ban.
type lateBans struct{ backend.Atomic }

func (s lateBans) Take(ctx context.Context, r *backend.TakeRequest) error {
	if len(r.Keys) == 1 && strings.Contains(string(r.Keys[0].Key), ":ban:") {
		time.Sleep(time.Until(r.Deadline))
		return os.ErrDeadlineExceeded
	}
	return s.Atomic.Take(ctx, r)
}

// A denial stands if only the beginning of its ban is late, or fails.
func TestBanThatIsLate(t *testing.T) {
	for name, rules := range map[string]limiter.OnFailure{"open": limiter.FailOpen, "closed": limiter.FailClosed} {
		for within, takes := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: 2 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				c := derivingCounter(t, lateBans{memory.New(memory.Config{})}, counter.Config{Patience: 2 * time.Second})
				lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{banned(time.Hour, onFailure(rules, by("ip", "1/m")))}, DecideWithin: within})
				home, began := ip("192.0.2.1"), time.Now()
				require.True(t, allow(t, lim, home).Allowed)
				v := allow(t, lim, home)
				require.Equal(t, []any{limiter.OutcomeOverLimit, false, nil, counter.MustLimits("1/m")[0]}, []any{v.Outcome(), v.Banned, v.Degraded, v.Limit}, name)
				require.LessOrEqual(t, time.Since(began), takes)
				synctest.Wait()
			})
		}
	}
}

// A ban holds while the store is away wherever the process knew of the ban: the
// first answer that said so, the answer to a ban by another process, or the local
// counter. What the local counter begins is carried to the store.
func TestBansWithoutTheStore(t *testing.T) {
	const length = 24 * time.Hour
	rule := onFailure(limiter.FailLocal, banned(length, by("user", "3/m")))
	ada := user("ada")
	for _, how := range []string{"begun by the store", "begun by another process", "begun here", "after a denial"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{rule}})
				other := newLimiter(t, newCounter(t, struct{ backend.Atomic }{s.store}, counter.Config{}), limiter.Config{Rules: []limiter.Rule{rule}, Local: localCounter(t)})
				first := s.lim
				if how == "begun by another process" {
					first = other
				}
				s.store.broken.Store(how == "begun here")
				for range 3 {
					require.True(t, allow(t, first, ada).Allowed)
				}
				var v limiter.Verdict
				switch how {
				case "begun by another process":
					require.True(t, allow(t, other, ada).Banned)
					time.Sleep(time.Hour)
					v = allow(t, s.lim, ada)
				case "after a denial": // of a call that can begin no ban
					peeked := peek(t, s.lim, 1, ada)
					require.False(t, peeked.Allowed || peeked.Banned)
					s.store.broken.Store(true)
					v = allow(t, s.lim, ada)
				default:
					v = allow(t, s.lim, ada)
				}
				require.Equal(t, []any{false, true}, []any{v.Allowed, v.Banned})
				ends, least := time.Now().Add(v.RetryAfter), time.Now().Add(v.RetryAfter-5*time.Second)
				s.store.broken.Store(true)
				for time.Now().Before(least.Add(-20 * time.Minute)) {
					time.Sleep(10 * time.Minute)
					for range 2 {
						v = allow(t, s.lim, ada)
						require.Equal(t, []any{false, true, limiter.OutcomeLocalOverLimit}, []any{v.Allowed, v.Banned, v.Outcome()})
						require.WithinDuration(t, ends, time.Now().Add(v.RetryAfter), 10*time.Minute, "a bucket")
						require.Len(t, v.All(), 1)
						require.Equal(t, "user:ada", v.Key.Feature)
					}
					peeked := peek(t, s.lim, 1, ada)
					require.Equal(t, []any{false, true}, []any{peeked.Allowed, peeked.Banned})
				}
				require.True(t, allow(t, s.lim, user("bob")).Allowed)
				s.store.broken.Store(false)
				time.Sleep(5 * time.Second) // for the carry
				require.True(t, allow(t, other, ada).Banned, "elsewhere")
				require.True(t, allow(t, s.lim, ada).Banned)
				require.NoError(t, s.lim.Forget(ctx, "signup", ada))
				s.store.broken.Store(true)
				require.True(t, allow(t, s.lim, ada).Allowed, "forgotten here, too")
				_, _ = s.lim.Close(over), other.Close(over)
			})
		})
	}
}

// A call that only the Share of a Max denies begins no ban.
func TestNoBanByShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, banned(24*time.Hour, by("user", "4/m")))}, Share: 0.5})
		s.store.broken.Store(true)
		for _, want := range []bool{true, true, false, false} {
			v := allow(t, s.lim, user("ada"))
			require.Equal(t, []any{want, false}, []any{v.Allowed, v.Banned})
		}
		_ = s.lim.Close(over)
	})
}
