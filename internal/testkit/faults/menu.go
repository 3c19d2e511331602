package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/history"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/tiers"
)

// ladders of the campaign: for windows that roll over many times in a short run,
// for windows of an hour, with no Keep longer than the windows need, so that a
// bucket dropped too early is missed, and for days of the calendar.
var ladders = [4]tiers.Ladder{
	parse.Ladder("100ms:10s, 1s:1m, 10s:1m"),
	parse.Ladder("1s:1h, 1m:1h"),
	parse.Ladder("100ms:2s, 1s:2s"),
	parse.Ladder("10s:25h, 10m:25h, 1h:25h"),
}

// byDay is the ladder of keys under limits by the calendar.
const byDay = 3

// dayEvery is the time between two ends of a day. Each end is that of keys of its own,
// which are in use for as long, half of it before the end.
const dayEvery = 2 * crowdEvery

// dayOf returns the number of the day that ends nearest to now, and how far the clocks of
// its keys are ahead of the true time.
func dayOf(now int64) (number int64, ahead time.Duration) {
	number = (now + int64(dayEvery)/2) / int64(dayEvery)
	_, midnight := dayLimits[0][0].Period.Span(number * int64(dayEvery))
	return number, time.Duration(midnight - number*int64(dayEvery))
}

// dayLimits are those of all keys with a day.
var dayLimits = menu("5 per day in Asia/Kolkata", "9/1m, 5 per day in Asia/Kolkata", "5 per day in Asia/Kolkata, 12 per day in UTC")

// timeouts are the patience of the callers of a process, in turn. One has enough on a busy
// machine, where a call on a Cluster with new connections takes more than a second.
var timeouts = []time.Duration{time.Second, 60 * time.Millisecond, 250 * time.Millisecond, 5 * time.Second}

// group is keys of one sort.
type group struct {
	name   string
	share  int // of the calls, of 100
	keys   int
	ladder int
	fresh  time.Duration // a key is used for so long, then the next; 0: for good
	limits []counter.Limits
	adds   bool // hits come by Add too
	beyond bool // for callers whose clock is beyond the skew, beside others
}

func menu(limits ...string) (all []counter.Limits) {
	for _, l := range limits {
		all = append(all, counter.MustLimits(l))
	}
	return all
}

// groups are the keys of the campaign. Limits differ by call, so that the callers
// of a key go by different limits. Most windows are short, and the demand is far
// above their room: a window that is not full proves nothing.
var groups = []group{
	{name: "hot", share: 20, keys: 3, limits: menu("5/2s", "5/2s, 20/10s", "20/10s, 30/1m", "3/2s, 30/1m")},
	{name: "warm", share: 16, keys: 8, limits: menu("4/2s", "4/2s, 12/10s", "12/10s")},
	{name: "fresh", share: 10, keys: 2, fresh: 3 * time.Second, limits: menu("7/10s", "7/10s, 9/1m", "3/2s, 9/1m")},
	{name: "added", share: 8, keys: 2, limits: menu("8/2s", "8/2s, 25/10s"), adds: true},
	{name: "many", share: 14, keys: 8, limits: menu("6/2s", "6/2s, 15/10s", "15/10s")},
	{name: "tight", share: 12, keys: 4, ladder: 2, limits: menu("4/2s", "4/2s, 3/1s")},
	{name: "day", share: 8, keys: 1, ladder: byDay, limits: dayLimits},
	{name: "hour", share: 8, keys: 4, ladder: 1, limits: menu("40/1m, 400/1h", "400/1h", "10/2s, 40/1m")},
	{name: "beyond", share: 4, keys: 2, limits: menu("5/2s", "5/2s, 20/10s"), beyond: true},
}

// crowdEvery is the time between two crowds on some fresh keys, at the end of a
// bucket of every tier no wider.
const crowdEvery = 2 * time.Second

// crowdLimits are the limits of the crowd's keys: many racers for few places, and
// for a single place, under limits that differ.
var crowdLimits = [...][]counter.Limits{
	menu("7/10s", "7/10s, 7/2s", "7/2s"),
	menu("1/10s", "3/2s, 1/10s", "2/1s, 1/10s"),
	menu("1/2s", "5/10s, 1/2s", "1/2s, 9/1m"),
	menu("2/1m", "2/1m, 4/2s", "6/10s, 2/1m"),
}

// crowd is a hit of the crowd that comes at the instant end.
func crowd(rng *rand.Rand, prefix string, end int64) plan {
	if end%int64(dayEvery) == 0 && rng.IntN(3) == 0 {
		number, ahead := dayOf(end)
		return plan{kind: history.Take, ladder: byDay, ahead: ahead, n: 1, asks: []history.Ask{{Key: fmt.Sprintf("%s-day-%d", prefix, number), Limits: dayLimits[rng.IntN(len(dayLimits))]}}}
	}
	i := rng.IntN(len(crowdLimits))
	key := fmt.Sprintf("%s-crowd-%d-%d", prefix, i, end/int64(crowdEvery))
	return plan{kind: history.Take, n: 1, asks: []history.Ask{{Key: key, Limits: crowdLimits[i][rng.IntN(len(crowdLimits[i]))]}}}
}

// plan is a call that a caller is about to make.
type plan struct {
	kind   history.Kind
	ladder int
	ahead  time.Duration // of the true time is the clock, apart from its error
	n      int64
	asks   []history.Ask
}

// draw draws a call. With beyond the caller's clock is beyond the skew.
func draw(rng *rand.Rand, j *job, now int64, beyond bool) plan {
	p := rng.IntN(100)
	g := &groups[0]
	for i := range groups {
		g = &groups[i]
		if p -= g.share; p < 0 {
			break
		}
	}
	if beyond {
		g = &groups[slices.IndexFunc(groups, func(g group) bool { return g.beyond })]
	}
	one := func(i int) history.Ask {
		key := fmt.Sprintf("%s-%s-%d", j.Prefix, g.name, i)
		if g.fresh > 0 {
			key = fmt.Sprintf("%s-%d", key, now/int64(g.fresh))
		}
		return history.Ask{Key: key, Limits: g.limits[rng.IntN(len(g.limits))]}
	}
	c := plan{kind: history.Take, ladder: g.ladder, n: 1}
	if rng.IntN(8) == 0 {
		c.n = 1 + rng.Int64N(3)
	}
	c.asks = []history.Ask{one(rng.IntN(g.keys))}
	if g.ladder == byDay {
		var number int64
		number, c.ahead = dayOf(now)
		c.asks[0].Key = fmt.Sprintf("%s-day-%d", j.Prefix, number)
	}
	switch p := rng.IntN(100); {
	case g.name == "many" && p < 75:
		for _, i := range rng.Perm(g.keys)[:2+rng.IntN(4)] {
			if a := one(i); a.Key != c.asks[0].Key {
				c.asks = append(c.asks, a)
			}
		}
	case g.adds && p < 12:
		c.kind, c.asks[0].Limits = history.Add, nil
	case p < 78:
	case p < 86, p < 93 && g.ladder == byDay:
		c.kind = history.Peek
	case p < 93:
		limits := c.asks[0].Limits
		c.kind, c.asks[0].Limits = history.Count, counter.Limits{{Per: limits[rng.IntN(len(limits))].Per}}
	case p < 94 && rng.IntN(3) == 0 && !j.NoForget:
		c.kind, c.asks[0].Limits = history.Forget, nil
	default:
		c.kind = history.Refund // of what the caller was admitted lately, if anything
	}
	return c
}
