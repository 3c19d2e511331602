package backendtest

import (
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

func missingIsZero(s *subject) {
	for k, l := range []tiers.Ladder{dayLadder, manyKeeps, fineLadder} {
		s.add(l, fmt.Sprint("hit", k), noon, 3)
		for _, t := range l.Tiers() {
			first := tiers.Index(noon.UnixNano(), t.Width) - 30
			s.read(l, fmt.Sprint("never", k), noon, span(t.Width, first, 61))
			s.read(l, fmt.Sprint("hit", k), noon, span(t.Width, first, 61))
		}
	}
}

func countsAfter(s *subject) {
	at := noon
	for _, n := range []int64{1, 1, 2, 1000, 5} {
		for range 3 {
			s.add(dayLadder, "k", at, n)
			at = at.Add(400 * time.Millisecond)
		}
	}
	// Taking back answers in the same way.
	for _, n := range []int64{-2, -3} {
		s.add(dayLadder, "k", noon.Add(9*400*time.Millisecond), n)
	}
}

func slotsInPlace(s *subject) {
	// 5 in this second, 7 in this minute before it, 11 in this hour before that.
	s.add(dayLadder, "k", noon, 5)
	s.add(dayLadder, "k", noon.Add(-10*time.Second), 7)
	s.add(dayLadder, "k", noon.Add(-10*time.Minute), 11)
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}} {
		op := s.request(dayLadder, "k", noon, 1)
		for i, from := range order {
			op.Add[i] = chain(dayLadder, noon, 0)[from]
		}
		mustf(s.do(op), "slots in the order %v", order)
	}
}

func spansInPlace(s *subject) {
	for i := range 200 {
		s.add(dayLadder, "k", noon.Add(-time.Duration(i*i)*700*time.Millisecond), int64(1+i))
	}
	for range 60 {
		var spans []backend.Span
		for range 1 + s.rand.IntN(12) {
			w := dayLadder.At(s.rand.IntN(3)).Width
			n := []int{1, 2, 10, 60, 300}[s.rand.IntN(5)]
			back := s.rand.Int64N(int64(9*time.Hour)/int64(w) + 1)
			spans = append(spans, span(w, tiers.Index(noon.UnixNano(), w)-back, n))
		}
		if s.rand.IntN(2) == 0 {
			again := spans[0]
			spans = append(spans, span(again.Width, again.First, len(again.Counts)))
		}
		s.read(dayLadder, "k", noon, spans...)
	}
}

func addAndRead(s *subject) {
	var sum int64
	for i, n := range []int64{4, 3, -2, 6, -5} {
		op := s.request(dayLadder, "k", noon, n)
		for _, slot := range op.Add {
			op.Read = append(op.Read, span(slot.Width, slot.Index-20, 41))
		}
		must(s.do(op))
		before := sum
		sum += n
		same(fmt.Sprintf("slots of step %d", i), countsOf(op.Add), []int64{sum})
		for _, r := range op.Read {
			got := r.Counts[20]
			if got != sum && (got != before || op.Ordered) {
				failf("step %d: %d was read by buckets of %s, want %d, and before the addition %d; Ordered is %v", i, got, r.Width, sum, before, op.Ordered)
			}
			r.Counts[20] = 0
			same(fmt.Sprintf("around step %d", i), r.Counts, []int64{0})
		}
	}
	s.expect(dayLadder, "k", noon, noon, sum)
}

func stopsAtZero(s *subject) {
	for key, ns := range map[string][]int64{
		"fresh":   {-5, -1, -backend.MaxCount, 2},
		"hit":     {3, -5, -1, -backend.MaxCount, 2},
		"emptied": {3, -3, -1, 2},
	} {
		for _, n := range ns {
			s.add(dayLadder, key, noon, n)
			s.get(dayLadder, key, noon, noon)
		}
	}
}

// tierByTier compares at the end alone: of a bucket that is made up of others, the
// counts may lag behind until then.
func tierByTier(s *subject) {
	for _, order := range [][]int{{2, 1, 0}, {0, 1, 2}, {1, 0, 2}} {
		for _, n := range []int64{-5, -backend.MaxCount} {
			key := fmt.Sprintf("%d-%d-%d", order[0], order[1], n)
			for i := range time.Duration(3) {
				s.add(dayLadder, key, noon.Add(i*time.Hour), 5)
			}
			for _, i := range order {
				op := s.request(dayLadder, key, noon, n)
				op.Add = op.Add[i : i+1]
				must(s.do(op))
			}
			during(func() { s.expect(dayLadder, key, noon, noon, 0) }, "taken back from tiers %v", order)
			during(func() { s.expect(dayLadder, key, noon.Add(time.Hour), noon.Add(time.Hour), 5) }, "an hour later than what was taken back")
		}
	}
}
