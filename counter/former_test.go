package counter_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

type fleet struct{ former, both, next *counter.Counter }

// newFleet returns processes on a store and a clock, before, in and after a change of
// ladder.
func newFleet(t *testing.T, clock *clock, store backend.Store, ladder string) fleet {
	old := try.To(tiers.Parse(ladder))(t)
	cfg := clock.config()
	var f fleet
	cfg.Ladder = old
	f.former = newCounter(t, store, cfg)
	cfg.Ladder = tiers.Default
	f.next = newCounter(t, store, cfg)
	cfg.Former = &counter.Config{Ladder: old}
	f.both = newCounter(t, store, cfg)
	return f
}

// onLadders plays lines on every path, by processes with the former ladder, the default
// ladder and both.
func onLadders(t *testing.T, ladder, lines string) {
	t.Helper()
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			f := newFleet(t, clock, path.store(), ladder)
			s := story{clock: clock, counters: map[string]*counter.Counter{"former": f.former, "both": f.both, "next": f.next}}
			s.play(t, lines)
		})
	}
}

// In a rolling deploy, and in one that is rolled back, no window has more than Max.
// Without processes that know both ladders it has twice as many.
func TestAChangeOfLadderKeepsTheLimit(t *testing.T) {
	const per = 10 * time.Minute
	five := counter.Limits{{Max: 5, Per: per}}
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			for seed := range uint64(long.Rounds(10, 40)) {
				rng := rand.New(rand.NewPCG(seed, 1))
				clock := newClock(noon)
				f := newFleet(t, clock, path.store(), "1s:1h, 1m:1h")
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
						v := try.To(kinds[rng.IntN(len(kinds))].Take(ctx, signup, 1, five))(t)
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
			f := newFleet(t, clock, path.store(), "1s:1h, 1m:1h")
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

// Hits that are older than the finer tiers are kept are given back in the coarser, and
// hits on a former ladder in both.
func TestCreditOnBothLadders(t *testing.T) {
	onLadders(t, "1s:1m, 1m:1h, 1h:1d", `
		both.add 5 signup
		later 40m
		both.add 5 signup
		later 40m
		both.add 5 signup
		later 40m
		both.charge -4 signup 99/d -> yes *signup 99/d 88
		both.charge -6 signup 99/d -> yes *signup 99/d 94
		both+former.count signup 12h -> 5 5
	`)
}

// A former ladder that is too short for the limits gives back what it has.
func TestCreditOnAShortFormerLadder(t *testing.T) {
	onLadders(t, "1s:1m, 1m:1h", `
		both.add 5 signup
		later 10m
		both.charge -3 signup 9/d -> yes *signup 9/d 7
		former.count signup 1h -> 2
	`)
}

// A Counter with a former ladder tells the larger numbers of both ladders, and
// counts and gives back in both.
func TestBothLaddersAreToldAndEmptied(t *testing.T) {
	onLadders(t, "1s:1h, 1m:1h", `
		former.add 2 signup
		later 3m
		next.add 1 signup
		v: both.take 2 signup 5/10m -> took *signup 5/10m 1
		former+next+both.count signup 10m -> 4 3 4
		former.peek 1 signup 5/10m -> yes *signup 5/10m 0
		next.peek 1 signup 5/10m -> yes *signup 5/10m 1
		both.peek 1 signup 5/10m -> yes *signup 5/10m 0
		# The former ladder binds.
		both.take 2 signup 5/10m -> no *signup 5/10m 1 in 7m1s
		both.refund v
		former+next+both.count signup 10m -> 2 1 2
		both.add 2 signup
		former+next.count signup 10m -> 4 3
		over: both.charge 2 signup 5/10m -> over *signup 5/10m 0 in 7m1s
		next.count signup 1m -> 5
		both.refund over
		both.addat 1 signup 1m
		former+next.count signup 10m -> 5 4
		both.refundat 1 signup 1m
		former+next.count signup 10m -> 4 3
		# A verdict of the former ladder alone is given back there alone.
		alone: former.take 1 signup 5/10m -> took *signup 5/10m 0
		former.refund alone
		former+next.count signup 10m -> 4 3
		both.forget signup
		former+next+both.count signup 10m -> 0 0 0
		# A limit that only the new ladder can hold is judged there.
		both.take 1 signup 1/10m,3/d -> took *signup 1/10m 0, signup 3/d 2
		former.count signup 1h -> 1
		later 2h
		next.add 2 signup
		both+former.count signup 10m -> 2 0
		both.take 1 signup 1/10m,3/d -> no signup 1/10m 0 in 10m1s, *signup 3/d 0 in 22h0m1s
		# Also where the former ladder holds none of the limits.
		both.take 1 signup 9/d -> took *signup 9/d 5
		former.count signup 1h -> 1
	`)
}

// A former ladder that holds none of the limits counts all the same: a refund and a
// process with the former alone find the hits there.
func TestAFormerThatHoldsNoLimit(t *testing.T) {
	onLadders(t, "1s:1m", `
		v: both.take 1 signup 5/h -> took *signup 5/h 4
		later 1s
		both.refund v
		both.take 5 signup 5/h -> took *signup 5/h 0
		later 1s
		both.take 1 signup 5/h -> no *signup 5/h 0 in 1h0m0s
		former.count signup 1m -> 5
		# A window that the former ladder does not hold has all hits that it still has.
		former.add 4 signup
		both.count signup 1h -> 9
	`)
}

func TestFormerNamesTheMistake(t *testing.T) {
	for want, former := range map[string]counter.Config{
		"want another ladder":       {},
		`counter: Config.Prefix is`: {Prefix: "a b"},
		"Config.Skew is 2d":         {Skew: 48 * time.Hour},
		"as Config.Former has it":   {Settle: time.Hour},
	} {
		require.ErrorContains(t, try.Err(counter.New(newPlainStore(), counter.Config{Former: &former})), want)
	}
	for _, former := range []counter.Config{{Prefix: "was"}, {Secret: []byte("x")}, {Ladder: tiers.For(time.Hour)}, {Skew: -1}, {Settle: time.Second}} {
		newCounter(t, newPlainStore(), counter.Config{Former: &former})
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
		old := try.To(tiers.Parse("1s:1h, 1m:1h"))(t)
		c := newCounter(t, store, counter.Config{Now: newClock(noon).now, Former: &counter.Config{Ladder: old}})
		_, err := c.Take(ctx, signup, 1, limits("5/m"))
		require.ErrorIs(t, err, counter.ErrStore)
		require.ErrorContains(t, err, `event "signup": lost`)
	}
}
