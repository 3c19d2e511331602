package redis_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// crowd is one contestant under a number of callers.
type crowd struct {
	*bench
	*contestant
	hits  int64
	limit counter.Limit
	began time.Time
	ours  bool

	wrong measure.Mishaps // of a peer
	measure.Crowd
}

// hit is a call. A peer that fails ends no benchmark.
func (c *crowd) hit(key string) error {
	err := c.contestant.hit(key)
	if err != nil && !c.ours {
		c.wrong.Call(err)
		return nil
	}
	return err
}

func (c *crowd) run(calls measure.Keys, callers int) {
	server := func() time.Duration { return time.Duration(c.bench.cpu() * float64(time.Microsecond)) }
	failed := c.wrong.Failed()
	require.NoError(c, c.Run(calls, callers, server, c.hit))
	c.hits += int64(calls.Len()) - (c.wrong.Failed() - failed)
}

// check asks for the hits of all keys. What leaks has leaked a little.
func (c *crowd) check(keys measure.Keys) {
	var sum int64
	for i := range keys.Len() {
		used, err := c.used(keys.At(i))
		if err != nil && !c.ours {
			c.wrong.Call(err)
			continue
		}
		require.NoError(c, err)
		sum += used
	}
	leaked := 0.0
	if c.rule == leaking {
		leaked = (time.Since(c.began).Seconds()*float64(c.limit.Max)/c.limit.Per.Seconds() + 2) * float64(keys.Len())
	}
	if c.ours {
		require.Equal(c, c.hits, sum)
	} else if math.Abs(float64(c.hits-sum)) > leaked {
		c.wrong.Miscount("counted %d of %d hits", sum, c.hits)
	}
}

func TestManyCallersOnRedis(t *testing.T) {
	rounds, calls := measure.Pick(1, 2, 3), measure.Pick(200, 3_000, 8_000)
	callers := measure.Pick([]int{1, 4}, []int{1, 4, 16, 64}, []int{1, 2, 4, 8, 16, 32, 64})
	s := measure.Open(t, "On Redis: callers at the same time")
	s.Say("%d rounds of %s calls, as many connections as callers, loopback, 1,000 keys in random order, a clock that goes. Thousands of calls a second, the median of the rounds; \"wait\" is how long one call took, us, "+
		"half of them and 99 of 100. \"Server\" is the part of one core that the server's main thread used, which is all it can have; \"client\" that of this process. The two can have all cores together: the machine has %d.",
		rounds, measure.Count(int64(calls)), runtime.NumCPU())
	addr := servertest.Redis(t)
	keys := try.To(measure.Distinct(measure.Pick(50, 1_000, 1_000)))(t)
	sequence := keys.Random(calls)
	racers := []struct {
		kind, limits int
	}{{0, 3}, {0, 1}, {1, 1}, {4, 1}}
	var crowds []*crowd
	for _, racer := range racers {
		limits := roomy(racer.limits, calls*rounds*len(callers))
		for _, n := range callers {
			b := &bench{T: t, addr: addr, client: connect(t, addr, n)}
			set := b.setting(limits)
			set.now, set.timeout = measure.GoingOn(), time.Second
			c := &crowd{bench: b, contestant: kinds[racer.kind].make(t, set), limit: limits[len(limits)-1], began: time.Now(), ours: racer.kind == 0}
			for i := range keys.Len() {
				require.NoError(t, c.hit(keys.At(i)))
			}
			c.hits = int64(keys.Len()) - c.wrong.Failed()
			crowds = append(crowds, c)
		}
	}
	measure.Turns(rounds, len(crowds), func(i, _ int) { crowds[i].run(sequence, callers[i%len(callers)]) })
	for r, racer := range racers {
		name := fmt.Sprintf("%s, %s", kinds[racer.kind].name, map[int]string{1: "one limit", 3: "three limits"}[racer.limits])
		wrong := ""
		table := measure.CrowdTable()
		for c, n := range callers {
			cr := crowds[r*len(callers)+c]
			cr.check(keys)
			table.Row(cr.Row(n)...)
			if cr.wrong.String() != "" {
				wrong += fmt.Sprintf("%s callers%s. ", measure.Count(int64(n)), &cr.wrong)
			}
		}
		s.Table(name, table)
		if wrong != "" {
			s.Say("%s: %s", name, strings.TrimSpace(wrong))
		}
	}
	s.Chart()
}

func TestWindowsOnRedis(t *testing.T) {
	rounds, calls := measure.Pick(2, 3, 7), measure.Pick(50, 500, 1_500)
	past, n := measure.Pick(30, 200, 200), measure.Pick(3, 20, 20)
	s := measure.Open(t, "On Redis: as windows grow")
	s.Say("%d rounds of %s calls on %d keys; us for one call. Each key has %d hits in its window at random instants, and goes on so, by a made-up clock. The ladder is the one that fits the window, exact to a second.",
		rounds, measure.Count(int64(calls)), n, past)
	b := newBench(t)
	keys := measure.Names(t, n)
	windows := []time.Duration{time.Minute, time.Hour, day, 7 * day, 30 * day}
	names := []string{"1 minute", "1 hour", "1 day", "7 days", "30 days"}
	var rs []*runner
	var bytes []int
	for _, window := range windows {
		set := b.setting(counter.Limits{{Max: 1_000_000, Per: window}})
		r := &runner{contestant: newAbacus(t, set), bench: b, name: "abacus", limits: set.limits, now: b.now, aged: b.now, rand: rand.New(rand.NewPCG(1, 2)), hits: map[string][]time.Time{}}
		r.live(keys, past*3/2, window/time.Duration(past))
		rs = append(rs, r)
		stored, _ := b.memory(r.stored)
		bytes = append(bytes, stored)
	}
	measure.Turns(rounds, len(rs), func(i, _ int) {
		rs[i].turn(calls, func(call int) {
			rs[i].take(keys[call%n])
			if call%n == n-1 {
				rs[i].pass(windows[i] / time.Duration(past))
			}
		})
	})
	table := measure.Table{Head: []string{"window", "wall, us", "server, us", "to the first", "bytes a key"}}
	for i, r := range rs {
		r.check(keys)
		least, most := r.expect(keys[0], r.limits[0])
		require.InDelta(t, past, float64(least+most)/2, float64(past)/2, "hits in the window")
		table.Row(names[i], r.wall.Spread(), r.server.Spread(), measure.Num(r.server.To(rs[0].server).Median()), measure.Bytes(float64(bytes[i])/float64(n)))
	}
	s.Table("", table)
	s.Chart()
}
