package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/history"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// kind is a kind of fault.
type kind struct {
	Name, Means string // for the page
	Breaks      string // the condition of a promise that does not hold meanwhile; for the page

	weight int // frequency beside other faults
	where  func(w *world) bool
	severs bool
	loses  history.Loss
	keys   func(s *strike) keySet // that are lost; nil: those on the node
	do     func(s *strike)
}

// strike is a fault as it comes upon a world.
type strike struct {
	*world
	rng     *rand.Rand
	process *process
	links   links              // of the process: one, or all
	node    *servertest.Server // one of the servers, nil in a world without
	next    []string           // of moving
}

// report ends the campaign if there is an error.
func (s *strike) report(err error) {
	if err != nil {
		s.fail(err)
	}
}

// short is a time between the patience of callers; long is a time beyond.
func (s *strike) short() time.Duration {
	return 10*time.Millisecond + time.Duration(s.rng.Int64N(int64(400*time.Millisecond)))
}

func (s *strike) long() time.Duration {
	if s.rng.IntN(8) > 0 {
		return s.short()
	}
	return 500*time.Millisecond + time.Duration(s.rng.Int64N(int64(2*time.Second)))
}

// within is an offset within the skew, for two callers at once.
func (s *strike) within() time.Duration {
	return time.Duration(s.rng.Int64N(int64(skew)+1)) - skew/2
}

// suffer lets faults come upon the world until the campaign is over: each kind
// once, in an order by chance but for rare kinds, which come first, and then by weight.
// The fault that a test keeps from the rules comes alone, if it is one of the kinds.
func (w *world) suffer(rng *rand.Rand) {
	var here []kind
	sum := 0
	for _, k := range kinds {
		if k.where(w) {
			here = append(here, k)
			sum += k.weight
		}
	}
	if i := slices.IndexFunc(here, func(k kind) bool { return k.Name == w.campaign.blind }); i >= 0 {
		here, sum = here[i:i+1], here[i].weight
	}
	first := slices.Clone(here)
	rng.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
	slices.SortStableFunc(first, func(a, b kind) int { return a.weight - b.weight })
	for i := 0; w.campaign.goesOn(); i++ {
		k := here[0]
		if i < len(first) {
			k = first[i]
		} else {
			pick := rng.IntN(sum)
			for _, k = range here {
				if pick -= k.weight; pick < 0 {
					break
				}
			}
		}
		w.sleep(time.Duration(rng.ExpFloat64() * float64(w.campaign.calm)))
		if !w.campaign.goesOn() {
			return
		}
		s := &strike{world: w, rng: rng, process: w.any(rng)}
		if s.process == nil {
			continue
		}
		if s.links = s.process.links; len(s.links) > 0 {
			i := rng.IntN(len(w.servers))
			s.node = w.servers[i]
			if rng.IntN(2) == 0 {
				s.links = links{s.links[i]}
			}
		}
		keys := w.keysOn(s.node)
		if k.keys != nil {
			keys = k.keys(s)
		}
		f := w.begin(history.Fault{Name: k.Name, Severs: k.severs, Loses: k.loses}, keys)
		k.do(s)
		w.end(f)
	}
}
