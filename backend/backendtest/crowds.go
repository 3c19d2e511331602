package backendtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
)

var crowds = []check{
	{
		name: "places are distinct",
		rule: "each addition is atomic: no two that succeed return the same place",
		run:  distinctPlaces,
	},
	{
		name: "a crowd adds and takes back",
		rule: "each addition is atomic, and so is each taking back",
		run:  inAndOut,
	},
	{
		name: "a crowd on many keys",
		rule: "a Store is used by many goroutines at once, and answers each what it has asked",
		run:  manyKeys,
	},
	{
		name: "ordered reads come last",
		rule: "with Request.Ordered filled in, every bucket was read after all additions of the request; Do fills in false otherwise",
		run:  orderedReads,
	},
	{
		name: "too late to begin",
		rule: "when ctx is done or op.Deadline has passed already, Do returns an error and sends nothing",
		run:  tooLate,
	},
	{
		name: "calls cut short",
		rule: "an error leaves only what its Slots say for certain, and takes nobody else's; no nil unless all was done",
		run:  cutShort,
	},
	{
		name:    "the op is the caller's again",
		rule:    "op and all that it points to belong to the caller as soon as Do returns",
		instead: true,
		run:     ownership,
	},
}

func distinctPlaces(s *subject) {
	const callers, calls = 64, 20
	var mu sync.Mutex
	places := make([]map[int64]bool, 3)
	for i := range places {
		places[i] = map[int64]bool{}
	}
	together(callers, func(int) {
		for range calls {
			got := s.add(dayLadder, "k", noon, 1)
			mu.Lock()
			for i, place := range got {
				if places[i][place] || place < 1 || place > callers*calls {
					mu.Unlock()
					failf("tier %d: place %d was given twice, or is none", i, place)
				}
				places[i][place] = true
			}
			mu.Unlock()
		}
	})
	s.expect(dayLadder, "k", noon, noon, callers*calls)
}

func inAndOut(s *subject) {
	const callers, calls = 32, 20
	together(callers, func(i int) {
		at := noon.Add(time.Duration(i%4) * time.Second)
		for j := range calls {
			s.add(dayLadder, "k", at, 5)
			if j%2 == 1 {
				continue
			}
			s.add(dayLadder, "k", at, -5)
		}
	})
	const all = callers * calls / 2 * 5
	s.expect(dayLadder, "k", noon, noon, all/4, all, all)
}

// orderedReads lets pairs of callers race: each adds to a minute and reads the
// minute of the other. If either has read after its addition, the later of the two
// readers finds the other's hit.
func orderedReads(s *subject) {
	const rounds, pairs = 50, 8
	for round := range rounds {
		ops, ready := make([]*backend.Request, 2*pairs), make(chan struct{})
		for i := range ops {
			// The minutes of a pair are adjacent.
			own := noon.Add(time.Duration(round*2*pairs+i) * time.Minute)
			other := own.Add(time.Duration(1-i%2*2) * time.Minute)
			ops[i] = &backend.Request{Key: s.key("k"), Ladder: dayLadder, Now: noon, Deadline: time.Now().Add(enough), N: 1,
				Add: chain(dayLadder, own, 0), Read: []backend.Span{span(time.Minute, other.Unix()/60, 1)}, Ordered: true}
		}
		var all sync.WaitGroup
		errs := make([]error, len(ops))
		for i, op := range ops {
			all.Go(func() {
				<-ready
				errs[i] = s.Do(context.Background(), op)
			})
		}
		close(ready)
		all.Wait()
		for i, err := range errs {
			must(err)
			x, y := ops[i&^1], ops[i|1]
			if x.Ordered && y.Ordered && x.Read[0].Counts[0] == 0 && y.Read[0].Counts[0] == 0 {
				failf("two callers, each of which added and then read the bucket of the other, have both read 0")
			}
		}
	}
}

func manyKeys(s *subject) {
	const callers, calls = 32, 40
	// Every caller has a key of its own, between the keys of the other callers, and
	// all share a key.
	together(callers, func(i int) {
		own, sum := fmt.Sprint("own", i), int64(0)
		for j := range calls {
			at := noon.Add(time.Duration(j/10) * time.Second)
			n := int64(1 + (i+j)%5)
			sum += n
			got := s.add(dayLadder, own, at, n)
			if got[1] != sum {
				failf("%s, which nobody else adds to: the minute is %d, want %d", own, got[1], sum)
			}
			read := s.row(dayLadder, own, at, time.Minute, noon.Unix()/60-int64(i), 1+2*i)
			if read[i] != sum {
				failf("%s, which nobody else adds to: the minute was read as %d, want %d", own, read[i], sum)
			}
			s.add(dayLadder, "shared", at, 1)
		}
	})
	s.expect(dayLadder, "shared", noon, noon, callers*10, callers*calls, callers*calls)
}
