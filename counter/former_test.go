package counter_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

// fleet are processes on one store and one clock, before, in and after a change of
// ladder.
type fleet struct{ former, both, next *counter.Counter }

func newFleet(t *testing.T, clock *clock, path int) fleet {
	t.Helper()
	store := paths[path].store()
	old, err := tiers.Parse("1s:1h, 1m:1h")
	require.NoError(t, err)
	cfg := clock.config()
	cfg.Settle = 0
	var f fleet
	cfg.Ladder = old
	f.former = newCounter(t, store, cfg)
	cfg.Ladder = tiers.Default
	f.next = newCounter(t, store, cfg)
	cfg.Former = &counter.Config{Ladder: old}
	f.both = newCounter(t, store, cfg)
	return f
}

// In a rolling deploy, and in one that is rolled back, no window has more than Max.
// Without processes that know both ladders it has twice as many.
func TestAChangeOfLadderKeepsTheLimit(t *testing.T) {
	const per = 10 * time.Minute
	five := counter.Limits{{Max: 5, Per: per}}
	for i, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			for seed := range uint64(40) {
				rng := rand.New(rand.NewPCG(seed, 1))
				clock := newClock(noon)
				f := newFleet(t, clock, i)
				// Which kinds of process run in a phase, and for how long after the last of
				// the kind before.
				phases := [][]*counter.Counter{{f.former}, {f.former, f.both}, {f.both}, {f.both, f.next}, {f.next}}
				if seed%2 == 1 {
					phases = [][]*counter.Counter{{f.former}, {f.former, f.both}, {f.former}, {f.former, f.both}, {f.both}, {f.both, f.next}, {f.both}, {f.former, f.both}}
				}
				var admitted oracle.Log
				for _, kinds := range phases {
					begun := clock.now()
					for calls := 0; calls < 40 || len(kinds) == 1 && clock.now().Sub(begun) <= per; calls++ {
						v, err := kinds[rng.IntN(len(kinds))].Take(ctx, signup, 1, five)
						require.NoError(t, err)
						if v.Allowed {
							admitted.Add(clock.now(), 1)
						} else if rng.IntN(4) == 0 && v.RetryAfter < per {
							clock.forward(v.RetryAfter)
						}
						clock.forward(time.Duration(rng.Int64N(int64(30 * time.Second))))
					}
				}
				require.LessOrEqual(t, admitted.Worst(per), int64(5), "seed %d", seed)
			}

			clock := newClock(noon)
			f := newFleet(t, clock, i)
			twice := 0
			for range 5 {
				for _, c := range []*counter.Counter{f.former, f.next} {
					if take(t, c, signup, 1, five).Allowed {
						twice++
					}
				}
			}
			require.Equal(t, 10, twice, "the two ladders alone know nothing of each other")
		})
	}
}

// A Counter with a former ladder tells the larger numbers of both ladders, and
// counts and gives back in both.
func TestBothLaddersAreToldAndEmptied(t *testing.T) {
	five := counter.Limits{{Max: 5, Per: 10 * time.Minute}}
	for i, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			f := newFleet(t, clock, i)
			all := func(former, next, both int64) {
				t.Helper()
				for c, want := range map[*counter.Counter]int64{f.former: former, f.next: next, f.both: both} {
					requireCount(t, c, signup, five[0].Per, want)
					v, err := c.Peek(ctx, signup, 1, five)
					require.NoError(t, err)
					require.Equal(t, max(0, 5-want-1), v.Remaining)
				}
			}
			require.NoError(t, f.former.Add(ctx, signup, 2))
			clock.forward(3 * time.Minute)
			require.NoError(t, f.next.Add(ctx, signup, 1))
			v := take(t, f.both, signup, 2, five)
			require.True(t, v.Allowed)
			all(4, 3, 4)
			denied := take(t, f.both, signup, 2, five)
			require.False(t, denied.Allowed)
			require.InDelta(t, 7*time.Minute, denied.RetryAfter, float64(2*time.Second), "the former ladder binds")
			require.NoError(t, f.both.Refund(ctx, &v))
			all(2, 1, 2)
			require.NoError(t, f.both.Add(ctx, signup, 2))
			all(4, 3, 4)
			over, err := f.both.Charge(ctx, signup, 2, five)
			require.NoError(t, err)
			require.False(t, over.Allowed)
			requireCount(t, f.next, signup, time.Minute, 5)
			require.NoError(t, f.both.Refund(ctx, &over))
			at := clock.now().Add(-time.Minute)
			require.NoError(t, f.both.AddAt(ctx, signup, 1, at))
			all(5, 4, 5)
			require.NoError(t, f.both.RefundAt(ctx, signup, 1, at))
			all(4, 3, 4)
			// A verdict of the former ladder alone is given back there alone.
			alone := take(t, f.former, signup, 1, five)
			require.NoError(t, f.former.Refund(ctx, &alone))
			all(4, 3, 4)
			require.NoError(t, f.both.Forget(ctx, signup))
			all(0, 0, 0)

			// A limit that only the new ladder can hold is judged there.
			v = take(t, f.both, signup, 1, limits("1/10m, 3/d"))
			require.True(t, v.Allowed)
			requireCount(t, f.former, signup, time.Hour, 1)
			clock.forward(2 * time.Hour)
			require.NoError(t, f.next.Add(ctx, signup, 2))
			v = take(t, f.both, signup, 1, limits("1/10m, 3/d"))
			require.False(t, v.Allowed)
			require.Equal(t, limits("3/d")[0], v.Limit)
			v = take(t, f.both, signup, 1, limits("9/d"))
			require.True(t, v.Allowed, "also where the former ladder holds none of the limits")
			requireCount(t, f.former, signup, time.Hour, 1)
		})
	}
}

func TestFormerNamesTheMistake(t *testing.T) {
	for want, former := range map[string]counter.Config{
		"want another ladder":       {},
		`counter: Config.Prefix is`: {Prefix: "a b"},
		"Config.Skew is 2d":         {Skew: 48 * time.Hour},
		"as Config.Former has it":   {Settle: time.Hour},
	} {
		_, err := counter.New(newPlainStore(), counter.Config{Former: &former})
		require.ErrorContains(t, err, want)
	}
	for _, former := range []counter.Config{{Prefix: "was"}, {Secret: []byte("x")}, {Ladder: tiers.For(time.Hour)}, {Skew: -1}, {Settle: time.Second}} {
		newCounter(t, newPlainStore(), counter.Config{Former: &former})
	}
}

// A former ladder that holds none of the limits counts all the same: a refund and a
// process with the former alone find the hits there.
func TestAFormerThatHoldsNoLimit(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			store, clock := path.store(), newClock(noon)
			minute, err := tiers.Parse("1s:1m")
			require.NoError(t, err)
			cfg := clock.config()
			cfg.Ladder = minute
			former := newCounter(t, store, cfg)
			cfg.Ladder, cfg.Former = tiers.Default, &counter.Config{Ladder: minute}
			both := newCounter(t, store, cfg)
			for i := range 6 {
				v, err := both.Take(ctx, signup, 1, limits("5/h"))
				require.NoError(t, err)
				require.Equal(t, i < 5, v.Allowed)
				clock.forward(time.Second)
				if i == 0 {
					require.NoError(t, both.Refund(ctx, &v))
					v, err = both.Take(ctx, signup, 1, limits("5/h"))
					require.NoError(t, err)
					require.True(t, v.Allowed)
				}
			}
			requireCount(t, former, signup, time.Minute, 5)

			// A count of a window that the former ladder does not hold has all hits that
			// the former ladder still has.
			require.NoError(t, former.Add(ctx, signup, 4))
			requireCount(t, both, signup, time.Hour, 9)
		})
	}
}

// A failure in the key of a former ladder is an error of the call, like one in the
// other key.
func TestAFailureInEitherKeyOfALadder(t *testing.T) {
	for fails := range 2 {
		store, trips := newPlainStore(), 0
		store.fault = func(*backend.Request) (int, int, error) {
			if trips++; trips == fails+1 {
				return 0, 0, errors.New("lost")
			}
			return 0, 0, nil
		}
		old, err := tiers.Parse("1s:1h, 1m:1h")
		require.NoError(t, err)
		c := newCounter(t, store, counter.Config{Now: newClock(noon).now, Former: &counter.Config{Ladder: old}})
		_, err = c.Take(ctx, signup, 1, limits("5/m"))
		require.ErrorIs(t, err, counter.ErrStore)
		require.ErrorContains(t, err, `event "signup": lost`)
	}
}
