package memory_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// Calls of this library next to each other: what a denial costs, and several keys.
func TestCallsInMemory(t *testing.T) {
	rounds, calls := measure.Pick(2, 7, 15), measure.Pick(500, 50_000, 100_000)
	s := measure.Open(t, "In memory, calls compared with each other")
	s.Say("%d rounds of %s calls with known keys; ns of processor time for one call, one core. The ratio is the median over the rounds of the ratio to the row that is named, with the same limits. "+
		"Limits are shaped as 100/d, or as 10/m, 50/h, 100/d for each key. The answer to every call is checked, and at the end the hits of every key.", rounds, measure.Count(int64(calls)))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	table := measure.Table{Head: []string{"", "1 limit, ns", "ratio", "3 limits, ns", "ratio", "allocs, 1 and 3"}}
	ofOne, ofThree := callsOf(t, 1, rounds, calls), callsOf(t, 3, rounds, calls)
	for i, one := range ofOne {
		three := ofThree[i]
		table.Row(one.name, one.ns.Spread(), one.ratio(ofOne), three.ns.Spread(), three.ratio(ofThree), measure.Num(one.allocs)+", "+measure.Num(three.allocs))
	}
	s.Table("", table)
}

// ownCall is a call with known keys.
type ownCall struct {
	name   string
	to     int    // the number of the call that it is compared with
	toName string // "": it is not compared
	allow  bool   // what it answers
	call   func() (allowed bool, err error)
	ns     measure.Series
	allocs float64
}

func (c *ownCall) ratio(all []*ownCall) string {
	if c.toName == "" {
		return ""
	}
	return c.ns.To(all[c.to].ns).Spread() + " to " + c.toName
}

// callsOf measures all calls under so many limits for each key.
func callsOf(t *testing.T, limits, rounds, calls int) []*ownCall {
	perKey := int64(calls*(rounds+1) + 1)
	room, full := roomy(limits, perKey), make(counter.Limits, limits)
	for i := range full {
		full[i] = counter.Limit{Max: 1, Per: room[i].Per}
	}
	newCounter := func() *counter.Counter {
		return try.To(counter.New(memory.New(memory.Config{}), counter.Config{Ladder: room.Ladder()}))(t)
	}
	kinds, values := []string{feature.KindIP, "user", "email"}, []string{"198.51.100.7", "ada", "ada@example.org"}
	single, several, byRules := newCounter(), newCounter(), newCounter()
	key := func(i int) counter.Key { return counter.Key{Event: "signup", Feature: kinds[i] + ":" + values[i]} }
	var asks []counter.Ask
	var rules []limiter.Rule
	for i, kind := range kinds {
		asks = append(asks, counter.Ask{Key: key(i), N: 1, Limits: room})
		rules = append(rules, limiter.Rule{Event: "signup", Kind: kind, Limits: room})
	}
	lim := try.To(limiter.New(byRules, limiter.Config{Rules: rules}))(t)
	features := []feature.Feature{feature.IP(netip.MustParseAddr(values[0])), feature.New(kinds[1], values[1]), feature.New(kinds[2], values[2])}
	denied := counter.Key{Event: "signup", Feature: "denied"}
	try.To(single.Take(ctx, denied, 1, full))(t)
	take := func(key counter.Key, limits counter.Limits) func() (bool, error) {
		return func() (bool, error) {
			v, err := single.Take(ctx, key, 1, limits)
			return v.Allowed, err
		}
	}
	all := []*ownCall{
		{name: "Take, admitted", allow: true, call: take(key(0), room)},
		{name: "Take, denied", toName: "an admitted Take", call: take(denied, full)},
		{name: "TakeAll of three keys", toName: "a Take", allow: true, call: func() (bool, error) {
			v, err := several.TakeAll(ctx, asks...)
			return v.Allowed, err
		}},
		{name: "Allow of three features", to: 2, toName: "TakeAll", allow: true, call: func() (bool, error) {
			v, err := lim.Allow(ctx, "signup", features...)
			return v.Allowed, err
		}},
	}
	run := func(c *ownCall) (ns, allocs float64) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := measure.CPU()
		for range calls {
			if allowed, err := c.call(); err != nil || allowed != c.allow {
				require.NoError(t, err, c.name)
				require.Equal(t, c.allow, allowed, c.name)
			}
		}
		spent := measure.CPU() - began
		runtime.ReadMemStats(&after)
		return float64(spent.Nanoseconds()) / float64(calls), float64(after.Mallocs-before.Mallocs) / float64(calls)
	}
	for _, c := range all {
		run(c) // the first calls make keys
	}
	measure.Turns(rounds, len(all), func(i, _ int) {
		ns, allocs := run(all[i])
		all[i].ns, all[i].allocs = append(all[i].ns, ns), allocs
	})
	check := func(c *counter.Counter, key counter.Key, want int64) {
		n := try.To(c.Count(ctx, key, room[len(room)-1].Per))(t)
		require.Equal(t, want, n.High, fmt.Sprint(key))
	}
	check(single, key(0), perKey-1)
	check(single, denied, 1)
	for i := range kinds {
		check(several, key(i), perKey-1)
		check(byRules, key(i), perKey-1)
	}
	return all
}
