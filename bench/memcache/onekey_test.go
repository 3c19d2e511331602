package memcache_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// Callers of one key go together if their limits are equal. Under limits that differ in a
// Max that no one reaches, each goes alone.
func TestOneKeyOnMemcached(t *testing.T) {
	rounds, calls := measure.Pick(1, 5, 9), measure.Pick(300, 6_000, 20_000)
	s := measure.Open(t, "On memcached: 64 callers of one key")
	s.Say("%d rounds of %s calls in turn, loopback, a clock that goes; admissions a second, and us of the server for one, with the median of the rounds. A lone caller makes a sixth of the calls.", rounds, measure.Count(int64(calls)))
	b := newBench(t)
	store := try.To(memcache.New(memcache.Config{IOTimeout: 20 * time.Second}, b.addr))(t)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	c := try.To(counter.New(store, counter.Config{Patience: 20 * time.Second}))(t)
	var rates, cpus [3]measure.Series
	var n atomic.Int64
	took := [3]int64{}
	names := [3]string{"64, each alone", "64, together", "one"}
	for range rounds {
		for kind := range 3 {
			callers, calls := 64, calls
			if kind == 2 {
				callers, calls = 1, calls/6
			}
			key := counter.Key{Event: "hot", Feature: names[kind]}
			before := cpu(b.stats())
			spent, _, err := measure.Parallel(calls, callers, func(i int) error {
				limits := counter.Limits{{Max: 1_000_000_000, Per: time.Hour}}
				if kind == 0 {
					limits[0].Max += n.Add(1) % 64
				}
				v, err := c.Take(context.Background(), key, 1, limits)
				if err == nil && !v.Allowed {
					t.Error("denied")
				}
				return err
			})
			require.NoError(t, err)
			took[kind] += int64(calls)
			require.Equal(t, took[kind], try.To(c.Count(context.Background(), key, time.Hour))(t).High)
			rates[kind] = append(rates[kind], float64(calls)/spent.Seconds())
			cpus[kind] = append(cpus[kind], (cpu(b.stats())-before)/float64(calls))
		}
	}
	table := measure.Table{Head: []string{"callers", "admissions/s", "server, us"}}
	for kind := range 3 {
		table.Row(names[kind], rates[kind].Spread(), cpus[kind].Spread())
	}
	s.Table("", table)
}
