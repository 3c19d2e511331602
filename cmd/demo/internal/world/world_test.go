package world_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/world"
	"github.com/abacus-go/abacus/counter"
)

func newWorld(t *testing.T, limit counter.Limit, seed uint64) *world.World {
	t.Helper()
	w, err := world.New(limit, seed)
	require.NoError(t, err)
	return w
}

func frame(t *testing.T, w *world.World) *world.Frame {
	t.Helper()
	f, err := w.Frame(t.Context())
	require.NoError(t, err)
	return f
}

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
	for _, limit := range world.Limits {
		for phase := range 20 {
			w := newWorld(t, limit, 1)
			require.NoError(t, w.Advance(t.Context(), w.Now().Add(limit.Per*time.Duration(phase)/20)))
			w.Burst()
			for frame(t, w).Planned > 0 {
				require.NoError(t, w.Step(t.Context()))
			}
			f := frame(t, w)
			require.Equal(t, 2*limit.Max, racer(t, f, "fixed window").Peak, "%s, phase %d", limit, phase)
			require.Equal(t, limit.Max, racer(t, f, "abacus").Peak, "%s, phase %d", limit, phase)
			require.Equal(t, limit.Max, racer(t, f, "log of every hit").Peak)
			require.Equal(t, 2*limit.Max, f.Tried)
		}
	}
}

// Whatever is pressed, abacus and the log stay at the limit; the numbers of a
// frame are those of its samples; and the buckets that are read hold the hits of
// the window, and at most those of a window longer by a second.
func TestRandomPlay(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, limit := range world.Limits {
		w := newWorld(t, limit, seed)
		var admitted []time.Time // by abacus
		var before int64
		most := make([]int64, 5)
		for range 300 {
			switch random.IntN(8) {
			case 0:
				w.Burst()
			case 1:
				w.Go(world.Crowd)
			case 2:
				w.Go(world.Drip)
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
			for _, s := range f.Samples {
				for i, n := range s.In {
					most[i] = max(most[i], n)
				}
			}
			for i, r := range f.Racers {
				require.LessOrEqual(t, most[i], r.Peak)
				require.LessOrEqual(t, r.In, r.Peak)
			}
			require.LessOrEqual(t, racer(t, f, "abacus").Peak, limit.Max)
			require.LessOrEqual(t, racer(t, f, "log of every hit").Peak, limit.Max)
			ours := racer(t, f, "abacus")
			if ours.Admitted == before+1 { // when, is known of a single hit only
				admitted = append(admitted, w.Now())
			}
			before = ours.Admitted
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
		require.NotEmpty(t, admitted)
	}
}

// A day has 84 reads at most in place of the textbook's 142.
func TestReadsOfADay(t *testing.T) {
	w := newWorld(t, world.Limits[2], 1)
	var ours, book int64
	for range 24 * 60 {
		require.NoError(t, w.Advance(t.Context(), w.Now().Add(61*time.Second)))
		f := frame(t, w)
		ours, book = max(ours, f.Rods.Ours), max(book, f.Rods.Book)
		var read int64
		for _, rod := range f.Rods.Rods {
			read += rod.Book.End - rod.Book.First
		}
		require.Equal(t, f.Rods.Book, read)
	}
	t.Log(ours, book)
}

func TestStepsAreTold(t *testing.T) {
	w := newWorld(t, world.Limits[0], 1)
	w.Burst()
	var said []string
	for range 60 {
		require.NoError(t, w.Step(context.Background()))
		said = append(said, frame(t, w).Said...)
	}
	for _, line := range said {
		t.Log(line)
	}
}
