package backendtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

var basics = []check{
	{
		name: "missing reads as zero",
		rule: "Span.Counts: filled in, every one; a bucket that is missing is 0",
		run:  missingIsZero,
	},
	{
		name: "counts are those after the addition",
		rule: "Slot.Count: filled in, zeroed first: what the bucket holds after the addition",
		run:  countsAfter,
	},
	{
		name: "slots are answered in their places",
		rule: "Slot.Count belongs to its Slot, in whatever order they are given",
		run:  slotsInPlace,
	},
	{
		name: "spans are answered in their places",
		rule: "Span.Counts[i] is bucket First+i, of spans of any number, order and length, which may overlap",
		run:  spansInPlace,
	},
	{
		name: "an op adds and reads",
		rule: "additions and reads may happen in any order, each bucket by itself; with Ordered the reads came last",
		run:  addAndRead,
	},
	{
		name: "coarse buckets are sums",
		rule: "who adds to a bucket of one tier adds as much to those of all tiers that hold the same instant",
		run:  coarseIsSum,
	},
	{
		name: "taking back stops at zero",
		rule: "Op.N below zero takes back: a bucket stops at 0, and one that is not there stays away",
		run:  stopsAtZero,
	},
	{
		name: "taking back tier by tier",
		rule: "what is taken back may be named in some tiers only; it must be gone when all tiers were named",
		run:  tierByTier,
	},
}

func missingIsZero(s *subject) {
	for k, l := range []tiers.Ladder{dayLadder, manyKeeps, fineLadder} {
		hits := tally{}
		s.addTo(hits, l, fmt.Sprint("hit", k), noon, 3)
		for _, t := range l.Tiers() {
			first := tiers.Index(noon.UnixNano(), t.Width) - 30
			s.readsAs(nil, l, fmt.Sprint("never", k), noon, span(t.Width, first, 61))
			s.readsAs(hits, l, fmt.Sprint("hit", k), noon, span(t.Width, first, 61))
		}
	}
}

func countsAfter(s *subject) {
	counts, at := tally{}, noon
	for _, n := range []int64{1, 1, 2, 1000, 5} {
		for range 3 {
			s.addTo(counts, dayLadder, "k", at, n)
			at = at.Add(400 * time.Millisecond)
		}
	}
	// Taking back answers in the same way.
	for _, n := range []int64{-2, -3} {
		s.addTo(counts, dayLadder, "k", noon.Add(9*400*time.Millisecond), n)
	}
}

func slotsInPlace(s *subject) {
	// 5 in this second, 7 in this minute before it, 11 in this hour before that.
	for _, hit := range []struct {
		at time.Time
		n  int64
	}{{noon, 5}, {noon.Add(-10 * time.Second), 7}, {noon.Add(-10 * time.Minute), 11}} {
		s.add(dayLadder, "k", hit.at, hit.n)
	}
	want := map[time.Duration]int64{time.Second: 5, time.Minute: 12, time.Hour: 23}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}} {
		slots := chain(dayLadder, noon, 0)
		op := &backend.Request{Key: s.key("k"), Ladder: dayLadder, Now: noon, N: 1}
		for _, i := range order {
			op.Add = append(op.Add, slots[i])
		}
		given := slices.Clone(op.Add)
		must(s.do(op))
		for i, slot := range op.Add {
			if want[slot.Width]++; slot.Count != want[slot.Width] {
				failf("slots in the order %v: %s counts %d, want %d", order, slot.Bucket, slot.Count, want[slot.Width])
			}
			if slot.Bucket != given[i].Bucket || slot.TTL != given[i].TTL {
				failf("slots in the order %v: slot %d was %v, and is %v", order, i, given[i].Bucket, slot.Bucket)
			}
		}
	}
}

func spansInPlace(s *subject) {
	counts := tally{}
	for i := range 200 {
		s.addTo(counts, dayLadder, "k", noon.Add(-time.Duration(i*i)*700*time.Millisecond), int64(1+i))
	}
	for range 60 {
		op := &backend.Request{Key: s.key("k"), Ladder: dayLadder, Now: noon}
		for range 1 + s.rand.IntN(12) {
			w := dayLadder.At(s.rand.IntN(3)).Width
			n := []int{1, 2, 10, 60, 300}[s.rand.IntN(5)]
			back := s.rand.Int64N(int64(9*time.Hour)/int64(w) + 1)
			op.Read = append(op.Read, span(w, tiers.Index(noon.UnixNano(), w)-back, n))
		}
		if s.rand.IntN(2) == 0 {
			again := op.Read[0]
			again.Counts = slices.Clone(again.Counts)
			op.Read = append(op.Read, again)
		}
		given := slices.Clone(op.Read)
		must(s.do(op))
		for i, r := range op.Read {
			if r.Width != given[i].Width || r.First != given[i].First || len(r.Counts) != len(given[i].Counts) {
				failf("span %d of %d is another than it was", i, len(op.Read))
			}
		}
		counts.spans("spans of any order and length", given)
	}
}

func addAndRead(s *subject) {
	for i, n := range []int64{4, 3, -2, 6, -5} {
		before := s.get(dayLadder, "k", noon, noon)
		op := &backend.Request{Key: s.key("k"), Ladder: dayLadder, Now: noon, N: n, Add: chain(dayLadder, noon, 0)}
		for j := range 3 {
			b := op.Add[j].Bucket
			op.Read = append(op.Read, span(b.Width, b.Index-20, 41))
		}
		must(s.do(op))
		for j, slot := range op.Add {
			if slot.Count != before[j]+n {
				failf("step %d: %s counts %d, want %d", i, slot.Bucket, slot.Count, before[j]+n)
			}
			for k, got := range op.Read[j].Counts {
				switch {
				case k != 20 && got != 0:
					failf("step %d: %d was read where nothing is", i, got)
				case k == 20 && got != before[j] && got != slot.Count:
					failf("step %d: %s was read as %d, want %d or %d", i, slot.Bucket, got, before[j], slot.Count)
				case k == 20 && got != slot.Count && op.Ordered:
					failf("step %d: %s was read as %d, before the addition, want %d: the store says Ordered", i, slot.Bucket, got, slot.Count)
				}
			}
		}
	}
	s.expect(dayLadder, "k", noon, noon, 6)
}

func coarseIsSum(s *subject) {
	for _, l := range []tiers.Ladder{dayLadder, fineLadder} {
		key, counts := l.String()[:2], tally{}
		for range 300 {
			s.addTo(counts, l, key, noon.Add(-time.Duration(s.rand.Int64N(int64(90*time.Minute)))), 1+s.rand.Int64N(5))
		}
		for _, t := range l.Tiers() {
			n := int(2*time.Hour/t.Width) + 1
			s.readsAs(counts, l, key, noon, span(t.Width, tiers.Index(noon.UnixNano(), t.Width)-int64(n)+1, n))
		}
	}
}

func stopsAtZero(s *subject) {
	for key, ns := range map[string][]int64{
		"fresh":   {-5, -1, -backend.MaxCount, 2},
		"hit":     {3, -5, -1, -backend.MaxCount, 2},
		"emptied": {3, -3, -1, 2},
	} {
		counts := tally{}
		for _, n := range ns {
			s.addTo(counts, dayLadder, key, noon, n)
			s.readsAs(counts, dayLadder, key, noon, holding(dayLadder, noon)...)
		}
	}
}

func tierByTier(s *subject) {
	for _, order := range [][]int{{2, 1, 0}, {0, 1, 2}, {1, 0, 2}} {
		for _, n := range []int64{-5, -backend.MaxCount} {
			key := fmt.Sprintf("%d-%d-%d", order[0], order[1], n)
			for i := range 3 {
				s.add(dayLadder, key, noon.Add(time.Duration(i)*time.Hour), 5)
			}
			for _, i := range order {
				op := &backend.Request{Key: s.key(key), Ladder: dayLadder, Now: noon, N: n, Add: chain(dayLadder, noon, 0)[i : i+1]}
				must(s.do(op))
			}
			during(func() { s.expect(dayLadder, key, noon, noon, 0) }, "taken back from tiers %v", order)
			during(func() { s.expect(dayLadder, key, noon.Add(time.Hour), noon.Add(time.Hour), 5) }, "an hour later than what was taken back")
		}
	}
}
