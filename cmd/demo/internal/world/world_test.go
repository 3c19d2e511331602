package world_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/world"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

func newWorld(t *testing.T, limit counter.Limit, seed uint64) *world.World {
	return try.To(world.New(limit, seed))(t)
}

func frame(t *testing.T, w *world.World) *world.Frame { return try.To(w.Frame(t.Context()))(t) }

func racer(t *testing.T, f *world.Frame, name string) world.Racer {
	t.Helper()
	for _, r := range f.Racers {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no racer %q", name)
	return world.Racer{}
}

// A burst at the boundary gets twice the limit through a fixed window, whenever
// the burst is asked for, and whatever came before.
func TestBurst(t *testing.T) {
	each := long.Rounds(5, 1)
	for _, limit := range world.Limits {
		burst := func(w *world.World) {
			w.Burst()
			for frame(t, w).Planned > 0 {
				require.NoError(t, w.Advance(t.Context(), w.Now().Add(limit.Per/10)))
			}
		}
		for name, before := range map[string]func(w *world.World){
			"nothing":      func(*world.World) {},
			"a burst":      burst,
			"half a burst": func(w *world.World) { w.Burst(); require.NoError(t, w.Advance(t.Context(), w.Now().Add(limit.Per/3))) },
			"an attempt":   func(w *world.World) { require.NoError(t, w.Hit(t.Context())) },
			"a crowd": func(w *world.World) {
				w.Crowd()
				require.NoError(t, w.Advance(t.Context(), w.Now().Add(2*limit.Per)))
			},
			"a pattern": func(w *world.World) {
				w.Pattern(slices.Repeat([]int64{limit.Max}, 24))
				require.NoError(t, w.Advance(t.Context(), w.Now().Add(limit.Per)))
			},
		} {
			for phase := rand.IntN(each); phase < 20; phase += each {
				w := newWorld(t, limit, 1)
				before(w)
				require.NoError(t, w.Advance(t.Context(), w.Now().Add(limit.Per*time.Duration(phase)/20)))
				tried := frame(t, w).Tried
				burst(w)
				f := frame(t, w)
				require.Equal(t, 2*limit.Max, racer(t, f, "fixed window").In, "%s, phase %d after %s", limit, phase, name)
				require.LessOrEqual(t, racer(t, f, "abacus").Peak, limit.Max, "%s, phase %d after %s", limit, phase, name)
				require.LessOrEqual(t, racer(t, f, "log of every hit").Peak, limit.Max)
				require.Equal(t, 2*limit.Max, f.Tried-tried)
			}
		}
	}
}

// Whatever is pressed, abacus and the log stay at the limit, no attempt is missing
// in the samples, and the buckets that are read hold the hits of the window.
func TestRandomPlay(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, limit := range world.Limits {
		w := newWorld(t, limit, seed)
		tried := int64(0)
		for range 300 {
			switch random.IntN(8) {
			case 0:
				w.Burst()
			case 1:
				w.Crowd()
			case 2:
				w.Pattern(make([]int64, 24))
			case 3:
				counts := make([]int64, 24)
				for i := range counts {
					counts[i] = random.Int64N(2 * limit.Max)
				}
				w.Pattern(counts)
			case 4:
				require.NoError(t, w.Hit(t.Context()))
			case 5:
				w.Pace(time.Duration(random.Int64N(int64(4 * limit.Per))))
			}
			if random.IntN(2) == 0 {
				require.NoError(t, w.Step(t.Context()))
			} else {
				require.NoError(t, w.Advance(t.Context(), w.Now().Add(time.Duration(random.Int64N(int64(limit.Per))))))
			}
			f := frame(t, w)
			require.Greater(t, f.Present.At, f.Now, "a sample ends after the present")
			for _, s := range f.Samples {
				tried += s.Tried
			}
			require.Equal(t, f.Tried, tried+f.Present.Tried)
			for _, r := range f.Racers {
				require.LessOrEqual(t, r.In, r.Peak)
			}
			require.LessOrEqual(t, racer(t, f, "abacus").Peak, limit.Max)
			require.LessOrEqual(t, racer(t, f, "log of every hit").Peak, limit.Max)
			ours := racer(t, f, "abacus")
			var sum, reads int64
			for _, rod := range f.Rods.Rods {
				if rod.Side == "newest" {
					require.Zero(t, rod.Ours, "%s: the newest bucket is read whole", rod.Name)
				}
				for _, n := range rod.Counts[rod.Ours.First:rod.Ours.End] {
					sum += n
					reads++
				}
			}
			require.Equal(t, f.Rods.Ours, reads)
			require.GreaterOrEqual(t, sum, ours.In)
			require.LessOrEqual(t, sum, limit.Max, "no more than the limit is ever counted")
		}
	}
}

// The buckets that a frame marks are those of the cover.
func TestCoversOfADay(t *testing.T) {
	const phases = 24 * 60
	w := newWorld(t, world.Limits[2], 1)
	var ours int64
	for range phases {
		require.NoError(t, w.Advance(t.Context(), w.Now().Add(61*time.Second)))
		f := frame(t, w)
		ours += f.Rods.Ours
		for _, rod := range f.Rods.Rods {
			f.Rods.Ours -= rod.Ours.End - rod.Ours.First
		}
		require.Zero(t, f.Rods.Ours)
	}
	require.InDelta(t, 83, float64(ours)/phases, 0.1)
}

// A frame tells how many buckets abacus fetches from memcached for an attempt.
func TestFetched(t *testing.T) {
	name := try.To(stores.Parse("memcached://" + servertest.Memcached(t)))(t)
	opened := try.To(stores.Open(name, time.Minute))(t)
	defer opened.Close()
	gets := func() (n int64) {
		n = try.To(strconv.ParseInt(opened.Look(t.Context())[0].Facts["cmd_get"], 10, 64))(t)
		return n
	}
	for _, limit := range world.Limits {
		w := newWorld(t, limit, 1)
		c := try.To(counter.New(opened.Store, counter.Config{Ladder: tiers.Default, Now: w.Now, Patience: time.Minute}))(t)
		begin := gets()
		for i := range limit.Max + 5 {
			require.NoError(t, w.Hit(t.Context()))
			before := gets()
			try.To(c.Take(t.Context(), counter.Key{Event: "signup", Feature: limit.String()}, 1, counter.Limits{limit}))(t)
			f := frame(t, w)
			require.Equal(t, gets()-before, f.Fetched.Last, "%s, attempt %d", limit, i)
			require.InDelta(t, float64(gets()-begin)/float64(i+1), f.Fetched.Mean, 1e-9)
			require.NoError(t, w.Advance(t.Context(), w.Now().Add(limit.Per/1000)))
		}
	}
}

// A frame is the same without encoding/json.
func TestPlain(t *testing.T) {
	require.Nil(t, (*world.RaceFrame)(nil).Plain(), "a race that stands still")
	r := try.To(world.NewRace("10/m", 1))(t)
	require.NoError(t, r.Do(t.Context(), "crowd", ""))
	require.NoError(t, r.Do(t.Context(), "play", ""))
	for range 20 {
		f := try.To(r.Frame(t.Context(), world.FrameEvery, false))(t)
		require.JSONEq(t, string(try.To(json.Marshal(f))(t)), string(try.To(json.Marshal(f.Plain()))(t)))
	}
}

// A step goes to the next attempt, and tells who admits it.
func TestSteps(t *testing.T) {
	w := newWorld(t, world.Limits[0], 1)
	w.Burst()
	var said []string
	for frame(t, w).Planned > 0 {
		require.NoError(t, w.Step(t.Context()))
		said = append(said, frame(t, w).Said...)
	}
	require.Equal(t, "23:59:40: no attempt. In the last minute: abacus 0, fixed window 0, two counters 0, token bucket 0 and log of every hit 0.", said[0])
	require.Contains(t, said, "23:59:59.100: an attempt, admitted by abacus, fixed window, two counters, token bucket and log of every hit.")
	require.Contains(t, said, "00:00:00: over the limit: fixed window, with 11 admitted in the last minute in place of 10.")
	require.Contains(t, said, "00:00:00: an attempt, admitted by fixed window; denied by abacus, two counters, token bucket and log of every hit.")
	require.Contains(t, said, "00:00:00.009: 10 attempts before 00:00:00, and 10 after. In the last minute: abacus 10, fixed window 20, two counters 10, token bucket 10 and log of every hit 10.")
}
