package backendtest

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
)

func distinctPlaces(s *subject) {
	const callers, calls = 64, 20
	var got [callers * calls][]int64
	together(callers, func(i int) {
		for j := range calls {
			got[calls*i+j] = s.add(dayLadder, "k", noon, 1)
		}
	})
	var given [3][callers*calls + 1]bool
	for _, places := range got {
		for i, place := range places {
			if place < 1 || place > callers*calls || given[i][place] {
				failf("tier %d: place %d was given twice, or is none", i, place)
			}
			given[i][place] = true
		}
	}
	s.expect(dayLadder, "k", noon, noon, callers*calls)
}

func inAndOut(s *subject) {
	const callers, calls = 32, 20
	together(callers, func(i int) {
		at := noon.Add(time.Duration(i%4) * time.Second)
		for j := range calls {
			s.add(dayLadder, "k", at, 5)
			if j%2 == 0 {
				s.add(dayLadder, "k", at, -5)
			}
		}
	})
	const all = callers * calls / 2 * 5
	s.expect(dayLadder, "k", noon, noon, all/4, all, all)
}

// orderedReads lets pairs of callers race: each adds to a minute and reads the
// minute of the other. If either has read after its addition, the later of the two
// readers finds the other's hit.
func orderedReads(s *subject) {
	const pairs = 8
	for round := range min(50, 200/s.thrift) {
		ops := make([]*backend.Request, 2*pairs)
		for i := range ops {
			// The minutes of a pair are adjacent.
			own := noon.Add(time.Duration(round*2*pairs+i) * time.Minute)
			other := own.Add(time.Duration(1-i%2*2) * time.Minute)
			ops[i] = &backend.Request{Key: s.key("k"), Ladder: dayLadder, Now: noon, Deadline: time.Now().Add(enough), N: 1,
				Add: chain(dayLadder, own, 0), Read: []backend.Span{span(time.Minute, other.Unix()/60, 1)}, Ordered: true}
		}
		together(len(ops), func(i int) { must(s.Do(context.Background(), ops[i])) })
		for i := range ops {
			x, y := ops[i&^1], ops[i|1]
			if x.Ordered && y.Ordered && x.Read[0].Counts[0] == 0 && y.Read[0].Counts[0] == 0 {
				failf("two callers, each of which added and then read the bucket of the other, have both read 0")
			}
		}
	}
}

func manyKeys(s *subject) {
	callers, calls := 32, min(40, 160/s.thrift)
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
			row := span(time.Minute, noon.Unix()/60-int64(i), 1+2*i)
			s.read(dayLadder, own, at, row)
			if read := row.Counts[i]; read != sum {
				failf("%s, which nobody else adds to: the minute was read as %d, want %d", own, read, sum)
			}
			s.add(dayLadder, "shared", at, 1)
		}
	})
	s.expect(dayLadder, "shared", noon, noon, int64(callers*min(10, calls)), int64(callers*calls), int64(callers*calls))
}
