package prometheus_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	abacusmetrics "github.com/abacus-go/abacus/metrics/prometheus"
	"github.com/abacus-go/abacus/metrics/tally"
)

// BenchmarkAllow is an admitted decision in memory, bare, with metrics, and with a
// tally, in turns of 100 calls, so that a busy machine slows down
// all alike. The benchmark prints ratios of medians, and fails unless all calls are
// counted.
func BenchmarkAllow(b *testing.B) {
	decisions := abacusmetrics.NewDecisions()
	configs := []struct {
		name string
		cfg  limiter.Config
	}{
		{"bare", limiter.Config{}},
		{"metrics", limiter.Config{Observe: decisions.Observe}},
		{"observed", limiter.Config{Observe: func(limiter.Decision) {}}},
		{"tally", limiter.Config{}},
	}
	const calls, users = 100, 100
	var numbers *tally.Tally
	lims, times := make([]*limiter.Limiter, len(configs)), make([][]float64, len(configs))
	var features [users]feature.Feature
	for i := range features {
		features[i] = feature.New("user", fmt.Sprint("user ", i))
	}
	for i, of := range configs {
		c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
		require.NoError(b, err)
		if of.name == "tally" {
			numbers = tally.New(c)
			of.cfg.Observe = numbers.Observe
		}
		of.cfg.Rules = []limiter.Rule{{Event: "signup", Kind: "user", Limits: counter.MustLimits("1000000000/m, 1000000000/h, 1000000000/d")}}
		lims[i], err = limiter.New(c, of.cfg)
		require.NoError(b, err)
		for _, f := range features { // makes the keys
			_, err := lims[i].Allow(ctx, "signup", f)
			require.NoError(b, err)
		}
	}
	round := 0
	for b.Loop() {
		for j := range configs {
			i := (j + round) % len(configs)
			lim, began := lims[i], time.Now()
			for n := range calls {
				if v, err := lim.Allow(ctx, "signup", features[n%users]); err != nil || !v.Allowed {
					b.Fatal(v, err)
				}
			}
			times[i] = append(times[i], float64(time.Since(began))/calls)
		}
		round++
	}
	median := func(i int) float64 { slices.Sort(times[i]); return times[i][len(times[i])/2] }
	b.ReportMetric(median(0), "ns/bare")
	for i := 1; i < len(configs); i++ {
		b.ReportMetric(median(i)/median(0), configs[i].name+"/bare")
	}
	require.Equal(b, int64(round*calls+users), numbers.Snapshot(0).Decisions[0].Count)
	series := fmt.Sprintf("abacus_decisions_total{event=\"signup\",kind=\"user\",outcome=\"admitted\"} %d\n", round*calls+users)
	require.Contains(b, pageOf(decisions), series)
}
