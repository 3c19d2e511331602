package classic_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// The example of the textbooks: the last 24 hours at 23:30:33.
func TestTextbookCoverOfTheExample(t *testing.T) {
	for _, ms := range []int{0, 1, 999} {
		now := time.Date(2026, 3, 2, 23, 30, 33, ms*1e6, time.UTC)
		c := try.To(classic.TextbookCover(tiers.Default, now, 24*time.Hour))(t)
		var lines []string
		for _, run := range c {
			lines = append(lines, run.String())
		}
		require.Equal(t, []string{
			"1s x 26 [2026-03-01T23:30:34Z, 2026-03-01T23:31:00Z)",
			"1m x 29 [2026-03-01T23:31:00Z, 2026-03-02T00:00:00Z)",
			"1h x 23 [2026-03-02T00:00:00Z, 2026-03-02T23:00:00Z)",
			"1m x 30 [2026-03-02T23:00:00Z, 2026-03-02T23:30:00Z)",
			"1s x 34 [2026-03-02T23:30:00Z, 2026-03-02T23:30:34Z)",
		}, lines)
		require.EqualValues(t, 142, c.Reads())
	}
}

// The reads over every phase of now, as docs/design.md has them for a day. The
// runs touch, and fill the window of whole seconds that ends with the second of now.
func TestTextbookCoverOverEveryPhase(t *testing.T) {
	for _, row := range []struct {
		ladder   string
		window   time.Duration
		min, max int64
		mean     float64
	}{
		{ladder: "1s:1d,1m:1d,1h:1d", window: time.Minute, min: 1, mean: 59, max: 60},
		{ladder: "1s:1d,1m:1d,1h:1d", window: time.Hour, min: 1, mean: 118, max: 119},
		{ladder: "1s:1d,1m:1d,1h:1d", window: 24 * time.Hour, min: 24, mean: 141, max: 142},
		{ladder: "1s:7d,1m:7d,1h:7d", window: 7 * 24 * time.Hour, min: 168, mean: 285, max: 286},
	} {
		l := try.To(tiers.Parse(row.ladder))(t)
		lo, hi, sum := int64(1)<<62, int64(0), int64(0)
		for s := range 86400 {
			now := time.Unix(1772409600+int64(s), 999)
			c := try.To(classic.TextbookCover(l, now, row.window))(t)
			end := now.Truncate(time.Second).Add(time.Second)
			at := end.Add(-row.window)
			for _, run := range c {
				if !run.Start().Equal(at) {
					require.Equal(t, at, run.Start(), "%v", c)
				}
				at = run.End()
			}
			require.True(t, at.Equal(end), "%v", c)
			n := c.Reads()
			sum, lo, hi = sum+n, min(lo, n), max(hi, n)
		}
		require.Equal(t, row.min, lo)
		require.Equal(t, row.max, hi)
		require.InDelta(t, row.mean, float64(sum)/86400, 0.05) // the table is rounded
	}
}

func TestTextbookCoverNamesTheMistake(t *testing.T) {
	require.ErrorContains(t, try.Err(classic.TextbookCover(tiers.Default, time.Time{}, time.Hour)), "out of range")
	require.ErrorContains(t, try.Err(classic.TextbookCover(tiers.Default, time.Unix(0, 0), 48*time.Hour)), "longer than any tier")
}
