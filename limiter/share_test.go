package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Callers who always want more get Per / (Per + g + Skew) of a limit, as in the
// table in docs/operating.md, g being the width of the buckets at the window's
// edge: a hit leaves the window with its bucket. The wait ends at the end of a
// bucket, so the share varies a little. The clock is virtual.
func TestShareOfMax(t *testing.T) {
	const (
		windows = 60
		within  = 0.06
	)
	for _, row := range []struct {
		limit  string
		ladder tiers.Ladder
	}{
		{"2/s", tiers.Default},
		{"2/s", tiers.For(time.Second)},
		{"50/s", tiers.Default},
		{"50/s", tiers.For(time.Second)},
		{"10/10s", tiers.Default},
		{"10/10s", tiers.For(10 * time.Second)},
		{"10/m", tiers.Default},
		{"60/m", tiers.Default},
		{"10/h", tiers.Default},
	} {
		limits := counter.MustLimits(row.limit)
		per, limit := limits[0].Per, limits[0]
		finest, err := row.ladder.Finest(per)
		require.NoError(t, err)
		g := row.ladder.At(finest).Width
		for _, skew := range []time.Duration{-1, counter.DefaultSkew} {
			want := float64(per) / float64(per+g+max(0, skew))
			for _, rate := range []int64{3, 30} { // times Max within Per
				now := time.Unix(1_772_494_233, 0)
				c := newCounter(t, memory.New(memory.Config{}), counter.Config{Ladder: row.ladder, Skew: skew, Patience: -1, Now: func() time.Time { return now }})
				step := per/time.Duration(rate*limit.Max) + 7*time.Microsecond // not in step with the buckets
				begin, admitted := now, 0
				for now.Sub(begin) < (windows+2)*per {
					v, err := c.Take(ctx, key("ip:192.0.2.1"), 1, limits)
					require.NoError(t, err)
					if v.Allowed && now.Sub(begin) >= 2*per { // in the steady state
						admitted++
					}
					now = now.Add(step)
				}
				share := float64(admitted) / float64(windows*limit.Max)
				t.Logf("%-7s on %-24s skew %-6s demand %3d x Max: %.3f of Max, the formula says %.3f", limit, row.ladder, max(0, skew), rate, share, want)
				waits := float64(step) / float64(per) / 2 // for the next call
				require.InDelta(t, want, share, within+waits, "%s on %s", limit, row.ladder)
			}
		}
	}
}
