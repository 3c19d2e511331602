package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

var peerModules = []string{"golang.org/x/time", "github.com/sethvargo/go-limiter", "github.com/ulule/limiter/v3"}

// enough is more than the benchmark hits in a day: every call is admitted, and
// counted.
const enough = 1_000_000

// contestant is one way to count a hit and limit it.
type contestant struct {
	name      string
	limits    int // 1, or 3: by the minute, the hour and the day
	peer      bool
	guarantee string                                // the worst case of a limit of N
	make      func(names []string) func(i int) bool // called twice, for the same keys
	check     func(names []string, calls int)       // panics if calls were not counted
}

var ctx = context.Background()

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func contestants() []contestant {
	return []contestant{
		abacus("abacus, 1 limit", 1, fmt.Sprintf("%d/d", enough)),
		xtime(1), golimiter(1), ululed(1),
		abacus("abacus, 3 limits", 3, fmt.Sprintf("%d/m, %d/h, %d/d", enough, enough, enough)),
		xtime(3), golimiter(3), ululed(3),
		lookup(),
	}
}

func abacus(name string, n int, limits string) contestant {
	parsed := counter.MustLimits(limits)
	c := must(counter.New(memory.New(memory.Config{MaxBuckets: 1 << 30}), counter.Config{Ladder: tiers.For(parsed.Windows()...)}))
	return contestant{name: name, limits: n, guarantee: "N", make: func(names []string) func(int) bool {
		return func(i int) bool {
			v, err := c.Take(ctx, counter.Key{Event: "signup", Feature: names[i]}, 1, parsed)
			return err == nil && v.Allowed
		}
	}, check: func(names []string, calls int) {
		var sum int64
		for _, name := range names {
			sum += must(c.Count(ctx, counter.Key{Event: "signup", Feature: name}, parsed[len(parsed)-1].Per)).High
		}
		if sum != int64(calls) {
			panic(fmt.Sprintf("bench: %s counted %d of %d calls", name, sum, calls))
		}
	}}
}

var periods = map[int][]time.Duration{1: {24 * time.Hour}, 3: {time.Minute, time.Hour, 24 * time.Hour}}

func unchecked([]string, int) {}

// xtime is x/time/rate as its users have it: a limiter for each key in a
// sync.Map, one for each limit.
func xtime(n int) contestant {
	limiters := make([]sync.Map, n)
	return contestant{name: fmt.Sprintf("x/time/rate in a sync.Map, %d", n), limits: n, peer: true, guarantee: "2N", check: unchecked,
		make: func(names []string) func(int) bool {
			return func(i int) bool {
				for k, per := range periods[n] {
					l, there := limiters[k].Load(names[i])
					if !there {
						l, _ = limiters[k].LoadOrStore(names[i], rate.NewLimiter(rate.Limit(enough/per.Seconds()), enough))
					}
					if !l.(*rate.Limiter).Allow() {
						return false
					}
				}
				return true
			}
		}}
}

func golimiter(n int) contestant {
	var stores []limiter.Store
	for _, per := range periods[n] {
		stores = append(stores, must(memorystore.New(&memorystore.Config{Tokens: enough, Interval: per})))
	}
	return contestant{name: fmt.Sprintf("go-limiter, %d", n), limits: n, peer: true, guarantee: "2N", check: unchecked,
		make: func(names []string) func(int) bool {
			return func(i int) bool {
				for _, s := range stores {
					if _, _, _, ok, err := s.Take(ctx, names[i]); err != nil || !ok {
						return false
					}
				}
				return true
			}
		}}
}

func ululed(n int) contestant {
	var limiters []*ulule.Limiter
	for _, per := range periods[n] {
		limiters = append(limiters, ulule.New(ululememory.NewStore(), ulule.Rate{Period: per, Limit: enough}))
	}
	return contestant{name: fmt.Sprintf("ulule/limiter, %d", n), limits: n, peer: true, guarantee: "2N", check: unchecked,
		make: func(names []string) func(int) bool {
			return func(i int) bool {
				for _, l := range limiters {
					if c, err := l.Get(ctx, names[i]); err != nil || c.Reached {
						return false
					}
				}
				return true
			}
		}}
}

// lookup is the floor: read the clock, lock, look the key up, add one.
func lookup() contestant {
	var mu sync.Mutex
	counts := map[string]*int64{}
	return contestant{name: "floor: clock, lock, map, +1", limits: 1, guarantee: "-", check: unchecked,
		make: func(names []string) func(int) bool {
			return func(i int) bool {
				now := time.Now()
				mu.Lock()
				n := counts[names[i]]
				if n == nil {
					n = new(int64)
					counts[names[i]] = n
				}
				*n++
				mu.Unlock()
				return !now.IsZero()
			}
		}}
}
