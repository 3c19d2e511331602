package rods_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/internal/rods"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// The buckets marked as read hold what the counter counts, on ladders of all kinds;
// and as many buckets are marked as the covers have.
func TestLook(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	key := counter.Key{Event: "signup", Feature: "ip:192.0.2.1"}
	for _, windows := range [][]time.Duration{
		{10 * time.Second}, {time.Minute}, {90 * time.Second}, {time.Hour}, {dur.Day}, {time.Minute, dur.Day}, {20 * time.Second, 30 * dur.Day}, {dur.Week},
	} {
		l := tiers.For(windows...)
		for _, skew := range []time.Duration{-1, time.Second} {
			now := time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)
			c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{Ladder: l, Skew: skew, Now: func() time.Time { return now }}))(t)
			most := windows[len(windows)-1]
			for range 200 {
				now = now.Add(time.Duration(random.Int64N(int64(most / 50))))
				require.NoError(t, c.Add(t.Context(), key, 1+random.Int64N(3)))
				for _, window := range windows {
					v, err := rods.Look(t.Context(), c, key, window)
					require.NoError(t, err, "%s of %s", window, l)
					var sum, ours int64
					for _, rod := range v.Rods {
						for _, n := range rod.Counts[rod.Ours.First:rod.Ours.End] {
							if n == rods.Gone {
								require.Positive(t, skew, "a bucket that is read is kept")
								n = 0
							}
							sum += n
						}
						ours += rod.Ours.End - rod.Ours.First
					}
					count := try.To(c.Count(t.Context(), key, window))(t)
					if skew < 0 {
						require.Equal(t, count.High, sum, "%s of %s", window, l)
					}
					require.LessOrEqual(t, sum, count.High)
					require.Equal(t, v.Ours, ours, "%s of %s", window, l)
				}
			}
		}
	}
}

// Buckets grow too old between one reading of the clock and the next.
func TestLookWhileTheClockRuns(t *testing.T) {
	now := time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)
	c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{Ladder: tiers.For(15 * time.Second), Now: func() time.Time {
		now = now.Add(7 * time.Millisecond)
		return now
	}}))(t)
	for range 1000 {
		v := try.To(rods.Look(t.Context(), c, counter.Key{Event: "signup", Feature: "ip:192.0.2.1"}, 15*time.Second))(t)
		for _, rod := range v.Rods {
			require.LessOrEqual(t, rod.Ours.End, int64(len(rod.Counts)))
		}
	}
}
