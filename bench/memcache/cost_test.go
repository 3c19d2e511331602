package memcache_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// A Take beside a fixed window: processor time of the client and of the server
// together.
func TestCostOnMemcached(t *testing.T) {
	rounds, calls := measure.Pick(2, 15, 41), measure.Pick(100, 640, 640)
	s := measure.Open(t, "On memcached: processor time of client and server")
	s.Say("%d rounds of %s calls, loopback, a clock that goes; us of processor time for one call, the median of the rounds. \"To fixed\" is the median over the rounds of client and server together, "+
		"to those of a fixed window of one limit in the same round, with the spread. Known: one key for one caller, 1,000 keys for 64. Fresh: a new key each time.", rounds, measure.Count(int64(calls)))
	b := newBench(t)
	type contender struct {
		name   string
		limits int
		ladder tiers.Ladder
	}
	contenders := []contender{{"fixed window", 1, tiers.Ladder{}}, {"abacus", 1, tiers.Default}, {"abacus", 3, tiers.Default}, {"abacus, tiers.For", 1, tiers.Ladder{}}, {"abacus, tiers.For", 3, tiers.Ladder{}}}
	for _, callers := range []int{1, 64} {
		for _, fresh := range []bool{false, true} {
			what := "known keys"
			if fresh {
				what = "fresh keys"
			}
			t.Run(fmt.Sprintf("%d callers, %s", callers, what), func(t *testing.T) {
				var known measure.Keys
				var err error
				if known, err = measure.Distinct(measure.Pick(1, 1_000, 1_000)); callers == 1 {
					known, err = measure.Distinct(1)
				}
				require.NoError(t, err)
				client, server := make([]measure.Series, len(contenders)), make([]measure.Series, len(contenders))
				all := make([]measure.Series, len(contenders))
				var cs []*contestant
				for _, c := range contenders {
					set := b.setting(roomy(c.limits, calls*rounds*2))
					set.now, set.timeout, set.ladder = measure.GoingOn(), 10*time.Second, c.ladder
					if c.name == "fixed window" {
						cs = append(cs, newFixed(t, set, false))
					} else {
						cs = append(cs, newAbacus(t, set))
					}
					for i := range known.Len() {
						require.NoError(t, cs[len(cs)-1].hit(known.At(i)))
					}
				}
				measure.Turns(rounds, len(cs), func(i, round int) {
					keys, err := known.Random(calls), error(nil)
					if fresh {
						keys = try.To(measure.Distinct(calls))(t)
					}
					ours, theirs := measure.CPU(), cpu(b.stats())
					_, _, err = measure.Parallel(calls, callers, func(k int) error {
						key := keys.At(k)
						if fresh {
							key = fmt.Sprintf("%d-%d-%s", round, i, key)
						}
						return cs[i].hit(key)
					})
					require.NoError(t, err)
					c, s := float64((measure.CPU()-ours).Microseconds())/float64(calls), (cpu(b.stats())-theirs)/float64(calls)
					client[i], server[i], all[i] = append(client[i], c), append(server[i], s), append(all[i], c+s)
				})
				table := measure.Table{Head: []string{"", "limits", "client", "server", "to fixed"}}
				for i, c := range contenders {
					table.Row(c.name, fmt.Sprint(c.limits), measure.Num(client[i].Median()), measure.Num(server[i].Median()), all[i].To(all[0]).Spread())
				}
				s.Table(fmt.Sprintf("%d callers, %s", callers, what), table)
			})
		}
	}
}

// A denied Take of a key that another process has filled, compared with one increment.
func TestADenialOnMemcached(t *testing.T) {
	rounds, calls := measure.Pick(2, 15, 41), measure.Pick(20, 100, 200)
	s := measure.Open(t, "On memcached: the first denial of a key")
	s.Say("%d rounds of %s calls, one caller, loopback, the default ladder; us for one call, the median of the rounds: wall time, and the processor time of client and server. \"To incr\" is the median over the rounds of the ratio to an increment, of wall time and of client and server together. "+
		"Each key has ten hits, which another process has counted, and is denied by 10/d, or by 10/m, 20/h, 10/d.", rounds, measure.Count(int64(calls)))
	b := newBench(t)
	start, prefix := b.now, fmt.Sprintf("d%08x", rand.Uint32())
	process := func() *counter.Counter {
		store := try.To(memcache.New(memcache.Config{IOTimeout: 10 * time.Second}, b.addr))(t)
		t.Cleanup(func() { store.Close() })
		c := try.To(counter.New(store, counter.Config{Prefix: prefix, Patience: 10 * time.Second, Now: func() time.Time { return b.now }}))(t)
		return c
	}
	increment := newIncrement(t, b.setting(nil))
	require.NoError(t, increment.ready("one"))
	contenders := []struct {
		name   string
		limits counter.Limits
	}{{"increment", nil}, {"abacus, 1", counter.MustLimits("10/d")}, {"abacus, 3", counter.MustLimits("10/m, 20/h, 10/d")}}
	filler := process()
	for _, row := range []struct {
		name  string
		apart time.Duration // between the hits of a key
	}{{"A burst of this minute", 0}, {"Over a day", 137 * time.Minute}} {
		key := func(i, round, call int) counter.Key {
			return counter.Key{Event: "signup", Feature: fmt.Sprintf("%s-%d-%d-%d", row.name, i, round, call)}
		}
		for hit := range 10 {
			b.now = start.Add(-time.Second - time.Duration(hit)*row.apart)
			for i := range contenders[1:] {
				for k := range rounds * calls {
					require.NoError(t, filler.Add(ctx, key(i+1, k/calls, k%calls), 1))
				}
			}
		}
		b.now = start
		denier := process()
		meters := make([]meter, len(contenders))
		all := make([]measure.Series, len(contenders)) // client and server
		measure.Turns(rounds, len(contenders), func(i, round int) {
			m := &meters[i]
			m.measure(b, calls, func() {
				for call := range calls {
					if contenders[i].limits == nil {
						require.NoError(t, increment.hit("one"))
						continue
					}
					require.False(t, try.To(denier.Take(ctx, key(i, round, call), 1, contenders[i].limits))(t).Allowed)
				}
			})
			all[i] = append(all[i], m.client[round]+m.server[round])
		})
		table := measure.Table{Head: []string{"", "wall, us", "to incr", "client, us", "server, us", "to incr", "items read"}}
		for i, c := range contenders {
			m := meters[i]
			table.Row(c.name, measure.Num(m.wall.Median()), m.wall.To(meters[0].wall).Spread(),
				measure.Num(m.client.Median()), measure.Num(m.server.Median()), all[i].To(all[0]).Spread(), measure.Num(m.items.Median()))
		}
		s.Table(row.name, table)
	}
}
