package memcache_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// crowd is one contestant under a number of callers.
type crowd struct {
	*contestant
	hits int64

	measure.Crowd
}

func (c *crowd) run(b *bench, calls measure.Keys, callers int) {
	server := func() time.Duration { return time.Duration(cpu(b.stats()) * float64(time.Microsecond)) }
	require.NoError(b, c.Run(calls, callers, server, c.hit))
	c.hits += int64(calls.Len())
}

func TestManyCallersOnMemcached(t *testing.T) {
	rounds, calls := measure.Pick(1, 2, 3), measure.Pick(200, 1_500, 3_000)
	callers := measure.Pick([]int{1, 4}, []int{1, 4, 16, 64}, []int{1, 2, 4, 8, 16, 32, 64})
	s := measure.Open(t, "On memcached: callers at the same time")
	s.Say("%d rounds of %s calls, loopback, keys in random order, a clock that goes. Thousands of calls a second, the median of the rounds; \"wait\" is how long one call took, us, half of them and 99 of 100. "+
		"\"Server\" and \"client\" are how many cores the server and this process used. The two can have all cores together: the machine has %d.", rounds, measure.Count(int64(calls)), runtime.NumCPU())
	b := newBench(t)
	keys := try.To(measure.Distinct(measure.Pick(50, 1_000, 1_000)))(t)
	sequence := keys.Random(calls)
	crowds := make([]*crowd, len(kinds)*len(callers))
	for i := range crowds {
		kind := kinds[i/len(callers)]
		set := b.setting(roomy(kind.limits, calls*rounds))
		set.now, set.timeout = measure.GoingOn(), time.Second
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
	for i, kind := range kinds {
		table := measure.CrowdTable()
		for c, n := range callers {
			cr := crowds[i*len(callers)+c]
			var sum int64
			for k := range keys.Len() {
				used := try.To(cr.used(keys.At(k)))(t)
				sum += used
			}
			require.Equal(t, cr.hits, sum, "%s, %d limits, %d callers", kind.name, kind.limits, n)
			table.Row(cr.Row(n)...)
		}
		s.Table(fmt.Sprintf("%s, %d", kind.name, kind.limits), table)
	}
	s.Chart()
}
