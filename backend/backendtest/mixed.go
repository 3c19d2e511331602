package backendtest

import (
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

var mixedKeys = []check{{
	name: "keys of one step differ",
	rule: "each key of a step has its own n and its own ladder, and a soft key denies nobody and is added to only if it fits",
	take: true,
	run:  mixed,
}}

// mixed makes random steps of keys with hits, ladders and softness of their own,
// and holds answers and buckets to the model.
func mixed(s *subject) {
	ladders := []tiers.Ladder{dayLadder, fineLadder, mustLadder("10s:1d")}
	model, now := oracle.NewStore(), noon
	var said []string
	after(&said, func() {
		for range 400 {
			now = now.Add(time.Duration(s.rand.Int64N(int64(8 * time.Second))))
			first := s.rand.IntN(len(ladders))
			var demands []demand
			for i := range 1 + s.rand.IntN(len(ladders)) {
				k := (first + i) % len(ladders)
				demands = append(demands, demand{key: fmt.Sprint("mixed", k), ladder: ladders[k], n: 1 + s.rand.Int64N(3), soft: s.rand.IntN(3) == 0,
					limits: counter.Limits{{Max: 3 + s.rand.Int64N(6), Per: time.Minute}, {Max: 8 + s.rand.Int64N(30), Per: 10 * time.Minute}}})
			}
			step := s.taking(dayLadder, now, 1, 0, demands...)
			for i := range step.Keys {
				if s.rand.IntN(6) == 0 {
					step.Keys[i].N = 0 // a look
				}
			}
			if !s.taker.Together(step.Keys) {
				step.Keys, demands = step.Keys[:1], demands[:1]
			}
			step.Peek, step.Exact = s.rand.IntN(6) == 0, s.rand.IntN(2) == 0
			line := fmt.Sprintf("%v peek %v:", now.Sub(noon), step.Peek)
			for i, key := range step.Keys {
				line += fmt.Sprintf(" %s %d under %s soft %v,", demands[i].key, key.N, demands[i].limits, key.Soft)
			}
			said = append(said, line)
			must(s.take(step))
			must(model.Take(step))
			for i := range demands {
				r := &backend.Request{Key: s.key(demands[i].key), Ladder: demands[i].ladder, Now: now, Read: holding(demands[i].ladder, now)}
				must(s.do(r))
				must(model.Do(r))
			}
		}
	})
}
