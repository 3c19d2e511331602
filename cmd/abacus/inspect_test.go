package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/clitest"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// A key counted with a secret is found with the same secret.
func TestInspectWithSecret(t *testing.T) {
	for kind, url := range clitest.Stores(t) {
		t.Run(kind, func(t *testing.T) {
			name := try.To(stores.Parse(url))(t)
			store := try.To(stores.Open(name, 5*time.Second))(t)
			defer store.Close()
			c := try.To(counter.New(store.Store, counter.Config{Secret: []byte("pepper"), Patience: 5 * time.Second}))(t)
			require.NoError(t, c.Add(t.Context(), counter.Key{Event: "signup", Feature: "203.0.113.9"}, 1234))
			cmd, stderr := clitest.Process(t, "abacus", "inspect", "--store", url, "--secret-env", "SALT", "signup", "203.0.113.9")
			cmd.Env = append(cmd.Env, "SALT=pepper")
			out, err := cmd.Output()
			require.NoError(t, err, stderr)
			require.Regexp(t, `(?m)^1d +1,234$`, string(out))
			require.NotContains(t, string(out), "pepper")
		})
	}
}

var inspectedKey = counter.Key{Event: "signup", Feature: "203.0.113.9"}

// look counts a hit at each age before now, oldest first, and looks.
func look(t *testing.T, limits, ladder string, rows int, ages ...time.Duration) *inspected {
	l := try.To(tiers.Parse(ladder))(t)
	end := time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC)
	now := end
	c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{Ladder: l, Now: func() time.Time { return now }}))(t)
	for _, age := range ages {
		now = end.Add(-age)
		require.NoError(t, c.Add(t.Context(), inspectedKey, 1))
	}
	now = end
	found := try.To((&inspectCmd{At: cli.Instant(end), Limit: rows}).look(t.Context(), c, inspectedKey, counter.MustLimits(limits), limiter.Usage{}))(t)
	return found
}

// A tier with more buckets than a single call can return is searched to the end.
func TestLongTier(t *testing.T) {
	found := look(t, "5/90s", "1s:30d", 10, 29*dur.Day, 3*dur.Day, 3*dur.Day, 0)
	require.Len(t, found.Tiers, 1)
	require.False(t, found.Tiers[0].More)
	var counts []int64
	for _, b := range found.Tiers[0].Buckets {
		counts = append(counts, b.Count)
	}
	require.Equal(t, []int64{1, 2, 1}, counts)
	require.Equal(t, found.At, found.Tiers[0].Buckets[0].Start)
	require.Equal(t, found.At.Add(-29*dur.Day), found.Tiers[0].Buckets[2].Start)
}

// Finer tiers show all buckets still kept, and tell whether there are more.
func TestRows(t *testing.T) {
	found := look(t, "5/90s", "1s:1h, 1m:1d, 1h:30d", 2, 10*dur.Day, 20*time.Hour, 70*time.Minute, 50*time.Minute, time.Minute)
	var rows []int
	var more []bool
	for _, tier := range found.Tiers {
		rows, more = append(rows, len(tier.Buckets)), append(more, tier.More)
	}
	require.Equal(t, []int{2, 2, 2}, rows)
	require.Equal(t, []bool{true, true, true}, more)

	found = look(t, "5/90s", "1s:1h, 1m:1d, 1h:30d", 9, 10*dur.Day, 20*time.Hour, 70*time.Minute, 50*time.Minute, time.Minute)
	rows, more = nil, nil
	for _, tier := range found.Tiers {
		rows, more = append(rows, len(tier.Buckets)), append(more, tier.More)
	}
	require.Equal(t, []int{2, 4, 4}, rows)
	require.Equal(t, []bool{false, false, false}, more)

	require.True(t, look(t, "5/90s", "1s:1h", 9).Empty())
	require.False(t, look(t, "5/90s", "1s:1h", 0, time.Minute).Empty())
}

// The windows are the windows of the limits, and the usual windows of the ladder.
func TestWindows(t *testing.T) {
	found := look(t, "5/90s, 9 per day in UTC", "1m:1h, 1h:7d", 1, 24*time.Hour, 50*time.Minute, 30*time.Second)
	var lengths []string
	for _, w := range found.Windows {
		lengths = append(lengths, w.Length)
	}
	require.Equal(t, []string{"1m", "1m30s", "1h", "day in UTC", "1d", "7d"}, lengths)
	require.Equal(t, windowSeen{Length: "day in UTC", Low: 2, High: 2, Limit: "9 per day in UTC", Room: 7}, found.Windows[3])
	require.Equal(t, windowSeen{Length: "1m30s", Low: 1, High: 1, Limit: "5/1m30s", Room: 4}, found.Windows[1])
	require.EqualValues(t, 2, found.Windows[2].High)
}
