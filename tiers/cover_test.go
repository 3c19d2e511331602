package tiers

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

func mustParse(t testing.TB, s string) Ladder { return try.To(Parse(s))(t) }

// A window of N finest buckets that ends at the end of one: the reads over
// every phase of now, as docs/design.md tells them.
func TestReadsOverEveryPhase(t *testing.T) {
	for _, row := range []struct {
		ladder   string
		window   time.Duration
		min, max int64
		mean     float64
	}{
		{ladder: "1s:1d,1m:1d,1h:1d", window: time.Minute, min: 1, mean: 30.5, max: 60},
		{ladder: "1s:1d,1m:1d,1h:1d", window: time.Hour, min: 1, mean: 60, max: 119},
		{ladder: "1s:1d,1m:1d,1h:1d", window: 24 * time.Hour, min: 24, mean: 83, max: 142},
		{ladder: "1s:7d,1m:7d,1h:7d", window: 7 * 24 * time.Hour, min: 168, mean: 227, max: 286},
		{ladder: "1s:7d,1m:7d,1h:7d,1d:7d", window: 7 * 24 * time.Hour, min: 7, mean: 77.5, max: 148},
	} {
		t.Run(fmt.Sprint(row.ladder, row.window), func(t *testing.T) {
			l := mustParse(t, row.ladder)
			midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
			const phases = 86400
			lo, hi, sum := int64(1)<<62, int64(0), int64(0)
			buf, widths := make(Cover, 0, 15), widthsOf(l)
			fine := try.To(l.Finest(row.window))(t)
			top := l.Decision(row.window)
			for s := range phases {
				now := midnight.Add(time.Duration(s) * time.Second)
				end := now.UnixNano() + int64(time.Second) - 1
				n := cover.Append(buf[:0], widths, end+1-int64(row.window), end, fine, top, top).Reads()
				partial := try.To(l.Cover(now.Add(time.Millisecond), row.window, 0))(t)
				if s > 0 { // the window starts within a second: one bucket more
					prev := cover.Append(buf[:0], widths, end+1-int64(row.window)-int64(time.Second), end, fine, top, top).Reads()
					require.Equal(t, prev, partial.Reads())
				}
				sum, lo, hi = sum+n, min(lo, n), max(hi, n)
			}
			require.Equal(t, row.min, lo)
			require.Equal(t, row.max, hi)
			require.InDelta(t, row.mean, float64(sum)/phases, 0.05) // the table is rounded
		})
	}
}

func widthsOf(l Ladder) (widths []int64) {
	for _, t := range l.tiers {
		widths = append(widths, int64(t.Width))
	}
	return widths
}

// requireExact checks that c touches without gap or overlap and counts the
// span [from, to), bucket by bucket.
func requireExact(t *testing.T, l Ladder, c Cover, from, to int64, maxRuns int) {
	require.NotEmpty(t, c)
	require.LessOrEqual(t, len(c), maxRuns)
	at := from
	for _, r := range c {
		require.Positive(t, r.N)
		require.Equal(t, at, r.First*int64(r.Width), "a gap or an overlap in %v", c)
		at += r.N * int64(r.Width)
	}
	require.Equal(t, to, at, "%v", c)
}

// requireCover checks that the cover of a window counts whole buckets from its start, widened
// by skew, to its end, each once.
func requireCover(t *testing.T, l Ladder, c Cover, now time.Time, window, skew time.Duration) {
	fine := try.To(l.Finest(window))(t)
	g, d := l.At(fine).Width, l.At(l.Decision(window)).Width
	from, to := now.UnixNano()-int64(window+skew), now.UnixNano()+int64(skew)
	requireExact(t, l, c, Bucket{g, Index(from, g)}.Start().UnixNano(), Bucket{d, Index(to, d)}.End().UnixNano(), l.Len())
}

// Every now, every window, every pair of edges, on ladders small enough to try
// them all, around the epoch: what a cover counts is every hit in exactly the
// span that it promises, each hit once.
func TestExhaustiveOnSmallLadders(t *testing.T) {
	const unit = int64(10 * time.Millisecond)
	tier := func(width, keep int64) Tier {
		return Tier{time.Duration(width * unit), time.Duration(keep * unit)}
	}
	for _, tiers := range [][]Tier{
		{tier(1, 13)},
		{tier(3, 13)},
		{tier(1, 13), tier(2, 13)},
		{tier(1, 13), tier(2, 13), tier(6, 13)},
		{tier(1, 4), tier(3, 9), tier(6, 13)},
		{tier(2, 5), tier(4, 13), tier(8, 13)},
		{tier(1, 2), tier(2, 4), tier(4, 8), tier(8, 13)},
	} {
		l := try.To(New(tiers...))(t)
		for window := int64(1); window <= 13; window++ {
			w := time.Duration(window * unit)
			fine, err := l.Finest(w)
			if err != nil {
				require.Greater(t, tiers[0].Width, w, "%v must count %v", l, w)
				continue
			}
			top := l.Decision(w)
			require.GreaterOrEqual(t, top, fine)
			require.LessOrEqual(t, l.At(top).Width, w)
			require.GreaterOrEqual(t, l.At(fine).Keep, w)
			if fine > 0 {
				require.Less(t, l.At(fine-1).Keep, w, "a finer tier would have served")
			}
			g := int64(l.At(fine).Width)
			for half := int64(-40); half <= 40; half++ { // half units: edges, and instants between them
				ns := half * unit / 2
				now := time.Unix(0, ns)
				for _, skew := range []int64{0, unit / 2, unit, 3 * unit} {
					c := try.To(l.Cover(now, w, time.Duration(skew)))(t)
					requireCover(t, l, c, now, w, time.Duration(skew))
					from := c[0].Start().UnixNano()
					require.LessOrEqual(t, from, ns-int64(w)-skew)
					require.Greater(t, from, ns-int64(w)-skew-g)
				}
				for right := fine; right <= top; right++ {
					c := cover.Append(Cover(nil), widthsOf(l), ns-int64(w), ns, fine, top, right)
					rw := int64(l.At(right).Width)
					requireExact(t, l, c, Index(ns-int64(w), time.Duration(g))*g, (Index(ns, time.Duration(rw))+1)*rw, 2*top-fine-right+1)
				}
			}
		}
	}
}

func TestCoverIgnoresZoneAndMonotonicReading(t *testing.T) {
	now := time.Now() // carries a monotonic reading
	want := try.To(Default.Cover(now.Round(0), 24*time.Hour, 0))(t)
	require.Equal(t, want, try.To(Default.Cover(now.In(time.FixedZone("", 5*3600+1800)), 24*time.Hour, 0))(t))
}

func TestCoverFarFromNow(t *testing.T) {
	for _, now := range []time.Time{
		time.Date(1969, 12, 31, 23, 59, 59, 1, time.UTC),
		time.Date(1901, 5, 6, 7, 8, 9, 999999999, time.UTC),
		time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC),
		time.Date(2100, 2, 28, 23, 30, 33, 0, time.UTC),
		cover.MinTime, cover.MaxTime.Add(-1),
	} {
		l := mustParse(t, "1ms:10ms, 1s:366d, 1m:366d, 1h:366d, 1d:366d")
		for _, w := range []time.Duration{MinWindow, time.Minute, 24 * time.Hour, MaxWindow} {
			c := try.To(l.Cover(now, w, 0))(t)
			requireCover(t, l, c, now, w, 0)
			require.False(t, c[0].Start().After(now.Add(-w)))
			require.True(t, c[len(c)-1].End().After(now))
		}
	}
	for _, now := range []time.Time{{}, cover.MinTime.Add(-1), cover.MaxTime, time.Unix(1<<40, 0)} {
		require.ErrorContains(t, try.Err(Default.Cover(now, time.Hour, 0)), "out of range")
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	now := time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC).UnixNano()
	buf, widths := make(Cover, 0, 5), widthsOf(Default)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		buf = cover.Append(buf[:0], widths, now-int64(24*time.Hour), now, 0, 2, 2)
	}))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_, _ = Default.Cover(time.Unix(0, now), 24*time.Hour, 0)
	}), 1.0)
}

func FuzzCover(f *testing.F) {
	f.Add(int64(1772494233), int64(0), int64(86400e9), int64(0), int64(1000), int64(60), int64(60))
	f.Add(int64(-1), int64(999999999), int64(10e6), int64(100e6), int64(1), int64(7), int64(2))
	f.Fuzz(func(t *testing.T, sec, nsec, window, skew, width, a, b int64) {
		if a < 2 || a > 1e6 || b < 2 || b > 1e6 || width < 1 || width > 1e6 {
			return
		}
		w := time.Duration(width) * time.Millisecond
		keep := time.Duration(min(max(window, int64(w)*a*b), int64(MaxWindow)))
		l, err := New(Tier{w, keep}, Tier{w * time.Duration(a), keep}, Tier{w * time.Duration(a) * time.Duration(b), keep})
		if err != nil {
			return
		}
		now := time.Unix(sec, nsec)
		c, err := l.Cover(now, time.Duration(window), time.Duration(skew))
		if err != nil {
			return
		}
		requireCover(t, l, c, now, time.Duration(window), time.Duration(skew))
	})
}
