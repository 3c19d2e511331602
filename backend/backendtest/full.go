package backendtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// coarsest is the last tier of l.
func coarsest(l tiers.Ladder) tiers.Tier { return l.At(l.Len() - 1) }

func maxCountByName(s *subject) {
	for i, first := range []int64{backend.MaxCount, backend.MaxCount / 2} {
		key, n := fmt.Sprint(i), backend.MaxCount-first+1
		s.add(dayLadder, key, noon, first)
		for _, at := range []time.Time{noon, noon.Add(time.Second)} { // in the same second, and in the same hour only
			op := &backend.Request{Key: s.key(key), Ladder: dayLadder, Now: at, N: n, Add: chain(dayLadder, at, 0)}
			if err := s.do(op); !errors.Is(err, backend.ErrMaxCount) {
				failf("%d and then %d at %v: the error is %v, want counter.ErrMaxCount", first, n, at.UTC(), err)
			}
		}
		if s.taker == nil {
			continue
		}
		later := noon.Add(10 * time.Second) // there is room in the window of a second, and none in the hour
		take := s.taking(dayLadder, later, n, 0, demand{key: key, limits: counter.Limits{{Max: backend.MaxCount, Per: time.Second}}})
		if err := s.take(take); !errors.Is(err, backend.ErrMaxCount) {
			failf("a step of %d after %d: the error is %v, want counter.ErrMaxCount", n, first, err)
		}
	}
}

// emptiedByTime fills a key to MaxCount again and again, each time when all
// hits of the time before have left every window.
func emptiedByTime(s *subject) {
	for i, l := range []tiers.Ladder{mustLadder("1s:1m"), dayLadder, fineLadder, mustLadder("1s:1m, 1h:7d"), manyKeeps} {
		top := coarsest(l)
		at := noon
		for round := range 6 {
			key := fmt.Sprint("do", i)
			for _, n := range []int64{backend.MaxCount - 1, 1} {
				var got []int64
				during(func() { got = s.add(l, key, at, n) }, "ladder %s, round %d", l, round)
				if got[0] < n {
					failf("ladder %s, round %d: %d were added, and the bucket counts %d", l, round, n, got[0])
				}
			}
			during(func() { s.expect(l, key, at, at, backend.MaxCount) }, "ladder %s, round %d", l, round)
			if s.taker != nil {
				take := s.taking(l, at, backend.MaxCount, 0, demand{key: fmt.Sprint("take", i), limits: counter.Limits{{Max: backend.MaxCount, Per: top.Keep}}})
				mustf(s.take(take), "a step on ladder %s, round %d", l, round)
				if w := take.Keys[0].Windows[0]; !take.Allowed || w.Count != 0 {
					failf("a step on ladder %s, round %d: allowed %v, count %d, want an empty window", l, round, take.Allowed, w.Count)
				}
			}
			at = at.Add(2 * (top.Width + top.Keep))
		}
	}
}
