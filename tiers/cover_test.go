package tiers

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/cover"
)

func mustParse(t testing.TB, s string) Ladder {
	t.Helper()
	l, err := Parse(s)
	require.NoError(t, err)
	return l
}

func lines(c Cover) []string {
	var out []string
	for _, r := range c {
		out = append(out, r.String())
	}
	return out
}

func TestCoverOfTheSameInstant(t *testing.T) {
	for _, row := range []struct {
		second, ms int
		first      string
		reads      int64
	}{
		{33, 0, "1s x 27 [2026-03-01T23:30:33Z, 2026-03-01T23:31:00Z)", 80},
		{33, 999, "1s x 27 [2026-03-01T23:30:33Z, 2026-03-01T23:31:00Z)", 80},
		{34, 0, "1s x 26 [2026-03-01T23:30:34Z, 2026-03-01T23:31:00Z)", 79},
	} {
		now := time.Date(2026, 3, 2, 23, 30, row.second, row.ms*1e6, time.UTC)
		c, err := Default.Cover(now, 24*time.Hour, 0)
		require.NoError(t, err)
		require.Equal(t, []string{
			row.first,
			"1m x 29 [2026-03-01T23:31:00Z, 2026-03-02T00:00:00Z)",
			"1h x 24 [2026-03-02T00:00:00Z, 2026-03-03T00:00:00Z)",
		}, lines(c))
		require.Equal(t, row.reads, c.Reads())
	}
}

func TestSkewWidensBothEdges(t *testing.T) {
	now := time.Date(2026, 3, 2, 23, 59, 59, 900e6, time.UTC)
	c, err := Default.Cover(now, 24*time.Hour, 100*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, []string{
		"1s x 1 [2026-03-01T23:59:59Z, 2026-03-02T00:00:00Z)",
		"1h x 25 [2026-03-02T00:00:00Z, 2026-03-03T01:00:00Z)", // one bucket beyond now
	}, lines(c))
	_, err = Default.Cover(now, time.Hour, -1)
	require.ErrorContains(t, err, "skew -1ns")
}

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
			fine, err := l.Finest(row.window)
			require.NoError(t, err)
			top := l.Decision(row.window)
			for s := range phases {
				now := midnight.Add(time.Duration(s) * time.Second)
				end := now.UnixNano() + int64(time.Second) - 1
				n := cover.Append(buf[:0], widths, end+1-int64(row.window), end, fine, top, top).Reads()
				partial, err := l.Cover(now.Add(time.Millisecond), row.window, 0)
				require.NoError(t, err)
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
	t.Helper()
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
		l, err := New(tiers...)
		require.NoError(t, err)
		// counts[i] is the table of tier i for one hit in every unit, weighted so
		// that any two different sets of hits have different sums.
		weight := func(u int64) int64 { return 1 << uint((u+31)%61) }
		sum := func(c Cover) (total int64) {
			for _, r := range c {
				for u := r.First * int64(r.Width) / unit; u < (r.First+r.N)*int64(r.Width)/unit; u++ {
					total += weight(u)
				}
			}
			return total
		}
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
			g, d := int64(l.At(fine).Width), int64(l.At(top).Width)
			for half := int64(-40); half <= 40; half++ { // half units: edges, and instants between them
				ns := half * unit / 2
				now := time.Unix(0, ns)
				for _, skew := range []int64{0, unit / 2, unit, 3 * unit} {
					c, err := l.Cover(now, w, time.Duration(skew))
					require.NoError(t, err)
					from := Index(ns-int64(w)-skew, time.Duration(g)) * g
					to := (Index(ns+skew, time.Duration(d)) + 1) * d
					requireExact(t, l, c, from, to, len(tiers))
					want := int64(0)
					for u := from / unit; u < to/unit; u++ {
						want += weight(u)
					}
					require.Equal(t, want, sum(c))
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
	want, err := Default.Cover(now.Round(0), 24*time.Hour, 0)
	require.NoError(t, err)
	got, err := Default.Cover(now.In(time.FixedZone("", 5*3600+1800)), 24*time.Hour, 0)
	require.NoError(t, err)
	require.Equal(t, want, got)
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
			c, err := l.Cover(now, w, 0)
			require.NoError(t, err)
			fine, err := l.Finest(w)
			require.NoError(t, err)
			g, d := l.At(fine).Width, l.At(l.Decision(w)).Width
			from := Bucket{g, Index(now.UnixNano()-int64(w), g)}.Start()
			to := Bucket{d, Index(now.UnixNano(), d)}.End()
			requireExact(t, l, c, from.UnixNano(), to.UnixNano(), l.Len())
			require.False(t, from.After(now.Add(-w)))
			require.True(t, to.After(now))
		}
	}
	for _, now := range []time.Time{{}, cover.MinTime.Add(-1), cover.MaxTime, time.Unix(1<<40, 0)} {
		_, err := Default.Cover(now, time.Hour, 0)
		require.ErrorContains(t, err, "out of range")
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
		fine, err := l.Finest(time.Duration(window))
		require.NoError(t, err)
		g, d := l.At(fine).Width, l.At(l.Decision(time.Duration(window))).Width
		ns := now.UnixNano()
		requireExact(t, l, c, Index(ns-window-skew, g)*int64(g), (Index(ns+skew, d)+1)*int64(d), 3)
	})
}

func BenchmarkAppend(b *testing.B) {
	b.ReportAllocs()
	now := time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC).UnixNano()
	buf, widths := make(Cover, 0, 5), widthsOf(Default)
	var reads int64
	for b.Loop() {
		buf = cover.Append(buf[:0], widths, now-int64(24*time.Hour), now, 0, 2, 2)
		now += int64(time.Second)
		reads += buf.Reads()
	}
	b.ReportMetric(float64(reads)/float64(b.N), "reads/op")
}
