package counter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/tiers"
)

var (
	ctx    = context.Background()
	signup = counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	noon   = time.Date(2026, 3, 2, 12, 0, 30, 0, time.UTC)
)

// clock is a clock set by tests.
type clock struct{ ns atomic.Int64 }

func newClock(at time.Time) *clock {
	c := &clock{}
	c.ns.Store(at.UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *clock) forward(d time.Duration) { c.ns.Add(int64(d)) }
func (c *clock) config() counter.Config {
	return counter.Config{Now: c.now, Skew: -1, Settle: -1, Patience: -1}
}
func limits(s string) counter.Limits { return counter.MustLimits(s) }
func take(t testing.TB, c *counter.Counter, k counter.Key, n int64, l counter.Limits) counter.Verdict {
	t.Helper()
	v, err := c.Take(ctx, k, n, l)
	require.NoError(t, err)
	return v
}

func TestConfigNamesTheField(t *testing.T) {
	store := newPlainStore()
	for want, cfg := range map[string]counter.Config{
		"counter: Config.Skew is 2d, want at most 1d":     {Skew: 48 * time.Hour},
		"counter: Config.Settle is 2m, want at most 1m":   {Settle: 2 * time.Minute},
		"counter: Config.Patience is 2m, want at most 1m": {Patience: 2 * time.Minute},
		`counter: Config.Prefix is "a b", want printable`: {Prefix: "a b"},
	} {
		_, err := counter.New(store, cfg)
		require.ErrorContains(t, err, want)
	}
	_, err := counter.New(nil, counter.Config{})
	require.ErrorContains(t, err, "counter: New: store is nil, want a store of buckets")
	c := newCounter(t, store, counter.Config{})
	require.Equal(t, tiers.Default.String(), c.Config().Ladder.String())
}

// A caller's mistake is an error that names the mistake, is no ErrStore, and
// costs no traffic.
func TestMistakesAreTheCallers(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			store := path.store()
			c := newCounter(t, store, clock.config())
			many := make(counter.Limits, 33)
			for i := range many {
				many[i] = counter.Limit{Max: 1, Per: time.Minute}
			}
			for want, call := range map[string]func() error{
				"counter: Key.Event is empty":              func() error { _, err := c.Take(ctx, counter.Key{Feature: "x"}, 1, limits("1/d")); return err },
				`counter: Key.Feature is empty, event "x"`: func() error { _, err := c.Take(ctx, counter.Key{Event: "x"}, 1, limits("1/d")); return err },
				"n is 0":  func() error { _, err := c.Take(ctx, signup, 0, limits("1/d")); return err },
				"n is -1": func() error { _, err := c.Peek(ctx, signup, -1, limits("1/d")); return err },
				"n is 9223372036854775807, want 1 to 9007199254740991": func() error {
					_, err := c.Take(ctx, signup, math.MaxInt64, limits("1/d"))
					return err
				},
				"no limits": func() error { _, err := c.Take(ctx, signup, 1, nil); return err },
				"33 limits": func() error { _, err := c.Take(ctx, signup, 1, many); return err },
				"max -1":    func() error { _, err := c.Take(ctx, signup, 1, counter.Limits{{Max: -1, Per: time.Hour}}); return err },
				"window 0s": func() error { _, err := c.Take(ctx, signup, 1, counter.Limits{{Max: 1}}); return err },
				`event "signup", limit 1/7d: tiers: a window of 7d is longer`: func() error {
					_, err := c.Take(ctx, signup, 1, limits("1/7d"))
					return err
				},
				"no keys": func() error { _, err := c.TakeAll(ctx); return err },
				`no limits, want at least one, event "b"`: func() error {
					_, err := c.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("1/d")}, counter.Ask{Key: counter.Key{Event: "b", Feature: "b"}, N: 1})
					return err
				},
				"want 1 to":            func() error { return c.Add(ctx, signup, 0) },
				"counter: Key.Event":   func() error { return c.Add(ctx, counter.Key{}, 1) },
				"counter: Key.Event i": func() error { return c.Forget(ctx, counter.Key{}) },
				"a window of 2d":       func() error { _, err := c.Count(ctx, signup, 48*time.Hour); return err },
				"counter: Series: from is 2026-03-02 12:00:30 +0000 UTC, want before to, which is 2026-03-02 12:00:30 +0000 UTC": func() error {
					_, err := c.Series(ctx, signup, noon, noon, time.Hour)
					return err
				},
				`counter: Series: width is 1.5s, want a multiple of the width of a tier, the ladder is "1s`: func() error {
					_, err := c.Series(ctx, signup, noon.Add(-time.Hour), noon, 1500*time.Millisecond)
					return err
				},
				"counter: Series: the point at 2026-02-28 12:00:00 +0000 UTC is 2d30s old, and tier 1h is kept for 1d": func() error {
					_, err := c.Series(ctx, signup, noon.Add(-48*time.Hour), noon, time.Hour)
					return err
				},
				"counter: Series: 8640000 points of 1 bucket(s) each, want at most 100000 buckets": func() error {
					_, err := c.Series(ctx, signup, noon, noon.Add(100*24*time.Hour), time.Second)
					return err
				},
			} {
				err := call()
				require.ErrorContains(t, err, want)
				require.NotErrorIs(t, err, counter.ErrStore)
				require.NotContains(t, err.Error(), "203.0.113.9", "an error must not tell the feature")
			}
			if plain, ok := store.(*plainStore); ok {
				require.Zero(t, plain.trips)
			}
			wild := newCounter(t, path.store(), counter.Config{Now: func() time.Time { return time.Time{} }})
			_, err := wild.Take(ctx, signup, 1, limits("1/d"))
			require.ErrorContains(t, err, "counter: Config.Now: ")
			done, cancel := context.WithCancel(ctx)
			cancel()
			_, err = c.Take(done, signup, 1, limits("1/d"))
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, counter.ErrStore)
			require.ErrorIs(t, c.Add(done, signup, 1), context.Canceled)
		})
	}
}

func TestTheZeroVerdictDenies(t *testing.T) {
	var v counter.Verdict
	require.False(t, v.Allowed)
	require.Empty(t, v.All())
	require.NoError(t, newCounter(t, newPlainStore(), counter.Config{}).Refund(ctx, &v))
}

// n above Max is never admitted, leaves no trace and asks nobody.
func TestNever(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			store := path.store()
			c := newCounter(t, store, newClock(noon).config())
			v := take(t, c, signup, 8, limits("100/d, 7/m"))
			require.False(t, v.Allowed)
			require.Equal(t, counter.Never, v.RetryAfter)
			require.Equal(t, limits("7/m")[0], v.Limit)
			require.False(t, take(t, c, signup, 1, limits("0/d")).Allowed)
			count, err := c.Count(ctx, signup, 24*time.Hour)
			require.NoError(t, err)
			require.Zero(t, count)
			if plain, ok := store.(*plainStore); ok {
				require.Equal(t, 1, plain.trips, "the Count alone")
			}
		})
	}
}

// The flat fields describe the binding limit; All describes every limit.
func TestVerdictNamesTheLimitThatBinds(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			five := limits("3/m, 10/h, 4/d, 100/d, 9/h")
			v := take(t, c, signup, 1, five)
			require.True(t, v.Allowed)
			require.Equal(t, signup, v.Key)
			require.Equal(t, "3/m", v.Limit.String())
			require.EqualValues(t, 2, v.Remaining)
			require.Zero(t, v.RetryAfter)
			require.Equal(t, time.Minute+time.Second, v.ResetAfter)
			states := v.All()
			require.Len(t, states, 5)
			for i, want := range []int64{2, 9, 3, 99, 8} {
				require.Equal(t, five[i], states[i].Limit)
				require.Equal(t, want, states[i].Remaining)
				require.Equal(t, signup, states[i].Key)
			}
			clock.forward(10 * time.Second)
			take(t, c, signup, 2, five)
			v = take(t, c, signup, 1, five)
			require.False(t, v.Allowed)
			require.Equal(t, "3/m", v.Limit.String())
			require.Equal(t, 51*time.Second, v.RetryAfter) // a minute after the first hit, its second leaves the window
			require.Equal(t, 61*time.Second, v.ResetAfter)
			require.Zero(t, v.Remaining)
			// Denied by two limits: the limit with the longest wait binds.
			clock.forward(55 * time.Second)
			require.True(t, take(t, c, signup, 1, five).Allowed)
			v = take(t, c, signup, 2, five)
			require.Equal(t, "4/d", v.Limit.String())
			require.Equal(t, 24*time.Hour+11*time.Second-65*time.Second, v.RetryAfter)
		})
	}
}

// The worst case of a fixed window: Max just before the boundary, Max just
// after. Here the second lot waits a day.
func TestNoBurstAcrossABoundary(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(time.Date(2026, 3, 2, 23, 59, 59, 0, time.UTC))
			c := newCounter(t, path.store(), clock.config())
			for range 100 {
				require.True(t, take(t, c, signup, 1, limits("100/d")).Allowed)
			}
			clock.forward(2 * time.Second)
			v := take(t, c, signup, 1, limits("100/d"))
			require.False(t, v.Allowed)
			require.Equal(t, 24*time.Hour-time.Second, v.RetryAfter)
			clock.forward(v.RetryAfter - 1)
			require.False(t, take(t, c, signup, 1, limits("100/d")).Allowed)
			clock.forward(1)
			require.True(t, take(t, c, signup, 100, limits("100/d")).Allowed)
		})
	}
}

func TestTakeAllIsAllOrNothing(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			mail := counter.Key{Event: "signup", Feature: "mail:a@example.org"}
			asks := []counter.Ask{{Key: signup, N: 1, Limits: limits("5/d")}, {Key: mail, N: 1, Limits: limits("2/h")}}
			for range 2 {
				v, err := c.TakeAll(ctx, asks...)
				require.NoError(t, err)
				require.True(t, v.Allowed)
				require.Equal(t, mail, v.Key)
			}
			v, err := c.TakeAll(ctx, asks...)
			require.NoError(t, err)
			require.False(t, v.Allowed)
			require.Equal(t, mail, v.Key)
			require.Len(t, v.All(), 2)
			require.EqualValues(t, 3, v.All()[0].Remaining, "the first key must not pay for the second")
			count, err := c.Count(ctx, signup, time.Hour)
			require.NoError(t, err)
			require.Equal(t, counter.Count{Low: 2, High: 2}, count)

			// A key given twice is taken once, with the hits and under the limits of both.
			other := counter.Key{Event: "x", Feature: "y"}
			v, err = c.TakeAll(ctx, counter.Ask{Key: other, N: 1, Limits: limits("9/d")}, counter.Ask{Key: other, N: 1, Limits: limits("3/h")})
			require.NoError(t, err)
			require.True(t, v.Allowed)
			require.EqualValues(t, 1, v.Remaining)
			require.NoError(t, c.Refund(ctx, &v))
			count, err = c.Count(ctx, other, time.Hour)
			require.NoError(t, err)
			require.Zero(t, count)
		})
	}
}

func TestPeekCountsNothing(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			take(t, c, signup, 2, limits("3/d"))
			for range 3 {
				v, err := c.Peek(ctx, signup, 1, limits("3/d"))
				require.NoError(t, err)
				require.True(t, v.Allowed)
				require.Zero(t, v.Remaining)
				require.NoError(t, c.Refund(ctx, &v), "nothing was taken")
			}
			v, err := c.Peek(ctx, signup, 2, limits("3/d"))
			require.NoError(t, err)
			require.False(t, v.Allowed)
			require.Equal(t, 24*time.Hour+time.Second, v.RetryAfter)
			require.True(t, take(t, c, signup, 1, limits("3/d")).Allowed)
		})
	}
}

func TestPeekAllIsWhatTakeAllWouldSay(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			mail := counter.Key{Event: "signup", Feature: "mail:a@example.org"}
			asks := []counter.Ask{{Key: signup, N: 1, Limits: limits("9/m, 9/h, 5/d")}, {Key: mail, N: 1, Limits: limits("1/m, 2/h, 3/d")}}
			for _, allowed := range []bool{true, false} {
				peeked, err := c.PeekAll(ctx, asks...)
				require.NoError(t, err)
				taken, err := c.TakeAll(ctx, asks...)
				require.NoError(t, err)
				require.Equal(t, allowed, taken.Allowed)
				require.Equal(t, taken.Allowed, peeked.Allowed)
				require.Equal(t, taken.Key, peeked.Key)
				require.Len(t, taken.All(), 6)
				for i, state := range taken.All() {
					require.Equal(t, state.Limit, peeked.All()[i].Limit)
					require.Equal(t, state.Remaining, peeked.All()[i].Remaining)
					require.Equal(t, state.RetryAfter, peeked.All()[i].RetryAfter)
				}
				require.NoError(t, c.Refund(ctx, &peeked), "nothing was taken")
			}
			count, err := c.Count(ctx, signup, time.Hour)
			require.NoError(t, err)
			require.EqualValues(t, 1, count.High)
			_, err = c.PeekAll(ctx)
			require.ErrorContains(t, err, "no keys")
		})
	}
}

// Check says beforehand what a Take would say.
func TestCheckIsWhatTakeWouldSay(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	require.NoError(t, limits("1/s, 5/90s, 100/d").Check(c.Config().Ladder))
	for want, wrong := range map[string]counter.Limits{
		"no limits":                         nil,
		"max -1":                            {{Max: 1, Per: time.Hour}, {Max: -1, Per: time.Hour}},
		"limit 1/7d: tiers: a window of 7d": {{Max: 1, Per: time.Hour}, {Max: 1, Per: 7 * 24 * time.Hour}},
		"limit 1/100ms: tiers: a window of": {{Max: 1, Per: 100 * time.Millisecond}},
	} {
		require.ErrorContains(t, wrong.Check(c.Config().Ladder), want)
		_, err := c.Take(ctx, signup, 1, wrong)
		require.Error(t, err)
	}
}

func TestLocalIsTheStoresWord(t *testing.T) {
	store := memory.New(memory.Config{})
	local, keeps := inner(newCounter(t, store, counter.Config{})).Local()
	require.True(t, local)
	require.True(t, keeps)
	_, keeps = inner(newCounter(t, memory.New(memory.Config{Full: memory.EvictOldest}), counter.Config{})).Local()
	require.False(t, keeps)
	local, keeps = inner(newCounter(t, struct{ backend.Store }{store}, counter.Config{})).Local()
	require.False(t, local)
	require.False(t, keeps)
}

// A Refund gives back once: not for the same verdict again, nor for a copy, nor
// at the same time, nor what was forgotten, nor what was denied.
func TestRefundOnce(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			count := func() int64 {
				n, err := c.Count(ctx, signup, time.Hour)
				require.NoError(t, err)
				return n.High
			}
			day := limits("3/d")
			take(t, c, signup, 1, day)
			clock.forward(time.Minute)
			v := take(t, c, signup, 1, day)
			clock.forward(time.Minute)
			var wg sync.WaitGroup
			for range 16 {
				mine := v
				wg.Go(func() {
					if err := c.Refund(ctx, &mine); err != nil || mine.Allowed {
						t.Error(err, mine.Allowed)
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 1, count())

			denied := take(t, c, signup, 3, day)
			require.False(t, denied.Allowed)
			require.NoError(t, c.Refund(ctx, &denied))
			require.EqualValues(t, 1, count())

			v = take(t, c, signup, 1, day)
			clock.forward(time.Minute)
			require.NoError(t, c.Forget(ctx, signup))
			require.Zero(t, count())
			clock.forward(time.Minute)
			require.True(t, take(t, c, signup, 3, day).Allowed)
			require.NoError(t, c.Refund(ctx, &v))
			require.EqualValues(t, 3, count(), "a forgotten hit must not be paid back from others'")

			w := take(t, newCounter(t, path.store(), clock.config()), signup, 1, day)
			require.ErrorContains(t, c.Refund(ctx, &w), "counter: Refund: the Verdict is of another Counter")
		})
	}
}

// Receipts come in blocks: every verdict has its own, in all blocks.
func TestManyVerdictsAreRefundedOneByOne(t *testing.T) {
	c := newCounter(t, newPlainStore(), newClock(noon).config())
	const n = 2000
	var verdicts []counter.Verdict
	for range n {
		verdicts = append(verdicts, take(t, c, signup, 1, limits("2000/d")))
	}
	for i := range verdicts {
		require.NoError(t, c.Refund(ctx, &verdicts[i]))
		count, err := c.Count(ctx, signup, time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, n-1-i, count.High)
	}
}

func TestSeries(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			for i := range int64(10) {
				require.NoError(t, c.Add(ctx, signup, i+1))
				clock.forward(7 * time.Minute)
			}
			points, err := c.Series(ctx, signup, noon, clock.now(), 20*time.Minute)
			require.NoError(t, err)
			require.Equal(t, []counter.Point{
				{Start: noon.Truncate(time.Hour).Local(), Count: 1 + 2 + 3},
				{Start: noon.Truncate(time.Hour).Add(20 * time.Minute).Local(), Count: 4 + 5 + 6},
				{Start: noon.Truncate(time.Hour).Add(40 * time.Minute).Local(), Count: 7 + 8 + 9},
				{Start: noon.Truncate(time.Hour).Add(60 * time.Minute).Local(), Count: 10},
			}, points)
			hours, err := c.Series(ctx, signup, noon.Add(-5*time.Hour), clock.now(), time.Hour)
			require.NoError(t, err)
			require.Len(t, hours, 7)
			require.EqualValues(t, 45, hours[5].Count)
			require.EqualValues(t, 10, hours[6].Count)
		})
	}
}

// Odd keys are counted like any other, and apart from each other.
func TestOddKeys(t *testing.T) {
	features := []string{" ", "\n", "\r\nset x 0 0 1\r\n1\r\n", "{}", "{a}b", "a}b{", "%", "%25", "ünïcødé", "\x00", "\xff\xfe", strings.Repeat("k", 1<<10), strings.Repeat("k", 10<<10), strings.Repeat("k", 10<<10) + "l"}
	for _, path := range paths {
		c := newCounter(t, path.store(), newClock(noon).config())
		for i, f := range features {
			for _, k := range []counter.Key{{Event: "e", Feature: f}, {Event: f, Feature: "f"}} {
				require.True(t, take(t, c, k, int64(i+1), limits("100/d")).Allowed)
			}
		}
		for i, f := range features {
			for _, k := range []counter.Key{{Event: "e", Feature: f}, {Event: f, Feature: "f"}} {
				n, err := c.Count(ctx, k, time.Hour)
				require.NoError(t, err)
				require.EqualValues(t, i+1, n.High, "%s: %q", path.name, k)
			}
		}
	}
}

// Counts far above every Max neither wrap nor admit.
func TestHugeCounts(t *testing.T) {
	for _, path := range paths {
		c := newCounter(t, path.store(), newClock(noon).config())
		require.NoError(t, c.Add(ctx, signup, counter.MaxCount-1))
		err := c.Add(ctx, signup, 2)
		require.ErrorIs(t, err, backend.ErrMaxCount, path.name)
		require.NotErrorIs(t, err, counter.ErrStore, path.name)
		require.False(t, take(t, c, signup, 1, limits("100/d")).Allowed)
		n, err := c.Count(ctx, signup, time.Hour)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n.High, int64(counter.MaxCount-1), path.name)
	}
}

// An error of the store is an ErrStore and keeps the text of the store.
func TestAStoreThatFails(t *testing.T) {
	broken := errors.New("connection refused")
	store := newPlainStore()
	store.fault = func(*backend.Request) (int, int, error) { return 0, 0, broken }
	c := newCounter(t, store, newClock(noon).config())
	for name, call := range map[string]func() error{
		"take": func() error {
			v, err := c.Take(ctx, signup, 1, limits("1/d, 2/h, 3/m, 4/s"))
			require.Equal(t, counter.Verdict{}, v)
			require.Empty(t, v.All())
			return err
		},
		"take all": func() error {
			v, err := c.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("1/d")}, counter.Ask{Key: counter.Key{Event: "signup", Feature: "x"}, N: 1, Limits: limits("1/d")})
			require.Equal(t, counter.Verdict{}, v)
			require.Empty(t, v.All())
			return err
		},
		"peek":   func() error { _, err := c.Peek(ctx, signup, 1, limits("1/d")); return err },
		"add":    func() error { return c.Add(ctx, signup, 1) },
		"count":  func() error { n, err := c.Count(ctx, signup, time.Hour); require.Zero(t, n); return err },
		"series": func() error { _, err := c.Series(ctx, signup, noon.Add(-time.Hour), noon, time.Hour); return err },
		"forget": func() error { return c.Forget(ctx, signup) },
	} {
		err := call()
		require.ErrorIs(t, err, counter.ErrStore, name)
		require.ErrorIs(t, err, broken, name)
		require.ErrorContains(t, err, `counter: event "signup": connection refused`)
		require.NotContains(t, err.Error(), "203.0.113.9")
	}
}

// A Take with a part of its additions made is not admitted. The confirmed
// additions, and no others, are taken back, even if the visitor has hung up.
func TestHalfAnAnswerIsTakenBack(t *testing.T) {
	for made := 0; made <= 3; made++ {
		for answered := 0; answered <= made; answered++ {
			t.Run(fmt.Sprintf("%d made, %d answered", made, answered), func(t *testing.T) {
				store := newPlainStore()
				c := newCounter(t, store, newClock(noon).config())
				require.True(t, take(t, c, signup, 1, limits("5/d")).Allowed)
				visit, hangUp := context.WithCancel(ctx)
				store.fault = func(op *backend.Request) (int, int, error) {
					if op.N > 0 {
						hangUp()
						return made, answered, errors.New("cut off")
					}
					return 0, 0, nil
				}
				v, err := c.Take(visit, signup, 1, limits("5/d"))
				require.ErrorIs(t, err, context.Canceled)
				require.False(t, v.Allowed)
				for i, width := range []time.Duration{time.Second, time.Minute, time.Hour} {
					want := int64(1)
					if i >= answered && i < made {
						want = 2 // the remaining hit may be the failed call's or another's, and stays
					}
					sum, _ := store.held(width)
					require.Equal(t, want, sum, "tier %s", width)
				}
			})
		}
	}
}

// monotonicAhead moves only the monotonic reading of t: the reading of a clock
// after a step of the wall clock, or, backwards, after a machine's sleep. There
// is no honest way to make such a time.
func monotonicAhead(t time.Time, d time.Duration) time.Time {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	(*layout)(unsafe.Pointer(&t)).ext += int64(d)
	return t
}

// A try by ticket that lasts longer than Settle is taken back and repeated, by
// either clock: the wall clock may be stepped, the monotonic clock stands still
// in a sleep. An atomic step needs no such bound.
func TestALateTryIsMadeAgain(t *testing.T) {
	start := time.Now()
	const late = 51 * time.Millisecond
	slept := monotonicAhead(start.Add(late), -late)
	require.Zero(t, slept.Sub(start), "no time has passed on the monotonic clock")
	stepped := monotonicAhead(start, late)
	require.Equal(t, start.Round(0), stepped.Round(0), "nor here on the wall clock")
	for name, second := range map[string]time.Time{"both clocks": start.Add(late), "asleep": slept, "stepped back": stepped} {
		for _, path := range paths {
			t.Run(name+", "+path.name, func(t *testing.T) {
				calls, store := 0, path.store()
				c := newCounter(t, store, counter.Config{Settle: 50 * time.Millisecond, Now: func() time.Time {
					if calls++; calls == 1 {
						return start
					}
					return second
				}})
				v, err := c.Take(ctx, signup, 1, limits("5/d"))
				require.NoError(t, err)
				require.True(t, v.Allowed)
				tries, label := int64(1), second
				if _, atomic := store.(backend.Atomic); atomic {
					tries, label = 0, start
				}
				require.Equal(t, tries, c.Stats().LateTries)
				require.True(t, v.At().Equal(label), "the label is that of the try that counts")
				n, err := c.Count(ctx, signup, time.Hour)
				require.NoError(t, err)
				require.EqualValues(t, 1, n.High, "the late try was taken back")
			})
		}
	}
}

// A store that is always late causes an error, by the end of the patience. Of a ladder
// and the former one the shorter Settle counts.
func TestAStoreThatIsAlwaysLate(t *testing.T) {
	for _, cfg := range []counter.Config{
		{Settle: 50 * time.Millisecond},
		{Settle: 50 * time.Millisecond, Former: &counter.Config{Settle: time.Second}},
		{Settle: time.Second, Former: &counter.Config{Settle: 50 * time.Millisecond}},
	} {
		synctest.Test(t, func(t *testing.T) {
			now, store := time.Now(), newPlainStore()
			cfg.Patience = 200 * time.Millisecond
			cfg.Now = func() time.Time {
				now = now.Add(51 * time.Millisecond)
				return now
			}
			c := newCounter(t, store, cfg)
			began := time.Now()
			v, err := c.Take(ctx, signup, 1, limits("5/d"))
			require.ErrorIs(t, err, counter.ErrStore)
			require.ErrorContains(t, err, "want within Config.Settle, 50ms")
			require.False(t, v.Allowed)
			require.Less(t, time.Since(began), 250*time.Millisecond)
			require.Greater(t, c.Stats().LateTries, int64(1))
			sum, _ := store.held(time.Second)
			require.Zero(t, sum, "all was taken back")
		})
	}
}

// A denied key costs no traffic for a second and leaves no items behind; after
// the second a call reads before adding.
func TestDenialsAreRemembered(t *testing.T) {
	clock := newClock(noon)
	store := newPlainStore()
	c := newCounter(t, store, counter.Config{Now: clock.now})
	two := limits("2/m")
	take(t, c, signup, 2, two)
	first := take(t, c, signup, 1, two)
	require.False(t, first.Allowed)
	_, items := store.held(0)
	second := take(t, c, signup, 1, two) // by reading: the count of a ticket is not believed
	require.Equal(t, first.RetryAfter, second.RetryAfter)
	trips := store.trips
	for range 9 {
		clock.forward(100 * time.Millisecond)
		v := take(t, c, signup, 1, two)
		require.False(t, v.Allowed)
		second.RetryAfter -= 100 * time.Millisecond
		require.Equal(t, second.RetryAfter, v.RetryAfter)
	}
	require.Equal(t, trips, store.trips, "no traffic within the second")
	require.False(t, take(t, c, signup, 2, two).Allowed)
	require.Greater(t, store.trips, trips, "another n is another question")
	take(t, c, signup, 1, two)
	trips = store.trips
	take(t, c, signup, 1, two)
	require.Equal(t, trips, store.trips)
	require.NoError(t, c.Add(ctx, signup, 1))
	take(t, c, signup, 1, two)
	require.Greater(t, store.trips, trips+1, "what is remembered is from before the Add")
	for range 50 {
		clock.forward(1001 * time.Millisecond)
		writes := store.writes
		require.False(t, take(t, c, signup, 1, two).Allowed)
		require.Equal(t, writes, store.writes, "a denied key is only read")
	}
	_, after := store.held(0)
	require.Equal(t, items, after, "50 seconds of attack left nothing behind")
	clock.forward(take(t, c, signup, 1, two).RetryAfter)
	require.True(t, take(t, c, signup, 1, two).Allowed)
}

// A second of memory is a second also when the clock is set back meanwhile.
func TestAClockSetBackDoesNotProlongADenial(t *testing.T) {
	clock := newClock(noon)
	store := newPlainStore()
	c := newCounter(t, store, counter.Config{Now: clock.now})
	two := limits("2/m")
	take(t, c, signup, 2, two)
	for range 3 {
		require.False(t, take(t, c, signup, 1, two).Allowed)
	}
	require.NoError(t, newCounter(t, store, counter.Config{Now: clock.now}).Forget(ctx, signup)) // by another process
	require.False(t, take(t, c, signup, 1, two).Allowed, "remembered, for its second")
	clock.forward(-time.Hour)
	require.True(t, take(t, c, signup, 1, two).Allowed)
}

// Under standing overload freed room is taken, and nothing more: a refused
// crowd does not starve itself.
func TestNoStarvationUnderOverload(t *testing.T) {
	clock := newClock(noon)
	store := newPlainStore()
	store.pause = yieldSometimes
	c := newCounter(t, store, counter.Config{Now: clock.now, Skew: time.Millisecond, Patience: time.Minute})
	ten := limits("10/10s")
	admitted := 0
	seconds := long.Rounds(40, 200)
	for range seconds {
		var wg sync.WaitGroup
		var in atomic.Int64
		for range 100 {
			wg.Go(func() {
				v, err := c.Take(ctx, signup, 1, ten)
				if err != nil {
					t.Error(err)
				}
				if v.Allowed {
					in.Add(1)
				}
			})
		}
		wg.Wait()
		admitted += int(in.Load())
		clock.forward(time.Second)
	}
	// The first ten at once; each of their seconds leaves the window of 10 s,
	// rounded up to whole seconds and lengthened by Skew and Settle, 12 s
	// later.
	exact := 10 * ((seconds + 11) / 12)
	require.LessOrEqual(t, admitted, exact)
	require.GreaterOrEqual(t, admitted, exact*95/100)
}

// The TTL of a second ends before the TTL of the minute that holds the second.
func TestForgetLeavesNothingInCoarserBuckets(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 32, 5, 0, time.UTC)
	ladder, err := tiers.Parse("1s:1h, 1m:1h")
	require.NoError(t, err)
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{Ladder: ladder, Now: func() time.Time { return now }})
	key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	require.NoError(t, c.Add(t.Context(), key, 3))
	sum := func() (sum int64) {
		points, err := c.Series(t.Context(), key, now.Add(-time.Hour), now, time.Minute)
		require.NoError(t, err)
		for _, p := range points {
			sum += p.Count
		}
		return sum
	}
	now = now.Add(time.Hour + 20*time.Second)
	require.EqualValues(t, 3, sum())
	require.NoError(t, c.Forget(t.Context(), key))
	require.Zero(t, sum())
}

func TestAtIsTheReadingOfTheClock(t *testing.T) {
	ctx, now := context.Background(), time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	key, limits := counter.Key{Event: "signup", Feature: "at"}, counter.Limits{{Max: 1, Per: time.Hour}}
	v, err := c.Take(ctx, key, 1, limits)
	require.NoError(t, err)
	require.True(t, v.At().Equal(now))
	denied, err := c.Take(ctx, key, 1, limits)
	require.NoError(t, err)
	require.Zero(t, denied.At())
	require.NoError(t, c.Refund(ctx, &v))
	require.Zero(t, v.At())
}

// A Forget that stood still after reading its clock forgets hits with later
// labels; a Refund of these must not take back hits from after the Forget.
func TestAForgetThatStoodStill(t *testing.T) {
	for _, path := range paths {
		clock := newClock(time.Date(2026, 3, 1, 12, 0, 5, 0, time.UTC))
		readings := 0
		c := newCounter(t, path.store(), counter.Config{Skew: -1, Settle: -1, Patience: -1, Now: func() time.Time {
			if readings++; readings == 2 {
				return clock.now().Add(-10 * time.Millisecond) // the clock of the Forget, before the standstill
			}
			return clock.now()
		}})
		v := take(t, c, signup, 1, limits("5/m"))
		require.NoError(t, c.Forget(ctx, signup))
		clock.forward(10 * time.Millisecond)
		take(t, c, signup, 1, limits("5/m"))
		require.NoError(t, c.Refund(ctx, &v))
		n, err := c.Count(ctx, signup, time.Minute)
		require.NoError(t, err)
		require.EqualValues(t, 1, n.High, path.name)
	}
}

// An Add that fails in some tiers is taken back from the other tiers.
func TestHalfAnAddIsTakenBack(t *testing.T) {
	store := newPlainStore()
	c := newCounter(t, store, counter.Config{})
	store.fault = func(op *backend.Request) (made, answered int, err error) {
		if op.N > 0 {
			return 2, 2, errors.New("the third is lost")
		}
		return 0, 0, nil
	}
	require.ErrorIs(t, c.Add(ctx, signup, 5), counter.ErrStore)
	for _, width := range []time.Duration{time.Second, time.Minute, time.Hour} {
		sum, _ := store.held(width)
		require.Zero(t, sum, width)
	}
}

// A caller may wipe its slice with the secret after New.
func TestASecretThatIsWiped(t *testing.T) {
	store, key := memory.New(memory.Config{}), counter.Key{Event: "e", Feature: "f"}
	secret := []byte("0123456789abcdef0123456789abcdef")
	c := newCounter(t, store, counter.Config{Secret: secret})
	before, err := c.With(tiers.For(time.Hour), nil)
	require.NoError(t, err)
	require.NoError(t, before.Add(t.Context(), key, 3))
	clear(secret)
	after, err := c.With(tiers.For(time.Hour), nil)
	require.NoError(t, err)
	n, err := after.Count(t.Context(), key, time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 3, n.High)
}
