package counter_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Each key of a call has its own hits and its own ladder.
func TestEachKeyHasItsOwnHitsAndLadder(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			short, err := c.With(tiers.For(time.Minute), nil)
			require.NoError(t, err)
			tenant := counter.Key{Event: "mail", Feature: "tenant:7"}
			asks := []counter.Ask{
				{Key: signup, N: 1, Limits: limits("5/m"), On: short},
				{Key: tenant, N: 3, Limits: limits("7/d")},
			}
			var verdicts []counter.Verdict
			for _, allowed := range []bool{true, true, false} {
				v, err := c.TakeAll(ctx, asks...)
				require.NoError(t, err)
				require.Equal(t, allowed, v.Allowed)
				verdicts = append(verdicts, v)
			}
			require.Equal(t, tenant, verdicts[2].Key)
			requireCount(t, short, signup, time.Minute, 2)
			requireCount(t, c, tenant, time.Hour, 6)
			requireCount(t, c, signup, time.Hour, 0)

			// Each key gets back its own hits, by any of the Counters.
			require.NoError(t, short.Refund(ctx, &verdicts[0]))
			requireCount(t, short, signup, time.Minute, 1)
			requireCount(t, c, tenant, time.Hour, 3)

			// Hits of a key that is given twice are added, but not to those of another
			// ladder.
			v, err := c.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("9/d")}, counter.Ask{Key: signup, N: 2, Limits: limits("9/h")},
				counter.Ask{Key: signup, N: 3, Limits: limits("9/m"), On: short})
			require.NoError(t, err)
			require.True(t, v.Allowed)
			requireCount(t, c, signup, time.Hour, 3)
			requireCount(t, short, signup, time.Minute, 4)

			_, err = short.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("5/d")}, counter.Ask{Key: tenant, N: 1, Limits: limits("5/m")})
			require.ErrorContains(t, err, `event "signup", limit 5/d`)
			_, err = c.TakeAll(ctx, asks[0], counter.Ask{Key: tenant, N: 1, Limits: limits("5/m"), On: newCounter(t, path.store(), clock.config())})
			require.ErrorContains(t, err, "Ask.On is a Counter of another New")
		})
	}
}

func requireCount(t *testing.T, c *counter.Counter, key counter.Key, window time.Duration, want int64) {
	t.Helper()
	n, err := c.Count(ctx, key, window)
	require.NoError(t, err)
	require.Equal(t, counter.Count{Low: want, High: want}, n)
}

// A key with no hits is looked at: beside others in a Take, or by a Peek alone.
func TestNoHits(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			ban := counter.Key{Event: "ban", Feature: "ip:203.0.113.9"}
			requireAllowed := func(want bool, call func(context.Context, ...counter.Ask) (counter.Verdict, error)) counter.Verdict {
				t.Helper()
				v, err := call(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("9/d")}, counter.Ask{Key: ban, Limits: limits("0/h")})
				require.NoError(t, err)
				require.Equal(t, want, v.Allowed)
				return v
			}
			requireAllowed(true, c.PeekAll)
			requireAllowed(true, c.TakeAll)
			requireCount(t, c, ban, time.Hour, 0)
			require.NoError(t, c.Add(ctx, ban, 1))
			v := requireAllowed(false, c.TakeAll)
			require.Equal(t, ban, v.Key)
			require.InDelta(t, time.Hour, v.RetryAfter, float64(2*time.Second))
			requireAllowed(false, c.PeekAll)
			requireCount(t, c, signup, time.Hour, 1)

			// Not over at Max, over above.
			for _, add := range []struct {
				n         int64
				allowed   bool
				remaining int64
			}{{3, true, 1}, {1, true, 0}, {1, false, 0}} {
				require.NoError(t, c.Add(ctx, signup, add.n))
				v, err := c.Peek(ctx, signup, 0, limits("5/d"))
				require.NoError(t, err)
				require.Equal(t, add.allowed, v.Allowed)
				require.Equal(t, add.remaining, v.Remaining)
				require.Equal(t, add.allowed, v.RetryAfter == 0)
			}
			// No hits at all: a look.
			for _, asks := range [][]counter.Ask{
				{{Key: signup, Limits: limits("9/d")}, {Key: ban, Limits: limits("9/h")}},
				{{Key: signup, Limits: limits("5/d")}},
				{{Key: signup, Limits: limits("5/d"), Soft: true}},
			} {
				v, err := c.TakeAll(ctx, asks...)
				require.NoError(t, err)
				looked, err := c.PeekAll(ctx, asks...)
				require.NoError(t, err)
				require.Equal(t, looked, v)
				require.NotEmpty(t, v.All())
				require.Zero(t, v.At())
			}
			_, err := c.ChargeAll(ctx, counter.Ask{Key: signup, Limits: limits("9/d")})
			require.EqualError(t, err, `counter: n is 0, want 1 to 9007199254740991, or a Peek, event "signup"`)
		})
	}
}

// apart is a store with an atomic step for each key by itself, as a Redis Cluster.
type apart struct{ backend.Atomic }

func (apart) Together(keys []backend.TakeKey) bool { return len(keys) < 2 }

// A soft key denies nobody, and counts the hits that it would have admitted.
func TestSoftKeys(t *testing.T) {
	stores := map[string]func() backend.Store{"steps": func() backend.Store { return apart{memory.New(memory.Config{})} }}
	for _, path := range paths {
		stores[path.name] = path.store
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, store(), clock.config())
			user := counter.Key{Event: "signup", Feature: "user:7"}
			// The enforced key is the soft key as well, under lower limits.
			take := func(n int64, enforced string) (allowed bool, would map[string]bool, v counter.Verdict) {
				v, err := c.TakeAll(ctx, counter.Ask{Key: signup, N: n, Limits: limits("2/d"), Soft: true},
					counter.Ask{Key: signup, N: n, Limits: limits(enforced)}, counter.Ask{Key: user, N: 1, Limits: limits("4/d"), Soft: true})
				require.NoError(t, err)
				would = map[string]bool{}
				for _, state := range v.All() {
					if state.Soft {
						would[state.Key.Feature] = state.RetryAfter == 0
					}
				}
				require.Equal(t, signup, v.Key)
				return v.Allowed, would, v
			}
			both := map[string]bool{signup.Feature: true, user.Feature: true}
			for range 2 {
				allowed, would, _ := take(1, "5/d")
				require.True(t, allowed)
				require.Equal(t, both, would)
			}
			allowed, would, over := take(1, "5/d")
			require.True(t, allowed)
			require.Equal(t, map[string]bool{signup.Feature: false, user.Feature: true}, would)
			requireCount(t, c, signup, time.Hour, 3)

			// Denied by the enforced key: no soft key counts, so it has room for one more.
			allowed, _, denied := take(1, "3/d")
			require.False(t, allowed)
			require.Equal(t, limits("3/d")[0], denied.Limit)
			allowed, would, _ = take(1, "5/d")
			require.True(t, allowed)
			require.True(t, would[user.Feature])
			allowed, would, _ = take(1, "5/d")
			require.True(t, allowed)
			require.False(t, would[user.Feature])

			// A refund gives back what was kept: the hit of the user, and none of the
			// soft key that was over.
			require.NoError(t, c.Refund(ctx, &over))
			requireCount(t, c, signup, time.Hour, 4)
			allowed, would, _ = take(1, "5/d")
			require.True(t, allowed)
			require.Equal(t, map[string]bool{signup.Feature: false, user.Feature: true}, would)

			// Soft keys alone deny nobody, and count what they would admit.
			alone := counter.Ask{Key: counter.Key{Event: "soft", Feature: "alone"}, N: 1, Limits: limits("2/d"), Soft: true}
			beside := counter.Ask{Key: user, N: 1, Limits: limits("9/d"), Soft: true}
			for i, asks := range [][]counter.Ask{{alone}, {alone, beside}, {beside, alone}, {alone}} {
				v, err := c.TakeAll(ctx, asks...)
				require.NoError(t, err)
				require.True(t, v.Allowed)
				for _, s := range v.All() {
					require.Equal(t, i >= 2 && s.Key == alone.Key, s.RetryAfter > 0)
				}
				require.Len(t, v.All(), len(asks))
				if i == 3 {
					require.Zero(t, v.At())
					continue
				}
				require.NotZero(t, v.At())
				require.NoError(t, c.Refund(ctx, &v))
				if i < 2 {
					_, err = c.TakeAll(ctx, alone)
					require.NoError(t, err)
				}
			}
			_, err := c.ChargeAll(ctx, alone)
			require.EqualError(t, err, `counter: event "soft": each Ask of a Charge is Soft, want at least one that is not`)
			_, err = c.TakeAll(ctx, make([]counter.Ask, 101)...)
			require.EqualError(t, err, `counter: event "": 101 keys, want at most 100`)
		})
	}
}

// A soft key whose store fails fails no call, and is missing in the Verdict.
func TestASoftKeyThatFails(t *testing.T) {
	store := newPlainStore()
	store.fault = func(op *backend.Request) (made, answered int, err error) {
		if strings.Contains(op.Key, "~") {
			return 0, 0, errors.New("down")
		}
		return 0, 0, nil
	}
	c := newCounter(t, store, newClock(noon).config())
	v, err := c.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("1/d")}, counter.Ask{Key: signup, N: 1, Limits: limits("1/h"), Soft: true})
	require.NoError(t, err)
	require.True(t, v.Allowed)
	require.Len(t, v.All(), 1)
	require.NoError(t, c.Refund(ctx, &v), "the failed key has nothing to give back")
	requireCount(t, c, signup, time.Hour, 0)
}

// Charge counts in any case and says whether that was over.
func TestCharge(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			charge := func(n int64) counter.Verdict {
				v, err := c.Charge(ctx, signup, n, limits("5/h, 100/d"))
				require.NoError(t, err)
				return v
			}
			require.Equal(t, int64(2), charge(3).Remaining)
			clock.forward(10 * time.Minute)
			require.True(t, charge(2).Allowed)
			over := charge(7)
			require.False(t, over.Allowed)
			require.Equal(t, limits("5/h")[0], over.Limit)
			require.Zero(t, over.Remaining)
			require.InDelta(t, time.Hour, over.RetryAfter, float64(2*time.Second), "until no limit is over, and not until there is room")
			requireCount(t, c, signup, time.Hour, 12)
			require.False(t, take(t, c, signup, 1, limits("5/h")).Allowed)

			// Hits that were over are given back as others.
			again := over
			require.NoError(t, c.Refund(ctx, &over))
			require.NoError(t, c.Refund(ctx, &again))
			requireCount(t, c, signup, time.Hour, 5)

			// Several keys are charged together.
			user := counter.Key{Event: "signup", Feature: "user:7"}
			v, err := c.ChargeAll(ctx, counter.Ask{Key: user, N: 2, Limits: limits("9/d")}, counter.Ask{Key: signup, N: 1, Limits: limits("5/h")})
			require.NoError(t, err)
			require.False(t, v.Allowed)
			require.Equal(t, signup, v.Key)
			requireCount(t, c, user, time.Hour, 2)
			requireCount(t, c, signup, time.Hour, 6)
			require.NoError(t, c.Refund(ctx, &v))
			requireCount(t, c, user, time.Hour, 0)
			requireCount(t, c, signup, time.Hour, 5)

			_, err = c.Charge(ctx, signup, 0, limits("5/h"))
			require.ErrorContains(t, err, "n is 0")
		})
	}
}

// By ticket a charge that was confirmed too late to be seen by others is counted,
// and is not said to be within its limits.
func TestALateChargeIsCounted(t *testing.T) {
	clock := newClock(noon)
	store := newPlainStore()
	store.pause = func() { clock.forward(50 * time.Millisecond) }
	cfg := clock.config()
	cfg.Settle = 100 * time.Millisecond
	c := newCounter(t, store, cfg)
	_, err := c.Charge(ctx, signup, 3, limits("5/d"))
	require.ErrorIs(t, err, counter.ErrStore)
	require.ErrorContains(t, err, "the hits are counted, and were confirmed later than Config.Settle")
	store.pause = nil
	requireCount(t, c, signup, time.Hour, 3)
	store.pause = func() { clock.forward(50 * time.Millisecond) }
	v, err := c.Charge(ctx, signup, 3, limits("5/d"))
	require.NoError(t, err)
	require.False(t, v.Allowed, "over in any case")
	store.pause = nil
	requireCount(t, c, signup, time.Hour, 6)
}

// The hits of a single key on another ladder are given back there.
func TestRefundOfASingleKeyOnItsLadder(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			fives, err := tiers.Parse("5s:1m")
			require.NoError(t, err)
			c := newCounter(t, path.store(), newClock(noon).config())
			on, err := c.With(fives, nil)
			require.NoError(t, err)
			ask := counter.Ask{Key: signup, N: 1, Limits: limits("5/m"), On: on}
			for _, asks := range [][]counter.Ask{{ask}, {ask, ask}} {
				v, err := c.TakeAll(ctx, asks...)
				require.NoError(t, err)
				requireCount(t, on, signup, 30*time.Second, int64(len(asks)))
				require.NoError(t, c.Refund(ctx, &v))
				requireCount(t, on, signup, 30*time.Second, 0)
			}
		})
	}
}

// A key of which no hit is taken is not written, whatever becomes of the call.
func TestNoHitsAreNotWritten(t *testing.T) {
	for name, wrap := range map[string]func(*noting) backend.Store{
		"taker":  func(s *noting) backend.Store { return s },
		"ticket": func(s *noting) backend.Store { return struct{ backend.Store }{s} },
	} {
		t.Run(name, func(t *testing.T) {
			store := &noting{Atomic: memory.New(memory.Config{})}
			c := newCounter(t, wrap(store), counter.Config{})
			for range 3 {
				_, err := c.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("2/d")},
					counter.Ask{Key: counter.Key{Event: "ban", Feature: "ip:203.0.113.9"}, Limits: limits("0/h")})
				require.NoError(t, err)
			}
			for _, key := range store.added {
				require.NotContains(t, key, "ban")
			}
		})
	}
}

// noting notes the keys that Do adds to.
type noting struct {
	backend.Atomic
	mu    sync.Mutex
	added []string
}

func (s *noting) Do(ctx context.Context, r *backend.Request) error {
	if len(r.Add) > 0 {
		s.mu.Lock()
		s.added = append(s.added, r.Key)
		s.mu.Unlock()
	}
	return s.Atomic.Do(ctx, r)
}
