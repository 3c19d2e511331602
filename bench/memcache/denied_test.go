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
)

// A denied Take of a key that another process has filled, beside one increment.
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
