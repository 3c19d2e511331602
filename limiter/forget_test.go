package limiter_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// Support lets a customer in again, however the address is typed, and nobody
// else.
func TestForget(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		c := newCounter(t, store, counter.Config{Patience: patience})
		lim := newLimiter(t, c, limiter.Config{DecideWithin: patience, Rules: []limiter.Rule{
			ifMissing(limiter.MissingSkip, by("ip", "9/h")), ifMissing(limiter.MissingSkip, by("email", "2/h, 1000/d")),
		}})
		for range 2 {
			require.True(t, allow(t, lim, ip("2001:db8::1"), feature.Email("ada@example.org")).Allowed)
			require.True(t, allow(t, lim, feature.Email("bob@example.org")).Allowed)
		}
		require.False(t, allow(t, lim, ip("2001:db8::2"), feature.Email("ada@example.org")).Allowed)
		require.False(t, allow(t, lim, feature.Email("ada@example.org")).Allowed, "a known denial")

		require.NoError(t, lim.Forget(ctx, "signup", feature.Email(" Ada@Example.ORG"), user("7"), feature.Email("")))
		require.EqualValues(t, 2, counted(t, c, "ip:2001:db8::/64"))
		require.EqualValues(t, 2, counted(t, c, "email:bob@example.org"))
		require.Zero(t, counted(t, c, "email:ada@example.org"))
		require.True(t, allow(t, lim, ip("2001:db8::2"), feature.Email("ada@example.org")).Allowed)
		require.False(t, allow(t, lim, feature.Email("bob@example.org")).Allowed)

		require.NoError(t, lim.Forget(ctx, "signup", ip("2001:db8::ffff"), feature.Email("bob@example.org")))
		require.Zero(t, counted(t, c, "ip:2001:db8::/64"))
		require.True(t, allow(t, lim, feature.Email("bob@example.org")).Allowed)
	})
}

// Afterwards the store has nothing with the text of the feature, and keeps what
// it counts of others.
func TestErase(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, in stored) {
		c := newCounter(t, store, counter.Config{Patience: patience})
		mail := limiter.Rule{Event: "mail", Kind: "email", Limits: counter.MustLimits("9/d")}
		lim := newLimiter(t, c, limiter.Config{DecideWithin: patience, Rules: []limiter.Rule{by("email", "2/h"), mail}})
		ada, bob := feature.Email("ada@example.org"), feature.Email("bob@example.org")
		var verdicts []limiter.Verdict
		for _, event := range []string{"signup", "mail"} {
			for range 4 {
				v := try.To(lim.Allow(ctx, event, ada))(t)
				verdicts = append(verdicts, v)
				try.To(lim.Allow(ctx, event, bob))(t)
			}
		}
		require.False(t, verdicts[3].Allowed)
		require.NoError(t, lim.Refund(ctx, &verdicts[0]))
		require.NoError(t, lim.Forget(ctx, "mail", ada))
		require.NoError(t, c.AddAt(ctx, counter.Key{Event: "mail", Feature: "email:ada@example.org"}, 1, time.Now().Add(-20*time.Hour)))
		require.True(t, in.holds("ada@"))
		require.NoError(t, lim.Erase(ctx, feature.Email("ADA@example.org")))
		require.False(t, in.holds("ada@"))
		require.True(t, in.holds("bob@"))
		require.EqualValues(t, 2, counted(t, c, "email:bob@example.org"))
		require.NoError(t, lim.Refund(ctx, &verdicts[1]))
		require.False(t, in.holds("ada@"))
		require.True(t, allow(t, lim, ada).Allowed)
	})
}

// An Erase leaves nothing of the bans whose length a Replace has changed.
func TestEraseAfterAChangedBan(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, in stored) {
		banning := func(ban time.Duration) limiter.Rule {
			rule := by("email", "1/h")
			if ban > 0 {
				rule.Ban = limiter.Bans{ban}
			}
			return rule
		}
		lim := newLimiter(t, newCounter(t, store, counter.Config{Patience: patience}), limiter.Config{
			Rules:        []limiter.Rule{banning(24 * time.Hour)},
			DecideWithin: -1, // a call without an answer begins no ban, and may be under way during the Erase
		})
		ada := feature.Email("ada@example.org")
		var others []limiter.Rule
		for _, ban := range []time.Duration{24 * time.Hour, 48 * time.Hour, 0} {
			other := banning(0)
			other.Event = fmt.Sprint("new with ", ban)
			require.NoError(t, lim.Replace(append(others, banning(ban), other)...))
			others = append(others, other)
			for range 2 {
				allow(t, lim, ada)
			}
		}
		require.True(t, in.holds(":ban:"))
		require.NoError(t, lim.Erase(ctx, ada))
		require.False(t, in.holds("ada@"))
	})
}

// A Forget lifts a ban, and an Erase removes it. Until then Usage tells it.
func TestForgetLiftsABan(t *testing.T) {
	for _, empty := range []func(*limiter.Limiter, feature.Feature) error{
		func(l *limiter.Limiter, f feature.Feature) error { return l.Forget(ctx, "signup", f) },
		func(l *limiter.Limiter, f feature.Feature) error { return l.Erase(ctx, f) },
	} {
		rule := banned(time.Hour, by("user", "1/m"))
		rule.Else, rule.ElseLimits = "ip", counter.MustLimits("1/m")
		lim := onMemory(t, rule)
		for _, feature := range featuresOf(user("7"), ip("192.0.2.1")) {
			require.True(t, allow(t, lim, feature).Allowed)
			require.True(t, allow(t, lim, feature).Banned)
			usage := usageOf(t, lim, feature)
			require.InDelta(t, time.Hour, usage[0].Banned, float64(5*time.Minute))
			require.NoError(t, empty(lim, feature))
			usage = usageOf(t, lim, feature)
			require.Zero(t, usage[0].Banned)
			v := allow(t, lim, feature)
			require.Equal(t, []bool{true, false}, []bool{v.Allowed, v.Banned})
		}
	}
}

// A Forget lifts a ban that waits to be carried, also after the rule has left
// FailLocal.
func TestForgetLiftsABanOfAFormerPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := onFailure(limiter.FailLocal, banned(24*time.Hour, by("user", "1/h")))
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{rule}})
		defer s.lim.Close(over)
		s.store.broken.Store(true)
		require.True(t, allow(t, s.lim, user("ada")).Allowed)
		require.True(t, allow(t, s.lim, user("ada")).Banned)
		rule.OnFailure = limiter.FailClosed
		require.NoError(t, s.lim.Replace(rule))
		require.NoError(t, s.lim.Replace(rule))
		time.Sleep(30 * time.Second) // the next try is some time ahead
		s.store.broken.Store(false)
		require.NoError(t, s.lim.Forget(ctx, "signup", user("ada")))
		require.Zero(t, s.lim.Stats().Pending)
		time.Sleep(10 * time.Second)
		require.True(t, allow(t, s.lim, user("ada")).Allowed)
	})
}

// A wrong name is an error before anything happens, and names what there is.
func TestForgetErrors(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "2/h"), by("email", "2/h")}})
	require.True(t, allow(t, lim, ip("192.0.2.1"), feature.Email("ada@example.org")).Allowed)
	ada := feature.Email("ada@example.org")
	for want, err := range map[string]error{
		`limiter: event "sign-up" has no rules; there are rules for "signup"`:                                        lim.Forget(ctx, "sign-up", ada),
		`limiter: event "signup": none of 2 features is a feature of "ip" and "email", by which the event has rules`: lim.Forget(ctx, "signup", user("7"), feature.Email("")),
		`limiter: event "signup": none of 0 features is a feature of "ip" and "email", by which the event has rules`: lim.Forget(ctx, "signup"),
		`limiter: feature "email" is not an e-mail address, want local-part@domain, event "signup"`:                  lim.Forget(ctx, "signup", ip("192.0.2.1"), feature.Email("ada")),
		`limiter: feature "email" is not an e-mail address, want local-part@domain`:                                  lim.Erase(ctx, ada, feature.Email("ada")),
		`limiter: Erase: no event has rules by "user", want a feature of "email" and "ip"`:                           lim.Erase(ctx, ada, user("7")),
		`limiter: Erase: feature "email" is missing`:                                                                 lim.Erase(ctx, ip("192.0.2.1"), feature.Email("")),
		`limiter: Erase: no features, want at least one`:                                                             lim.Erase(ctx),
	} {
		require.EqualError(t, err, want)
	}
	require.EqualValues(t, 1, counted(t, c, "email:ada@example.org"))
	require.Error(t, try.Err(lim.Usage(ctx, "signup", user("7"))))
	require.Error(t, try.Err(lim.Usage(ctx, "sign-up", ada)))
}

// forgetfulStore is a flakyStore over a network that can forget, and that holds
// back additions while it has a gate.
type forgetfulStore struct {
	backend.Atomic
	store *flakyStore
	gate  atomic.Pointer[chan struct{}]
	held  chan struct{} // an addition is held back

	erased atomic.Bool // by the last Forget
}

func (s *forgetfulStore) Do(ctx context.Context, r *backend.Request) error {
	if gate := s.gate.Load(); gate != nil && r.N > 0 {
		s.held <- struct{}{}
		<-*gate
	}
	return s.Atomic.Do(ctx, r)
}

func (s *forgetfulStore) Forget(ctx context.Context, r *backend.ForgetRequest) error {
	if s.store.broken.Load() {
		return errBroken
	}
	s.erased.Store(r.Erase)
	return s.store.Store.Forget(ctx, r)
}

func (s *forgetfulStore) Forgotten(ctx context.Context, r *backend.ForgetRequest) (int64, error) {
	return s.store.Store.Forgotten(ctx, r)
}

// The local counter, its hits that wait to be carried, and a carry under way
// forget as well, and nothing is carried after a Forget.
func TestForgetWhileTheStoreFails(t *testing.T) {
	for _, erase := range []bool{false, true} {
		t.Run(fmt.Sprint("erase ", erase), func(t *testing.T) {
			store := &forgetfulStore{store: &flakyStore{Store: memory.New(memory.Config{})}, held: make(chan struct{}, 9)}
			store.Atomic = store.store
			c, here := newCounter(t, store, counter.Config{Patience: patience}), localCounter(t)
			lim := newLimiter(t, c, limiter.Config{Local: here, Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("user", "3/h"))}})
			defer lim.Close(over)
			ada := user("ada")
			forget := func() error { return lim.Forget(ctx, "signup", ada) }
			if erase {
				forget = func() error { return lim.Erase(ctx, ada) }
			}
			fill := func() {
				store.store.broken.Store(true)
				for _, want := range outcomes(7, 7, 7, 6) {
					require.Equal(t, want, allow(t, lim, ada).Outcome())
				}
				require.EqualValues(t, 3, lim.Stats().Pending)
			}
			fill()
			require.ErrorIs(t, forget(), counter.ErrStore, "the store has not forgotten")
			require.Zero(t, lim.Stats().Pending)
			require.Eventually(t, func() bool { return lim.Stats().Additions == 0 }, patience, time.Millisecond)
			require.Zero(t, counted(t, here, "user:ada"))

			fill()
			gate := make(chan struct{})
			open := sync.OnceFunc(func() { store.gate.Store(nil); close(gate) })
			defer open() // before Close, which waits for the carry
			store.gate.Store(&gate)
			store.store.broken.Store(false)
			<-store.held
			done := make(chan error, 1)
			go func() { done <- forget() }()
			select {
			case <-done:
				require.Fail(t, "a carry is under way, and would add its hits after the Forget")
			case <-time.After(50 * time.Millisecond):
			}
			open()
			require.NoError(t, <-done)
			require.Equal(t, erase, store.erased.Load())
			require.Zero(t, lim.Stats().Additions)
			require.Zero(t, counted(t, c, "user:ada"))
			require.Zero(t, counted(t, here, "user:ada"))
			require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, ada).Outcome())
		})
	}
}

// Usage tells the counts, the room and the course of a day, and counts nothing.
func TestUsage(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		c := newCounter(t, store, counter.Config{Patience: patience})
		lim := newLimiter(t, c, limiter.Config{DecideWithin: patience, Rules: []limiter.Rule{by("ip", "9/h"), by("email", "2/h, 10/d")}})
		ada := feature.Email("ada@example.org")
		require.NoError(t, c.AddAt(ctx, key("email:ada@example.org"), 4, time.Now().Add(-5*time.Hour)))
		for i := range 3 {
			require.Equal(t, i < 2, allow(t, lim, ip("192.0.2.1"), ada).Allowed)
		}
		for range 2 {
			usage := usageOf(t, lim, ada, feature.Email("Ada@example.org"), ip("192.0.2.1"))
			require.Len(t, usage, 2)
			require.Equal(t, "ip", usage[0].Kind)
			u := usage[1]
			retry := u.Limits[0].RetryAfter
			require.Greater(t, retry, 59*time.Minute)
			var total int64
			for _, p := range u.Series {
				total += p.Count
			}
			require.EqualValues(t, 6, total)
			require.Len(t, u.Series, 24)
			require.Positive(t, u.Series[23].Count+u.Series[22].Count)
			u.Series = nil
			limits, six := counter.MustLimits("2/h, 10/d"), counter.Count{Low: 6, High: 6}
			require.Equal(t, limiter.Usage{
				Key: key("email:ada@example.org"), Kind: "email", Window: 24 * time.Hour, Width: time.Hour, Total: six,
				Limits: []limiter.LimitUsage{{limits[0], counter.Count{Low: 2, High: 2}, 0, retry}, {limits[1], six, 4, 0}},
			}, u)
		}
	})
}

// Every ladder gives at most 100 points, which end now.
func TestUsageOnAnyLadder(t *testing.T) {
	for _, row := range []struct {
		ladder, limits string
		width          time.Duration
		points         int
	}{
		{"1s:1d", "1/d", 864 * time.Second, 100},
		{"1s:30d", "1/30d", 999 * time.Second, 100},
		{"1s:1m, 10s:3m, 1m:3m", "1/m", 10 * time.Second, 18},
		{"1s:1h, 1h:7d", "1/7d", 2 * time.Hour, 84},
		{"1h:1h", "1/h", time.Hour, 1},
	} {
		ladder := try.To(tiers.Parse(row.ladder))(t)
		now := time.Date(2026, 3, 2, 12, 30, 30, 0, time.UTC)
		c := newCounter(t, memory.New(memory.Config{}), counter.Config{Ladder: ladder, Now: func() time.Time { return now }})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("user", row.limits)}})
		require.True(t, allow(t, lim, user("7")).Allowed)
		usage := usageOf(t, lim, user("7"))
		u := usage[0]
		last := u.Series[len(u.Series)-1]
		require.Equal(t, []any{row.width, row.points, int64(1)}, []any{u.Width, len(u.Series), last.Count}, row.ladder)
		require.True(t, !last.Start.After(now) && last.Start.Add(u.Width).After(now), row.ladder)
	}
}
