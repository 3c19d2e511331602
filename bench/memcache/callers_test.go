package memcache_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/bench/internal/measure"
)

// crowd is one contestant under a number of callers.
type crowd struct {
	*contestant
	hits int64

	rate, half, most, server, client measure.Series
}

func (c *crowd) run(b *bench, calls measure.Keys, callers int) {
	waits := make(measure.Series, calls.Len())
	server, client := cpu(b.stats()), measure.CPU()
	spent, _, err := measure.Parallel(calls.Len(), callers, func(i int) error {
		began := time.Now()
		err := c.hit(calls.At(i))
		waits[i] = float64(time.Since(began).Nanoseconds()) / 1e3
		return err
	})
	require.NoError(b, err)
	c.hits += int64(calls.Len())
	us := float64(spent.Nanoseconds()) / 1e3
	c.client = append(c.client, float64((measure.CPU()-client).Microseconds())/us)
	c.server = append(c.server, (cpu(b.stats())-server)/us)
	c.rate = append(c.rate, float64(calls.Len())/us*1e3)
	c.half, c.most = append(c.half, waits.Median()), append(c.most, waits.Quantile(0.99))
}

func TestManyCallersOnMemcached(t *testing.T) {
	rounds, calls := measure.Pick(1, 2, 3), measure.Pick(200, 1_500, 3_000)
	callers := measure.Pick([]int{1, 4}, []int{1, 4, 16, 64}, []int{1, 2, 4, 8, 16, 32, 64})
	s := measure.Open(t, "On memcached: callers at the same time")
	s.Say("%d rounds of %s calls, loopback, keys in random order, a clock that goes. Thousands of calls a second, the median of the rounds; \"wait\" is how long one call took, us, half of them and 99 of 100. "+
		"\"Server\" and \"client\" are how many cores the server and this process used. The two can have all cores together: the machine has %d.", rounds, measure.Count(int64(calls)), runtime.NumCPU())
	b := newBench(t)
	keys, err := measure.Distinct(measure.Pick(50, 1_000, 1_000))
	require.NoError(t, err)
	sequence := keys.Random(calls)
	crowds := make([]*crowd, len(kinds)*len(callers))
	for i := range crowds {
		kind := kinds[i/len(callers)]
		set := b.setting(roomy(kind.limits, calls*rounds))
		set.now, set.timeout = goingOn(), time.Second
		c := kind.make(t, set)
		crowds[i] = &crowd{contestant: c}
		for k := range keys.Len() {
			if c.ready != nil {
				require.NoError(t, c.ready(keys.At(k)))
			}
			require.NoError(t, c.hit(keys.At(k)))
			crowds[i].hits++
		}
	}
	measure.Turns(rounds, len(crowds), func(i, _ int) { crowds[i].run(b, sequence, callers[i%len(callers)]) })
	chart := measure.Chart{X: "callers at the same time", Y: "1,000 calls a second", Log: true}
	for _, n := range callers {
		chart.Places = append(chart.Places, fmt.Sprint(n))
	}
	for i, kind := range kinds {
		curve := measure.Curve{Name: fmt.Sprintf("%s, %d", kind.name, kind.limits)}
		table := measure.Table{Head: []string{"callers", "1,000 calls/s", "wait, half", "wait, 99 %", "server", "client"}}
		for c, n := range callers {
			cr := crowds[i*len(callers)+c]
			var sum int64
			for k := range keys.Len() {
				used, err := cr.used(keys.At(k))
				require.NoError(t, err)
				sum += used
			}
			require.Equal(t, cr.hits, sum, "%s, %d limits, %d callers", kind.name, kind.limits, n)
			table.Row(fmt.Sprint(n), cr.rate.Spread(), measure.Num(cr.half.Median()), measure.Num(cr.most.Median()), measure.Num(cr.server.Median()), measure.Num(cr.client.Median()))
			curve.At = append(curve.At, cr.rate)
		}
		s.Table(curve.Name, table)
		chart.Curves = append(chart.Curves, curve)
	}
	s.Chart("Calls a second over the number of callers", chart)
}

// goingOn is a clock that goes, and never comes to midnight. It is for callers
// with a budget that a busy machine keeps: what is late is an error.
func goingOn() func() time.Time {
	first, began := time.Date(2026, 3, 2, 10, 20, 30, 0, time.UTC), time.Now()
	return func() time.Time { return first.Add(time.Since(began)) }
}
